"""English questions and tenses against the parses of the sentences."""

import random

import pytest

from ndstack.errors import LanguageError
from ndstack.grammars import PCFG, parses
from ndstack.transductions import EnglishTransduction, english, get


def the_parse(rules, words):
    """The only parse of a sentence."""
    (found,) = parses(PCFG.fromstring("\n".join(rules)), words)
    return found


def question_of(words):
    """Move the auxiliary of the main clause, which is the first leaf of the VP below S."""
    for modified in (False, True):
        try:
            tree = the_parse(english._question_rules(modified), words)
        except ValueError:
            continue
        before = [leaf for child in tree[:-2] for leaf in child.leaves()]
        auxiliary, *rest = tree[-2].leaves()
        return (auxiliary, *before, *rest, "?")
    raise AssertionError(words)


def test_questions_move_the_auxiliary_of_the_main_clause():
    task, rng = get("question-formation"), random.Random(0)
    kinds = set()
    for source in (task, task.generalization):
        for length in source.lengths(1, 30):
            words, answer = source.sample(length, rng)
            assert len(words) == length
            kinds.add((source is task, words[-1]))
            expected = question_of(words[:-1]) if words[-1] == "quest" else words[:-1]
            assert answer == expected
    assert kinds == {(True, "quest"), (True, "decl"), (False, "quest")}


def test_verbs_agree_with_the_head_of_the_subject():
    task, rng = get("tense-reinflection"), random.Random(1)
    for source in (task, task.generalization):
        for length in source.lengths(1, 30):
            words, answer = source.sample(length, rng)
            changed = [(old, new) for old, new in zip(words, answer, strict=False) if old != new]
            assert bool(changed) == (words[-1] == "present")
            tree = next(
                parse
                for modified in (False, True)
                for parse in parses(PCFG.fromstring("\n".join(english._tense_rules(modified))), words[:-1])
            )
            plural = tree[0][0][0].label() == "NPp"
            assert all(new == english.VERBS[old][plural] for old, new in changed)


@pytest.mark.parametrize("name", ["question-formation", "tense-reinflection"])
def test_the_training_set_does_not_tell_the_rules_apart_and_the_other_set_does(name):
    task, rng = get(name), random.Random(2)
    assert isinstance(task, EnglishTransduction)
    for length in task.lengths(1, 30):
        for _ in range(10):
            pair = task.sample(length, rng)
            assert task.apply_linear(pair.source) == pair.target
    other = task.generalization
    assert isinstance(other, EnglishTransduction)
    for length in other.lengths(1, 30):
        for _ in range(10):
            source, target = other.sample(length, rng)
            rival = other.apply_linear(source)
            assert rival != target
            assert [other.judge(source, output) for output in (target, rival, (), ("dog",) * 40)] == [
                "hierarchical",
                "linear",
                "other",
                "other",
            ]


def test_both_tasks_ask_for_copies_of_all_kinds_of_sentences():
    task, rng = get("question-formation"), random.Random(3)
    copied = [pair for _ in range(200) if (pair := task.sample(13, rng)).source[-1] == "decl"]
    assert 60 < len(copied) < 140
    first = [
        words.index("that") < min(map(words.index, {*words} & {"do", "does", "don't", "doesn't"}))
        if "that" in words
        else False
        for words, _ in copied
    ]
    assert 10 < sum(first) < len(copied) - 10


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("question-formation", "my dog does sleep . decl decl"),
        ("question-formation", "my dog . sleep cat quest"),
        ("question-formation", "my dog that does sleep . quest"),
        ("tense-reinflection", "the old saw the my . present"),
    ],
)
def test_strings_that_are_no_sentences(name, wrong):
    with pytest.raises(LanguageError, match="is not an input, expected"):
        get(name).apply(tuple(wrong.split()))

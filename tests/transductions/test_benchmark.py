"""The fifteen tasks against definitions by other means."""

import itertools
import math
import random
import re

import numpy as np
import pytest

from ndstack import transductions
from ndstack.errors import LanguageError
from ndstack.transductions import TASKS, get
from ndstack.transductions.arithmetic import evaluate


def letters(least, most):
    for length in range(least, most + 1):
        yield from map("".join, itertools.product("ab", repeat=length))


def by_peeling(word):
    """Whether a word of a and b has as many ab as ba, counted by removal."""
    return (word.count("ab") + word.count("ba")) % 2 == 0


ON_LETTERS = {
    "even-pairs": lambda w: str(int(by_peeling(w))),
    "parity-check": lambda w: str(int(w.replace("a", "") == "bb" * (len(w.replace("a", "")) // 2))),
    "reverse-string": lambda w: "".join(w[-i - 1] for i in range(len(w))),
    "duplicate-string": lambda w: "".join(w[i % len(w)] for i in range(2 * len(w))),
    "odds-first": lambda w: "".join(w[i] for i in sorted(range(len(w)), key=lambda i: (i % 2, i))),
}


@pytest.mark.parametrize("name", ON_LETTERS)
def test_tasks_on_letters_for_all_short_strings(name):
    task = get(name)
    for word in letters(1, 8):
        assert task.apply(word) == ON_LETTERS[name](word)


def test_bits():
    addition, multiplication, root = map(get, ("binary-addition", "binary-multiplication", "compute-sqrt"))
    for a, b in itertools.product(range(20), repeat=2):
        left, right = (bin(number)[2:].zfill(6)[::-1] for number in (a, b))
        assert int(addition.apply(f"{left}+{right}")[::-1], 2) == a + b
        assert int(multiplication.apply(f"{left}*{right}")[::-1], 2) == a * b
    for number in range(300):
        word = bin(number)[2:]
        found = root.apply(word)
        assert len(found) == math.ceil(len(word) / 2)
        assert max(r for r in range(20) if r * r <= number) == int(found, 2)


def test_results_of_operations_have_no_superfluous_zeros():
    addition = get("binary-addition")
    assert addition.apply("001+01101") == "01011"  # 4 + 22 = 26
    assert addition.apply("00+0") == "0"


def test_cycle_navigation_walks():
    task, rng = get("cycle-navigation"), random.Random(0)
    for length in range(1, 30):
        moves, answer = task.sample(length, rng)
        circle = list("01234")
        for move in moves:
            shift = {"stay": 0, "up": 1, "down": 4}[move]
            circle = circle[shift:] + circle[:shift]
        assert answer == circle[0]


def test_stack_manipulation_by_rewriting():
    task, rng = get("stack-manipulation"), random.Random(1)
    for length in range(1, 40):
        source, target = task.sample(length, rng)
        text = "".join({"push-a": "a", "push-b": "b", "pop": "<"}.get(s, s) for s in source)
        while "<" in text:  # a pop removes the letter before it, if there is one
            place = text.index("<")
            text = text[: max(place - 1, 0)] + text[place + 1 :]
        assert target == text[::-1]
    assert task.apply(("a", "b", "b", "a", "a", "pop", "push-a", "pop")) == "abba"


def test_bucket_sort_counts():
    source, target = get("bucket-sort").sample(200, random.Random(2))
    assert target == "".join(digit * source.count(digit) for digit in "01234")


def test_missing_duplicate_is_the_only_completion():
    task = get("missing-duplicate")
    for word, place in itertools.product(letters(1, 4), range(8)):
        twice = word + word
        if place < len(twice):
            given = twice[:place] + "_" + twice[place + 1 :]
            found = [s for s in "ab" if (full := given.replace("_", s))[: len(word)] == full[len(word) :]]
            assert [task.apply(given)] == found


@pytest.mark.parametrize("name", ["modular-arithmetic", "modular-arithmetic-brackets"])
def test_values_are_those_of_python(name):
    task, rng = get(name), random.Random(3)
    for length in task.lengths(1, 60):
        source, target = task.sample(length, rng)
        assert int(target) == eval(source) % 5
        assert set(source) <= set(task.source)


def test_expressions_of_all_kinds_occur_and_wrong_ones_do_not():
    task, rng = get("modular-arithmetic-brackets"), random.Random(4)
    drawn = {task.sample(3, rng).source for _ in range(4000)}
    words = list(map("".join, itertools.product("01234+-*()", repeat=3)))
    right = {word for word in words if re.fullmatch(r"\d[-+*]\d|\(\d\)", word)}
    assert drawn == right
    for word in words:
        if word in right:
            assert task.apply(word) == str(eval(word) % 5)
        else:
            with pytest.raises(LanguageError, match="expected an arithmetic expression"):
                task.apply(word)


@pytest.mark.parametrize("text", ["", "-", "()", "1+", "+1", "1)(2", "(1", "1 2", "12", "1--2", "2(1)"])
def test_no_expressions(text):
    with pytest.raises(LanguageError):
        evaluate(tuple(text))


def test_equations_have_one_solution():
    task, rng = get("solve-equation"), random.Random(5)
    answers = set()
    for length in range(3, 60):
        source, target = task.sample(length, rng)
        assert len(source) == length
        left, right = source.split("=")
        solutions = [x for x in range(5) if eval(left, {"x": x}) % 5 == int(right)]
        assert solutions == [int(target)]
        answers.add(target)
    assert answers == set("01234")
    for wrong in ("x*0=0", "x+x=2", "1+2=3", "x=x", "=1x"):
        with pytest.raises(LanguageError):
            task.apply(wrong)


@pytest.mark.parametrize("name", TASKS)
def test_samples_have_their_length_and_their_alphabets_and_depend_on_the_seed(name):
    task = get(name)
    for length in [*task.lengths(1, 12), *task.lengths(100, 101)]:
        pair = task.sample(length, np.random.default_rng(length))
        assert len(pair.source) == length
        assert set(pair.source) <= set(task.source)
        assert set(pair.target) <= set(task.target)
        assert task.apply(pair.source) == pair.target
        assert pair == get(name).sample(length, np.random.default_rng(length))


def test_errors_in_one_line():
    with pytest.raises(LanguageError, match="did you mean reverse-string"):
        get("reverse-strings")
    with pytest.raises(LanguageError, match="there are even-pairs"):
        get("zzz")
    with pytest.raises(LanguageError, match="has no strings of length 4"):
        get("modular-arithmetic").sample(4, random.Random(0))
    with pytest.raises(LanguageError, match="'c' is not a symbol of reverse-string"):
        get("reverse-string").apply("abc")
    with pytest.raises(LanguageError, match="no strings of length 3"):
        get("missing-duplicate").apply("a_a")
    for name, wrong in {
        "modular-arithmetic": "1+*",
        "missing-duplicate": "ab_a",
        "binary-addition": "1++1",
        "stack-manipulation": ("pop", "a"),
    }.items():
        with pytest.raises(LanguageError, match="is not an input, expected"):
            get(name).apply(wrong)


def test_score_is_the_mean_over_lengths():
    pairs = [transductions.Pair("a", "a"), transductions.Pair("a", "b"), transductions.Pair("abcd", "dcba")]
    given = ["a", "a", "dcb"]
    ended = [True, True, False]
    found = [
        transductions.agree(pair.target, output, ended=end)
        for pair, output, end in zip(pairs, given, ended, strict=True)
    ]
    lengths = transductions.by_length(pairs, found)
    assert {length: one.accuracy for length, one in lengths.items()} == {1: 0.5, 4: 0.75}
    assert transductions.score(lengths) == 0.625
    assert [one.whole for one in found] == [1, 0, 0]


@pytest.mark.parametrize(
    "expected, given, ended, right, whole",
    [("ab", "ab", True, 3, 1), ("ab", "ab", False, 2, 0), ("ab", "abb", True, 2, 0), ("", "", True, 1, 1)],
)
def test_the_end_may_count(expected, given, ended, right, whole):
    found = transductions.agree(expected, given, ended=ended, end=True)
    assert (found.right, found.symbols, found.whole) == (right, len(expected) + 1, whole)

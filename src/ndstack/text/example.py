"""A small English-like text, sampled from a grammar, with test suites and minimal pairs that fit it.

Subjects agree in number with their verbs across prepositional phrases and relative clauses. The text
therefore shows whether a model has learned more than dependencies between neighbouring words.
"""

import json
from pathlib import Path

import numpy as np

from ndstack import files
from ndstack.languages import from_grammar

SINGULAR = ("author", "farmer", "pilot", "surgeon", "teacher")
TRANSITIVE = ("admire", "avoid", "help", "see")
INTRANSITIVE = ("laugh", "sleep", "smile", "wait")

_RULES = """
S -> NPs VPs [0.5] | NPp VPp [0.5]
NPs -> 'the' Ns [0.6] | 'the' Ns PP [0.2] | 'the' Ns RCs [0.2]
NPp -> 'the' Np [0.6] | 'the' Np PP [0.2] | 'the' Np RCp [0.2]
PP -> 'near' NPs [0.3] | 'near' NPp [0.3] | 'behind' NPs [0.2] | 'behind' NPp [0.2]
RCs -> 'that' VPs [0.5] | 'that' NPs Ts [0.25] | 'that' NPp Tp [0.25]
RCp -> 'that' VPp [0.5] | 'that' NPs Ts [0.25] | 'that' NPp Tp [0.25]
VPs -> Is [0.4] | Ts NPs [0.3] | Ts NPp [0.3]
VPp -> Ip [0.4] | Tp NPs [0.3] | Tp NPp [0.3]
"""

LENGTHS = (3, 20)


def example_grammar() -> str:
    """Return the grammar of the example in NLTK's notation."""
    lexicon = {
        "Ns": SINGULAR,
        "Np": [f"{noun}s" for noun in SINGULAR],
        "Ts": [f"{verb}s" for verb in TRANSITIVE],
        "Tp": TRANSITIVE,
        "Is": [f"{verb}s" for verb in INTRANSITIVE],
        "Ip": INTRANSITIVE,
    }
    lines = [
        f"{left} -> " + " | ".join(f"'{word}' [{1 / len(words)}]" for word in words)
        for left, words in lexicon.items()
    ]
    return _RULES.strip() + "\n" + "\n".join(lines) + "\n"


def write_example(folder: str | Path, sentences: int = 3000, seed: int = 0) -> None:
    """Write train.txt, valid.txt, test.txt, suites/ and pairs.jsonl, completely or not at all.

    Args:
        folder: a new or empty folder.
        sentences: the number of training sentences; the other parts have a tenth as many each.
        seed: the seed; the same seed gives the same text.
    """
    with files.new_folder(Path(folder), "the text") as draft:
        _write(draft, sentences, seed)


def _write(folder: Path, sentences: int, seed: int) -> None:
    language = from_grammar(example_grammar(), name="example")
    lengths = language.lengths(*LENGTHS)
    (folder / "suites").mkdir()
    sizes = {"train": sentences, "valid": sentences // 10, "test": sentences // 10}
    for stream, (part, count) in enumerate(sizes.items()):
        rng = np.random.default_rng([seed, stream])
        lines = [" ".join(language.sample(int(rng.choice(lengths)), rng)) for _ in range(max(1, count))]
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, circuit, middle in (
        ("agreement-near", "Agreement", ["near", "the", "{other}"]),
        ("agreement-that-helps", "Agreement", ["that", "{help}", "the", "{other}"]),
        ("embedded-clause", "Center Embedding", ["that", "the", "{other}", "{see}"]),
    ):
        suite = _suite(name, circuit, middle)
        (folder / "suites" / f"{name}.json").write_text(json.dumps(suite, indent=1) + "\n", encoding="utf-8")
    pairs = "".join(json.dumps(pair) + "\n" for pair in _pairs())
    (folder / "pairs.jsonl").write_text(pairs, encoding="utf-8")


def _suite(name: str, circuit: str, middle: list[str]) -> dict[str, object]:
    """Return a suite of four conditions: singular and plural subjects, verbs that match and that do not."""
    items = []
    for number, noun in enumerate(SINGULAR, 1):
        other, verb = SINGULAR[number % len(SINGULAR)], INTRANSITIVE[number % len(INTRANSITIVE)]
        conditions = []
        for plural in (False, True):
            words = {"other": other, "help": "help", "see": "sees"}
            if not plural:
                words = {"other": f"{other}s", "help": "helps", "see": "see"}
            between = " ".join(middle).format(**words)
            for match in (True, False):
                condition = f"{'match' if match else 'mismatch'}_{'plural' if plural else 'sing'}"
                last = verb if plural == match else f"{verb}s"
                contents = enumerate(("the", f"{noun}s" if plural else noun, between, last), 1)
                regions = [{"region_number": place, "content": content} for place, content in contents]
                conditions.append({"condition_name": condition, "regions": regions})
        items.append({"item_number": number, "conditions": conditions})
    formula = "[(4;%match_sing%) < (4;%mismatch_sing%)] & [(4;%match_plural%) < (4;%mismatch_plural%)]"
    return {
        "meta": {"name": name, "metric": "sum", "circuit": circuit},
        "region_meta": {"1": "the", "2": "subject", "3": "between", "4": "verb"},
        "predictions": [{"type": "formula", "formula": formula}],
        "items": items,
    }


def _pairs() -> list[dict[str, str]]:
    """Return pairs in which the verb agrees with its subject in the first sentence and not in the second."""
    return [
        {
            "sentence_good": f"the {noun} near the {other}s {verb}s",
            "sentence_bad": f"the {noun} near the {other}s {verb}",
            "UID": "agreement_across_phrase",
            "linguistics_term": "subject_verb_agreement",
        }
        for noun in SINGULAR
        for other in SINGULAR
        if noun != other
        for verb in INTRANSITIVE
    ]

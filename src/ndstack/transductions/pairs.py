"""Data sets of pairs of strings: sampled from a transduction and a seed, or read from tab-separated files.

Sampled pairs come in batches whose inputs have one length, drawn uniformly from the lengths of a range that
inputs can have. The test set has the same number of pairs for every length and depends on the transduction
alone. A folder holds one pair per line in `train.tsv`, `validation.tsv` and, if there are such sets,
`test.tsv` and `generalization.tsv`; a tab separates the input from the output.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ndstack import files
from ndstack.errors import DatasetError
from ndstack.languages.datasets import draw_batches
from ndstack.progress import Advance, no_progress
from ndstack.settings.data import Lengths, Plan
from ndstack.transductions.transduction import Pair, Transduction

Units = Literal["words", "characters"]
SPLITS = ("train", "validation", "test", "generalization")
SYMBOLS = "symbols.json"
"""The alphabets of both sides, if they are not simply those of the training pairs."""


@dataclass(frozen=True)
class PairData:
    """The pairs of a data set, and the alphabets of both sides."""

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    train: tuple[Pair, ...] = ()
    validation: tuple[Pair, ...] = ()
    test: tuple[Pair, ...] = ()
    generalization: tuple[Pair, ...] = ()
    scores_end: bool = True
    """Whether the end of outputs counts in scores."""


def make_pairs(
    transduction: Transduction, seed: int, plan: Plan | None = None, *, progress: Advance = no_progress
) -> PairData:
    """Draw a data set; the same transduction, seed and plan always give the same pairs.

    Args:
        transduction: the transduction to sample from.
        seed: the seed of the training and validation pairs.
        plan: the numbers of pairs and the lengths of inputs. If there are no inputs of the test lengths, the
            training lengths take their place.
        progress: a function that is called with the number of pairs drawn since the last call.
    """
    plan = plan or Plan()
    if seed < 0:
        raise DatasetError(f"seed {seed} given, expected 0 or more")

    def batches(count: int, stream: int) -> Iterator[Pair]:
        lengths = _non_empty(transduction, plan.lengths) if count else []
        rng = np.random.default_rng([seed, stream])
        return draw_batches(transduction.sample, lengths, count, plan.batch_size, rng, progress)

    def by_length(source: Transduction) -> Iterator[Pair]:
        rng = np.random.default_rng(list(hashlib.sha256(source.name.encode()).digest()[:16]))
        lengths = source.lengths(*plan.test_lengths) or source.lengths(*plan.lengths)
        for length in lengths[:: plan.test_step] if plan.test_per_length else []:
            yield from (source.sample(length, rng) for _ in range(plan.test_per_length))
            progress(plan.test_per_length)

    general = transduction.generalization
    return PairData(
        transduction.name,
        transduction.source,
        transduction.target,
        tuple(batches(plan.train, 0)),
        tuple(batches(plan.validation, 1)),
        tuple(by_length(transduction)),
        () if general is None else tuple(by_length(general)),
        transduction.scores_end,
    )


def write_pairs(data: PairData, folder: Path) -> None:
    """Write a data set into a new or empty folder, completely or not at all."""
    with files.new_folder(folder, "the pairs") as draft:
        for split in SPLITS:
            pairs: Sequence[Pair] = getattr(data, split)
            if pairs:
                (draft / f"{split}.tsv").write_text(
                    "".join(f"{show(pair.source)}\t{show(pair.target)}\n" for pair in pairs), encoding="utf-8"
                )


def read_pairs(folder: Path, units: Units = "words") -> PairData:
    """Read a data set.

    The alphabets are those in `symbols.json`; without it, the symbols of the training pairs, the most
    frequent first.

    Args:
        folder: a folder with `train.tsv` and `validation.tsv`, and others of `SPLITS`.
        units: whether symbols are words separated by spaces, or single characters.
    """
    splits = {split: tuple(_read_split(folder / f"{split}.tsv", units)) for split in SPLITS}
    for split in ("train", "validation"):
        if not splits[split]:
            raise DatasetError(
                f"{folder / split}.tsv has no pairs, expected a line per pair with a tab in it"
            )
    alphabets = _read_alphabets(folder / SYMBOLS)
    if alphabets is None:
        alphabets = [_alphabet(pair[side] for pair in splits["train"]) for side in (0, 1)]
    for split, pairs in splits.items():
        for number, pair in enumerate(pairs, 1):
            for some, alphabet in zip(pair, alphabets, strict=True):
                unknown = next((symbol for symbol in some if symbol not in alphabet), None)
                if unknown is not None:
                    single = units == "words" and all(
                        len(part) <= 1 for one in splits["train"] for part in one
                    )
                    raise DatasetError(
                        f"{folder / split}.tsv, line {number}: {unknown!r} does not occur in the training "
                        "pairs, so no model can know it; "
                        + (
                            "--set pairs.units=characters makes every character a symbol"
                            if single
                            else "`ndstack text prepare-pairs` replaces such words"
                        )
                    )
    source, target = map(tuple, alphabets)
    train, validation, test, general = (splits[split] for split in SPLITS)
    return PairData(folder.name, source, target, train, validation, test, general)


def pair_checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file of pairs in a folder."""
    paths = {split: folder / f"{split}.tsv" for split in SPLITS} | {"symbols": folder / SYMBOLS}
    found = {split: path.read_bytes() for split, path in paths.items() if path.is_file()}
    if "train" not in found:
        raise DatasetError(f"{folder} has no train.tsv; expected a folder with train.tsv and validation.tsv")
    return {split: hashlib.sha256(content).hexdigest() for split, content in found.items()}


def show(some: str | tuple[str, ...]) -> str:
    """Return a string as it is written to files: tuples of symbols with spaces between them."""
    return some if isinstance(some, str) else " ".join(some)


def _read_split(path: Path, units: Units) -> Iterator[Pair]:
    if not path.is_file():
        return
    for number, line in enumerate(files.read_text(path, DatasetError).splitlines(), 1):
        parts = line.split("\t")
        if len(parts) != 2:
            raise DatasetError(
                f"{path}, line {number} has {len(parts) - 1} tabs, expected one between input and output"
            )
        yield Pair(*(part if units == "characters" else tuple(part.split()) for part in parts))


def _read_alphabets(path: Path) -> list[dict[str, int]] | None:
    if not path.is_file():
        return None
    found = files.read_json_as(path, dict[str, list[str]], "the symbols of pairs")
    if found.keys() != {"source", "target"}:
        raise DatasetError(f"{path} has {', '.join(found) or 'nothing'}, expected source and target")
    return [dict.fromkeys(found[side], 0) for side in ("source", "target")]


def _alphabet(words: Iterable[str | tuple[str, ...]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for symbols in words:
        for symbol in symbols:
            counts[symbol] = counts.get(symbol, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _non_empty(transduction: Transduction, lengths: Lengths) -> list[int]:
    found = transduction.lengths(*lengths)
    if not found:
        raise DatasetError(f"{transduction.name} has no inputs of lengths {lengths[0]}..{lengths[1]}")
    return found

"""Data sets as in section 5.4: made from a seed, stored in a folder, checked when they are read.

Training and validation strings come in batches of one length each, drawn uniformly from the non-empty lengths
of a range. The test set has the same number of strings for every length and depends on the language alone. A
folder holds `header.json`, and one string per line in `train.txt`, `validation.txt` and `test.txt`.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from ndstack import files, register
from ndstack.errors import DatasetError, LanguageError, NdstackError
from ndstack.grammars.grammar import WeightedCFG, Word
from ndstack.grammars.graphs import grouped
from ndstack.languages.context_free import ContextFreeLanguage
from ndstack.languages.language import Language
from ndstack.languages.registry import get
from ndstack.progress import Advance, no_progress
from ndstack.settings.data import Lengths, Plan

Drawn = TypeVar("Drawn")

SPLITS = ("train", "validation", "test")
HEADER = "header.json"


class DatasetHeader(BaseModel):
    """The content of `header.json`: enough to make the same data again and to detect damage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ndstack data set 1"] = "ndstack data set 1"
    language: str
    grammar: str | None = None
    seed: NonNegativeInt
    plan: Plan
    separator: Literal["", " ", "\t"]
    counts: dict[str, NonNegativeInt]
    sha256: dict[str, str]


@dataclass(frozen=True)
class Dataset:
    """The three splits of one language."""

    language: Language
    seed: int
    plan: Plan
    train: tuple[Word, ...]
    validation: tuple[Word, ...]
    test: tuple[Word, ...]

    def batches(self, split: Literal["train", "validation"]) -> list[tuple[Word, ...]]:
        """Return the batches of a split, each of one length, in the order in which they were drawn."""
        words: Sequence[Word] = getattr(self, split)
        size = self.plan.batch_size
        return [tuple(words[i : i + size]) for i in range(0, len(words), size)]

    def test_by_length(self) -> dict[int, tuple[Word, ...]]:
        """Return the test strings of each length."""
        return {length: tuple(words) for length, words in sorted(grouped(self.test, len).items())}


def make_dataset(
    language: Language, seed: int, plan: Plan | None = None, *, progress: Advance = no_progress
) -> Dataset:
    """Draw a data set; the same language, seed and plan always give the same strings.

    Args:
        language: the language to sample from.
        seed: the seed of the training and validation strings.
        plan: the numbers and lengths of strings.
        progress: a function that is called with the number of strings drawn since the last call.
    """
    plan = plan or Plan()
    if seed < 0:
        raise DatasetError(f"seed {seed} given, expected 0 or more")

    def batches(count: int, stream: int) -> Iterator[Word]:
        lengths = _non_empty(language, plan.lengths) if count else []
        rng = np.random.default_rng([seed, stream])
        return draw_batches(language.sample, lengths, count, plan.batch_size, rng, progress)

    def test() -> Iterator[Word]:
        rng = np.random.default_rng(test_seed(language))
        lengths = _non_empty(language, plan.test_lengths) if plan.test_per_length else []
        for length in lengths[:: plan.test_step]:
            yield from (language.sample(length, rng) for _ in range(plan.test_per_length))
            progress(plan.test_per_length)

    return Dataset(
        language, seed, plan, tuple(batches(plan.train, 0)), tuple(batches(plan.validation, 1)), tuple(test())
    )


def draw_batches(
    sample: Callable[[int, np.random.Generator], Drawn],
    lengths: Sequence[int],
    count: int,
    batch_size: int,
    rng: np.random.Generator,
    progress: Advance,
) -> Iterator[Drawn]:
    """Draw strings, or pairs of strings, in batches of one random length each."""
    for first in range(0, count, batch_size):
        length = lengths[int(rng.random() * len(lengths))]
        size = min(batch_size, count - first)
        yield from (sample(length, rng) for _ in range(size))
        progress(size)


def write_dataset(dataset: Dataset, folder: Path) -> None:
    """Write a data set into a new or empty folder, completely or not at all."""
    separator = dataset.language.separator
    texts = {split: _lines(getattr(dataset, split), separator) for split in SPLITS}
    language = dataset.language
    header = DatasetHeader(
        language=language.name,
        grammar=own_grammar(language),
        seed=dataset.seed,
        plan=dataset.plan,
        separator=separator,
        counts={split: len(getattr(dataset, split)) for split in SPLITS},
        sha256={split: _sha256(text) for split, text in texts.items()},
    )
    with files.new_folder(folder, "the data set") as draft:
        for split, text in texts.items():
            (draft / f"{split}.txt").write_bytes(text)
        (draft / HEADER).write_text(header.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_dataset(folder: Path) -> Dataset:
    """Read a data set; every file is checked against the header."""
    try:
        header = files.read_header(folder / HEADER, DatasetHeader, "a data set")
    except NdstackError as error:
        if (folder / HEADER).exists():
            raise
        hint = "`ndstack dataset` makes a data set, `ndstack text prepare` a corpus of strings of your own"
        raise DatasetError(f"{error}; {hint}") from None
    try:
        language = get(header.language) if header.grammar is None else _from_text(header)
    except NdstackError as error:
        raise DatasetError(f"{folder / HEADER}: {error}") from None
    expected = {"train": header.plan.train, "validation": header.plan.validation}
    if any(header.counts.get(split) != count for split, count in expected.items()):
        raise DatasetError(f"{folder / HEADER}: the counts {header.counts} do not fit the plan {expected}")
    splits = {split: tuple(_read_split(folder, split, header, language)) for split in SPLITS}
    return Dataset(language, header.seed, header.plan, **splits)


def _from_text(header: DatasetHeader) -> Language:
    return ContextFreeLanguage(header.language, WeightedCFG.fromstring(header.grammar or ""))


def _read_split(folder: Path, split: str, header: DatasetHeader, language: Language) -> Iterator[Word]:
    path = folder / f"{split}.txt"
    content = files.read_bytes(path, DatasetError)
    if _sha256(content) != header.sha256.get(split):
        raise DatasetError(f"{path} is not what was written (its checksum differs); make the data set again")
    lines = content.decode("utf-8").split("\n")[:-1]
    if len(lines) != header.counts.get(split):
        raise DatasetError(f"{path} has {len(lines)} strings, its header says {header.counts.get(split)}")
    alphabet = set(language.alphabet)
    low, high = header.plan.test_lengths if split == "test" else header.plan.lengths
    for number, line in enumerate(lines, 1):
        symbols = tuple(line.split(header.separator) if header.separator and line else line)
        if not low <= len(symbols) <= high or not alphabet.issuperset(symbols):
            raise DatasetError(
                f"{path}, line {number}: not a string of {language.name} of length {low}..{high}"
            )
        yield language.word(symbols)


def _non_empty(language: Language, lengths: Lengths) -> list[int]:
    found = language.lengths(*lengths)
    if not found:
        raise DatasetError(f"{language.name} has no strings of lengths {lengths[0]}..{lengths[1]}")
    return found


def test_seed(language: Language) -> list[int]:
    """Return one fixed seed per language, from its name, and from its grammar if it is not registered."""
    text = language.name + (own_grammar(language) or "")
    return list(hashlib.sha256(text.encode()).digest()[:16])


def _is_registered(language: Language) -> bool:
    """Return whether `get` returns this very language for its name."""
    try:
        twin = get(language.name)
    except LanguageError:
        return False
    if isinstance(language, ContextFreeLanguage):
        return isinstance(twin, ContextFreeLanguage) and twin.grammar == language.grammar
    return type(twin) is type(language) and twin.alphabet == language.alphabet


def own_grammar(language: Language) -> str | None:
    """Return the rules of a language's grammar; None for a registered language, whose name is sufficient."""
    if _is_registered(language):
        return None
    if not isinstance(language, ContextFreeLanguage):
        raise DatasetError(
            f"{language.name} has no grammar that could be written down, and no language is registered under "
            f"this name; {register.language.hint}"
        )
    return str(language.grammar)


def _lines(words: Sequence[Word], separator: str) -> bytes:
    for word in words:
        for symbol in word:
            if "\n" in symbol or (separator and separator in symbol):
                raise DatasetError(f"symbol {symbol!r} cannot be written to a text file, one string per line")
    return "".join(separator.join(word) + "\n" for word in words).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

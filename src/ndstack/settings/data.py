"""Which strings a model learns from: how many, of which lengths, or from which folder."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from ndstack.settings.base import Folder, Settings, Size

Share = Annotated[float, Field(ge=0, le=1)]
"""A share of a whole."""

Lengths = tuple[int, int]
"""The least and the greatest length, both included."""
LONGEST = 20_000
"""The greatest length that strings are sampled at, since tables of derivations grow with it."""


class Plan(Settings):
    """How many strings of which lengths; the defaults are the dissertation's (section 5.4)."""

    train: NonNegativeInt = 10_000
    """The number of training strings."""
    validation: NonNegativeInt = 1_000
    """The number of validation strings."""
    test_per_length: NonNegativeInt = 100
    """The number of test strings of each length."""
    lengths: Lengths = (40, 80)
    """The lengths of training and validation strings."""
    test_lengths: Lengths = (40, 100)
    """The lengths of test strings."""
    test_step: PositiveInt = 1
    """The distance between these lengths: with 10, every tenth of the lengths that strings can have."""
    batch_size: PositiveInt = 10
    """The number of strings in a batch, which all have one length."""

    @field_validator("lengths", "test_lengths")
    @classmethod
    def _check_lengths(cls, lengths: Lengths) -> Lengths:
        low, high = lengths
        if not 0 <= low <= high <= LONGEST:
            raise ValueError(f"{low} to {high} given, expected a range within 0 to {LONGEST:,}")
        return lengths


class DataConfig(Plan):
    """Strings sampled from the run's seed, or read from a folder that `ndstack dataset` made."""

    folder: Folder | None = None
    """The folder to read strings from; if not given, they are sampled."""
    sha256: dict[str, str] | None = None
    """The checksums of the files in the folder, filled in when a run starts."""


class CorpusConfig(Settings):
    """Text that `ndstack text prepare` made, in place of the strings of a formal language."""

    folder: Folder
    """The folder of the corpus."""
    sha256: dict[str, str] | None = None
    """The checksums of its vocabulary and its parts, filled in when a run starts."""
    rows: Size = 32
    """The number of rows that the text is folded into."""
    length: Size = 35
    """The length of the chunks of truncated BPTT."""


class PairsConfig(Settings):
    """Pairs of strings from tab-separated files, in place of a transduction that is sampled."""

    folder: Folder
    """The folder with `train.tsv`, `validation.tsv` and, for tests, `test.tsv`."""
    units: Literal["words", "characters"] = "words"
    """Whether symbols are words separated by spaces, or single characters."""
    sha256: dict[str, str] | None = None
    """The checksums of the files in the folder, filled in when a run starts."""


class RecognitionConfig(Settings):
    """The strings outside of the language that a recognizer learns to reject, and its loss."""

    negatives: Share = 0.5
    """The probability with which a sampled string is replaced by one outside of the language."""
    edited: Share = 0.5
    """The probability with which such a string is made by edits of the sampled one; if not, its symbols are
    uniformly random."""
    most_edits: Size = 3
    """The greatest number of edits, each of which inserts, deletes or replaces a symbol; the number is
    uniform from 1."""
    auxiliary: Annotated[float, Field(ge=0)] = 0.0
    """The weight of the auxiliary loss, which is about the symbols that may follow each prefix."""

"""Corpora: tokenised text as indices in files that are mapped into memory and never read as a whole.

A corpus is a folder:

    header.json        counts and checksums, see `CorpusHeader`
    vocabulary.txt     one word per line, the most frequent first; `<eos>`, not listed, has the next index
    train.tokens       the indices, `<eos>` after every line, little-endian, 2 bytes each (4 if necessary)
    valid.tokens, test.tokens

Sizes, the header and the vocabulary are checked whenever a corpus is opened. By default, the checksums of the
token files are checked as well, which takes a second per gigabyte and constant memory.
"""

import dataclasses
import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from ndstack import files
from ndstack.errors import DatasetError
from ndstack.text.vocabulary import END, Vocabulary

SplitName = Literal["train", "valid", "test"]
Tokenize = Literal["spaces", "words"]
"""How words are separated; see `ndstack.text.lines.separate`."""
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
HEADER = "header.json"
WORDS = "vocabulary.txt"
BLOCK = 1 << 22

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


class Split(BaseModel):
    """The description of one part in the header."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: NonNegativeInt
    """The number of tokens, `<eos>` included."""
    lines: NonNegativeInt
    unknown: NonNegativeInt
    """The number of tokens that are `<unk>`."""
    sha256: str


class CorpusHeader(BaseModel):
    """The content of `header.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ndstack corpus 1"] = "ndstack corpus 1"
    dtype: Literal["uint16", "uint32"]
    types: PositiveInt
    """The size of the vocabulary, `<eos>` included."""
    vocabulary_sha256: str
    tokenize: Tokenize | None = None
    """How words were separated; None if that was not recorded, as in older corpora."""
    splits: dict[SplitName, Split]


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """A corpus that has been opened.

    Attributes:
        folder: its folder.
        header: its header.
        vocabulary: its words.
        splits: the tokens of each part, mapped into memory.
    """

    folder: Path
    header: CorpusHeader
    vocabulary: Vocabulary
    splits: dict[str, Tokens]

    def __getitem__(self, split: str) -> Tokens:
        """Return the tokens of a part: "train", "valid" or "test"."""
        if split not in self.splits:
            raise DatasetError(
                f"{self.folder} has no part called {split!r}; it has {', '.join(self.splits) or 'none'}"
            )
        return self.splits[split]


def read_corpus(folder: str | Path, *, verify: bool = True) -> Corpus:
    """Open a corpus that `ndstack.text.prepare` made.

    Args:
        folder: the folder of the corpus.
        verify: whether to check the checksums of the token files, and not only their sizes.
    """
    folder = Path(folder)
    hint = "; make one with `ndstack text prepare`"
    header = files.read_header(folder / HEADER, CorpusHeader, "a corpus", hint)
    vocabulary = _read_words(folder / WORDS, header)
    splits = {name: _map(folder / f"{name}.tokens", header, split) for name, split in header.splits.items()}
    if verify:
        for name, split in header.splits.items():
            _verify(folder / f"{name}.tokens", splits[name], split, header)
    return Corpus(folder, header, vocabulary, {str(name): tokens for name, tokens in splits.items()})


def _read_words(path: Path, header: CorpusHeader) -> Vocabulary:
    content = files.read_bytes(path, DatasetError)
    if hashlib.sha256(content).hexdigest() != header.vocabulary_sha256:
        raise DatasetError(f"{path} is not what was written (its checksum differs); prepare the corpus again")
    try:
        vocabulary = Vocabulary(tuple(content.decode("utf-8").split("\n")[:-1]))
    except (UnicodeDecodeError, DatasetError) as error:
        raise DatasetError(f"{path} is not a vocabulary: {error}") from None
    if len(vocabulary) != header.types:
        raise DatasetError(f"{path} has {len(vocabulary)} types with {END}, its header says {header.types}")
    return vocabulary


def _map(path: Path, header: CorpusHeader, split: Split) -> Tokens:
    """Return the tokens of a file, mapped into memory; the size must be that of the header."""
    dtype = np.dtype(header.dtype).newbyteorder("<")
    try:
        size = path.stat().st_size
        if size != split.tokens * dtype.itemsize:
            raise DatasetError(
                f"{path} has {size:,} bytes, expected {split.tokens * dtype.itemsize:,} as {HEADER} says; "
                "prepare the corpus again"
            )
        if size == 0:
            return np.empty(0, dtype)
        return np.memmap(path, dtype, mode="r")
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from None


def _verify(path: Path, tokens: Tokens, split: Split, header: CorpusHeader) -> None:
    digest = hashlib.sha256()
    for first in range(0, len(tokens), BLOCK):
        block = np.ascontiguousarray(tokens[first : first + BLOCK])
        digest.update(block.data)
        if block.max() >= header.types:
            raise DatasetError(f"{path} has index {block.max()}, but there are only {header.types} types")
    if digest.hexdigest() != split.sha256:
        raise DatasetError(f"{path} is not what was written (its checksum differs); prepare the corpus again")

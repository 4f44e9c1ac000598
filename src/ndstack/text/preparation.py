"""From tokenised text to a corpus, block by block.

The training part is read twice, the first time to count its words. Only the counts of distinct words and one
block are in memory, regardless of the size of the files.
"""

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np

from ndstack import files
from ndstack.errors import DatasetError
from ndstack.progress import Advance, no_progress
from ndstack.text.corpus import (
    HEADER,
    SPLITS,
    WORDS,
    Corpus,
    CorpusHeader,
    Split,
    SplitName,
    Tokenize,
    read_corpus,
)
from ndstack.text.lines import Stretch, pieces, split_file
from ndstack.text.vocabulary import END, UNKNOWN, Vocabulary, from_counts

BLOCK = 1 << 18
_PUNCTUATION = frozenset(".,;:!?\"')]}…”’»")

_NAMES: dict[str, SplitName] = {
    "train": "train",
    "test": "test",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
}


def find_parts(source: Path) -> dict[SplitName, Path]:
    """Return the files of a text: a single file is "train"; in a folder, file names say which part they are.

    A file is a part if one piece of its name, between dots, is train, valid (or validation, val, dev) or
    test, as in `train.txt` or `ptb.valid.txt`.
    """
    if source.is_file():
        return {"train": source}
    if not source.is_dir():
        raise DatasetError(f"{source} is neither a text file nor a folder of text files")
    found: dict[SplitName, Path] = {}
    for path in sorted(source.iterdir()):
        parts = {_NAMES[piece] for piece in path.name.lower().split(".") if piece in _NAMES}
        if not path.is_file() or len(parts) != 1:
            continue
        part = parts.pop()
        if part in found:
            raise DatasetError(f"{found[part]} and {path} are both named as the {part} part; keep one")
        found[part] = path
    if "train" not in found:
        raise DatasetError(f"{source} has no training part; expected a file called train.txt or x.train.txt")
    return {part: found[part] for part in SPLITS if part in found}


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    size: int | None = None,
    min_count: int = 1,
    vocabulary: Vocabulary | None = None,
    split: tuple[int, int, int] | None = None,
    tokenize: Tokenize = "spaces",
    progress: Advance = no_progress,
) -> Corpus:
    """Make a corpus of a text, completely or not at all.

    Args:
        source: a text file, or a folder of text files (see `find_parts`).
        out: a new or empty folder.
        size: the largest number of types, including `<unk>` and `<eos>`; None for no limit.
        min_count: the smallest number of occurrences in the training part with which a word is kept.
        vocabulary: the words; by default, those of the training part.
        split: the shares of training, validation and test lines of one file, in order; see `split_file`.
        tokenize: how words are separated; see `ndstack.text.lines.separate`.
        progress: a function that is called with the number of bytes read since the last call. The training
            part counts twice if its words are counted.
    """
    out = files.real_path(out)
    files.check_new(out)  # before the words are counted, which may take long
    parts = _stretches(Path(source), split)
    if vocabulary is None:
        vocabulary = from_counts(_count(parts["train"], tokenize, progress), size, min_count)
    elif size is not None or min_count != 1:
        raise DatasetError("size and min_count are for words counted in the text, but a vocabulary is given")
    with files.new_folder(out, "the corpus") as draft:
        _write(draft, parts, vocabulary, tokenize, progress)
    return read_corpus(out, verify=False)


def _stretches(source: Path, split: tuple[int, int, int] | None) -> dict[SplitName, Stretch]:
    if split is None:
        return {part: Stretch(path) for part, path in find_parts(source).items()}
    if source.is_dir():
        raise DatasetError(f"{source} is a folder, whose files are the parts; a split is for one file")
    return split_file(find_parts(source)["train"], split)


def glued(vocabulary: Vocabulary) -> list[str]:
    """Return the words of letters or digits that end in punctuation, as in `dog,`."""
    return [w for w in vocabulary.words if w[-1] in _PUNCTUATION and any(map(str.isalnum, w))]


def bytes_to_read(source: str | Path, counted: bool = True, split: tuple[int, int, int] | None = None) -> int:
    """Return how many bytes `prepare` reads, without those that are only searched for line breaks."""
    sizes = {part: stretch.size for part, stretch in _stretches(Path(source), split).items()}
    return sum(sizes.values()) + (sizes["train"] if counted else 0)


def _count(stretch: Stretch, tokenize: Tokenize, progress: Advance) -> Counter[str]:
    counts: Counter[str] = Counter()
    for words, _ in pieces(stretch, progress, tokenize):
        counts.update(words)
    if not counts:
        raise DatasetError(f"{stretch.path} has no words; expected tokenised text, one sentence per line")
    return counts


def _write(
    folder: Path,
    parts: dict[SplitName, Stretch],
    vocabulary: Vocabulary,
    tokenize: Tokenize,
    progress: Advance,
) -> None:
    words = "".join(word + "\n" for word in vocabulary.words).encode()
    (folder / WORDS).write_bytes(words)
    dtype: Literal["uint16", "uint32"] = "uint16" if len(vocabulary) <= 1 << 16 else "uint32"
    splits: dict[SplitName, Split] = {
        part: _encode(stretch, folder / f"{part}.tokens", vocabulary, np.dtype(dtype), tokenize, progress)
        for part, stretch in parts.items()
    }
    header = CorpusHeader(
        dtype=dtype,
        types=len(vocabulary),
        vocabulary_sha256=hashlib.sha256(words).hexdigest(),
        tokenize=tokenize,
        splits=splits,
    )
    (folder / HEADER).write_text(header.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _encode(
    source: Stretch,
    target: Path,
    vocabulary: Vocabulary,
    dtype: np.dtype[np.uint16] | np.dtype[np.uint32],
    tokenize: Tokenize,
    progress: Advance,
) -> Split:
    """Write the tokens of one part, and return its description."""
    indices, unknown, end = vocabulary.indices, vocabulary.indices[UNKNOWN], vocabulary.indices[END]
    digest = hashlib.sha256()
    count = lines = unknowns = 0
    waiting: list[int] = []
    with target.open("wb") as file:

        def flush() -> None:
            nonlocal count, unknowns
            block = np.array(waiting, dtype.newbyteorder("<"))
            count += len(block)
            unknowns += int((block == unknown).sum())
            digest.update(block.data)
            file.write(block.data)
            waiting.clear()

        for words, ends in pieces(source, progress, tokenize):
            waiting.extend([indices.get(word, unknown) for word in words])
            if ends:
                waiting.append(end)
                lines += 1
            if len(waiting) >= BLOCK:
                flush()
        flush()
        os.fsync(file.fileno())
    if not count:
        raise DatasetError(f"{source.path} is empty; expected tokenised text, one sentence per line")
    return Split(tokens=count, lines=lines, unknown=unknowns, sha256=digest.hexdigest())

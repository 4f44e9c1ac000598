"""Tokenised text, read block by block, so that files and lines of any length take constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ndstack.errors import DatasetError
from ndstack.progress import Advance, no_progress
from ndstack.text.corpus import Tokenize
from ndstack.text.splitting import Stretch
from ndstack.text.vocabulary import END

BLOCK = 1 << 20

Piece = tuple[list[str], bool]
"""Consecutive words of a line, and whether the line ends after them."""

_WORD = re.compile(r"<unk>|\w+(?:(?:['’-]|(?<=\d)[.,](?=\d))\w+)*|[^\w\s]")


def separate(text: str, tokenize: Tokenize) -> list[str]:
    """Return the words of a text.

    With "spaces", words are separated by white space alone. With "words", they are divided further: a word is
    a sequence of letters, digits and underscores, which may contain apostrophes or hyphens (don't,
    well-known) and a point or comma between digits (3.14, 1,000). Every other character is a word by itself,
    except in `<unk>`. Upper case is kept, abbreviations lose their point, and text in scripts without spaces
    is not divided.
    """
    return text.split() if tokenize == "spaces" else _WORD.findall(text)


def pieces(
    source: Path | Stretch, progress: Advance = no_progress, tokenize: Tokenize = "spaces"
) -> Iterator[Piece]:
    """Yield the lines of a file or of a part of it; a line longer than a block comes in several pieces.

    The last line need not end with a line break.

    Args:
        source: a UTF-8 text file, or a stretch of one.
        progress: a function that is called with the number of bytes read since the last call.
        tokenize: how words are separated; see `separate`.
    """
    stretch = Stretch(source) if isinstance(source, Path) else source
    path, line, rest, open_line = stretch.path, stretch.line, b"", False
    try:
        with path.open("rb") as file:
            file.seek(stretch.start)
            while True:
                left = BLOCK if stretch.stop is None else min(BLOCK, stretch.stop - file.tell())
                block = file.read(left)
                progress(len(block))
                text = rest + block
                cut = len(text) if not block else 1 + max(map(text.rfind, (b"\n", b" ", b"\t")))
                if cut:
                    for piece in _split(path, line, text[:cut], tokenize):
                        yield piece
                        line += piece[1]
                        open_line = not piece[1] and (open_line or bool(piece[0]))
                rest = text[cut:]
                if not block:
                    break
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from None
    if open_line:
        yield [], True


def sentences_of(path: Path) -> Iterator[list[str]]:
    """Yield the words of each line of a file."""
    sentence: list[str] = []
    for words, ends in pieces(path):
        sentence += words
        if ends:
            yield sentence
            sentence = []


def _split(path: Path, line: int, text: bytes, tokenize: Tokenize) -> Iterator[Piece]:
    """Yield the lines of a block, which begins in the given line and does not end inside a word."""
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        wrong = line + text.count(b"\n", 0, error.start)
        raise DatasetError(f"{path}, line {wrong}: not UTF-8 text: {error.reason}") from None
    last = len(lines) - 1
    for number, content in enumerate(lines):
        words = separate(content, tokenize)
        if END in content.split():
            raise DatasetError(
                f"{path}, line {line + number}: {END} in the text; remove it, as it is added after every line"
            )
        if words or number < last:
            yield words, number < last

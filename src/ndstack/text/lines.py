"""Tokenised text, read a block at a time: constant memory for files, and for lines, of any length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ndstack.errors import DatasetError
from ndstack.progress import Advance, unseen
from ndstack.text.vocabulary import END

BLOCK = 1 << 20

Piece = tuple[list[str], bool]
"""Some words of a line, in order, and whether the line ends after them."""


def pieces(path: Path, progress: Advance = unseen) -> Iterator[Piece]:
    """The lines of a file, those longer than a block in several pieces.

    Words are what stands between spaces, tabs and ends of lines; the last line need not have an end.

    Args:
        path: a UTF-8 text.
        progress: called with the number of bytes read since the last call.
    """
    line, rest, open_line = 1, b"", False
    try:
        with path.open("rb") as file:
            while True:
                block = file.read(BLOCK)
                progress(len(block))
                text = rest + block
                cut = len(text) if not block else 1 + max(map(text.rfind, (b"\n", b" ", b"\t")))
                if cut:
                    for piece in _split(path, line, text[:cut]):
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
    """The words of each line of a file."""
    sentence: list[str] = []
    for words, ends in pieces(path):
        sentence += words
        if ends:
            yield sentence
            sentence = []


def _split(path: Path, line: int, text: bytes) -> Iterator[Piece]:
    """The lines of a block that begins in the given line and does not end inside a word."""
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        wrong = line + text.count(b"\n", 0, error.start)
        raise DatasetError(f"{path}, line {wrong}: not UTF-8 text: {error.reason}") from None
    last = len(lines) - 1
    for number, content in enumerate(lines):
        words = content.split()
        if END in words:
            raise DatasetError(
                f"{path}, line {line + number}: {END} in the text; it is added after every line, take it out"
            )
        if words or number < last:
            yield words, number < last

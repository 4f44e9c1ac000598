"""Tokenised text, read block by block, so that files and lines of any length take constant memory.

A file can be divided into parts by lines, in order; a part is a range of bytes.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from ndstack.errors import DatasetError
from ndstack.progress import Advance, no_progress
from ndstack.text.corpus import SPLITS, SplitName, Tokenize
from ndstack.text.vocabulary import END

BLOCK = 1 << 20

Piece = tuple[list[str], bool]
"""Consecutive words of a line, and whether the line ends after them."""

_WORD = re.compile(r"<unk>|\w+(?:(?:['’-]|(?<=\d)[.,](?=\d))\w+)*|[^\w\s]")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Consecutive whole lines of a file.

    Attributes:
        path: the file.
        start, stop: the range of bytes; `stop` is None for the end of the file.
        line: the number of the first line, from 1.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    line: int = 1

    @property
    def size(self) -> int:
        """The number of bytes."""
        return (self.path.stat().st_size if self.stop is None else self.stop) - self.start


def parse_split(text: str) -> tuple[int, int, int]:
    """Return the shares of training, validation and test lines in `90/5/5`, or `95/5/0` for no test part."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})/(\d{1,6})", text, re.ASCII)
    shares = (0, 0, 0) if match is None else (int(match[1]), int(match[2]), int(match[3]))
    if shares[0] == 0:
        raise DatasetError(
            f"{text!r} is not a split; expected shares of training, validation and test lines: 90/5/5"
        )
    return shares


def split_file(path: Path, shares: tuple[int, int, int]) -> dict[SplitName, Stretch]:
    """Return the first lines for training, the next for validation, and the last for testing.

    With n lines and shares a/b/c of sum s, the first part ends after line na // s and the second after line
    n(a + b) // s. A part with share 0 is left out; a part that would have no lines is an error.
    """
    lines = _count_lines(path)
    ends = [lines * sum(shares[: i + 1]) // sum(shares) for i in range(3)]
    begins = [0, *ends[:2]]
    for part, share, begin, end in zip(SPLITS, shares, begins, ends, strict=True):
        if share and begin == end:
            raise DatasetError(
                f"{path} has {lines} lines, too few for a {part} part of {share}/{sum(shares)}; use larger "
                "shares, or break the text into lines"
            )
    places = _places(path, begins)
    stops = [*places[1:], path.stat().st_size]
    return {
        part: Stretch(path, places[i], stops[i], begins[i] + 1) for i, part in enumerate(SPLITS) if shares[i]
    }


def _count_lines(path: Path) -> int:
    """Return the number of lines; the last one need not end with a line break."""
    lines, last = 0, b"\n"
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                lines += block.count(b"\n")
                last = block[-1:]
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from None
    return lines + (last != b"\n")


def _places(path: Path, lines: list[int]) -> list[int]:
    """Return the positions in the file after these ascending numbers of lines."""
    found, ended, offset = [0 for number in lines if number == 0], 0, 0
    with path.open("rb") as file:
        while len(found) < len(lines) and (block := file.read(BLOCK)):
            more = block.count(b"\n")
            place, passed = 0, ended
            while len(found) < len(lines) and lines[len(found)] <= ended + more:
                while passed < lines[len(found)]:
                    place = block.index(b"\n", place) + 1
                    passed += 1
                found.append(offset + place)
            ended, offset = ended + more, offset + len(block)
    return found + [path.stat().st_size] * (len(lines) - len(found))


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

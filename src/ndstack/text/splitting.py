"""Division of one text file into parts by lines, in order, as ranges of bytes that are not kept in memory."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ndstack.errors import DatasetError
from ndstack.text.corpus import SPLITS, SplitName

BLOCK = 1 << 22


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

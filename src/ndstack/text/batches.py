"""Batches of a corpus: chunks of a folded stream (truncated BPTT, section 7.1), or whole sentences.

A stream of N tokens is folded into B rows, each a contiguous part of it: the first N mod B rows have one
token more than the others. Chunk k covers columns kL..(k+1)L of all rows. Every token is a target exactly
once; what is read at a target's place is the token before it in the stream, for the very first one `<eos>`.
Where the last column is too short for all rows, the rest has the target `IGNORED`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.text.corpus import Tokens


class Batch(NamedTuple):
    """What is read and what is to be predicted."""

    inputs: Tensor
    """[B, n]."""

    targets: Tensor
    """[B, n]: the token after each of the inputs, or `IGNORED`."""

    tokens: int
    """How many targets are scored, in all rows of the batch, also those of other processes."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A stream folded into rows.

    Attributes:
        tokens: the whole of it.
        end: the index of `<eos>`, read before the first token.
        rows: B; if there are fewer tokens, so many rows.
        length: L, the number of steps in a chunk.
    """

    tokens: Tokens
    end: int
    rows: int = 32
    length: int = 35

    def __post_init__(self) -> None:
        for name in ("rows", "length"):
            if getattr(self, name) < 1:
                raise NdstackError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if not len(self.tokens):
            raise NdstackError("a stream without tokens given, expected at least one")
        object.__setattr__(self, "rows", min(self.rows, len(self.tokens)))

    def __len__(self) -> int:
        """The number of chunks."""
        return -(-self._columns // self.length)

    @property
    def _columns(self) -> int:
        return -(-len(self.tokens) // self.rows)

    def chunk(self, number: int, process: int = 0, processes: int = 1) -> Batch:
        """A chunk of all rows, or of a process's share of them.

        Args:
            number: from 0 on.
            process: which of the processes.
            processes: among how many the rows are shared.
        """
        if not 0 <= number < len(self):
            raise NdstackError(f"chunk {number} asked for, expected 0 to {len(self) - 1}")
        first, last = rows_of_process(self.rows, process, processes)
        begin = number * self.length
        width = min(self.length, self._columns - begin)
        short, longer = divmod(len(self.tokens), self.rows)
        inputs = np.full((last - first, width), self.end, np.int64)
        targets = np.full((last - first, width), IGNORED, np.int64)
        for place, row in enumerate(range(first, last)):
            start = row * short + min(row, longer) + begin
            have = min(width, short + (row < longer) - begin)
            targets[place, :have] = self.tokens[start : start + have]
            inputs[place, 1:have] = targets[place, : have - 1]
            if start:
                inputs[place, 0] = self.tokens[start - 1]
        full = min(width, short - begin) * self.rows
        tokens = full + (longer if begin + width > short else 0)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), tokens)

    def chunks(self, first: int = 0, process: int = 0, processes: int = 1) -> Iterator[Batch]:
        """The chunks from `first` on."""
        for number in range(first, len(self)):
            yield self.chunk(number, process, processes)


def rows_of_process(rows: int, process: int, processes: int) -> tuple[int, int]:
    """The rows first..last-1 that a process does."""
    if rows < processes:
        raise NdstackError(f"{rows} rows for {processes} processes given, expected one row each or more")
    return rows * process // processes, rows * (process + 1) // processes


class Sentences:
    """Whole lines in batches of similar lengths, for networks that read sentence by sentence.

    Sentences are sorted by length (equal ones stay in the order of the text) and cut into batches of at most
    `places` places, `<eos>` included; longer ones are a batch of their own. An input begins with `<eos>`, the
    targets end with it, and what a shorter sentence lacks is read as index 0 and not scored.

    Args:
        tokens: the stream.
        end: the index of `<eos>`.
        places: B x n of a batch at most.
    """

    def __init__(self, tokens: Tokens, end: int, places: int = 32 * 35) -> None:
        if places < 1:
            raise NdstackError(f"places is {places}, expected 1 or more")
        ends = _ends(tokens, end)
        if not len(ends):
            raise NdstackError("a stream without a whole line given, expected at least one")
        starts = np.concatenate([[0], ends[:-1]])
        order = np.argsort(ends - starts, kind="stable")
        self.tokens, self.end = tokens, end
        self.starts, self.ends = starts[order], ends[order]
        self.bounds = _cut(self.ends - self.starts, places)

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.bounds) - 1

    def batch(self, number: int, process: int = 0, processes: int = 1) -> Batch:
        """A batch, or a process's share of its sentences (which may be none)."""
        low, high = self.bounds[number], self.bounds[number + 1]
        first, last = (low + (high - low) * part // processes for part in (process, process + 1))
        width = int(self.ends[high - 1] - self.starts[high - 1])
        inputs = np.zeros((last - first, width), np.int64)
        targets = np.full((last - first, width), IGNORED, np.int64)
        for place, (start, stop) in enumerate(
            zip(self.starts[first:last], self.ends[first:last], strict=True)
        ):
            targets[place, : stop - start] = self.tokens[start:stop]
            inputs[place, 1 : stop - start] = targets[place, : stop - start - 1]
        inputs[:, 0] = self.end
        scored = int((self.ends[low:high] - self.starts[low:high]).sum())
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), scored)


def _ends(tokens: Tokens, end: int, block: int = 1 << 22) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The places after each `<eos>`."""
    found = [
        np.flatnonzero(tokens[first : first + block] == end) + first + 1
        for first in range(0, len(tokens), block)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _cut(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], places: int) -> list[int]:
    """Where batches of sentences sorted by length begin and end."""
    bounds = [0]
    for index, length in enumerate(lengths.tolist()):
        if index > bounds[-1] and (index + 1 - bounds[-1]) * length > places:
            bounds.append(index)
    return [*bounds, len(lengths)]

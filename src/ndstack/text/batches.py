"""Batches of a corpus: chunks of a folded stream (truncated BPTT, section 7.1), or whole sentences.

A stream of N tokens is folded into B rows, which are contiguous parts of it; the first N mod B rows have one
token more than the others. Chunk k covers columns kL..(k+1)L of all rows. Every token is a target exactly
once, and the input for it is the token before it in the stream; the input for the first token is `<eos>`.
Rows that have no token in the last column have the target `IGNORED` there.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.text.corpus import Tokens


class Batch(NamedTuple):
    """The inputs and targets of one training step."""

    inputs: Tensor
    """[B, n]."""

    targets: Tensor
    """[B, n]: the token after each of the inputs, or `IGNORED`."""

    tokens: int
    """The number of targets that are scored in all rows of the batch, including those of other processes."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A stream folded into rows.

    Attributes:
        tokens: the whole stream.
        end: the index of `<eos>`, the input for the first token.
        rows: B, or the number of tokens if that is smaller.
        length: L, the number of steps per chunk.
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
        """Return the number of chunks."""
        return -(-self._columns // self.length)

    @property
    def _columns(self) -> int:
        return -(-len(self.tokens) // self.rows)

    def chunk(self, number: int, process: int = 0, processes: int = 1) -> Batch:
        """Return a chunk of all rows, or of the rows of one process.

        Args:
            number: the number of the chunk, from 0.
            process: the number of the process, from 0.
            processes: the number of processes among which the rows are divided.
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
        """Yield the chunks beginning with number `first`."""
        for number in range(first, len(self)):
            yield self.chunk(number, process, processes)


def rows_of_process(rows: int, process: int, processes: int) -> tuple[int, int]:
    """Return the range first..last-1 of the rows of one process."""
    if rows < processes:
        raise NdstackError(f"{rows} rows for {processes} processes given, expected one row each or more")
    return rows * process // processes, rows * (process + 1) // processes


class Sentences:
    """Whole lines in batches of similar lengths, for networks that read sentence by sentence.

    Sentences are sorted by length (those of equal length stay in the order of the text) and divided into
    batches of at most `places` places, `<eos>` included; a longer sentence is a batch by itself. Inputs begin
    with `<eos>` and targets end with it. Shorter sentences are padded with index 0, which is not scored.

    Args:
        tokens: the stream.
        end: the index of `<eos>`.
        places: the largest B x n of a batch.
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
        self.bounds = batch_bounds((self.ends - self.starts).tolist(), places)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.bounds) - 1

    def batch(self, number: int, process: int = 0, processes: int = 1) -> Batch:
        """Return a batch, or the sentences of it that belong to one process, of which there may be none."""
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
    """Return the position after each `<eos>`."""
    found = [
        np.flatnonzero(tokens[first : first + block] == end) + first + 1
        for first in range(0, len(tokens), block)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def batch_bounds(lengths: Sequence[int], places: int) -> list[int]:
    """Return the bounds of batches of at most `places` places, given ascending lengths of sentences."""
    bounds = [0]
    for index, length in enumerate(lengths):
        if index > bounds[-1] and (index + 1 - bounds[-1]) * length > places:
            bounds.append(index)
    return [*bounds, len(lengths)] if lengths else bounds

"""How well outputs agree with what was expected."""

from collections.abc import Sequence
from typing import NamedTuple

from ndstack.grammars.grammar import Word
from ndstack.transductions.transduction import Pair


class Agreement(NamedTuple):
    """The numbers of correct symbols and outputs, and of all of them."""

    right: int
    symbols: int
    whole: int
    outputs: int

    def __add__(self, other: object) -> "Agreement":
        if not isinstance(other, Agreement):
            return NotImplemented
        return Agreement(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def accuracy(self) -> float:
        """The share of correct symbols."""
        return self.right / self.symbols if self.symbols else 1.0

    @property
    def whole_accuracy(self) -> float:
        """The share of outputs that are correct from beginning to end."""
        return self.whole / self.outputs if self.outputs else 1.0


def agree(expected: Word, given: Word, *, ended: bool = True, end: bool = False) -> Agreement:
    """Compare an output with the expected one, position by position.

    Args:
        expected: the correct output.
        given: the output of a model.
        ended: whether the model has ended its output itself.
        end: whether the end counts like a symbol, which is correct if the output ends at the right position;
            if not, symbols after the expected ones are ignored.
    """
    wanted, found = tuple(expected), tuple(given)
    right = sum(a == b for a, b in zip(wanted, found, strict=False))
    if not end:
        return Agreement(right, len(wanted), int(found[: len(wanted)] == wanted), 1)
    at_end = ended and len(found) == len(wanted)
    return Agreement(right + at_end, len(wanted) + 1, int(at_end and found == wanted), 1)


def by_length(pairs: Sequence[Pair], agreements: Sequence[Agreement]) -> dict[int, Agreement]:
    """Return the agreement on all pairs whose inputs have one length, shorter inputs first."""
    total: dict[int, Agreement] = {}
    for pair, one in zip(pairs, agreements, strict=True):
        length = len(pair.source)
        total[length] = total[length] + one if length in total else one
    return dict(sorted(total.items()))


def score(lengths: dict[int, Agreement]) -> float:
    """Return the accuracy per symbol, averaged over the lengths of inputs."""
    return sum(one.accuracy for one in lengths.values()) / len(lengths)

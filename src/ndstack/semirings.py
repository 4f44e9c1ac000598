"""Semirings as values: with them, the same dynamic programme decides, counts, sums or maximises.

`lift(weight, label)` turns the weight of one rule or transition into an element. `times` is applied in the
order in which rules or transitions are used, so that an element can record them (see `VITERBI`).
"""

import math
import operator
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Generic, TypeVar

__all__ = ["BOOLEAN", "COUNTING", "LOG", "REAL", "VITERBI", "Best", "Semiring"]

T = TypeVar("T")


@dataclass(frozen=True)
class Semiring(Generic[T]):
    """Two operations with their neutral elements, and a function that turns weights into elements."""

    name: str
    zero: T
    one: T
    plus: Callable[[T, T], T]
    times: Callable[[T, T], T]
    lift: Callable[[float, Hashable], T]

    def sum(self, values: Iterable[T]) -> T:
        """Return the sum of the values; `zero` if there are none."""
        return reduce(self.plus, values, self.zero)

    def product(self, values: Iterable[T]) -> T:
        """Return the product of the values in the order given; `one` if there are none."""
        return reduce(self.times, values, self.one)

    def __repr__(self) -> str:
        return f"<{self.name} semiring>"


@dataclass(frozen=True)
class Best:
    """An element of the Viterbi semiring: a log weight, and the labels of the sequence that has it."""

    log_weight: float
    _history: object = field(default=(), compare=False, repr=False)  # (), (label,) or two histories

    def labels(self) -> tuple[Hashable, ...]:
        """Return the labels of the best sequence, first to last."""
        found: list[Hashable] = []
        open_: list[object] = [self._history]
        while open_:
            node = open_.pop()
            assert isinstance(node, tuple)
            if len(node) == 2:
                open_ += [node[1], node[0]]
            else:
                found.extend(node)
        return tuple(found)


def log_or_minus_infinity(weight: float) -> float:
    """Return the log of a weight; -inf for a weight of 0."""
    return math.log(weight) if weight > 0 else -math.inf


def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


def _best_of(a: Best, b: Best) -> Best:
    return a if a.log_weight >= b.log_weight else b


def _best_join(a: Best, b: Best) -> Best:
    if -math.inf in (a.log_weight, b.log_weight):
        return VITERBI.zero
    return Best(a.log_weight + b.log_weight, (a._history, b._history))


BOOLEAN: Semiring[bool] = Semiring(
    "boolean", False, True, operator.or_, operator.and_, lambda weight, _: weight > 0
)
"""Whether there is a run."""
COUNTING: Semiring[int] = Semiring(
    "counting", 0, 1, operator.add, operator.mul, lambda weight, _: int(weight > 0)
)
"""The exact number of runs."""
REAL: Semiring[float] = Semiring("real", 0.0, 1.0, operator.add, operator.mul, lambda weight, _: weight)
"""The sum of the weights."""
LOG: Semiring[float] = Semiring(
    "log", -math.inf, 0.0, _log_add, operator.add, lambda weight, _: log_or_minus_infinity(weight)
)
"""The log of the sum of the weights."""
VITERBI: Semiring[Best] = Semiring(
    "Viterbi",
    Best(-math.inf),
    Best(0.0),
    _best_of,
    _best_join,
    lambda weight, label: Best(log_or_minus_infinity(weight), (label,)),
)
"""The greatest weight, and the sequence that has it (see `Best`)."""

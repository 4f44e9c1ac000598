"""The transition weights of the differentiable WPDA at every step of one sequence, and their posterior."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndstack.analysis.stack_run import Names
from ndstack.errors import NdstackError

Floats = NDArray[np.float64]

MOST_BYTES = 2**31


@dataclass(frozen=True, eq=False)
class TransitionWeights:
    """The transition weights of a restricted WPDA at every step of one sequence.

    Attributes:
        push: [n, Q, S, Q, S], log weights.
        replace: [n, Q, S, Q, S].
        pop: [n, Q, S, Q].
        names: the names of inputs, states and stack symbols.
        window: the window D of chapter 7.
        bottom_fix: whether the initial bottom can be replaced and uncovered (chapter 8) or not (chapter 4).
        accept: the configuration types (state, symbol) in which a run accepts; None if runs do not accept.
    """

    push: Floats
    replace: Floats
    pop: Floats
    names: Names
    window: int | None = None
    bottom_fix: bool = True
    accept: frozenset[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        n, Q, S = self.push.shape[:3]
        wanted = {"push": (n, Q, S, Q, S), "replace": (n, Q, S, Q, S), "pop": (n, Q, S, Q)}
        for name, shape in wanted.items():
            array = np.ascontiguousarray(getattr(self, name), np.float64)
            if array.shape != shape or np.isnan(array).any() or (array == np.inf).any():
                raise NdstackError(
                    f"{name} has shape {list(array.shape)}, expected {list(shape)} and no nan or infinity"
                )
            object.__setattr__(self, name, array)
        sizes = tuple(map(len, (self.names.inputs, self.names.states, self.names.symbols)))
        if sizes != (n, Q, S):
            raise NdstackError(f"names of {sizes} inputs, states and symbols given, expected {(n, Q, S)}")
        if 3 * 8 * (n + 1) ** 2 * (Q * S) ** 2 > MOST_BYTES:
            raise NdstackError(
                f"{n} steps of an automaton with {Q} states and {S} symbols given: the chart of its runs "
                f"would take more than {MOST_BYTES >> 30} GiB; give a shorter string"
            )

    @property
    def steps(self) -> int:
        """The number of steps n."""
        return len(self.names.inputs)

    @property
    def states(self) -> int:
        """|Q|."""
        return len(self.names.states)

    @property
    def symbols(self) -> int:
        """|Γ|."""
        return len(self.names.symbols)

    def flat(self) -> tuple[Floats, Floats, Floats]:
        """Return push [n, K, K], replace [n, K, K] and pop [n, K, Q], where K = |Q| |Γ|."""
        n, K = self.steps, self.states * self.symbols
        return self.push.reshape(n, K, K), self.replace.reshape(n, K, K), self.pop.reshape(n, K, self.states)

    def action_shares(self) -> Floats:
        """Return the shares of pushes, replacements and pops in the total weight, [n, 3] (figure 6.2)."""
        parts = (self.push, self.replace, self.pop)
        axes = [tuple(range(1, part.ndim)) for part in parts]
        logs = [np.logaddexp.reduce(part, axis=axis) for part, axis in zip(parts, axes, strict=True)]
        return shares(np.stack(logs, axis=1))


@dataclass(frozen=True)
class Posterior:
    """The probability that a run takes each transition at each step: the gradient of log alpha (section 4.8).

    Attributes:
        push: [n, Q, S, Q, S].
        replace: [n, Q, S, Q, S].
        pop: [n, Q, S, Q].
    """

    push: Floats
    replace: Floats
    pop: Floats

    def actions(self) -> Floats:
        """Return the probability of push, replace and pop at each step, [n, 3]."""
        parts = (self.push, self.replace, self.pop)
        return np.stack([part.sum(axis=tuple(range(1, part.ndim))) for part in parts], axis=1)


def shares(logs: Floats) -> Floats:
    """Return exp(logs) divided by their sum over the last axis; zeros where all are -inf."""
    top = logs.max(axis=-1, keepdims=True, initial=-np.inf)
    numbers = np.exp(logs - np.where(top > -np.inf, top, 0.0))
    total = numbers.sum(axis=-1, keepdims=True)
    quotient: Floats = numbers / np.where(total > 0, total, 1.0)
    return quotient

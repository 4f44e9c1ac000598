"""Brute-force enumeration of runs: slow but obviously correct, the oracle for other algorithms."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ndstack.automata.pda import PDA, Stack, Transition


@dataclass(frozen=True)
class Configuration:
    """A configuration (i, q, β): i symbols have been read, the state is q and the stack is β."""

    position: int
    state: str
    stack: Stack


@dataclass(frozen=True)
class PDARun:
    """A run: its transitions, and the configurations before, between and after them."""

    transitions: tuple[Transition, ...]
    configurations: tuple[Configuration, ...]

    @property
    def weight(self) -> float:
        """The weight of the run, ψ(π) = Π ψ(τᵢ)."""
        return math.prod(t.weight for t in self.transitions)

    @property
    def last(self) -> Configuration:
        """The configuration in which the run ends."""
        return self.configurations[-1]


def runs(pda: PDA, word: Sequence[str], *, max_steps: int | None = None) -> Iterator[PDARun]:
    """Yield the runs that read all of `word` in at most `max_steps` transitions.

    Automata that read one symbol per step need no bound. Others may run forever without reading; the default
    bound is four steps per symbol.
    """
    limit = 4 * len(word) + 4 if max_steps is None else max_steps
    first = Configuration(0, pda.start, pda.initial_stack)
    open_: list[PDARun] = [PDARun((), (first,))]
    while open_:
        run = open_.pop()
        if run.last.position == len(word):
            yield run
        if len(run.transitions) < limit:
            open_ += [
                PDARun((*run.transitions, t), (*run.configurations, after))
                for t, after in _successors(pda, word, run.last)
            ]


def accepting_runs(pda: PDA, word: Sequence[str], *, max_steps: int | None = None) -> Iterator[PDARun]:
    """Yield the runs on `word` that end in an accepting configuration."""
    for run in runs(pda, word, max_steps=max_steps):
        if pda.accepts_in(run.last.state, run.last.stack):
            yield run


def _successors(
    pda: PDA, word: Sequence[str], current: Configuration
) -> Iterator[tuple[Transition, Configuration]]:
    for t in pda.from_state(current.state):
        position = current.position
        if t.read:
            if position == len(word) or word[position] != t.read:
                continue
            position += 1
        height = len(current.stack) - len(t.pop)
        if height >= 0 and current.stack[height:] == t.pop:
            yield t, Configuration(position, t.target, current.stack[:height] + t.push)

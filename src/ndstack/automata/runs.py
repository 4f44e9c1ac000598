"""Every run of an automaton, one by one: slow, obviously right, the oracle for everything else."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ndstack.automata.pda import PDA, Stack, Transition


@dataclass(frozen=True)
class Configuration:
    """(i, q, β): i symbols read, in state q, with stack β."""

    position: int
    state: str
    stack: Stack


@dataclass(frozen=True)
class PDARun:
    """Transitions, and the configurations before, between and after them."""

    transitions: tuple[Transition, ...]
    configurations: tuple[Configuration, ...]

    @property
    def weight(self) -> float:
        """ψ(π) = Π ψ(τᵢ)."""
        return math.prod(t.weight for t in self.transitions)

    @property
    def last(self) -> Configuration:
        """Where the run ends."""
        return self.configurations[-1]


def runs(pda: PDA, word: Sequence[str], *, max_steps: int | None = None) -> Iterator[PDARun]:
    """The runs that read all of `word` in at most `max_steps` transitions.

    Automata that read a symbol a step need no bound; others may run for ever without reading, and
    are then bounded by four steps a symbol unless told otherwise.
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
    """The runs on `word` that end in an accepting configuration."""
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

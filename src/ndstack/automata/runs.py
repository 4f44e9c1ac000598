"""Runs of automata: brute-force enumeration, which is the oracle for other algorithms, and the best run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from ndstack.automata.langs_algorithm import Lang
from ndstack.automata.pda import PDA, RestrictedPDA, Stack, Transition, show_stack
from ndstack.errors import AutomatonError
from ndstack.html_tables import table
from ndstack.semirings import VITERBI


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

    def _repr_html_(self) -> str:
        first, *others = self.configurations
        rows = [("", first.state, show_stack(first.stack))]
        rows += [
            (move.read or "ε", after.state, show_stack(after.stack))
            for move, after in zip(self.transitions, others, strict=True)
        ]
        return table(rows, ("read", "state", "stack"), f"run of weight {self.weight:.5g}")

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


def best_run(pda: RestrictedPDA, word: Sequence[str]) -> PDARun:
    """Return the accepting run of greatest weight, found by Lang's algorithm over the Viterbi semiring."""
    best = Lang(pda, VITERBI, word).stringsum()
    if best.log_weight == -math.inf:
        raise AutomatonError(f"the automaton does not accept {word!r}, so it has no best run")
    return replay(pda, cast(tuple[Transition, ...], best.labels()))


def replay(pda: RestrictedPDA, transitions: Sequence[Transition]) -> PDARun:
    """Return the run that takes these transitions."""
    current = Configuration(0, pda.start, pda.initial_stack)
    configurations = [current]
    for t in transitions:
        if current.state != t.state or current.stack[-1:] != t.pop:
            raise AutomatonError(f"transition {t} cannot follow configuration {current}")
        current = Configuration(current.position + 1, t.target, current.stack[:-1] + t.push)
        configurations.append(current)
    return PDARun(tuple(transitions), tuple(configurations))

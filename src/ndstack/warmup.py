"""Compile kernels ahead of time: small networks are made and take a step, once for each kind of use."""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ndstack import languages
from ndstack.functional import nondeterministic
from ndstack.nn import models as models_by_name
from ndstack.ops.runtime import compile_messages, numba_internals
from ndstack.progress import progress_bar
from ndstack.stacks import Nondeterministic, Stack

MODELS = ("lstm", "strat-3", "sup-3", "ns-2-3", "rns-2-3", "vrns-2-3-3", "tf+sup-4", "tf+vrns-2-3-2")
"""One of each kind: other sizes share their kernels."""

_SECONDS = {"forward": 40, "backward": 60, "steps": 25, "alone": 60}
"""About what each part takes with a nondeterministic stack on a laptop, for the estimate."""


@dataclasses.dataclass(frozen=True)
class Warmed:
    """What was compiled.

    Attributes:
        models: for which.
        compiled: each kernel, with its seconds; those found in the cache are not among them.
        seconds: in all.
        folder: where compiled code is kept; None if it is not.
    """

    models: tuple[str, ...]
    compiled: tuple[tuple[str, float], ...]
    seconds: float
    folder: str | None

    def summary(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)


def warm_up(models: Sequence[str] | None = None) -> Warmed:
    """Compile what training, evaluating and stepping these models needs.

    Nondeterministic stacks are compiled in float64, too, since they are computed in it where float32 could
    lose runs.

    Args:
        models: names of models; one of each kind if there are none.
    """
    names = tuple(models or MODELS)
    parts = [(2, _sample), *(part for name in names for part in _parts(name))]
    before, began = len(_compiled()), time.monotonic()
    logger = logging.getLogger("ndstack")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the bar says the same
    try:
        with progress_bar("compiling, in seconds expected", sum(cost for cost, _ in parts)) as advance:
            for cost, run in parts:
                run()
                advance(cost)
    finally:
        logger.setLevel(level)
    compiled = tuple((name, round(seconds, 2)) for name, seconds in _compiled()[before:])
    return Warmed(names, compiled, round(time.monotonic() - began, 2), _folder())


def _parts(name: str) -> Iterator[tuple[int, Callable[[], object]]]:
    """Expected seconds and work, for each use of a model."""
    parsed = models_by_name.parse(name)
    kind, slow = parsed.stack, parsed.nondeterministic
    for dtype in (torch.float32, torch.float64) if slow else (torch.float32,):
        model = models_by_name.build(name, ("a", "b"), num_layers=1 if name.startswith("tf") else None).to(
            dtype
        )
        symbols = torch.zeros(2, 3, dtype=torch.long)
        losses: list[torch.Tensor] = []

        def forward(model: Any = model, losses: list[Any] = losses, symbols: Any = symbols) -> None:
            losses.append(model(symbols)[0].sum())

        def backward(losses: list[Any] = losses) -> None:
            losses.pop().backward()

        def steps(model: Any = model, symbols: Any = symbols) -> None:
            state = model.start(2)
            total: Any = torch.zeros((), dtype=model.dtype)
            for _ in range(3):
                logits, state = model(symbols[:, :1], state)
                total = total + logits.sum()
            total.backward()

        def alone(model: Any = model) -> None:
            for part in model.modules():
                if isinstance(part, Stack):
                    _use(part, model.dtype)

        for run in (forward, backward, steps, alone):
            yield (_SECONDS[run.__name__] if slow else 5) if kind else 1, run


def _use(stack: Stack[Any], dtype: torch.dtype) -> None:
    """Whole sequences, single steps and steps from hidden states, as controllers of other kinds take them."""
    sizes = (stack.action_size, stack.push_size, stack.control_size)
    actions, pushed, weight = (torch.zeros(2, 3, size, dtype=dtype, requires_grad=True) for size in sizes)
    readings, _ = stack.scan(actions, pushed if stack.push_size else None)
    state = stack.start(2, dtype=dtype)
    for t in range(2):
        state = stack.step(state, actions[:, t], pushed[:, t] if stack.push_size else None)
    driven = stack.start(2, dtype=dtype)
    for _ in range(2):
        driven = stack.drive(driven, readings.new_zeros(2, 3), weight[0].t(), weight[0, 0])
    (readings.sum() + state.reading.sum() + driven.reading.sum()).backward()
    if isinstance(stack, Nondeterministic):
        shape = (2, 3, stack.states, stack.symbols, stack.states)
        pop = torch.zeros(shape, dtype=dtype, requires_grad=True)
        push = pop[..., None].expand(*shape, stack.symbols)
        shown = nondeterministic(push, push, pop, vectors=pushed if stack.push_size else None)
        assert isinstance(shown, torch.Tensor)
        torch.autograd.backward(shown.sum())


def _sample() -> None:
    """What grammars are sampled with."""
    languages.get("dyck").sample(4, random.Random(0))


def _compiled() -> list[tuple[str, float]]:
    return compile_messages.COMPILED


def _folder() -> str | None:
    """Where compiled code is kept."""
    from ndstack.ops.superposition import loops

    return numba_internals.cache_folder(loops.scan)

"""Compilation of kernels in advance, by using small networks once in every way."""

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ndstack import languages
from ndstack.functional import nondeterministic
from ndstack.nn import LanguageModel
from ndstack.nn import models as models_by_name
from ndstack.ops.nondeterministic import in_log_space
from ndstack.ops.runtime import compile_messages, numba_internals
from ndstack.ops.runtime.threads import sharing_everything
from ndstack.progress import progress_bar
from ndstack.settings.training import TrainingConfig
from ndstack.stacks import Nondeterministic, Stack
from ndstack.stacks.base import StateT
from ndstack.training.optimizers import make_optimizer, update

MODELS = ("lstm", "strat-3", "sup-3", "ns-2-3", "rns-2-3", "vrns-2-3-3", "tf+sup-4", "tf+vrns-2-3-2")
"""One model of each kind; those of other sizes use the same kernels."""

_SECONDS = {"forward": 40, "backward": 60, "steps": 25, "alone": 60}
"""The approximate time of each part with a nondeterministic stack on a laptop, for the estimate."""


@dataclasses.dataclass(frozen=True)
class Warmed:
    """The kernels that were compiled.

    Attributes:
        models: the models for which they were compiled.
        compiled: the kernels with their times in seconds, without those that were in the cache.
        seconds: the total time.
        folder: the folder of the cache; None if there is none.
    """

    models: tuple[str, ...]
    compiled: tuple[tuple[str, float], ...]
    seconds: float
    folder: str | None

    def summary(self) -> dict[str, object]:
        """Return the same as plain data."""
        return dataclasses.asdict(self)


def warm_up(models: Sequence[str] | None = None) -> Warmed:
    """Compile the kernels that training, evaluating and stepping these models needs, by default of all kinds.

    Nondeterministic stacks are also compiled in float64, which is used when float32 could lose runs.
    """
    names = tuple(models or MODELS)
    parts = [(2, _sample), *(part for name in names for part in _parts(name))]
    before, began = len(compile_messages.COMPILED), time.monotonic()
    logger = logging.getLogger("ndstack")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the progress bar is enough
    try:
        total = sum(cost for cost, _ in parts)
        with sharing_everything(), progress_bar("compiling, in seconds expected", total) as advance:
            for cost, run in parts:
                run()
                advance(cost)
    finally:
        logger.setLevel(level)
    found = compile_messages.COMPILED[before:]
    compiled = tuple((name, round(seconds, 2)) for name, seconds in found)
    return Warmed(names, compiled, round(time.monotonic() - began, 2), _folder())


def _parts(name: str) -> Iterator[tuple[int, Callable[[], object]]]:
    """Yield the expected seconds and the work for each use of a model."""
    parsed = models_by_name.parse(name)
    for dtype in (torch.float32, torch.float64) if parsed.nondeterministic else (torch.float32,):
        layers = 1 if parsed.transformer else None
        use = _Use(models_by_name.build(name, ("a", "b"), num_layers=layers).to(dtype))
        for run in (use.forward, use.backward, use.steps, use.alone):
            seconds = _SECONDS[run.__name__] if parsed.nondeterministic else 5
            yield seconds if parsed.stack else 1, run


class _Use:
    """The ways in which a model is used."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.symbols = model, torch.zeros(2, 3, dtype=torch.long)
        self.loss = torch.zeros(())

    def forward(self) -> None:
        self.loss = self.model.cross_entropy(self.symbols)

    def backward(self) -> None:
        torch.autograd.backward(self.loss)
        parameters = list(self.model.parameters())
        update(make_optimizer(parameters, TrainingConfig()), parameters, None, 0.0)

    def steps(self) -> None:
        state, total = self.model.start(2), torch.zeros((), dtype=self.model.dtype)
        for _ in range(3):
            logits, state = self.model(self.symbols[:, :1], state)
            total = total + logits.sum()
        torch.autograd.backward(total)

    def alone(self) -> None:
        for part in self.model.modules():
            if isinstance(part, Stack):
                _use_stack(part, self.model.dtype)


def _use_stack(stack: Stack[StateT], dtype: torch.dtype) -> None:
    """Use a stack on whole sequences, in single steps, and in steps from hidden states of a controller."""
    sizes = (stack.action_size, stack.push_size, stack.control_size)
    actions, pushed, weight = (torch.zeros(2, 3, size, dtype=dtype, requires_grad=True) for size in sizes)
    readings, _ = stack.scan(actions, pushed if stack.push_size else None)
    state = stack.start(2, dtype=dtype)
    for t in range(2):
        state = stack.step(state, actions[:, t], pushed[:, t] if stack.push_size else None)
    driven = stack.start(2, dtype=dtype)
    for _ in range(2):
        driven = stack.drive(driven, readings.new_zeros(2, 3), weight[0].t(), weight[0, 0])
    torch.autograd.backward(readings.sum() + state.reading.sum() + driven.reading.sum())
    if isinstance(stack, Nondeterministic):
        shape = (2, 3, stack.states, stack.symbols, stack.states)
        pop = torch.zeros(shape, dtype=dtype, requires_grad=True)
        push = pop[..., None].expand(*shape, stack.symbols)
        shown = nondeterministic(push, push, pop, vectors=pushed if stack.push_size else None)
        assert isinstance(shown, Tensor)
        torch.autograd.backward(shown.sum())
        if dtype == torch.float64:  # what is too narrow continues in log space
            torch.autograd.backward(in_log_space(actions, stack.setting())[0].sum())
            in_log_space(actions.detach(), stack.setting())


def _sample() -> None:
    """Sample from a grammar."""
    languages.get("dyck").sample(4, random.Random(0))


def _folder() -> str | None:
    """Return the folder of compiled code."""
    from ndstack.ops.superposition import loops

    return numba_internals.cache_folder(loops.scan)

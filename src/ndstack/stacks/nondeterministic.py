"""The nondeterministic stack: NS, NS+S, NS+U, RNS and VRNS (chapters 4, 6, 7, 8 and 9).

| model | normalized | read_states | vector_size |
|---|---|---|---|
| NS (chapter 4) | True | False | None |
| NS+S (section 6.2) | True | True | None |
| NS+U (section 6.2) | False | False | None |
| RNS (chapter 6) | False | True | None |
| VRNS (chapter 9) | False | True | m |

A state carries Lang's chart, so that a step does not repeat the work of earlier ones. It also carries the
actions so far, from which the chart is made anew in float64 where float32 could lose runs, and in
log space where float64 could. A windowed stack forgets its actions after many steps and cannot be
computed again then, so its chart is in float64 from the beginning.

On other devices than CPUs the steps run there. Whether float32 was enough is looked at once per call of
several steps, and now and then in a series of single ones; what needs log space is computed on the CPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_flag, check_size
from ndstack.functional.nondeterministic import attended
from ndstack.ops.nondeterministic import (
    Chart,
    DeviceChart,
    FixedChart,
    History,
    Setting,
    action_sizes,
    advance,
    invalidate_together,
    merge_history,
    run_steps,
    start_chart,
    start_fixed,
    step_fixed,
)
from ndstack.ops.runtime import backends
from ndstack.ops.runtime.tracing import refuse_transforms
from ndstack.stacks.base import Stack, State

_REMEMBERED_STEPS = 1024
"""For how many steps at least a windowed stack keeps its history, so that it can be computed again."""


@dataclasses.dataclass(frozen=True, eq=False)
class NondeterministicState(State):
    """Nondeterministic stacks after some step.

    Attributes:
        vectors: [B, j, m], the pushed vectors that may still be on a stack, oldest first; the
            first of all is the bottom's. None if the stack holds symbols only.
        history: the log weights of all steps so far, in chunks [B, n, A] or steps [B, A]; empty at time 0,
            and once a windowed stack has forgotten it.
        chart: Lang's chart; None if it is not needed yet.
        time: the number of steps so far; 0 for a chart of fixed capacity, which knows it itself.
    """

    vectors: Tensor | None
    history: History
    chart: Chart | DeviceChart | FixedChart | None
    time: int

    keeps_dtype: ClassVar[frozenset[str]] = frozenset({"chart"})

    @property
    def traceable(self) -> bool:
        """Whether `torch.compile` can look into steps from here."""
        return isinstance(self.chart, FixedChart)

    @property
    def complete(self) -> bool:
        """Whether the history reaches back to the first step."""
        return bool(self.history) or self.time == 0

    def after_one(self, reading: Tensor, actions: Tensor, chart: Chart) -> Self:
        """Return the state after a step of stacks without vectors, all of whose history is known."""
        return type(self)(reading, None, (*self.history, actions), chart, self.time + 1)

    def settled(self) -> Self:
        """Return the same state, with ordinary tensors in place of the token of a chain."""
        if self.chart is None or isinstance(self.chart, FixedChart) or self.chart.chain is None:
            return self
        return dataclasses.replace(self, chart=self.chart.settle())

    def __getstate__(self) -> dict[str, object]:
        return vars(self.settled())  # a chain knows addresses, which mean nothing elsewhere

    def _map(self, change: Callable[[Tensor], Tensor], *, spared: bool = False) -> Self:
        new = super()._map(change, spared=spared)
        if self.chart is None or spared:
            return new
        return dataclasses.replace(new, chart=self.chart.map(change))


class Nondeterministic(Stack[NondeterministicState]):
    """A stack that keeps all runs of a weighted pushdown automaton (chapters 4 to 9).

    Action logits are the log weights of push [Q, S, Q, S], replace [Q, S, Q, S] and pop [Q, S, Q],
    flattened, in this order. A reading is the distribution over (state, top symbol), flattened, or over
    top symbols only if `read_states` is False. With vectors, each probability is multiplied by the expected
    top vector.

    Where no run survives a step, readings are 0 from there on, with zero gradients.

    Args:
        states: |Q|.
        symbols: |Gamma|, the bottom symbol included.
        vector_size: m, the size of the pushed vectors; None for symbols only. The vector of the
            initial bottom symbol is learned: the sigmoid of the parameter `bottom`.
        normalized: whether the weights of all actions from one (state, symbol) are made to sum to
            1 (eq. 4.4); else they are the exponentials of the logits.
        read_states: whether the reading tells the state.
        window: D of chapter 7: an element is forgotten D steps after the time on which it stands.
        bottom_fix: whether the initial bottom symbol can be replaced and uncovered (chapter 8).
    """

    def __init__(
        self,
        states: int,
        symbols: int,
        vector_size: int | None = None,
        normalized: bool = False,
        read_states: bool = True,
        window: int | None = None,
        bottom_fix: bool = True,
    ) -> None:
        super().__init__()
        states, symbols = check_size("states", states), check_size("symbols", symbols)
        vector_size = None if vector_size is None else check_size("vector_size", vector_size)
        window = None if window is None else check_size("window", window)
        self.states, self.symbols, self.vector_size = states, symbols, vector_size
        self.normalized = check_flag("normalized", normalized)
        self.read_states = check_flag("read_states", read_states)
        self.window, self.bottom_fix = window, check_flag("bottom_fix", bottom_fix)
        self.action_size = sum(action_sizes(states, symbols))
        self.push_size = vector_size or 0
        self.reading_size = (states if read_states else 1) * symbols * (vector_size or 1)
        self.bottom = None if vector_size is None else torch.nn.Parameter(torch.zeros(vector_size))

    def extra_repr(self) -> str:
        """Return what `print` shows."""
        names = ("states", "symbols", "vector_size", "normalized", "read_states", "window")
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"{shown}, bottom_fix={self.bottom_fix}"

    def start(
        self,
        batch_size: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        capacity: int | None = None,
    ) -> NondeterministicState:
        """Return stacks that hold the bottom symbol, in state 0; in float32 or better.

        Args:
            batch_size, dtype, device: see `Stack.start`.
            capacity: for how many steps there is to be room, if all steps are to be the same operations on
                tensors of the same shapes, so that CUDA graphs and `torch.compile` can repeat one of them.
                After that the stack forgets, as if `capacity + 1` were its window. Such steps have no
                derivatives, and each costs what the last one costs.
        """
        batch_size = check_size("batch_size", batch_size, 0)
        reading, vectors = self.first(batch_size, dtype or torch.get_default_dtype(), device)
        if capacity is None:
            return NondeterministicState(reading, vectors, (), None, 0)
        chart = start_fixed(self.setting(), batch_size, check_size("capacity", capacity), reading.device)
        if vectors is not None:
            vectors = torch.nn.functional.pad(vectors.detach(), (0, 0, 0, chart.slots - 1))
        return NondeterministicState(reading.detach(), vectors, (), chart, 0)

    def first(
        self, batch: int, dtype: torch.dtype, device: torch.device | str | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return r_0 [B, R] and the vectors of the bottom, [B, 1, m] or None, in float32 or better."""
        dtype = torch.promote_types(dtype, torch.float32)
        reading = torch.zeros(batch, self.reading_size, dtype=dtype, device=device)
        if self.bottom is None:
            reading[:, 0] = 1.0
            return reading, None
        vectors = torch.sigmoid(self.bottom).to(reading).expand(batch, 1, -1)
        return torch.nn.functional.pad(vectors[:, 0], (0, self.reading_size - self.push_size)), vectors

    def log_weights(self, actions: Tensor) -> Tensor:
        """Return the log weights of the given action logits [..., action_size], in the same order."""
        if not self.normalized:
            return actions
        kinds = self.states * self.symbols
        widths = [kinds, kinds, self.states]
        split = torch.split(actions, action_sizes(self.states, self.symbols), -1)
        parts = [p.reshape(*actions.shape[:-1], kinds, w) for p, w in zip(split, widths, strict=True)]
        weights = torch.log_softmax(torch.cat(parts, -1), -1)
        shares = torch.split(weights, widths, -1)
        return torch.cat([share.flatten(-2) for share in shares], -1)

    def _fits(self, state: object) -> bool:
        if not isinstance(state, NondeterministicState):
            return False
        held: tuple[object, ...] = (
            state.history,
            state.time,
            state.chart,
            state.vectors,
        )  # by hand or from a file
        history, time, chart, vectors = held
        if not isinstance(history, tuple) or type(time) is not int or time < 0:
            return False
        if chart is not None:
            automaton = (self.states, self.symbols, self.window or 0, self.bottom_fix)
            if isinstance(chart, FixedChart):
                return chart.fits(automaton, state.batch_size, state.reading.device)
            if not isinstance(chart, Chart | DeviceChart):
                return False
            if not chart.fits(automaton, state.batch_size, state.reading.device) or chart.time > time:
                return False
            if self.window is None and chart.time < time:
                return False
            time = chart.time
        if self.vector_size is None or not isinstance(vectors, Tensor):
            return vectors is None and self.vector_size is None
        here = vectors.device == state.reading.device and vectors.layout is torch.strided
        return here and vectors.shape == (state.batch_size, time + 1, self.vector_size)

    def _step(
        self, state: NondeterministicState, actions: Tensor, pushed: Tensor | None
    ) -> NondeterministicState:
        new = self._single(state, self.log_weights(actions), None)
        if new is not None:
            return new
        if isinstance(state.chart, FixedChart):
            return self._repeatable(state, state.chart, self.log_weights(actions), pushed)
        vector = None if pushed is None else pushed[:, None]
        return self._carry_on(state, self.log_weights(actions)[:, None], vector)[1]

    def _drive(
        self, state: NondeterministicState, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> NondeterministicState:
        new = None if self.normalized else self._single(state, hidden, (weight, bias))
        return super()._drive(state, hidden, weight, bias) if new is None else new

    def _single(
        self, state: NondeterministicState, given: Tensor, layer: tuple[Tensor, Tensor] | None
    ) -> NondeterministicState | None:
        """Make one step in as few operations as possible; return None where that cannot be done.

        Args:
            state: the stacks so far.
            given: log weights [B, A]; or hidden states [B, H], of which the layer makes such.
        """
        chart = self.steps_alone(state, given)
        if chart is None:
            return None
        done = advance(chart, given, layer)
        if done.all_trusted:
            return state.after_one(done.reading, done.actions, done.chart)
        return self._carry_on(state, done.actions[:, None], None)[1]

    def steps_alone(self, state: NondeterministicState, given: Tensor) -> Chart | None:
        """Return the charts that a compiled single step of such tensors continues.

        None where that cannot be done: readings that need more than the charts, other devices and dtypes, and
        charts that are not all there is.
        """
        chart = state.chart
        simple = self.vector_size is None and self.read_states and self.window is None
        if not simple or not self.compiled(given) or (chart is None and state.time > 0):
            return None
        if chart is None:
            chart = start_chart(self.setting(), state.batch_size, 1, given.dtype)
        if isinstance(chart, DeviceChart | FixedChart) or not state.complete:
            return None
        return chart if chart.dtype == given.dtype and chart.log_space is None else None

    def _scan(
        self, state: NondeterministicState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, NondeterministicState]:
        if isinstance(state.chart, FixedChart):
            return super()._scan(state, actions, pushed)
        weights = self.log_weights(actions)
        if actions.shape[1] == 0:
            return state.reading.new_zeros(state.batch_size, 0, self.reading_size), state
        chunk = self.span or actions.shape[1]
        readings = []
        for first in range(0, actions.shape[1], chunk):
            part = slice(first, first + chunk)
            some = None if pushed is None else pushed[:, part]
            reading, state = self._carry_on(state, weights[:, part], some)
            readings.append(reading)
        return readings[0] if len(readings) == 1 else torch.cat(readings, 1), state

    def _repeatable(
        self, state: NondeterministicState, chart: FixedChart, weights: Tensor, pushed: Tensor | None
    ) -> NondeterministicState:
        """Make one step with a chart of fixed capacity."""
        if torch.is_grad_enabled() and (
            weights.requires_grad or (pushed is not None and pushed.requires_grad)
        ):
            raise NdstackError(
                "steps of a stack of fixed capacity have no derivatives; use torch.no_grad(), or start() "
                "without a capacity"
            )
        bad = ~(weights.amax(-1) < torch.inf)
        vectors = state.vectors
        if vectors is not None and pushed is not None:
            bad |= ~pushed.isfinite().all(-1)
            slot = (chart.time[:1] + 1) % chart.slots
            vectors = vectors.index_copy(1, slot, pushed.masked_fill(bad[:, None], 0.0)[:, None])
        reading, attention, after = step_fixed(chart, weights, bad)
        shares = None if vectors is None else attention[:, None].to(weights.dtype)
        shown = self._reading(reading[:, None].to(weights.dtype), shares, vectors)[:, 0]
        return NondeterministicState(shown, vectors, (), after, 0)

    def _carry_on(
        self, state: NondeterministicState, weights: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, NondeterministicState]:
        """Make some steps with the given log weights [B, n, A] and vectors [B, n, m]."""
        refuse_transforms()
        chart = state.chart
        assert not isinstance(chart, FixedChart)
        if pushed is not None:
            weights, pushed = invalidate_together(weights, pushed)
        time, vectors = state.time + weights.shape[1], state.vectors
        if vectors is not None and pushed is not None:
            vectors = torch.cat([vectors, pushed], 1)
        known = state.history if state.complete else None
        setting = self.setting(backends.choose(weights.device))
        reading, attention, chart = run_steps(setting, chart, state.time, known, weights)
        if vectors is not None:
            vectors = _without_forgotten(vectors, chart.time + 1)
        shown = self._reading(reading, attention, vectors)
        history = self.remembered(state, weights, chart)
        return shown, NondeterministicState(shown[:, -1], vectors, history, chart, time)

    @property
    def span(self) -> int | None:
        """How many steps a windowed stack makes at a time; None without a window."""
        return None if self.window is None else max(256, 4 * self.window)

    def remembered(
        self, state: NondeterministicState, weights: Tensor, chart: Chart | DeviceChart | None
    ) -> History:
        """Return the history after some steps [B, n, A]; empty once a windowed stack has had many.

        Args:
            state: the stacks before these steps.
            weights: the log weights of these steps.
            chart: the chart afterwards. While it has to be made from the history, or is in log space, nothing
                is forgotten.
        """
        if not state.complete:
            return ()
        if self.window is None:
            return (*state.history, weights)
        needed = chart is None or (isinstance(chart, Chart) and chart.log_space is not None)
        many = state.time + weights.shape[1] > max(_REMEMBERED_STEPS, 4 * self.window)
        return merge_history(state.history, weights) if needed or not many else ()

    def compiled(self, given: Tensor) -> bool:
        """Return whether steps of such tensors are done by compiled code."""
        return given.is_cpu and (backends.forced() == "auto" or backends.choose(given.device) == "cpu")

    def setting(self, backend: str = "cpu") -> Setting:
        """Return what a backend is told."""
        attend = self.vector_size is not None
        return Setting(self.states, self.symbols, self.window, self.bottom_fix, backend, attend)

    def _reading(self, probability: Tensor, attention: Tensor | None, vectors: Tensor | None) -> Tensor:
        """Return the readings [B, n, R] from probabilities [B, n, K] and, with vectors, the attention."""
        if vectors is not None and attention is not None:
            probability = probability.unsqueeze(-1) * attended(attention, vectors)
        if not self.read_states:
            shape = (*probability.shape[:2], self.states, self.symbols, *probability.shape[3:])
            probability = probability.reshape(shape).sum(2)
        return probability.flatten(2)


def _without_forgotten(vectors: Tensor, count: int) -> Tensor:
    """Return the last `count` vectors [B, count, m].

    Those before them, which a window has forgotten, still get their derivatives: zeros, or nan if their
    sequence becomes invalid later on.
    """
    forgotten, kept = vectors[:, :-count], vectors[:, -count:]
    if forgotten.shape[1] == 0 or not vectors.requires_grad:
        return kept
    oldest = kept[:, :1] + (0.0 * forgotten).sum(1, keepdim=True)
    return torch.cat([oldest, kept[:, 1:]], 1)

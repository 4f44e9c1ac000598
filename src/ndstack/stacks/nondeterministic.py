"""The nondeterministic stack: NS, NS+S, NS+U, RNS and VRNS (chapters 4, 6, 7, 8 and 9).

| model | normalized | read_states | vector_size |
|---|---|---|---|
| NS (chapter 4) | True | False | None |
| NS+S, NS+U (section 6.2) | True, False | True, False | None |
| RNS (chapter 6) | False | True | None |
| VRNS (chapter 9) | False | True | m |

A state carries Lang's chart, so that a step costs what the algorithm says. It also carries the
actions so far, from which the chart is made anew in float64 where float32 could lose runs. A
windowed stack forgets old actions, so its chart is in float64 from the beginning.

On other devices than CPUs, whole sequences by `scan` run there; single steps, and chunks after the
first, are done by the compiled kernels on the CPU.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_size
from ndstack.functional.nondeterministic import attended
from ndstack.ops.fused.nondeterministic import Driven
from ndstack.ops.fused.nondeterministic import run as run_lstm
from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.nondeterministic.cpu.carried import (
    Memory,
    Place,
    advance,
    lost_too_much,
    settled,
    start,
    with_room,
)
from ndstack.ops.nondeterministic.cpu.step_loops import UNTRUSTED
from ndstack.ops.nondeterministic.invalid import invalidate_together
from ndstack.ops.nondeterministic.scan import Setting, action_sizes, in_log_space, scan
from ndstack.ops.runtime.tracing import refuse_transforms
from ndstack.stacks.base import Stack, State
from ndstack.stacks.charts import charts_fit, joined


def compiled(weights: Tensor) -> bool:
    """Whether whole sequences of such weights are done by the compiled kernels."""
    return weights.is_cpu


@dataclasses.dataclass(frozen=True, eq=False)
class NondeterministicState(State):
    """Nondeterministic stacks after some step.

    Attributes:
        vectors: [B, j, m], the pushed vectors that may still be on a stack, oldest first; the
            first of all is the bottom's. None if the stack holds symbols only.
        history: the log weights of all steps so far, in chunks [B, n, A] or steps [B, A]; empty if
            there have been too many.
        memory: the charts; empty if they are not needed yet.
        place: where in the memory they are.
        time: the number of steps so far.
    """

    vectors: Tensor | None
    history: tuple[Tensor, ...]
    memory: Memory
    place: Place | None
    time: int

    keeps_dtype: ClassVar[frozenset[str]] = frozenset({"memory"})

    @property
    def complete(self) -> bool:
        """Whether the history reaches back to the first step."""
        return bool(self.history) or self.time == 0

    def settled(self) -> Self:
        """The same state, all tensors of which are ordinary ones in the graph of derivatives."""
        if self.place is None or self.place.tape is None:
            return self
        memory, place = settled(self.memory, self.place)
        return dataclasses.replace(self, memory=memory, place=place)

    def __getstate__(self) -> dict[str, object]:
        return vars(self.settled())  # a tape knows addresses, which mean nothing elsewhere

    def _map(self, change: Callable[[Tensor], Tensor], *, spared: bool = False) -> Self:
        own = self.settled()
        return super(NondeterministicState, own)._map(change, spared=spared)


class Nondeterministic(Stack[NondeterministicState]):
    """A stack that keeps all runs of a weighted pushdown automaton (chapters 4 to 9).

    Action logits are the log weights of push [Q, S, Q, S], replace [Q, S, Q, S] and pop [Q, S, Q],
    flattened, in this order. A reading is the distribution over (state, top symbol), flattened; or
    over the top symbol; with vectors, times the expected top vector.

    Where no run survives a step, readings are 0 from there on, with zero gradients.

    Args:
        states: |Q|.
        symbols: |Gamma|, the bottom symbol included.
        vector_size: m, the size of the pushed vectors; None for symbols only. The vector of the
            initial bottom symbol is learned: the sigmoid of the parameter `bottom`.
        normalized: whether the weights of all actions from one (state, symbol) are made to sum to
            1 (eq. 4.4); else they are the exponentials of the logits.
        read_states: whether the reading tells the state.
        window: chapter 7's D; the stack forgets what is older.
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
        self.normalized, self.read_states = normalized, read_states
        self.window, self.bottom_fix = window, bottom_fix
        self.action_size = sum(action_sizes(states, symbols))
        self.push_size = vector_size or 0
        self.reading_size = (states if read_states else 1) * symbols * (vector_size or 1)
        self.bottom = None if vector_size is None else torch.nn.Parameter(torch.zeros(vector_size))

    def extra_repr(self) -> str:
        """What `print` shows."""
        names = ("states", "symbols", "vector_size", "normalized", "read_states", "window")
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"{shown}, bottom_fix={self.bottom_fix}"

    def start(
        self,
        batch_size: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> NondeterministicState:
        """All stacks hold the bottom symbol, in state 0; in float32 or better."""
        kinds = self.states * self.symbols
        dtype = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        first = torch.zeros(batch_size, 1, kinds, dtype=dtype, device=device)
        first[:, :, 0] = 1.0
        vectors = attention = None
        if self.bottom is not None:
            vectors = torch.sigmoid(self.bottom).to(first).expand(batch_size, 1, -1)
            attention = first[..., None]
        reading = self._reading(first, attention, vectors)[:, 0]
        return NondeterministicState(reading, vectors, (), (), None, 0)

    def log_weights(self, actions: Tensor) -> Tensor:
        """The log weights that action logits [..., action_size] stand for, flattened alike."""
        if not self.normalized:
            return actions
        kinds = self.states * self.symbols
        widths = [kinds, kinds, self.states]
        split = torch.split(actions, action_sizes(self.states, self.symbols), -1)
        parts = [p.reshape(*actions.shape[:-1], kinds, w) for p, w in zip(split, widths, strict=True)]
        weights = torch.log_softmax(torch.cat(parts, -1), -1)
        shares = torch.split(weights, widths, -1)
        return torch.cat([share.flatten(-2) for share in shares], -1)

    def _fits(self, state: Any) -> bool:
        automaton = (self.states, self.symbols, self.window or 0, self.bottom_fix)
        return isinstance(state, NondeterministicState) and charts_fit(state, automaton, self.vector_size)

    def _step(
        self, state: NondeterministicState, actions: Tensor, pushed: Tensor | None
    ) -> NondeterministicState:
        new = self._single(state, self.log_weights(actions), None)
        if new is not None:
            return new
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
        """One step in as few operations as can be; None where that is not possible.

        Args:
            state: the stacks so far.
            given: log weights [B, A]; or hidden states [B, H], of which the layer makes such.
        """
        memory, place, time = state.memory, state.place, state.time + 1
        simple = self.vector_size is None and self.read_states and self.window is None
        if not simple or not given.is_cpu or (place is None and time > 1):
            return None
        if place is None:
            memory, place = self._fresh(state.batch_size, 1, given.dtype)
        if not state.complete or memory[0].dtype != given.dtype:
            return None
        done = advance(*with_room(memory, place, 1), given, layer, False, None)
        if done.call.all_sure:
            history = (*state.history, done.actions)
            return NondeterministicState(done.reading, None, history, done.memory, done.place, time)
        weights = done.actions[:, None]
        return self._carry_on(dataclasses.replace(state, memory=(), place=None), weights, None)[1]

    def _scan(
        self, state: NondeterministicState, actions: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, NondeterministicState]:
        weights = self.log_weights(actions)
        if actions.shape[1] == 0:
            return state.reading.new_zeros(state.batch_size, 0, self.reading_size), state
        chunk = actions.shape[1] if self.window is None else max(256, 4 * self.window)
        readings = []
        for first in range(0, actions.shape[1], chunk):
            part = slice(first, first + chunk)
            some = None if pushed is None else pushed[:, part]
            reading, state = self._carry_on(state, weights[:, part], some)
            readings.append(reading)
        return readings[0] if len(readings) == 1 else torch.cat(readings, 1), state

    def _run_lstm(
        self,
        inputs: Tensor,
        weights: LSTMWeights,
        memory: tuple[Tensor, Tensor],
        state: NondeterministicState,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], NondeterministicState]:
        state = state.settled()
        tensors = (inputs, *weights, *memory, state.reading)
        same = all(tensor.dtype == inputs.dtype for tensor in tensors) and inputs.device.type == "cpu"
        linked = bool(state.memory) and state.memory[6].requires_grad
        if not same or linked or (state.time and not state.memory):
            return super()._run_lstm(inputs, weights, memory, state)
        driven = self._drive_all(inputs, weights, memory, state)
        hidden, readings, last, actions = (
            part.to(inputs.dtype)
            for part in (driven.hidden, driven.readings, driven.last_cell, driven.actions)
        )
        history = (*state.history, actions) if state.complete else ()
        time = state.time + inputs.shape[1]
        if self.window is not None and time > max(256, 4 * self.window):
            history = ()
        vectors = None if self.vector_size is None else driven.vectors.to(inputs.dtype)
        if not state.complete or driven.ok.all():
            new = NondeterministicState(readings[:, -1], vectors, history, driven.memory, driven.place, time)
            return hidden, readings, (hidden[:, -1], last), new
        if state.time:
            return super()._run_lstm(inputs, weights, memory, state)
        rows = (~driven.ok).nonzero().squeeze(-1)
        wide = [tensor[rows].double() for tensor in (inputs, *memory)]
        again = self._run_lstm if inputs.dtype == torch.float32 else super()._run_lstm
        better = again(
            wide[0],
            LSTMWeights(*(weight.double() for weight in weights)),
            (wide[1], wide[2]),
            self.start(len(rows), dtype=torch.float64),
        )

        def replaced(tensor: Tensor, part: Tensor) -> Tensor:
            return tensor.index_copy(0, rows, part.to(tensor.dtype))

        hidden, readings = replaced(hidden, better[0]), replaced(readings, better[1])
        actions = replaced(actions, joined(better[3].history, len(rows), self.action_size, time))
        if vectors is not None and better[3].vectors is not None:
            vectors = replaced(vectors, better[3].vectors)
        new = NondeterministicState(readings[:, -1], vectors, (actions,), (), None, time)
        return hidden, readings, (hidden[:, -1], replaced(last, better[2][1])), new

    def _drive_all(
        self,
        inputs: Tensor,
        weights: LSTMWeights,
        memory: tuple[Tensor, Tensor],
        state: NondeterministicState,
    ) -> Driven:
        """A whole sequence of controller and stacks in one operation."""
        steps, batch = inputs.shape[1], state.batch_size
        dtype = inputs.dtype if self.window is None else torch.float64
        charts, place = state.memory, state.place
        if place is None:
            charts, place = self._fresh(batch, steps, dtype)
        dtype = charts[0].dtype
        charts, place = with_room(charts, place, steps)
        vectors = inputs.new_zeros(batch, place.time + 1, 0)
        if state.vectors is not None:
            vectors = state.vectors[:, -(place.time + 1) :]
        return run_lstm(
            inputs.to(dtype),
            LSTMWeights(*(weight.to(dtype) for weight in weights)),
            (memory[0].to(dtype), memory[1].to(dtype), state.reading.to(dtype)),
            vectors.to(dtype),
            charts,
            place,
            normalized=self.normalized,
            by_state=self.read_states,
            limit=None if state.complete else math.inf,
        )

    def _carry_on(
        self, state: NondeterministicState, weights: Tensor, pushed: Tensor | None
    ) -> tuple[Tensor, NondeterministicState]:
        """Some steps with the given log weights [B, n, A] and vectors [B, n, m]."""
        refuse_transforms()
        if pushed is not None:
            weights, pushed = invalidate_together(weights, pushed)
        steps, time = weights.shape[1], state.time + weights.shape[1]
        history = (*state.history, weights) if state.complete else ()
        vectors = state.vectors
        if vectors is not None and pushed is not None:
            vectors = torch.cat([vectors, pushed], 1)
        memory: Memory = ()
        place = attention = None
        if steps > 1 and state.time == 0 and not compiled(weights):
            reading, attention = scan(weights, self._setting("portable"))
        else:
            reading, attention, memory, place = self._by_chart(state, weights, history)
            if vectors is not None:
                vectors = vectors[:, -(place.time + 1) :]
            if self.window is not None and time > max(256, 4 * self.window):
                history = ()
        shown = self._reading(reading, attention, vectors)
        new = NondeterministicState(shown[:, -1], vectors, history, memory, place, time)
        return shown, new

    def _setting(self, backend: str) -> Setting:
        attend = self.vector_size is not None
        return Setting(self.states, self.symbols, self.window, self.bottom_fix, backend, attend)

    def _by_chart(
        self, state: NondeterministicState, weights: Tensor, history: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor | None, Memory, Place]:
        """The steps by the compiled backend, on the CPU wherever the weights are."""
        dtype = weights.dtype if self.window is None else torch.float64
        if weights.is_meta:
            raise NdstackError("steps of a nondeterministic stack need numbers, but the tensors are on meta")
        memory, place = tuple(part.cpu() for part in state.memory), state.place
        if place is None:
            memory, place = self._fresh(state.batch_size, state.time + weights.shape[1], dtype)
            if state.time:
                past = joined(state.history, state.batch_size, self.action_size, state.time).cpu()
                *_, memory, place = self._advance(memory, place, past, state.history)
        reading, attention, memory, place = self._advance(memory, place, weights.cpu(), history)
        attention = None if attention is None else attention.to(weights)
        return reading.to(weights), attention, memory, place

    def _fresh(self, batch: int, steps: int, dtype: torch.dtype) -> tuple[Memory, Place]:
        band, dtype = self.window or 0, torch.promote_types(dtype, torch.float32)
        return start(batch, self.states, self.symbols, band, self.bottom_fix, steps, dtype)

    def _advance(
        self, memory: Memory, place: Place, weights: Tensor, history: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor | None, Memory, Place]:
        """Steps of the charts; in float64 or by the log-space reference where they may be wrong."""
        steps, attend, dtype = weights.shape[1], self.vector_size is not None, memory[0].dtype
        limit = None if history else math.inf
        given = weights.to(dtype)
        done = advance(*with_room(memory, place, steps), given, None, attend, limit)
        reading, attention, _, call, memory, place = done
        if not history and lost_too_much(memory):
            warnings.warn(
                "weights so far apart that float64 loses runs of the nondeterministic stack; "
                "readings may be inaccurate",
                RuntimeWarning,
                stacklevel=2,
            )
        if not history or call.all_sure:
            return reading, attention, memory, place
        past = joined(history, len(weights), self.action_size).to("cpu", torch.float64)
        if dtype == torch.float32:
            memory, place = self._fresh(past.shape[0], past.shape[1], torch.float64)
            reading, attention, memory, place = self._advance(memory, place, past, history)
            attention = None if attention is None else attention[:, -steps:]
            return reading[:, -steps:], attention, memory, place
        rows = torch.from_numpy(call.sure == UNTRUSTED).nonzero().squeeze(-1)
        better, places = in_log_space(past[rows], self._setting("reference"))
        reading = reading.index_copy(0, rows, better[:, -steps:])
        if attention is not None:
            kept = places[:, -steps:, :, -attention.shape[-1] :]
            attention = attention.index_copy(0, rows, kept)
        return reading, attention, memory, place

    def _reading(self, probability: Tensor, attention: Tensor | None, vectors: Tensor | None) -> Tensor:
        """The readings [B, n, R] from probabilities [B, n, K] and, with vectors, the attention."""
        if vectors is not None and attention is not None:
            probability = probability.unsqueeze(-1) * attended(attention, vectors)
        if not self.read_states:
            shape = (*probability.shape[:2], self.states, self.symbols, *probability.shape[3:])
            probability = probability.reshape(shape).sum(2)
        return probability.flatten(2)

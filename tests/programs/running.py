"""Runs one program, and the same by `whole`: values and derivatives of both, to be compared."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import random
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ndstack import stacks
from ndstack.nn import RNNState, StackRNN
from ndstack.stacks import Stack
from tests.programs import whole
from tests.programs.drawing import Op, Program
from tests.programs.whole import Network

ROUNDING = {"float32": 6e-8, "float64": 1.1e-16}
HIGHEST = 1e18
"""Readings of weights stop at 1e19 in float32, and have no derivatives there."""
UNITS = 3


class WrongError(AssertionError):
    """A value that is not what it should be."""


def make(stack: tuple[Any, ...]) -> Stack[Any]:
    name, *parts = stack
    if name == "several":
        return stacks.Several(*map(make, parts))
    made: Stack[Any] = getattr(stacks, name)(**parts[0])
    return made


@dataclasses.dataclass(frozen=True)
class Node:
    """A state, and all that led there."""

    state: Any
    truth: Any  # Past or Network


class Run:
    """One program.

    Attributes:
        twins: float64 twins of all tensors with derivatives, by id.
        leaves: names and tensors with derivatives.
        losses: ours and theirs, one pair for each line with readings.
        compared: what was compared, ours, theirs, and whether they should be equal but for rounding.

    Args:
        jitter: if not 0, all that the reference is given is changed by as much as rounding would; the
            number chooses how.
    """

    def __init__(self, program: Program, jitter: int = 0) -> None:
        self.program = program
        self.jitter = torch.Generator().manual_seed(jitter) if jitter else None
        self.compared: list[tuple[str, Tensor, Tensor, bool]] = []
        self.dtype: torch.dtype = getattr(torch, program.dtype)
        self.rng = random.Random(program.seed)
        torch.manual_seed(program.seed)
        self.stack = make(program.stack)
        self.rnn: StackRNN | None = None
        owner: torch.nn.Module = self.stack
        if program.network is not None:
            options = dict(program.network)
            sizes = options.pop("input_size"), options.pop("hidden_size")
            self.rnn = StackRNN(*sizes, self.stack, **options)
            owner, self.stack = self.rnn, self.rnn.stack
        owner.to(self.dtype)
        for parameter in owner.parameters():
            torch.nn.init.uniform_(parameter, -1.0, 1.0)
        self.leaves: list[tuple[str, Tensor]] = []
        self.twins: dict[int, Tensor] = {}
        for name, parameter in owner.named_parameters():
            self._leaf(name, parameter)
        self.losses: list[tuple[Tensor, Tensor]] = []
        self.nodes: list[Node | None] = [self._start()]

    def _leaf(self, name: str, tensor: Tensor) -> Tensor:
        self.leaves.append((name, tensor))
        twin = tensor.detach().double()
        if self.jitter is not None:
            change = 2 * torch.rand(twin.shape, generator=self.jitter, dtype=torch.float64) - 1
            twin = twin * (1 + ROUNDING[self.program.dtype] * change)
        self.twins[id(tensor)] = twin.requires_grad_()
        return tensor

    def _start(self) -> Node:
        past = whole.nothing(self.stack, self.program.batch)
        if self.rnn is None:
            return Node(self.stack.start(self.program.batch, dtype=self.dtype), past)
        state = self.rnn.start(self.program.batch, dtype=self.dtype)
        assert isinstance(state, RNNState)
        assert state.stack is not None
        reading = state.stack.reading.detach().double()
        inner = getattr(self.stack, "bottom", None)
        if inner is not None:  # r_0 shows the bottom's vector, which is learned
            shape = reading.reshape(reading.shape[0], -1, inner.numel())
            reading = torch.zeros_like(shape)
            reading[:, 0] = self.twins[id(inner)].sigmoid()
            reading = reading.flatten(1)
        elif isinstance(self.stack, stacks.Several):
            reading = torch.cat([self._first(part) for part in self.stack.stacks], 1)
        hidden, cells = ([part.double() for part in parts] for parts in (state.hidden, state.cells))
        return Node(state, Network(tuple(hidden), tuple(cells), past, reading))

    def _first(self, stack: Any) -> Tensor:
        reading: Tensor = stack.start(self.program.batch, dtype=torch.float64).reading.detach()
        if getattr(stack, "bottom", None) is None:
            return reading
        shape = torch.zeros_like(reading.reshape(reading.shape[0], -1, stack.bottom.numel()))
        shape[:, 0] = self.twins[id(stack.bottom)].sigmoid()
        return shape.flatten(1)

    def run(self) -> None:
        """Raises `WrongError`, or whatever the library raises."""
        kept = torch.get_num_threads()
        try:
            for number, op in enumerate(self.program.ops, 1):
                self.nodes.append(self._do(number, op))
            self._differentiate()
        finally:
            torch.set_num_threads(kept)

    def _do(self, number: int, op: Op) -> Node | None:
        if op.name == "threads":
            torch.set_num_threads(op.other)
            return None
        node = self.nodes[op.source]
        assert node is not None
        if op.name == "select":
            rows: Any = list(op.rows)
            state = node.state.select(self.rng.choice((rows, torch.tensor(rows))))
            return Node(state, node.truth.select(rows))
        if op.name == "detach":
            return Node(node.state.detach(), node.truth.detach())
        if op.name == "fork":
            self._fork(number, op, node)
            return None
        if op.name == "pair":
            return self._pair(number, op, node)
        ours, theirs, after = self._go(number, op, node)
        self._note(number, ours, theirs)
        return after

    def _go(self, number: int, op: Op, node: Node) -> tuple[Tensor, Tensor, Node]:
        """Our readings, theirs, and the state afterwards."""
        given = self._given(number, op, node)
        ours, state = self._ours(op, node, given)
        theirs, truth = self._theirs(op, node, given)
        return ours, theirs, Node(state, truth)

    def _given(self, number: int, op: Op, node: Node) -> list[Tensor]:
        """What the stack, or the network, is given: [B, n, ...] each."""
        stack, program = self.stack, self.program
        if op.name == "drive":
            sizes = [(self._batch(node), op.steps, UNITS), (stack.control_size, UNITS), (stack.control_size,)]
        elif self.rnn is not None:
            sizes = [(self._batch(node), op.steps, self.rnn.input_size)]
        else:
            sizes = [(self._batch(node), op.steps, size) for size in (stack.action_size, stack.push_size)]
        # a derivative by hidden units has the rounding of float32 times the weights of their layer
        scale = min(program.scale, 10.0) if op.name == "drive" else program.scale
        given = [torch.randn(size, dtype=self.dtype) * scale for size in sizes]
        if self.rnn is None and op.name != "drive":
            given[1] = torch.rand(sizes[1], dtype=self.dtype) - 0.3
            if program.lean:
                kinds = stack.states * stack.symbols
                widths = {"push": kinds**2, "replace": kinds**2, "pop": kinds * stack.states}
                parts = given[0].split(list(widths.values()), -1)
                parts[list(widths).index(program.lean)].add_(2 * program.scale)
            given[0][torch.rand(sizes[0]) < program.holes] = -math.inf
        if op.bad is not None:
            row, step, value = op.bad
            place = (
                given[1] if self.rnn is None and op.name != "drive" and self.rng.random() < 0.3 else given[0]
            )
            place = place if place.numel() else given[0]
            place[row, step, 0] = (
                value if place is given[0] and self.rnn is None and op.name != "drive" else math.nan
            )
        names = ["hidden units", "weights", "bias"] if op.name == "drive" else ["input"]
        if self.rnn is None and op.name != "drive":
            names = ["actions", "vectors"]
        return [
            self._leaf(f"{name} given to line {number}", part.requires_grad_())
            for name, part in zip(names, given, strict=True)
        ]

    def _batch(self, node: Node) -> int:
        return int(node.state.batch_size)

    def _ours(self, op: Op, node: Node, given: list[Tensor]) -> tuple[Tensor, Any]:
        cast = torch.autocast("cpu", torch.bfloat16, enabled=self.program.autocast)
        free: Any = torch.no_grad() if op.name == "no_grad" else contextlib.nullcontext()
        with cast, free:
            readings, state = self._forward(op, node.state, given)
        return readings, state.detach() if op.name == "no_grad" else state

    def _forward(self, op: Op, state: Any, given: list[Tensor]) -> tuple[Tensor, Any]:
        if self.rnn is not None:
            if op.name in ("scan", "pair", "fork"):
                return self.rnn(given[0], state)
            outputs = []
            for t in range(op.steps):
                output, state = self.rnn(given[0][:, t : t + 1], state)
                outputs.append(output)
            return torch.cat(outputs, 1), state
        actions, pushed = given[0], given[1] if self.stack.push_size else None
        if op.name in ("scan", "pair", "fork"):
            return self.stack.scan(actions, pushed, state)
        readings = []
        for t in range(op.steps):
            if op.name == "drive":
                state = self.stack.drive(state, given[0][:, t], given[1], given[2])
            else:
                state = self.stack.step(state, actions[:, t], None if pushed is None else pushed[:, t])
            readings.append(state.reading)
        return torch.stack(readings, 1), state

    def _theirs(self, op: Op, node: Node, given: list[Tensor]) -> tuple[Tensor, Any]:
        twins = [self.twins[id(part)] for part in given]
        with torch.no_grad() if op.name == "no_grad" else contextlib.nullcontext():
            if self.rnn is not None:
                found, truth = whole.network_run(
                    self.rnn, node.truth, twins[0], self.twins, self.program.backend
                )
            else:
                if op.name == "drive":
                    controls = torch.nn.functional.linear(*twins)
                    size = self.stack.action_size
                    squash = getattr(torch, self.stack.push_activation)
                    twins = [controls[..., :size], squash(controls[..., size:])]
                truth = node.truth.and_then(*twins[:2])
                found = whole.readings(self.stack, truth, self.twins, self.program.backend)[:, -op.steps :]
        return found, truth.detach() if op.name == "no_grad" else truth

    def _pair(self, number: int, op: Op, node: Node) -> Node:
        """Two chunks at the same time, each in a thread of its own."""
        other = self.nodes[op.other]
        assert other is not None
        both = [(one, self._given(number, op, one)) for one in (node, other)]
        found: list[Any] = [None, None]

        def work(place: int) -> None:
            try:
                found[place] = self._ours(op, *both[place])
            except Exception as error:
                found[place] = error

        threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = None
        for result, (one, given) in zip(found, both, strict=True):
            if isinstance(result, Exception):
                raise result
            theirs, truth = self._theirs(op, one, given)
            self._note(number, result[0], theirs)
            after = after or Node(result[1], truth)
        assert after is not None
        return after

    def _fork(self, number: int, op: Op, node: Node) -> None:
        """A chunk in a forked process, without derivatives: torch itself hangs there after a threaded one."""
        given = self._given(number, op, node)
        theirs, _ = self._theirs(op, node, given)
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_in_child, args=(there, lambda: self._ours(op, node, given)[0]))
        process.start()
        there.close()
        message = here.recv() if here.poll(50) else "nothing was heard of the forked process for 50 s"
        process.join(5)
        if process.is_alive():
            process.kill()
        if isinstance(message, str):
            raise WrongError(f"line {number}: {message}")
        self._compare(
            f"line {number}, in a forked process", torch.from_numpy(message), theirs, self._exact(op.name)
        )

    def _exact(self, name: str) -> bool:
        """Whether bfloat16 has no part in it."""
        return not self.program.autocast or (self.rnn is None and name != "drive")

    def _note(self, number: int, ours: Tensor, theirs: Tensor) -> None:
        op = self.program.ops[number - 1]
        exact = self._exact(op.name) and self._all_exact(op)
        if theirs.detach().nan_to_num().abs().max() > HIGHEST:
            exact, theirs, ours = False, theirs.detach(), ours.detach()
        self._compare(f"line {number}", ours, theirs, exact)
        factors = torch.rand(theirs.shape, dtype=torch.float64) - 0.3
        factors /= max(1.0, theirs.detach().nan_to_num().abs().max().item())  # weights of runs have no bound
        self.losses.append(((ours.double() * factors).sum(), (theirs * factors).sum()))

    def _all_exact(self, op: Op) -> bool:
        """Whether this is so for the lines that led here, too."""
        while op.source:
            op = self.program.ops[op.source - 1]
            if not self._exact(op.name):
                return False
        return True

    def _compare(self, what: str, ours: Tensor, theirs: Tensor, exact: bool) -> None:
        ours, theirs = ours.detach().double(), theirs.detach()
        if ours.shape != theirs.shape:
            raise WrongError(f"{what}: shape {list(ours.shape)}, expected {list(theirs.shape)}")
        if not torch.equal(ours.isnan(), theirs.isnan()):
            places = (ours.isnan() ^ theirs.isnan()).nonzero()[0].tolist()
            raise WrongError(
                f"{what}: nan at {places} {'expected' if theirs[tuple(places)].isnan() else 'found'}"
            )
        self.compared.append((what, ours.clone(), theirs.clone(), exact and ours.numel() > 0))

    def _differentiate(self) -> None:
        ours = [mine for mine, _ in self.losses if mine.requires_grad]
        theirs = [other for _, other in self.losses if other.requires_grad]
        if not ours or not theirs:
            if ours or theirs:
                raise WrongError("derivatives on one side only")
            return
        if self.program.halves and len(ours) > 1:
            cut = len(ours) // 2
            sum(ours[cut:]).backward(retain_graph=True)
            sum(ours[:cut]).backward()
        else:
            sum(ours).backward()
        sum(theirs).backward()
        exact = not self.program.autocast or all(self._exact(op.name) for op in self.program.ops)
        for name, leaf in self.leaves:
            twin = self.twins[id(leaf)]
            mine, other = (torch.zeros_like(t) if t.grad is None else t.grad for t in (leaf, twin))
            if any(op.bad for op in self.program.ops):
                other = _as_much_nan(mine, other)
                mine = mine.masked_fill(other.isnan() & self._may_miss_nan(name, leaf), math.nan)
            self._compare(f"derivative by {name}, {list(leaf.shape)}", mine, other, exact)

    def _may_miss_nan(self, name: str, leaf: Tensor) -> Tensor:
        """Where a derivative may be a number although theirs is nan: what had left the stack before the nan.

        Deterministic stacks pop all that they are given. With a window, a nondeterministic stack forgets the
        vectors that were pushed and the bottom's vector, but the weights of its runs go on; in a network, all
        parameters have a part in the vectors.
        """
        everywhere = torch.ones(leaf.shape, dtype=torch.bool)
        if not isinstance(self.stack, stacks.Nondeterministic):
            return everywhere
        if self.stack.window is None or self.stack.vector_size is None:
            return ~everywhere
        if self.rnn is not None or name.endswith("bottom") or name.startswith("vectors"):
            return everywhere
        return ~everywhere


def _as_much_nan(ours: Tensor, theirs: Tensor) -> Tensor:
    """Their derivatives with nan where ours may be so.

    One operation of many numbers gives 0 nan where separate ones would not have been reached: all of the
    sequence that had a nan, and all of a tensor that is shared by the sequences of a batch.
    """
    if ours.dim() < 3:
        return theirs.masked_fill(ours.isnan(), math.nan)
    spoiled = theirs.isnan().flatten(1).any(1)[:, None, None]
    return theirs.masked_fill(ours.isnan() & spoiled, math.nan)


def _in_child(pipe: Any, work: Callable[[], Tensor]) -> None:
    try:
        torch.set_num_threads(1)  # torch's own threads are not in a forked process, and it waits for them
        with torch.no_grad():
            found = work()
        pipe.send(found.detach().double().numpy())
    except Exception as error:
        pipe.send(f"{type(error).__name__} in a forked process: {error}")

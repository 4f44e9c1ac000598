"""Single steps of an LSTM with nondeterministic stacks as one operation equal cell and stack in turn."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ndstack.nn.fused import FusedLSTM, LSTMState, LSTMWeights, find, step_lstm
from ndstack.nn.fused.registry import LSTMRun
from ndstack.ops.runtime import short_calls, threads
from ndstack.stacks import Nondeterministic
from ndstack.stacks.nondeterministic import NondeterministicState

STACK, UNITS, BATCH = Nondeterministic(2, 2), 3, 3
Node = tuple[LSTMState, NondeterministicState]


def weights_of(seed: int, scale: float = 0.5, dtype: torch.dtype = torch.float64) -> LSTMWeights:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4 * UNITS, STACK.reading_size), (4 * UNITS, UNITS)]
    shapes += [(STACK.control_size, UNITS), (STACK.control_size,)]
    numbers = [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return LSTMWeights(*(part.to(dtype).requires_grad_() for part in numbers))


def inputs_of(steps: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(BATCH, steps, 4 * UNITS, generator=generator, dtype=torch.float64)
    return numbers.to(dtype).requires_grad_()


def start(dtype: torch.dtype = torch.float64) -> Node:
    zeros = torch.zeros(BATCH, UNITS, dtype=dtype)
    return (zeros, zeros), STACK.start(BATCH, dtype=dtype)


def weighted(tensors: list[Tensor]) -> Tensor:
    """A number that depends on every number of the tensors in a way of its own."""
    total = torch.zeros((), dtype=torch.float64)
    for place, tensor in enumerate(tensors):
        direction = torch.linspace(-1, 2, tensor.numel(), dtype=torch.float64).add(place).cos()
        total = total + (tensor.double() * direction.view(tensor.shape)).sum()
    return total


def ways() -> Iterator[FusedLSTM[NondeterministicState]]:
    """Steps as one operation, and as two."""
    yield find("lstm", STACK)
    yield FusedLSTM()


def run(
    way: FusedLSTM[NondeterministicState], inputs: Tensor, weights: LSTMWeights
) -> LSTMRun[NondeterministicState]:
    memory, state = start(inputs.dtype)
    return FusedLSTM.run(way, STACK, inputs, weights, memory, state)


def grow_tree(way: FusedLSTM[NondeterministicState], seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Hidden states, memory and readings of a random tree of states, and what they have derivatives by.

    States are continued again and again, with either of two controllers, sometimes after they have been cut
    off, or after some of their rows have been taken.
    """
    choose, gates = random.Random(seed), inputs_of(14, seed)
    nets = weights_of(seed), weights_of(seed + 1)
    nodes, shown = [start()], []
    for added in gates.unbind(1):
        latest = choose.random() < 0.6
        (hidden, cell), state = nodes[-1] if latest else choose.choice(nodes)
        net = nets[choose.random() < 0.2]
        kind = choose.random()
        if kind < 0.08:
            hidden, cell, state = hidden.detach(), cell.detach(), state.detach()
        elif kind < 0.2:
            rows = torch.tensor(choose.choices(range(BATCH), k=BATCH))
            hidden, cell, state = hidden[rows], cell[rows], state.select(rows)
        elif kind < 0.25:
            with torch.no_grad():
                (hidden, cell), state = way.step(STACK, added, net, (hidden, cell), state)
        nodes.append(way.step(STACK, added, net, (hidden, cell), state))
        shown += [*nodes[-1][0], nodes[-1][1].reading]
    return shown, [gates, *nets[0], *nets[1]]


@pytest.mark.parametrize("seed", range(12))
def test_trees_of_states(seed: int) -> None:
    found = []
    for way in ways():
        shown, leaves = grow_tree(way, seed)
        grads = torch.autograd.grad(weighted(shown), leaves, allow_unused=True)
        found.append([*shown, *(torch.zeros(()) if grad is None else grad for grad in grads)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_a_step_is_one_node() -> None:
    """Between h_t and h_{t-1} there is one operation; the weights are reached from the first of all."""
    weights, inputs = weights_of(0), inputs_of(2)
    first = step_lstm(STACK, inputs[:, 0], weights, *start())
    (hidden, cell), state = step_lstm(STACK, inputs[:, 1], weights, *first)
    assert hidden.grad_fn is cell.grad_fn is state.reading.grad_fn
    assert hidden.grad_fn is not None
    assert first[0][0].grad_fn is not None
    nodes = [{node for node, _ in h.grad_fn.next_functions if node} for h in (hidden, first[0][0])]
    assert first[0][0].grad_fn in nodes[0]
    assert [sum("AccumulateGrad" in node.name() for node in some) for some in nodes] == [0, 4]


def test_parts_of_a_graph_and_the_same_graph_again() -> None:
    """Weights get all of their derivatives from whatever part of the steps a loss depends on."""
    weights, inputs = weights_of(0), inputs_of(6)
    found = []
    for way in ways():
        hidden = run(way, inputs, weights).hidden.unbind(1)
        leaves = (inputs, *weights)
        grads = []
        for some in ([hidden[2]], [hidden[5]], [hidden[1], hidden[4]], [hidden[5]]):
            grads += torch.autograd.grad(weighted(some), leaves, retain_graph=True)
        state = torch.autograd.grad(weighted([hidden[5]]), inputs, retain_graph=True)
        found.append([*grads, *state])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_derivative_in_the_middle() -> None:
    """A backward pass that ends within a chain leaves nothing behind for the next one."""
    weights, inputs = weights_of(0), [inputs_of(1, t)[:, 0].detach().requires_grad_() for t in range(6)]
    found = []
    for way in ways():
        node = start()
        for added in inputs:
            node = way.step(STACK, added, weights, *node)
        loss = weighted([node[0][0]])
        middle = torch.autograd.grad(loss, inputs[2], retain_graph=True)
        both = torch.autograd.grad(loss, [inputs[3], *weights], retain_graph=True)
        found.append([*middle, *both, *torch.autograd.grad(loss, weights)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("frozen", [(0,), (2, 3), (0, 1, 2, 3)])
def test_frozen_weights(frozen: tuple[int, ...]) -> None:
    inputs, found = inputs_of(4), []
    for way in ways():
        weights = weights_of(0)
        for place in frozen:
            weights[place].requires_grad_(False)
        leaves = [inputs, *(part for part in weights if part.requires_grad)]
        found.append(torch.autograd.grad(weighted([run(way, inputs, weights).hidden]), leaves))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_weights_that_change_on_the_way() -> None:
    """Weights that are frozen, swapped for others, or changed in place after some steps, as in torch."""
    inputs, found = inputs_of(6), []
    for way in ways():
        weights, other = weights_of(0), weights_of(1)
        made = LSTMWeights(*(part * 2 for part in weights))  # results of operations, not leaves
        node, hidden = start(), []
        for t, added in enumerate(inputs.unbind(1)):
            if t == 2:
                weights.hidden.requires_grad_(False)
            if t == 4:
                weights.hidden.requires_grad_(True)
                weights.hidden.data = weights.hidden.data.clone()
            mixed = LSTMWeights(weights.reading, weights.hidden, *(other if t == 3 else made)[2:])
            node = way.step(STACK, added, mixed, *node)
            hidden.append(node[0][0])
        leaves = [inputs, *weights, other.control]
        found.append([*hidden, *torch.autograd.grad(weighted(hidden), leaves)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_weights_changed_behind_the_back_of_torch() -> None:
    weights, inputs = weights_of(0), inputs_of(3)
    with torch.no_grad():
        node = step_lstm(STACK, inputs[:, 0], weights, *start())
        weights.control.data.mul_(3.0)  # no new version of the tensor
        expected = FusedLSTM().step(STACK, inputs[:, 1], weights, *node)
        found = step_lstm(STACK, inputs[:, 1], weights, *node)
    torch.testing.assert_close(found[1].reading, expected[1].reading)


def test_weights_and_inputs_with_any_strides() -> None:
    weights, inputs = weights_of(0), inputs_of(3)
    first, second, third = (part.t().contiguous().t() for part in weights[:3])
    turned = LSTMWeights(first, second, third, torch.stack([weights[3], weights[3]], 1)[:, 0])
    wide = torch.cat([torch.zeros(4 * UNITS, 2), weights.reading], 1)[:, 2:]
    plain = run(find("lstm", STACK), inputs, weights)
    for other in (turned, weights._replace(reading=wide)):
        done = run(find("lstm", STACK), inputs.permute(2, 0, 1).contiguous().permute(1, 2, 0), other)
        torch.testing.assert_close(done.hidden, plain.hidden)
        ours, theirs = (
            torch.autograd.grad(one.hidden.sum(), weights, retain_graph=True) for one in (done, plain)
        )
        for mine, other_s in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other_s)


def test_what_a_transform_has_left_behind() -> None:
    left: list[Tensor] = []

    def loss(x: Tensor) -> Tensor:
        left.append(2 * x)
        return x.sum()

    weights, inputs = weights_of(0), inputs_of(1)[:, 0].detach()
    torch.func.grad(loss)(inputs)
    found, expected = (step_lstm(STACK, added, weights, *start()) for added in (left[0], 2 * inputs))
    assert torch.equal(found[1].reading, expected[1].reading)


@pytest.mark.parametrize("where", ["inputs", "gradient"])
def test_a_nan_stays_in_its_sequence(where: str) -> None:
    weights, inputs = weights_of(0), inputs_of(4).detach()
    if where == "inputs":
        inputs[1, 2, 0] = torch.nan
    inputs.requires_grad_()
    found = []
    for way in ways():
        done = run(way, inputs, weights)
        factor = torch.ones_like(done.readings)
        if where == "gradient":
            factor[1, 2, 0] = torch.nan
        grads = torch.autograd.grad((done.readings * factor).sum() + done.hidden.sum(), inputs)[0]
        found.append((done.hidden, done.readings, grads))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert not found[0][2][[0, 2]].isnan().any()
    assert found[0][2][1, 0].isnan().all()


def test_weights_too_far_apart_for_float32() -> None:
    """The guard takes over in the middle: further steps are in float64, with the same derivatives."""
    plain, large = weights_of(3, 0.1, torch.float32), weights_of(3, 200.0, torch.float32)
    weights, inputs = LSTMWeights(*plain[:2], *large[2:]), inputs_of(12, 3, torch.float32)
    found = []
    for way in ways():
        done = run(way, inputs, weights)
        assert done.state.chart is not None
        assert done.state.chart.dtype == torch.float64
        found.append([done.hidden, done.readings, *torch.autograd.grad(weighted([done.readings]), weights)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(threads.openmp() is None, reason="torch has no OpenMP library that is known")
def test_two_threads_share_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, inputs = weights_of(0), inputs_of(5)
    wanted = threads.get_wanted()
    found = []
    try:
        for count in (1, 2):
            threads.set_num_threads(count)
            monkeypatch.setattr(short_calls, "WORTH_A_WAITING_THREAD", 1)
            done = run(find("lstm", STACK), inputs, weights)
            found.append([done.hidden, *torch.autograd.grad(weighted([done.hidden]), weights)])
    finally:
        threads.set_num_threads(wanted)
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)

"""Mixed precision and odd tensors: the right numbers, or one line; in a fresh process with guard bytes."""

import copy
import dataclasses
import os
import pickle
import subprocess
import sys

import pytest
import torch

from ndstack import functional
from ndstack.errors import NdstackError
from ndstack.nn import StackRNN
from ndstack.nn.fused import LSTMWeights, run_lstm
from ndstack.stacks import Nondeterministic, NondeterministicState, Several, Stratification, Superposition

STACKS = {
    "nondeterministic": Nondeterministic(2, 3),
    "normalized": Nondeterministic(2, 2, normalized=True),
    "vectors": Nondeterministic(2, 2, 3),
    "window": Nondeterministic(2, 2, window=3),
    "superposition": Superposition(4),
    "superpositions": Superposition((1, 3), depth=3),
    "stratification": Stratification(4),
    "several": Several(Superposition(2), Nondeterministic(1, 2)),
}
UNITS = 5
every = pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)


def controls(stack, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, UNITS), (stack.control_size, UNITS), (stack.control_size,))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def after_two(stack, hidden, weight, bias):
    state = stack.drive(stack.start(2), hidden, weight, bias)
    return stack.drive(state, hidden, weight, bias)


@every
def test_autocast_changes_nothing_inside_a_stack(stack):
    hidden, weight, bias = controls(stack)
    expected, found = [], []
    for numbers, mixed in ((expected, False), (found, True)):
        own = weight.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            reading = after_two(stack, hidden, own, bias).reading
        reading.square().sum().backward()
        numbers += [reading.detach(), own.grad]
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found, expected)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_are_brought_to_that_of_the_state(stack, dtype):
    given = controls(stack, dtype)
    found = after_two(stack, *given).reading
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, after_two(stack, *(tensor.float() for tensor in given)).reading)


@every
def test_a_state_in_bfloat16_goes_on(stack):
    """A fresh one of a nondeterministic stack used to end in a KeyError."""
    given = controls(stack)
    state = stack.drive(stack.start(2).to(dtype=torch.bfloat16), *given)
    torch.testing.assert_close(
        state.reading.float(), stack.drive(stack.start(2), *given).reading, atol=0.02, rtol=0.02
    )


@every
def test_expanded_and_scattered_inputs(stack):
    hidden, weight, bias = controls(stack)
    expected = after_two(stack, hidden[:1].repeat(2, 1), weight, bias[:1].repeat(len(bias))).reading
    scattered = torch.stack([weight, -weight], 2)[:, :, 0].t().contiguous().t()
    found = after_two(stack, hidden[:1].expand(2, -1), scattered, bias[:1].expand(len(bias))).reading
    torch.testing.assert_close(found, expected)


@every
def test_what_is_no_ordinary_tensor_is_refused_in_one_line(stack):
    hidden, weight, bias = controls(stack)
    for bad in (
        hidden.tolist(),
        hidden.to_sparse(),
        hidden.to("meta"),
        hidden.to(torch.complex64),
        hidden[0],
    ):
        with pytest.raises(NdstackError) as caught:
            stack.drive(stack.start(2), bad, weight, bias)
        assert "\n" not in str(caught.value)


@every
def test_states_of_other_stacks_are_refused(stack):
    hidden, weight, bias = controls(stack)
    for other in STACKS.values():
        if other is not stack:
            state = after_two(other, *controls(other))
            with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
                stack.drive(state, hidden, weight, bias)


def test_a_state_with_the_same_reading_and_another_layout_is_refused():
    """It used to read zeros."""
    own, other = Nondeterministic(2, 2), Nondeterministic(4, 1)
    state = after_two(other, *controls(other))
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        own.step(state, torch.zeros(2, own.action_size))
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        own.scan(torch.zeros(2, 3, own.action_size), None, state)
    weights = LSTMWeights(
        *(torch.zeros(s) for s in ((20, 4), (20, 5), (own.control_size, 5), (own.control_size,)))
    )
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        run_lstm(own, torch.zeros(2, 3, 20), weights, (torch.zeros(2, 5), torch.zeros(2, 5)), state)


@every
def test_copied_and_pickled_states_go_on_alike(stack):
    with torch.no_grad():
        given = controls(stack)
        state = after_two(stack, *given)
        expected = stack.drive(state, *given).reading
        for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state)), state.select(slice(0, 2, 1))):
            assert torch.equal(stack.drive(other, *given).reading, expected)


def test_memory_that_has_been_moved_is_found_again():
    stack = Nondeterministic(2, 2)
    given = controls(stack)
    with torch.no_grad():
        state = after_two(stack, *given)
        expected = stack.drive(copy.deepcopy(state), *given).reading
        for tensor in state.chart.tensors:
            if tensor.numel() and tensor.is_contiguous():
                tensor.share_memory_()  # what sending it to another process does
        assert torch.equal(stack.drive(state, *given).reading, expected)


def test_every_second_stack_of_a_batch():
    stack = Nondeterministic(2, 2, 3)
    rnn = StackRNN(3, UNITS, stack)
    x = torch.randn(4, 6, 3)
    with torch.no_grad():
        state = rnn(x)[1]
        torch.testing.assert_close(rnn(x[::2], state.select(slice(0, 4, 2)))[0], rnn(x, state)[0][::2])


@pytest.mark.parametrize("sizes", [(2, 3.0), (2.5, 3), (2, 3, None, False, True, 2.5), ("2", 3)])
def test_sizes_that_are_no_whole_numbers(sizes):
    with pytest.raises(NdstackError, match="expected a whole number, 1 or more"):
        Nondeterministic(*sizes)
    with pytest.raises(NdstackError, match="expected a whole number, 1 or more"):
        Superposition(4, depth=2.5)
    with pytest.raises(NdstackError, match=r"window is 2\.5"):
        functional.nondeterministic(
            torch.zeros(1, 3, 1, 2, 1, 2),
            torch.zeros(1, 3, 1, 2, 1, 2),
            torch.zeros(1, 3, 1, 2, 1),
            window=2.5,
        )


MIXED = """
import torch
from ndstack.nn import StackRNN
from ndstack.stacks import *
for options in ({"controller": "gru"}, {"num_layers": 2}, {"reading_layers": 1}, {"controller": "rnn"}, {}):
    for stack in (Nondeterministic(2, 3), Superposition((2, 3)), Superposition(4), Stratification(4)):
        torch.manual_seed(0)
        rnn, x = StackRNN(8, 20, stack, **options), torch.randn(3, 9, 8)
        expected = rnn(x)[0]
        with torch.autocast("cpu", torch.bfloat16):
            found, state = rnn(x)
            found.sum().backward()
            rnn(x[:, :1], state)
        assert found.dtype == torch.float32 and (found - expected).abs().max() < 0.03
"""


@pytest.mark.compiled
def test_mixed_precision_in_a_process_that_notices():
    """It used to corrupt the heap."""
    surroundings = {**os.environ, "NDSTACK_GUARD": "1", "MALLOC_PERTURB_": "165"}
    done = subprocess.run(
        [sys.executable, "-c", MIXED], env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("network", [False, True])
def test_a_state_with_sparse_vectors_is_refused_in_one_line(network):
    rnn = StackRNN(2, 3, Nondeterministic(2, 2, vector_size=2))
    _, state = rnn(torch.zeros(2, 3, 2))
    assert isinstance(state.stack, NondeterministicState)
    assert state.stack.vectors is not None
    sparse = dataclasses.replace(state.stack, vectors=state.stack.vectors.detach().to_sparse())
    whole = dataclasses.replace(state, stack=sparse)
    zeros = torch.zeros(2, rnn.stack.action_size), torch.zeros(2, 2)
    call = (lambda: rnn(torch.zeros(2, 3, 2), whole)) if network else lambda: rnn.stack.step(sparse, *zeros)
    with pytest.raises(NdstackError, match=r"^[^\n]*$"):
        call()

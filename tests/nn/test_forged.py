"""States from files that are not what they say are refused in one line, before compiled code sees them."""

import json

import pytest
import torch

from ndstack.errors import NdstackError
from ndstack.nn import StackRNN
from ndstack.nn.networks.rnn import RNNState
from ndstack.nn.storage import states
from ndstack.stacks import Nondeterministic


def network(*sizes, **options):
    torch.manual_seed(0)
    return StackRNN(3, 4, Nondeterministic(*sizes, **options))


def packed(rnn, steps=6):
    with torch.no_grad():
        return states.pack_state(rnn(torch.ones(2, steps, 3))[1])


def change(tensors, edit):
    """The same with another structure."""
    structure = json.loads(bytes(tensors[states.STRUCTURE].tolist()))
    edit(structure["fields"]["stack"]["fields"])
    raw = bytearray(json.dumps(structure).encode())
    return {**tensors, states.STRUCTURE: torch.frombuffer(raw, dtype=torch.uint8)}


def test_the_chart_of_another_stack_with_the_same_reading():
    """It used to make the fused run write out of bounds."""
    tensors = packed(network(4, 1))
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        network(2, 2)(torch.ones(2, 3, 3), states.unpack_state(tensors))


@pytest.mark.parametrize(
    "options", [{}, {"controller": "gru"}, {"num_layers": 2}, {"reading_layers": 1}], ids=str
)
@pytest.mark.parametrize("steps", [1, 3])
def test_the_state_of_another_stack_passed_by_hand(options, steps):
    """The controller must not be the one to complain about the size of its input."""
    mine, other = (StackRNN(3, 4, Nondeterministic(2, symbols), **options) for symbols in (2, 3))
    _, state = other(torch.ones(2, 5, 3))
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        mine(torch.ones(2, steps, 3), state)


@pytest.mark.parametrize("given", [None, "a", [[[1.0]]], torch.ones(2, 3, 3, dtype=torch.long)])
def test_an_input_that_is_no_tensor_of_numbers(given):
    with pytest.raises(NdstackError, match="given as input, expected a tensor of floating-point numbers"):
        network(2, 2)(given)


EDITS = {
    "states": lambda chart: chart.update(layout=[4, 1, *chart["layout"][2:]]),
    "times": lambda chart: chart.update(layout=[*chart["layout"][:2], 10**6, 0]),
    "band": lambda chart: chart.update(layout=[*chart["layout"][:3], 2]),
    "later": lambda chart: chart.update(time=chart["time"] + 1),
    "earlier": lambda chart: chart.update(time=chart["time"] - 1),
    "bottom": lambda chart: chart.update(bottom_fix=1),
    "parts": lambda chart: chart.update(times=chart["times"][::-1]),
    "lost": lambda chart: chart.update(lost=chart["columns"]),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_chart_whose_sizes_and_tensors_disagree(edit):
    rnn = network(2, 2)
    tensors = change(packed(rnn), lambda stack: edit(stack["chart"]["chart"]))
    with pytest.raises(NdstackError) as caught:
        rnn(torch.ones(2, 3, 3), states.unpack_state(tensors))
    assert "\n" not in str(caught.value)


def test_a_chart_at_another_time_than_its_stack():
    rnn = network(2, 2)
    tensors = change(packed(rnn), lambda stack: stack.update(time={"value": 3}))
    with pytest.raises(NdstackError, match="the state belongs to a stack of other sizes"):
        rnn(torch.ones(2, 3, 3), states.unpack_state(tensors))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_a_state_of_other_numbers(dtype):
    rnn = network(2, 2, window=3)
    tensors = packed(rnn)
    stack = json.loads(bytes(tensors[states.STRUCTURE].tolist()))["fields"]["stack"]["fields"]
    chart = stack["chart"]["chart"]
    for part in (stack["reading"], chart["columns"], chart["lost"], *chart["times"]):
        name = part["tensor"]
        with pytest.raises(NdstackError):
            rnn(torch.ones(2, 3, 3), states.unpack_state({**tensors, name: tensors[name].to(dtype)}))


def test_a_state_that_holds_nothing():
    with pytest.raises(NdstackError, match="holds nothing"):
        network(2, 2)(torch.ones(2, 3, 3), RNNState((), (), None))

"""What `tests/fuzz_states.py` does: states from files and by hand that are not what they say."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from typing import Any

import torch

from ndstack.nn import StackRNN, Transformer
from ndstack.nn.storage import states
from ndstack.stacks import Nondeterministic, Several, State, Stratification, Superposition

FORGERIES: dict[str, Any] = {}
INPUT, UNITS = 3, 4
NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    127,
    128,
    4096,
    10**6,
    10**7 - 1,
    2**31,
    2**62,
    10**30,
    2.5,
    True,
    None,
    "1",
)


def forgery(function):
    FORGERIES[function.__name__] = function
    return function


@functools.cache
def stacks():
    return (
        Nondeterministic(2, 2),
        Nondeterministic(1, 4),
        Nondeterministic(4, 1),
        Nondeterministic(2, 2, bottom_fix=False),
        Nondeterministic(2, 2, normalized=True),
        Nondeterministic(2, 2, window=2),
        Nondeterministic(2, 2, window=3),
        Nondeterministic(2, 2, 3),
        Nondeterministic(2, 2, 3, window=2),
        Nondeterministic(2, 3, 2),
        Nondeterministic(2, 4, read_states=False),
        Superposition(4),
        Superposition(4, depth=2),
        Superposition((2, 2)),
        Superposition((1, 3), depth=3),
        Stratification(4),
        Several(Superposition(2), Nondeterministic(1, 2)),
    )


@functools.cache
def networks():
    torch.manual_seed(0)
    rnns = [StackRNN(INPUT, UNITS, copy.deepcopy(stack)) for stack in stacks()]
    rnns += [
        StackRNN(INPUT, UNITS, Nondeterministic(2, 2), controller="gru"),
        StackRNN(INPUT, UNITS, Nondeterministic(2, 2), num_layers=2),
        StackRNN(INPUT, UNITS, Nondeterministic(2, 2), normalize_reading=False),
        StackRNN(INPUT, UNITS, Superposition(4), num_layers=2),
        StackRNN(INPUT, UNITS, None),
    ]
    layers = ["attention", Superposition(2), Nondeterministic(1, 2, 3)]
    return (*rnns, Transformer(INPUT, layers, feedforward=4, heads=1))


def inputs(choice, batch=2, most=6):
    generator = torch.Generator().manual_seed(choice.randrange(10**6))
    return torch.randn(batch, choice.randint(1, most), INPUT, generator=generator)


def carry_on(network, state, choice, batch=2):
    """Whatever a network does with a state."""
    network.eval()
    for _ in range(choice.randint(1, 2)):
        output, state = network(inputs(choice, batch), state)
    if choice.random() < 0.5:
        output.sum().backward()
    state.detach().select([0])


def steps(stack, state, choice, batch=2):
    """Whatever a stack does with a state."""
    generator = torch.Generator().manual_seed(choice.randrange(10**6))

    def random(*shape):
        dtype = choice.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16])
        return torch.randn(*shape, generator=generator).to(dtype)

    way = choice.choice(["step", "drive", "scan", "lstm"])
    pushed = stack.push_size
    if way == "step":
        state = stack.step(state, random(batch, stack.action_size), random(batch, pushed) if pushed else None)
    elif way == "drive":
        size = stack.control_size
        state = stack.drive(state, random(batch, UNITS), random(size, UNITS), random(size))
    elif way == "scan":
        n = choice.randint(0, 5)
        actions, vectors = random(batch, n, stack.action_size), random(batch, n, pushed) if pushed else None
        state = stack.scan(actions, vectors, state)[1]
    else:
        from ndstack.nn.fused import LSTMWeights, run_lstm

        gates, size = 4 * UNITS, stack.control_size
        weights = random(gates, stack.reading_size), random(gates, UNITS), random(size, UNITS), random(size)
        memory = random(batch, UNITS), random(batch, UNITS)
        state = run_lstm(stack, random(batch, 3, gates), LSTMWeights(*weights), memory, state)[3]
    state.detach().select(slice(0, 1))


def changed_tensor(tensor, choice):
    """A tensor that is not quite the same."""
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    kinds = [
        torch.float16,
        torch.float32,
        torch.float64,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
    ]
    dimension = choice.randrange(tensor.dim()) if tensor.dim() else 0
    changes = [
        lambda: tensor.to(choice.choice(kinds)),
        lambda: tensor.new_zeros(()),
        lambda: tensor.new_zeros(0),
        lambda: tensor[None],
        lambda: tensor.flatten(),
        lambda: tensor * choice.choice([0.0, -1.0, 1e30, float("nan"), float("inf"), float("-inf")]),
    ]
    if tensor.dim():
        size = tensor.shape[dimension]
        changes += [
            lambda: tensor.narrow(dimension, 0, size // 2),
            lambda: torch.cat([tensor, tensor], dimension),
            lambda: tensor.transpose(0, -1).contiguous(),
            lambda: tensor.narrow(dimension, 0, min(size, 1)).contiguous(),
        ]
    return choice.choice(changes)()


def places(value, path=()):
    """All places in a JSON value, as paths of keys."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def change_structure(structure, names, choice):
    """Change one thing in the structure of a packed state."""
    path = choice.choice([path for path in places(structure) if path])
    *way, key = path
    inside = structure
    for step in way:
        inside = inside[step]
    value = inside[key]
    if isinstance(value, int | float) or value is None:
        inside[key] = (
            choice.choice(NUMBERS) if choice.random() < 0.5 else (value or 0) + choice.choice([-1, 1, 4])
        )
    elif isinstance(value, str):
        inside[key] = choice.choice(
            [*names, "RNNState", "NondeterministicState", "SuperpositionState", "", "State"]
        )
    elif isinstance(value, list) and value:
        choice.choice([value.pop, lambda: value.append(value[0]), value.reverse])()
    elif isinstance(inside, list):
        inside[key] = choice.choice(
            [{}, {"value": None}, {"value": 3}, {"tuple": []}, copy.deepcopy(inside[0])]
        )
    else:
        choice.choice(
            [lambda: inside.pop(key), lambda: inside.update({key: {"value": choice.choice(NUMBERS)}})]
        )()


@forgery
def checkpoint(choice):
    """A file with the state of a network in which some things are different."""
    network = choice.choice(networks())
    with torch.no_grad():
        state = network(inputs(choice, most=choice.choice([3, 9, 40])))[1]
    packed = {name: tensor.clone() for name, tensor in states.pack_state(state).items()}
    names = [name for name in packed if name != states.STRUCTURE]
    structure = json.loads(bytes(packed[states.STRUCTURE].tolist()))
    for _ in range(choice.choice([0, 1, 1, 1, 2, 3])):
        if choice.random() < 0.3 and names:
            name = choice.choice(names)
            packed[name] = changed_tensor(packed[name], choice)
        else:
            change_structure(structure, names, choice)
    raw = json.dumps(structure).encode()
    packed[states.STRUCTURE] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    carry_on(network, states.unpack_state(packed), choice)


@forgery
def chart(choice):
    """A file whose chart claims other sizes and another time than its tensors have."""
    network = choice.choice(
        [one for one in networks() if isinstance(getattr(one, "stack", None), Nondeterministic)]
    )
    with torch.no_grad():
        state = network(inputs(choice, most=40))[1]
    packed = dict(states.pack_state(state))
    structure = json.loads(bytes(packed[states.STRUCTURE].tolist()))
    stack = structure["fields"]["stack"]["fields"]
    claimed = stack["chart"]["chart"]
    for _ in range(choice.randint(1, 3)):
        which = choice.randrange(5)
        number = choice.choice(NUMBERS)
        if which < 4:
            claimed["layout"][which] = (
                number if choice.random() < 0.5 else claimed["layout"][which] + choice.choice([-1, 1, 4])
            )
        else:
            claimed["time"] = (
                number if choice.random() < 0.5 else claimed["time"] + choice.choice([-1, 1, -4, 4])
            )
            if choice.random() < 0.5:
                stack["time"] = {"value": claimed["time"]}
    if choice.random() < 0.5:  # tensors that agree with some of it
        for name in [name for name in packed if name != states.STRUCTURE]:
            if choice.random() < 0.3:
                packed[name] = changed_tensor(packed[name], choice)
    packed[states.STRUCTURE] = torch.frombuffer(bytearray(json.dumps(structure).encode()), dtype=torch.uint8)
    carry_on(network, states.unpack_state(packed), choice)


def state_of(stack, choice, batch=2, dtype=None):
    """A state of a stack after some steps, made in one way or another."""
    state = stack.start(batch, dtype=dtype)
    generator = torch.Generator().manual_seed(choice.randrange(10**6))
    for n in range(choice.randint(0, 3)):
        leading = (batch,) if n % 2 else (batch, choice.randint(1, 9))
        actions = torch.randn(*leading, stack.action_size, generator=generator)
        pushed = torch.randn(*leading, stack.push_size, generator=generator) if stack.push_size else None
        state = stack.step(state, actions, pushed) if n % 2 else stack.scan(actions, pushed, state)[1]
    return state


@forgery
def of_another(choice):
    """A state of another stack, batch, dtype or window."""
    own, other = choice.choice(stacks()), choice.choice(stacks())
    batch = choice.choice([1, 2, 2, 3])
    dtype = choice.choice([None, torch.float64, torch.float16, torch.bfloat16])
    state = state_of(choice.choice([own, other]), choice, batch, dtype)
    if choice.random() < 0.5:
        kinds = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.complex64]
        state = state.to(dtype=choice.choice(kinds))
    if choice.random() < 0.2:
        state = state.to(device="meta")
    if choice.random() < 0.5:
        state = state.select(choice.choice([slice(None, None, 2), [0, 0], slice(0, 0), torch.tensor([0])]))
    steps(own, state, choice, choice.choice([2, state.batch_size]))


@forgery
def by_hand(choice):
    """A state in which something has been put in place of something else."""
    stack = choice.choice(stacks())
    state, other = state_of(stack, choice), state_of(choice.choice(stacks()), choice)
    for _ in range(choice.randint(1, 2)):
        name = choice.choice([field.name for field in dataclasses.fields(state)])
        state = dataclasses.replace(state, **{name: _other_value(getattr(state, name), other, name, choice)})
    steps(stack, state, choice)


def _other_value(value: Any, other: State, name: str, choice: Any) -> Any:
    if choice.random() < 0.3 and hasattr(other, name):
        return getattr(other, name)
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and choice.random() < 0.3:
            return choice.choice(
                [value.to_sparse, lambda: value[:1].expand_as(value), lambda: value.to("meta")]
            )()
        return changed_tensor(value, choice)
    if isinstance(value, tuple) and value:
        at = choice.randrange(len(value))
        part = changed_tensor(value[at], choice) if isinstance(value[at], torch.Tensor) else other
        return choice.choice([(*value[:at], part, *value[at + 1 :]), value[:at], (*value, value[0]), ()])
    if isinstance(value, int):
        return choice.choice(NUMBERS)
    if dataclasses.is_dataclass(value) and not isinstance(value, State) and choice.random() < 0.8:
        forged = dataclasses.replace(value.store, bottom_fix=3)
        others = [{"time": value.time + 1}, {"time": -1}, {"time": 10**9}, {"store": forged}, {"links": ()}]
        return dataclasses.replace(value, **choice.choice([*others, {"lost": value.lost[:1]}]))
    return choice.choice([None, 3, (), other])


@forgery
def of_another_network(choice):
    """A state of another network."""
    one, other = choice.choice(networks()), choice.choice(networks())
    with torch.no_grad():
        state = other(inputs(choice, batch=choice.choice([1, 2])))[1]
    if choice.random() < 0.5:
        state = state.to(dtype=choice.choice([torch.float64, torch.bfloat16, torch.float16]))
    if choice.random() < 0.2:
        state = copy.deepcopy(state.detach())
    carry_on(one, state, choice)

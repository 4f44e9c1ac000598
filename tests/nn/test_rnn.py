"""StackRNN: fused, stepped and chunked runs agree, options change what they say, misuse gets one line."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ndstack.errors import NdstackError
from ndstack.nn import RNNState, StackRNN
from ndstack.nn.networks import controllers
from ndstack.nn.networks.unnormalized import Unnormalized
from ndstack.stacks import Nondeterministic, Several, Stratification, Superposition

STACKS = {
    "none": lambda: None,
    "sup": lambda: Superposition(3),
    "sup-2-2": lambda: Superposition((2, 2)),
    "strat": lambda: Stratification(3),
    "several": lambda: Several(Superposition(2), Superposition(3)),
    "rns": lambda: Nondeterministic(2, 2),
    "ns": lambda: Nondeterministic(2, 2, normalized=True, read_states=False, bottom_fix=False),
    "vrns": lambda: Nondeterministic(1, 2, 3),
    "window": lambda: Nondeterministic(2, 2, window=3),
}


def network(stack, input_size=4, hidden_size=5, dtype=torch.float64, **options):
    torch.manual_seed(1)
    return StackRNN(input_size, hidden_size, stack, **options).to(dtype)


def inputs(batch=3, n=7, size=4, dtype=torch.float64):
    return torch.randn(batch, n, size, dtype=dtype, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", [name for name in STACKS if name != "none"])
def test_one_operation_equals_steps_in_values_and_gradients(name):
    rnn = network(STACKS[name](), output_reading=True)
    assert rnn.in_one_operation
    results = []
    for single in (True, False):
        x = inputs().requires_grad_()
        output, state = rnn(x)
        if not single:
            hidden, readings, state = rnn._by_steps(x, rnn.start(3))
            output = torch.cat([hidden, readings], dim=2)
        rnn.zero_grad()
        (output.sin().sum() + state.cells[0].exp().sum()).backward()
        results.append((output, x.grad, *(p.grad.clone() for p in rnn.parameters())))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("layers", [1, 2])
def test_without_a_stack_it_is_torchs_own(controller, layers):
    rnn = network(None, num_layers=layers, controller=controller)
    own = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[controller]
    other = own(4, 5, layers, batch_first=True).double()
    other.load_state_dict(rnn.controller.state_dict())
    output, state = rnn(inputs())
    expected, last = other(inputs())
    torch.testing.assert_close(output, expected)
    hidden = last[0] if controller == "lstm" else last
    torch.testing.assert_close(torch.stack(state.hidden), hidden)
    assert len(state.cells) == (layers if controller == "lstm" else 0)


@pytest.mark.parametrize("vector_size", [None, 3])
def test_a_network_reads_weights_where_it_is_told_to(vector_size):
    rnn, x = network(Nondeterministic(2, 2, vector_size), normalize_reading=False), inputs()
    output, state = rnn(x)
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in rnn.parameters())
    assert (state.stack.reading.sum(1) - 1).abs().min() > 1e-3
    state, parts = rnn.start(3), []
    for part in x.split(2, dim=1):
        one, state = rnn(part, state)
        parts.append(one)
    torch.testing.assert_close(torch.cat(parts, 1), output)


@pytest.mark.parametrize("read_states", [True, False])
@pytest.mark.parametrize("window", [None, 3])
def test_unnormalised_vectors_are_readings_times_the_weight_of_all_runs(read_states, window):
    torch.manual_seed(0)
    original = Nondeterministic(2, 2, 3, read_states=read_states, window=window).double()
    torch.nn.init.normal_(original.bottom)
    stack = Unnormalized(original)
    assert list(stack.parameters()) == [original.bottom]
    actions = torch.randn(2, 7, stack.action_size, dtype=torch.float64, requires_grad=True)
    pushed = torch.rand(2, 7, 3, dtype=torch.float64, requires_grad=True)
    given = (actions, pushed, original.bottom)
    symbols = Nondeterministic(2, 2, window=window)
    total = Unnormalized(symbols)(actions)[0].sum(-1, keepdim=True)
    expected, found = original(actions, pushed)[0] * total, stack(actions, pushed)[0]
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    for own, other in zip(
        torch.autograd.grad((found * weights).sum(), given),
        torch.autograd.grad((expected * weights).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(own, other)
    torch.testing.assert_close(stack.start(2).reading, original.start(2).reading)


def test_weights_too_great_for_a_float_stay_finite():
    stack = Unnormalized(Nondeterministic(1, 2))
    actions = torch.full((1, 60, stack.action_size), 4.0, requires_grad=True)
    readings, _ = stack(actions)
    assert readings.isfinite().all()
    readings.log().sum().backward()
    assert actions.grad.isfinite().all()


OPTIONS = [
    {},
    {"num_layers": 2},
    {"controller": "gru"},
    {"controller": "rnn", "num_layers": 2},
    {"reading_layers": 2, "output_reading": True},
    {"output_reading": True},
]


@pytest.mark.parametrize(
    ("name", "options"),
    [(n, o) for n, o in itertools.product(STACKS, OPTIONS) if n != "none" or "output_reading" not in o],
)
def test_whole_equals_chunks_equals_steps(name, options):
    rnn, x = network(STACKS[name](), **options), inputs()
    whole, last = rnn(x)
    assert whole.shape == (3, 7, rnn.output_size)
    for sizes in ([7], [0, 3, 4], [1] * 7):
        state, parts = rnn.start(3), []
        for part in x.split(sizes, dim=1):
            output, state = rnn(part, state)
            parts.append(output)
        torch.testing.assert_close(torch.cat(parts, dim=1), whole)
        torch.testing.assert_close(state.hidden, last.hidden)
        torch.testing.assert_close(state.cells, last.cells)


@pytest.mark.parametrize("name", [name for name in STACKS if name != "none"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("sizes", [[5, 16], [10, 10, 1], [1] * 21])
def test_gradients_through_chunks_are_those_of_the_whole(name, layers, sizes):
    """Long enough for the memory of a chart to grow on the way."""
    rnn, x = network(STACKS[name](), num_layers=layers), torch.randn(2, 21, 4, dtype=torch.float64)
    weight = torch.randn(2, 21, rnn.output_size, dtype=torch.float64)
    parameters = [*rnn.parameters()]
    whole = torch.autograd.grad((rnn(x)[0] * weight).sum(), parameters)
    state, parts = None, []
    for part in x.split(sizes, dim=1):
        output, state = rnn(part, state)
        parts.append(output)
    chunked = torch.autograd.grad((torch.cat(parts, 1) * weight).sum(), parameters)
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", STACKS)
def test_half_precision_goes_in_and_comes_out(name, layers, dtype):
    rnn, x = network(STACKS[name](), num_layers=layers), inputs()
    expected = rnn(x)[0]
    rnn.to(dtype)
    first, state = rnn(x[:, :3].to(dtype))
    second, _ = rnn(x[:, 3:].to(dtype), state)
    assert second.dtype == dtype
    torch.testing.assert_close(torch.cat([first, second], 1).double(), expected, rtol=0, atol=0.1)
    second.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in rnn.parameters())


def test_layers_are_stacked_as_section_3_2_says():
    """Reading into the first layer, actions from the top one, written out with torch's own cells."""
    stack = Superposition(3)
    rnn, x = network(stack, num_layers=2), inputs()
    cells = [torch.nn.LSTMCell(7, 5).double(), torch.nn.LSTMCell(5, 5).double()]
    for layer, cell in enumerate(cells):
        cell.load_state_dict(
            {f"{name}": getattr(rnn.controller, f"{name}_l{layer}") for name in cell.state_dict()}
        )
    memory = [(torch.zeros(3, 5).double(),) * 2] * 2
    state, expected = stack.start(3, dtype=torch.float64), []
    for t in range(7):
        memory[0] = cells[0](torch.cat([x[:, t], state.reading], 1), memory[0])
        memory[1] = cells[1](memory[0][0], memory[1])
        top = memory[1][0]
        state = stack.step(state, rnn.actions(top), rnn.pushed(top).sigmoid())
        expected.append(top)
    torch.testing.assert_close(rnn(x)[0], torch.stack(expected, 1))


def test_hidden_states_are_pushed_as_they_are():
    stack = Superposition(5)
    rnn, x = network(stack, push_hidden=True), inputs()
    assert rnn.pushed is None
    hidden, state = rnn(x)
    actions = rnn.actions(hidden)
    readings, _ = stack(actions, hidden)
    torch.testing.assert_close(state.stack.reading, readings[:, -1])


def test_output_reading_does_not_lag():
    rnn, x = network(Superposition(3), output_reading=True), inputs()
    output, state = rnn(x)
    torch.testing.assert_close(output[:, -1], torch.cat([state.hidden[0], state.stack.reading], 1))
    start = rnn.start(3)
    assert torch.equal(rnn.initial_output(start), torch.zeros(3, 8).double())
    full = network(Nondeterministic(2, 2), output_reading=True)
    assert full.initial_output(full.start(1))[0].tolist() == [0.0] * 5 + [1.0, 0.0, 0.0, 0.0]


def test_reading_layers_stand_between_reading_and_controller():
    rnn = network(Superposition(3), reading_layers=2)
    assert rnn.controller.input_size == 4 + 5
    assert [tuple(p.shape) for n, p in rnn.named_parameters() if n.startswith("reader") and p.dim() == 2] == [
        (5, 3),
        (5, 5),
    ]


def test_state_can_be_detached_selected_and_moved():
    rnn, x = network(Nondeterministic(2, 2, 3)), inputs()
    _, state = rnn(x[:, :4])
    assert state.batch_size == 3
    cut = state.detach()
    assert state.hidden[0].requires_grad
    assert not cut.hidden[0].requires_grad
    assert not cut.stack.reading.requires_grad
    expected = rnn(x[:, 4:], state)[0]
    torch.testing.assert_close(rnn(x[:, 4:], cut)[0], expected)
    rows = [2, 0, 2]
    torch.testing.assert_close(rnn(x[rows, 4:], state.select(rows))[0], expected[rows])
    torch.testing.assert_close(rnn(x[:1, 4:], state.select(slice(0, 1)))[0], expected[:1])
    single = state.to(dtype=torch.float32)
    assert single.hidden[0].dtype == single.stack.reading.dtype == torch.float32
    output = copy.deepcopy(rnn).float()(x[:, 4:].float(), single.to("cpu"))[0]
    torch.testing.assert_close(output, expected.float(), atol=1e-5, rtol=1e-4)


def test_keys_of_the_state_dict_are_readable():
    keys = network(Superposition(3), reading_layers=1).state_dict().keys()
    assert sorted(keys) == sorted(
        [f"controller.{kind}_{end}_l0" for kind in ("weight", "bias") for end in ("ih", "hh")]
        + [f"{layer}.{kind}" for layer in ("actions", "pushed", "reader.0") for kind in ("weight", "bias")]
    )


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("size", [4, 1])
def test_gradient_checkpointing_gives_the_same_gradients(name, size):
    rnn = network(STACKS[name]())
    gradients = []
    for wrap in (lambda f, *a: f(*a), lambda f, *a: checkpoint(f, *a, use_reentrant=False)):
        rnn.zero_grad()
        state, total = rnn.start(3), torch.zeros(())
        for part in inputs().split(size, dim=1):
            output, state = wrap(rnn, part, state)
            total = total + output.sin().sum()
        total.backward()
        gradients.append([p.grad.clone() for p in rnn.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("name", ["none", "sup", "vrns"])
@pytest.mark.parametrize("n", [3, 1])
def test_compiling_falls_back_without_error(name, n):
    rnn = network(STACKS[name]())
    compiled = torch.compile(rnn, backend="eager")
    output, state = compiled(inputs(n=n))
    torch.testing.assert_close(output, rnn(inputs(n=n))[0])
    compiled(inputs(n=n), state)[0].sum().backward()
    assert all(p.grad is not None for p in rnn.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StackRNN(4, 5, None, controller="lstn"), "there is no controller called 'lstn'"),
        (lambda: StackRNN(4, 0, None), "hidden_size is 0"),
        (lambda: StackRNN(4, 5, None, num_layers=0), "num_layers is 0"),
        (lambda: StackRNN(4.0, 5, None), "input_size is 4.0, expected a whole number"),
        (lambda: StackRNN(4, True, None), "hidden_size is True, expected a whole number"),
        (lambda: StackRNN(4, 5, None, num_layers="2"), "num_layers is '2', expected a whole number"),
        (lambda: StackRNN(4, 5, "rns-2-3"), "'rns-2-3' given as the stack"),
        (lambda: Nondeterministic(2, 3.0), "symbols is 3.0, expected a whole number"),
        (lambda: Nondeterministic(2, 3, window=2.5), "window is 2.5, expected a whole number"),
        (lambda: Nondeterministic(False, 3), "states is False, expected a whole number"),
        (lambda: Nondeterministic(2, 3, torch.tensor(1.0)), "vector_size is .* expected a whole number"),
        (lambda: StackRNN(4, 5, None, output_reading=True), "need a stack"),
        (lambda: StackRNN(4, 5, None, normalize_reading=False), "needs a nondeterministic stack"),
        (lambda: StackRNN(4, 5, Superposition(3), normalize_reading=False), "is for nondeterministic stacks"),
        (lambda: StackRNN(4, 5, Superposition(3), reading_layers=-1), "expected 0 or more"),
        (lambda: StackRNN(4, 5, Superposition(3), push_hidden=True), "expected the hidden size 5"),
        (lambda: network(None)(inputs(size=3)), r"expected \[batch, length, 4\]"),
        (lambda: network(None)(inputs(), network(None).start(2)), r"\[3, 7, 4\] given, expected \[2, length"),
        (lambda: network(None)(inputs(), object()), "expected the RNNState"),
    ],
)
def test_misuse_gets_one_line(make, message):
    with pytest.raises(NdstackError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", STACKS)
def test_an_empty_sequence_changes_nothing(name):
    rnn = network(STACKS[name]())
    output, state = rnn(inputs(n=0))
    assert output.shape == (3, 0, 5)
    assert isinstance(state, RNNState)
    torch.testing.assert_close(rnn(inputs(), state)[0], rnn(inputs())[0])


@pytest.mark.parametrize(
    "options",
    [{}, {"window": 3}, {"bottom_fix": False}, {"normalized": True, "read_states": False}],
    ids=str,
)
def test_unnormalised_readings_are_the_weights_of_runs(options):
    original = Nondeterministic(2, 2, **options)
    stack = Unnormalized(original)
    actions = inputs(batch=2, n=4, size=stack.action_size)
    readings, state = stack(actions)
    for row in range(2):
        expected = weights_of_runs(original, original.log_weights(actions[row]))
        torch.testing.assert_close(readings[row], expected)
    again, middle = stack(actions[:, :2])
    parts = torch.cat([again, stack(actions[:, 2:], state=middle)[0]], 1)
    torch.testing.assert_close(parts, readings)
    assert torch.equal(state.reading, readings[:, -1])
    nothing, same = stack(actions[:, :0], state=state)
    assert nothing.shape == (2, 0, stack.reading_size)
    assert same is state


def weights_of_runs(stack, log_weights):
    """[n, R]: every run as a list of elements, each with the time of its push."""
    n, states, symbols = len(log_weights), stack.states, stack.symbols
    square = (states, symbols, states, symbols)
    runs, readings = [(0, [(0, 0)], 1.0)], []  # a state, (symbol, time of push) from the bottom, a weight
    for time in range(1, n + 1):
        weights = log_weights[time - 1].exp()
        push, replace, pop = weights.split(
            [states * symbols * states * symbols] * 2 + [states * symbols * states]
        )
        push, replace, pop = push.view(square), replace.view(square), pop.view(square[:3])
        new = []
        for q, elements, weight in runs:
            top, pushed = elements[-1]
            bottom = len(elements) == 1
            for r in range(states):
                for y in range(symbols):
                    new.append((r, [*elements, (y, time)], weight * push[q, top, r, y]))
                    if not bottom or stack.bottom_fix:
                        new.append((r, [*elements[:-1], (y, pushed)], weight * replace[q, top, r, y]))
                if len(elements) > (1 if stack.bottom_fix else 2):
                    new.append((r, elements[:-1], weight * pop[q, top, r]))
        runs = [run for run in new if stack.window is None or time - run[1][-1][1] < stack.window]
        reading = torch.zeros(states, symbols, dtype=torch.float64)
        for r, elements, weight in runs:
            reading[r, elements[-1][0]] += weight
        readings.append(reading if stack.read_states else reading.sum(0))
    return torch.stack(readings).flatten(1)


def test_sizes_may_be_integers_of_numpy():
    two = np.int64(2)
    rnn = StackRNN(two, two, Nondeterministic(two, two, two))
    assert type(rnn.stack.states) is type(rnn.hidden_size) is int
    assert Superposition(two).sizes == Superposition([two]).sizes == (2,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_runs_in_mixed_precision_on_any_cpu(dtype, layers, monkeypatch):
    """oneDNN has no such LSTM for CPUs without AVX-512."""
    torch.manual_seed(0)
    rnn, x = StackRNN(4, 5, None, layers), torch.randn(2, 3, 4)
    expected = rnn(x)[0]
    for known in (None, False):  # whatever this CPU has, and as on one that has not
        if known is not None:
            monkeypatch.setattr(controllers, "_has_lstm", lambda dtype: False)
        with torch.autocast("cpu", dtype):
            output, state = rnn(x)
            again, _ = rnn(x, state)
        (output.sum() + again.sum()).backward()
        torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)
        assert rnn.controller.weight_hh_l0.grad.isfinite().all()

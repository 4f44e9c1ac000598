"""Layers with stacks as parts of graphs of `torch.compile`, compared with the networks as they are."""

import copy
import pickle

import pytest
import torch
from torch import _dynamo

from ndstack.errors import NdstackError
from ndstack.nn import RaggedState, StackAttention, StackRNN
from ndstack.nn.storage.states import pack_state, unpack_state
from ndstack.ops.runtime import backends, in_graph
from ndstack.stacks import Nondeterministic, Stratification, Superposition

pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore")]  # of torch


def encoder_layer(stack, **options):
    layer = torch.nn.TransformerEncoderLayer(6, 2, 5, dropout=0.0, batch_first=True)
    layer.self_attn = StackAttention(6, stack, **options)
    return layer


LAYERS = {
    "rns": lambda: StackRNN(6, 4, Nondeterministic(2, 2)),
    "ns": lambda: StackRNN(6, 4, Nondeterministic(2, 2, normalized=True, read_states=False)),
    "old bottom": lambda: StackRNN(6, 4, Nondeterministic(2, 2, bottom_fix=False), output_reading=True),
    "vectors": lambda: StackRNN(6, 4, Nondeterministic(2, 2, 3)),
    "window": lambda: StackRNN(6, 4, Nondeterministic(1, 2, window=3)),
    "both": lambda: StackRNN(6, 4, Nondeterministic(1, 2, 2, read_states=False, window=2)),
    "sup": lambda: StackRNN(6, 4, Superposition(3)),
    "sup, three shallow ones": lambda: StackRNN(6, 4, Superposition((2, 2, 2), depth=4)),
    "strat": lambda: StackRNN(6, 4, Stratification(3), output_reading=True),
    "in both directions": lambda: StackRNN(6, 4, Superposition(3), bidirectional=True),
    "time first": lambda: StackRNN(6, 4, Nondeterministic(1, 2), batch_first=False),
    "attention, sup": lambda: StackAttention(6, Superposition(6, depth=4)),
    "attention, uneven sup": lambda: StackAttention(6, Superposition((1, 2)), exp_pushes=True),
    "attention, strat": lambda: StackAttention(6, Stratification(4)),
    "attention, time first": lambda: StackAttention(6, Superposition(3), batch_first=False),
    "torch's layer": lambda: encoder_layer(Superposition(3)),
}

BROKEN = {
    "gru": lambda: StackRNN(6, 4, Superposition(2), controller="gru"),
    "two layers": lambda: StackRNN(6, 4, Superposition(2), num_layers=2),
    "uneven": lambda: StackRNN(6, 4, Superposition((1, 2))),
    "attention, rns": lambda: StackAttention(6, Nondeterministic(1, 2)),
}


class Around(torch.nn.Module):
    """A network of a user's own."""

    def __init__(self, layer):
        super().__init__()
        self.before, self.layer = torch.nn.Linear(5, 6), layer

    def forward(self, x, **options):
        found = self.layer(self.before(x), **options)
        return torch.nn.functional.gelu(found[0] if isinstance(found, tuple) else found)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    _dynamo.reset()
    _dynamo.utils.counters.clear()


def network(name):
    return Around((LAYERS | BROKEN)[name]()).double()


def compiled(module, *, fullgraph=True):
    return torch.compile(module, backend="aot_eager", fullgraph=fullgraph)


def inputs(n=7, batch=3):
    return torch.randn(batch, n, 5, dtype=torch.double)


def derivatives(module, called, *given, **options):
    """Return outputs and the gradients of everything."""
    module.zero_grad()
    output = called(*given, **options)
    output.sin().sum().backward()
    grads = [(weight, weight.grad) for weight in module.parameters()]
    return [
        output.detach(),
        *(torch.zeros_like(weight) if grad is None else grad.clone() for weight, grad in grads),
    ]


def check(module, called, *given, **options):
    found = derivatives(module, called, *given, **options)
    torch.testing.assert_close(found, derivatives(module, module, *given, **options))


@pytest.mark.parametrize("name", LAYERS)
def test_a_network_around_a_layer_is_one_graph_for_all_sizes(name):
    module = network(name)
    called = compiled(module)
    for n, batch in ((7, 3), (6, 3), (2, 3), (3, 2)):
        check(module, called, inputs(n, batch))
    made = _dynamo.utils.counters["stats"]["unique_graphs"]
    assert made <= 3  # for the sizes that came first; then for any length; then for any batch, too


def test_time_first_and_one_string():
    module, x = network("time first"), inputs(n=1, batch=7)  # which is [n, B, size] here
    check(module, compiled(module), x)


@pytest.mark.parametrize("name", ["rns", "vectors", "sup", "strat", "attention, sup"])
def test_without_derivatives_it_is_one_graph_too(name):
    module, x = network(name), inputs()
    with torch.no_grad():
        torch.testing.assert_close(compiled(module)(x), module(x))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(module)(x), module(x))
    for weight in module.layer.parameters():
        weight.requires_grad_(False)
    compiled(module)(x).sum().backward()
    found = module.before.weight.grad.clone()
    module.zero_grad()
    module(x).sum().backward()
    torch.testing.assert_close(found, module.before.weight.grad)


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_part_of_a_graph_breaks_it_once(name):
    module = network(name)
    found = _dynamo.explain(module)(inputs())
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    _dynamo.reset()
    check(module, compiled(module, fullgraph=False), inputs())


@pytest.mark.parametrize("name", ["rns", "sup"])
def test_a_list_of_lengths_breaks_it_once(name):
    module, lengths = network(name), [7, 2, 5]
    found = _dynamo.explain(module)(inputs(), lengths=lengths)
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    check(module, compiled(module, fullgraph=False), inputs(), lengths=lengths)


def test_lists_of_other_lengths_need_no_other_graphs():
    module, x = WithState(LAYERS["sup"]()).double(), inputs()
    called = compiled(module, fullgraph=False)
    for lengths in ([7, 2, 5], [7, 6, 1], [2, 3, 7], [0, 0, 1]):
        torch.testing.assert_close(called(x, lengths=lengths)[0], module(x, lengths=lengths)[0])
    assert _dynamo.utils.counters["stats"]["unique_graphs"] == 2  # before the layer, and after it


RECURRENT = ["rns", "vectors", "sup", "strat", "old bottom", "in both directions", "time first"]


@pytest.mark.parametrize("name", RECURRENT)
def test_lengths_in_a_tensor_are_part_of_the_graph(name):
    module = network(name)
    called, dim = compiled(module), 0 if name == "time first" else 1
    for lengths in ([7, 2, 5], [7, 7, 7], [0, 0, 1], [0, 0, 0], [3, 2], [6, 1, 0, 2]):
        x = inputs(batch=len(lengths))
        for row, length in enumerate(lengths):
            x[row, length:] = 1e6
        x = x.transpose(0, 1) if dim == 0 else x
        check(module, called, x, lengths=torch.tensor(lengths))
    assert _dynamo.utils.counters["stats"]["unique_graphs"] <= 2  # for the first batch; then for any batch


def test_wrong_lengths_are_refused_when_the_graph_runs():
    module = network("sup")
    called = compiled(module)
    called(inputs(), lengths=torch.tensor([7, 1, 2]))
    for wrong, message in {(8, 1, 1): "a string of length 8", (-1, 1, 1): "a string of length -1"}.items():
        with pytest.raises(NdstackError, match=message):
            called(inputs(), lengths=torch.tensor(wrong))
    called = compiled(module, fullgraph=False)
    with pytest.raises(NdstackError, match="2 lengths given for a batch of 3"):
        called(inputs(), lengths=torch.tensor([7, 1]))
    with pytest.raises(NdstackError, match="expected whole numbers"):
        called(inputs(), lengths=torch.tensor([7.0, 1.0, 2.0]))


class WithState(torch.nn.Module):
    """A network that gives its state, too."""

    def __init__(self, layer):
        super().__init__()
        self.before, self.layer = torch.nn.Linear(5, 6), layer

    def forward(self, x, state=None, lengths=None):
        output, state = self.layer(self.before(x), state, lengths)
        return output.sin(), state


@pytest.mark.parametrize("name", ["rns", "both", "sup", "strat", "in both directions"])
def test_states_after_padded_strings_come_out_of_the_graph(name):
    module, lengths = WithState(LAYERS[name]()).double(), torch.tensor([7, 0, 5, 5])
    called, x, more = compiled(module), inputs(batch=4), inputs(n=2, batch=4)

    def both(network):
        output, state = network(x, lengths=lengths)
        after, last = module(more, state)
        parts = [*state.hidden, *state.cells, *last.hidden, *last.cells]
        return torch.cat([part.flatten() for part in (output, after, *parts)])

    torch.testing.assert_close(
        derivatives(module, lambda: both(called)), derivatives(module, lambda: both(module))
    )


def test_what_a_state_out_of_a_graph_can_do():
    module, lengths = WithState(LAYERS["rns"]()).double(), torch.tensor([7, 0, 5, 5])
    called, x, more = compiled(module), inputs(batch=4), inputs(n=2, batch=4)
    expected = module(more, module(x, lengths=lengths)[1])[0]

    def state():
        found = called(x, lengths=lengths)[1]
        assert isinstance(found, RaggedState)
        return found

    assert state().batch_size == 4
    for again in (
        state().detach(),
        copy.deepcopy(state().detach()),
        pickle.loads(pickle.dumps(state().detach())),
        unpack_state(pack_state(state())),
        state().select([0, 1, 2, 3]),
    ):
        torch.testing.assert_close(module(more, again)[0], expected)
    torch.testing.assert_close(module(more[2:3], state().of(2))[0], expected[2:3])
    with torch.no_grad():
        assert not called(x, lengths=lengths)[1].cells[0].requires_grad
        assert state().cells[0].requires_grad is False
    assert state().cells[0].requires_grad
    late, replaced, asked = state(), state(), state()
    with torch.autocast("cpu", torch.bfloat16):
        assert asked.cells[0].dtype == torch.double
    with torch.no_grad():
        module.layer.controller.weight_hh_l0 += 1
    with pytest.raises(NdstackError, match="the network has changed"):
        _ = late.groups
    assert late.hidden[0].shape == (4, 4)
    again = state()
    module.layer.controller = copy.deepcopy(module.layer.controller)
    for old in (replaced, again):
        with pytest.raises(NdstackError, match="the network has changed"):
            _ = old.cells


PADDED = torch.tensor([[False] * 7, [True] * 2 + [False] * 5, [False, True, False] + [True] * 4])
MASKED = {
    "sup": Superposition(3),
    "uneven": Superposition((1, 2), depth=3),
    "together": Superposition((1, 2), synchronized=True),
    "strat": Stratification(4),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("masks", ["padding", "causal", "both"])
def test_masks_are_part_of_the_graph(name, masks):
    module = Around(encoder_layer(MASKED[name], exp_pushes=name == "uneven")).double()
    called, options = compiled(module), {}
    for hidden, n in ((PADDED, 7), (~PADDED, 7), (PADDED[:2, :4], 4)):
        if masks != "causal":
            options["src_key_padding_mask"] = hidden
        if masks != "padding":
            options["src_mask"] = torch.ones(n, n, dtype=torch.bool).triu(1)
        check(module, called, inputs(n, len(hidden)), **options)
    assert _dynamo.utils.counters["stats"]["unique_graphs"] <= 3


def test_masks_are_checked_when_the_graph_runs():
    module = Around(encoder_layer(Superposition(3))).double()
    called = compiled(module)
    called(inputs(), src_mask=torch.nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.double))
    with pytest.raises(NdstackError, match="that is not causal"):
        called(inputs(), src_mask=torch.zeros(7, 7, dtype=torch.double))
    attention = Around(module.layer.self_attn).double()
    added = torch.zeros(PADDED.shape, dtype=torch.double).masked_fill(PADDED, -torch.inf)
    check(attention, compiled(attention), inputs(), key_padding_mask=added)
    for wrong in (torch.ones_like(added), torch.ones_like(added, dtype=torch.long)):
        called = compiled(attention, fullgraph=False)
        with pytest.raises(NdstackError, match="key_padding_mask=attention_mask == 0"):
            called(inputs(), key_padding_mask=wrong)


@pytest.mark.parametrize("name", ["rns", "vectors", "window", "both", "sup", "strat"])
def test_chunks_of_a_compiled_network_are_the_whole(name):
    module = WithState(LAYERS[name]()).double()
    called = compiled(module, fullgraph=False)

    def in_chunks(x):
        outputs, state = [], None
        for part in x.split([3, 2, 1, 1], dim=1):
            output, state = called(part, state)
            outputs.append(output)
        return torch.cat(outputs, dim=1)

    x = inputs()
    torch.testing.assert_close(
        derivatives(module, in_chunks, x), derivatives(module, lambda x: module(x)[0], x)
    )


@pytest.mark.parametrize("name", ["rns", "vectors", "window"])
def test_sequences_that_float32_is_too_narrow_for(name, monkeypatch):
    module, apart, calls = network(name).float(), in_graph.apart, []
    monkeypatch.setattr(in_graph, "apart", lambda work: calls.append(work) or apart(work))
    with torch.no_grad():
        module.layer.actions.weight *= 3000
        for weight in module.layer.stack.parameters():  # the vector of the bottom
            weight.uniform_(-1, 1)
    x = inputs(n=30).float()
    found = derivatives(module, compiled(module), x)
    assert len(calls) == 2  # forwards and backwards
    torch.testing.assert_close(found, derivatives(module, module, x), rtol=1e-3, atol=1e-3)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(module)(x), module(x), rtol=1e-3, atol=1e-3)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["rns", "both", "sup", "strat", "attention, sup", "attention, strat"])
def test_what_is_kept_for_derivatives_may_be_copied(name):
    module, x = network(name), inputs()
    called = compiled(module)
    with torch.autograd.graph.save_on_cpu():
        output = called(x)
    output.sin().sum().backward()
    found = [weight.grad.clone() for weight in module.parameters()]
    torch.testing.assert_close(found, derivatives(module, module, x)[1:])


@pytest.mark.parametrize("name", ["rns", "attention, sup"])
def test_derivatives_twice_and_by_some_weights(name):
    module, x, weights = network(name), inputs(), []
    called = compiled(module)
    loss = called(x).sin().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    twice = [weight.grad / 2 for weight in module.parameters()]
    torch.testing.assert_close(twice, derivatives(module, module, x)[1:])
    weights = list(module.layer.parameters())
    found = torch.autograd.grad(called(x).sum(), weights)
    torch.testing.assert_close(found, torch.autograd.grad(module(x).sum(), weights))


def test_changes_after_compiling_count():
    module, x = network("sup"), inputs()
    called = compiled(module, fullgraph=False)
    called(x)
    module.layer.load_state_dict(LAYERS["sup"]().double().state_dict(), assign=True)
    check(module, called, x)
    other = copy.deepcopy(module)
    module.layer.controller = torch.nn.LSTM(9, 4, batch_first=True).double()
    check(module, called, x)
    assert not torch.equal(called(x), other(x))
    check(other, compiled(other), x)
    module.layer.actions = torch.nn.Sequential(module.layer.actions)
    check(module, called, x)


def test_other_backends_precisions_and_transforms_are_left_alone():
    module, x = network("sup").float(), inputs().float()
    called = compiled(module, fullgraph=False)
    expected = module(x)
    with backends.using("portable"):
        torch.testing.assert_close(called(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(called(x), module(x), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(called(x), expected)
    each = torch.func.vmap(module)
    torch.testing.assert_close(compiled(each, fullgraph=False)(x[None]), expected[None])
    with pytest.raises(NdstackError, match=r"input of torch.float64 given to a network of torch.float32"):
        compiled(lambda x: module.layer(torch.cat([x, x[..., :1]], dim=2)), fullgraph=False)(x.double())


@pytest.mark.parametrize("name", ["rns", "sup", "strat", "attention, sup", "in both directions"])
def test_a_layer_alone_is_called_as_it_is(name):
    """A graph of one operation would take longer."""
    found = _dynamo.explain(LAYERS[name]())(torch.randn(2, 5, 6))
    assert (found.graph_count, found.op_count) == (0, 0)

"""Strings of different lengths in one batch: all numbers and derivatives are those of the strings alone."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from ndstack import register
from ndstack.errors import NdstackError
from ndstack.nn import Backbone, LanguageModel, RaggedState, StackRNN, Transformer, models
from ndstack.nn.storage.states import pack_state, unpack_state
from ndstack.stacks import Nondeterministic, Several, Stratification, Superposition

LENGTHS = [4, 0, 6, 4, 1]
STACKS = {
    "none": lambda: None,
    "sup": lambda: Superposition(3),
    "strat": lambda: Stratification(3),
    "several": lambda: Several(Superposition(2), Nondeterministic(1, 2)),
    "rns": lambda: Nondeterministic(2, 2),
    "ns": lambda: Nondeterministic(2, 2, normalized=True, read_states=False, bottom_fix=False),
    "vrns": lambda: Nondeterministic(1, 2, 3),
    "window": lambda: Nondeterministic(2, 2, window=3),
}
OPTIONS = {
    "": {},
    "both": {"bidirectional": True},
    "gru": {"controller": "gru"},
    "layers": {"num_layers": 2},
    "reading": {"output_reading": True, "reading_layers": 1},
    "both layers": {"num_layers": 2, "bidirectional": True},
}
RNNS = {f"{stack} {more}".strip(): (stack, more) for stack in STACKS for more in ("", "both", "layers")}
RNNS |= {
    "rns reading": ("rns", "reading"),
    "rns gru": ("rns", "gru"),
    "none gru": ("none", "gru"),
    "vrns both layers": ("vrns", "both layers"),
}


def rnn(name):
    torch.manual_seed(1)
    stack, more = RNNS[name]
    return StackRNN(3, 4, STACKS[stack](), **OPTIONS[more])


def transformer(stack=lambda: Nondeterministic(2, 2, 3), dropout=0.0):
    torch.manual_seed(1)
    layers = ["attention", stack(), "attention"]
    return Transformer(4, layers, heads=2, feedforward=5, dropout=dropout)


NETWORKS = {name: lambda name=name: rnn(name) for name in RNNS} | {
    "transformer": transformer,
    "transformer sup": lambda: transformer(lambda: Superposition(4)),
}


def batch(size, dtype=torch.float32):
    """A batch whose padding is poison."""
    x = torch.randn(len(LENGTHS), 7, size, generator=torch.Generator().manual_seed(2)).to(dtype)
    for row, length in enumerate(LENGTHS):
        x[row, length:] = float("nan")
    return x


def tensors(state):
    """All that a state can be asked for: what the network will give if the string goes on, and h and c."""
    return [*getattr(state, "hidden", ()), *getattr(state, "cells", ())]


def ordinary(state, row):
    """The state of one string of a ragged batch."""
    parts = [getattr(state, name, None) for name in ("forwards", "backwards")]
    if parts[0] is not None:
        return type(state)(*(ordinary(part, row) for part in parts))
    return state.of(row) if isinstance(state, RaggedState) else state.select([row])


def gradients(network, loss):
    network.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_states_and_derivatives_are_those_of_the_strings_alone(name):
    network = NETWORKS[name]()
    x = batch(network.input_size).requires_grad_()
    output, state = network(x, lengths=torch.tensor(LENGTHS))
    for row, length in enumerate(LENGTHS):
        assert not output[row, length:].any()
    more = torch.randn(len(LENGTHS), 2, network.input_size)
    after, later = network(more, state)
    loss = output.sin().sum() + after.sin().sum() + sum(t.exp().sum() for t in tensors(later))
    found = gradients(network, loss)
    total = 0.0
    for row, length in enumerate(LENGTHS):
        own, own_state = network(x.detach()[row : row + 1, :length].requires_grad_())
        torch.testing.assert_close(output[row, :length], own[0])
        torch.testing.assert_close(tensors(ordinary(state, row)), tensors(own_state))
        next_own, last = network(more[row : row + 1], own_state)
        torch.testing.assert_close(after[row], next_own[0])
        torch.testing.assert_close(tensors(ordinary(later, row)), tensors(last))
        total = total + own.sin().sum() + next_own.sin().sum() + sum(t.exp().sum() for t in tensors(last))
    assert x.grad.isfinite().all()
    assert not any(x.grad[row, length:].any() for row, length in enumerate(LENGTHS))
    torch.testing.assert_close(found, gradients(network, total), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["none layers", "rns", "rns both", "sup layers"])
@pytest.mark.parametrize("sort", [True, False])
def test_packed_batches(name, sort):
    network = rnn(name)
    strings = [torch.randn(length, 3) for length in ((5, 3, 3, 1) if sort else (3, 5, 1, 3))]
    packed = pack_sequence(strings, enforce_sorted=sort)
    output, state = network(packed)
    assert isinstance(output, PackedSequence)
    assert (output.sorted_indices is None) == sort
    unpacked, lengths = pad_packed_sequence(output, batch_first=True)
    for row, string in enumerate(strings):
        own, last = network(string[None])
        torch.testing.assert_close(unpacked[row, : lengths[row]], own[0])
        torch.testing.assert_close(tensors(ordinary(state, row)), tensors(last))


def test_without_a_stack_all_is_as_torch_has_it():
    own = torch.nn.LSTM(3, 4, 2, batch_first=False)
    network = StackRNN(3, 4, None, 2, batch_first=False)
    network.controller.load_state_dict(own.state_dict())
    lengths = [5, 2, 4]
    packed = pack_padded_sequence(torch.randn(5, 3, 3), torch.tensor(lengths), enforce_sorted=False)
    (output, state), (expected, (hidden, cells)) = network(packed), own(packed)
    torch.testing.assert_close(output.data, expected.data)
    torch.testing.assert_close(torch.stack(state.hidden), hidden)
    torch.testing.assert_close(torch.stack(state.cells), cells)
    x = torch.randn(5, 3, 3)
    torch.testing.assert_close(network(x)[0], own(x)[0])
    network.train(), own.train()
    network.controller.dropout = own.dropout = 0.5
    torch.manual_seed(3)
    output = network(x)[0]
    torch.manual_seed(3)
    torch.testing.assert_close(output, own(x)[0])


def test_both_directions_are_two_networks():
    network, x = rnn("rns both"), torch.randn(2, 5, 3)
    assert network.output_size == 8
    assert network.stack is not network.backwards.stack
    output, state = network(x)
    alone = StackRNN(3, 4, Nondeterministic(2, 2))
    for part, given, shown in (
        (network.state_dict(), x, output[:, :, :4]),
        (network.backwards.state_dict(), x.flip(1), output[:, :, 4:].flip(1)),
    ):
        alone.load_state_dict({k: v for k, v in part.items() if not k.startswith("backwards")})
        torch.testing.assert_close(alone(given)[0], shown)
    assert [h.shape for h in state.hidden] == [(2, 4)] * 2
    again = network(x, network.start(2))[0]
    torch.testing.assert_close(again, output)
    with pytest.raises(NdstackError, match="predicts from left to right"):
        LanguageModel(StackRNN(2, 4, None, bidirectional=True), ("a", "b"))


@pytest.mark.parametrize("name", ["rns both", "vrns both layers"])
def test_both_directions_at_their_ends(name):
    """What a classifier needs: the second network ends at the first symbol."""
    network, lengths = rnn(name), torch.tensor([5, 2, 4])
    output, state = network(torch.randn(3, 5, 3), lengths=lengths)
    half = network.output_size // 2
    ends = output[torch.arange(3), lengths - 1, :half], output[:, 0, half:]
    torch.testing.assert_close(torch.cat(state.hidden[-2:], dim=1), torch.cat(ends, dim=1))


def test_dropout_between_layers_is_for_training_and_only_there():
    torch.manual_seed(0)
    network, x = StackRNN(3, 40, Superposition(3), 2, dropout=0.5), torch.randn(2, 6, 3)
    assert not torch.equal(network(x)[0], network(x)[0])
    network.eval()
    plain = StackRNN(3, 40, Superposition(3), 2)
    plain.load_state_dict(network.state_dict())
    torch.testing.assert_close(network(x)[0], plain(x)[0])
    network.train()
    output, state = network(x, lengths=[6, 2])
    torch.testing.assert_close(state.hidden[1][1], output[1, 1])  # the same masks for outputs and states
    torch.testing.assert_close(state.of(1).stack.reading.shape, torch.Size([1, 3]))
    with pytest.raises(NdstackError, match=r"dropout is 1, expected"):
        StackRNN(3, 4, None, 2, dropout=1)


def test_a_transformers_state_has_the_dropout_of_its_outputs():
    network = transformer(dropout=0.5).train()
    x = torch.randn(2, 6, 4)
    torch.manual_seed(5)
    _, state = network(x, lengths=[6, 3])
    torch.manual_seed(5)
    _, whole = network(x)
    torch.testing.assert_close(state.of(1).layers[2].keys, whole.select([1]).layers[2].keys[:, :, :3])
    torch.testing.assert_close(state.of(0).layers[1].reading, whole.select([0]).layers[1].reading)


def test_a_ragged_state_is_a_state():
    network, x = rnn("vrns"), torch.nan_to_num(batch(3))
    _, state = network(x, lengths=LENGTHS)
    assert "groups" not in vars(state)  # nobody has asked yet
    assert state.batch_size == 5
    more = torch.randn(5, 2, 3)
    expected, _ = network(more, state)
    for other in (
        state.detach(),
        copy.deepcopy(state.detach()),
        pickle.loads(pickle.dumps(state.detach())),
        unpack_state(pack_state(state)),
    ):
        torch.testing.assert_close(network(more, other)[0], expected)
    rows = torch.tensor([4, 2, 2, 0])
    torch.testing.assert_close(network(more[rows], state.select(rows))[0], expected[rows])
    torch.testing.assert_close(network(more[1:3], state.select(slice(1, 3)))[0], expected[1:3])
    wide = state.to(dtype=torch.float64)
    assert wide.hidden[0].dtype == torch.float64
    with pytest.raises(NdstackError, match="there is no string 5 in a batch of 5"):
        state.of(5)
    with pytest.raises(NdstackError, match="the batch is that of the state"):
        network(more[:3], state)


def test_lengths_may_go_on_from_lengths():
    network, x = rnn("rns"), torch.randn(3, 9, 3)
    _, state = network(x[:, :4], lengths=[4, 2, 3])
    output, state = network(x[:, 4:], state, lengths=[5, 1, 0])
    joined = torch.cat([x[1, :2], x[1, 4:5]])[None]
    own, last = network(joined)
    torch.testing.assert_close(output[1, 0], own[0, -1])
    torch.testing.assert_close(state.hidden[0][1], last.hidden[0][0])
    torch.testing.assert_close(state.hidden[0][2], network(x[2:, :3])[1].hidden[0][0])


def test_a_network_that_has_learned_meanwhile_says_so():
    network = rnn("rns")
    output, state = network(batch(3), lengths=LENGTHS)
    output.sum().backward()
    torch.optim.SGD(network.parameters(), 0.1).step()
    assert state.hidden[0].shape == (5, 4)
    with pytest.raises(NdstackError, match="before the optimizer's step"):
        state.detach()


@register.network("padded-sum")
class Sum(Backbone):
    """A network of a user who knows nothing of lengths."""

    def __init__(self, input_size):
        super().__init__()
        self.input_size = self.output_size = input_size
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.inner = StackRNN(input_size, input_size, None, controller="rnn")

    def start(self, batch_size, dtype=None, device=None):
        return self.inner.start(batch_size, dtype, device)

    def forward(self, x, state=None):
        output, state = self.inner(x, state)
        return self.scale * output, state

    def initial_output(self, state):
        return self.inner.initial_output(state)


@pytest.mark.parametrize("name", ["lstm", "rns-2-3", "sup-3", "tf+vrns-2-2-3", "tf+sup-4", "padded-sum"])
def test_language_models(name):
    options = {"d_model": 4, "heads": 2, "feedforward": 4, "dropout": 0.0} if name[:2] == "tf" else {}
    options |= {"hidden": 5} if name in ("lstm", "rns-2-3", "sup-3") else {}
    model = models.build(name, ("a", "b"), **options)
    words = ["abab", "", "b", "ba", "abb"]
    symbols, lengths = model.encode(words)
    logits, state = model(symbols, lengths=lengths)
    more, _ = model(torch.tensor([[0, 1]] * 5), state)
    loss = model.cross_entropy(words, per="string")
    found = gradients(model, loss)
    for row, word in enumerate(words):
        own, last = model(model.encode([word])[0])
        torch.testing.assert_close(logits[row, : len(word) + 1], own[0])
        torch.testing.assert_close(more[row], model(torch.tensor([[0, 1]]), last)[0][0])
    alone = sum(model.cross_entropy([word]) for word in words) / len(words)
    torch.testing.assert_close(loss, alone)
    torch.testing.assert_close(found, gradients(model, alone), rtol=1e-4, atol=1e-6)


def test_wrong_lengths_and_shapes_get_one_line():
    network, x = rnn("sup"), torch.randn(2, 4, 3)
    packed = pack_sequence([torch.randn(2, 3)])
    other = StackRNN(3, 4, Superposition(2), batch_first=False)
    for use, message in (
        (
            lambda: network(x, lengths=[4]),
            r"^1 lengths given for a batch of 2, expected one for each string$",
        ),
        (lambda: network(x, lengths=[4, 5]), r"^a string of length 5 given in a batch of 4 positions, .*$"),
        (lambda: network(x, lengths=[4, -1]), r"^a string of length -1 given .*$"),
        (
            lambda: network(x, lengths=torch.tensor([4.0, 2.0])),
            r"^a tensor of torch.float32 given as lengths, expected whole",
        ),
        (lambda: network(x, lengths=3), r"^3 given as lengths, expected whole numbers, one for each string$"),
        (lambda: network(packed, lengths=[2]), r"^a packed batch and lengths given, .*$"),
        (lambda: other(x[0]), r"^input of shape \[4, 3\] given, expected \[length, batch, size\], .*$"),
        (lambda: network(x, (x, x)), r"^a tuple \(h and c, perhaps\) given as the state, expected .*$"),
        (lambda: rnn("sup both")(x, network.start(2)), r"^a RNNState given, expected a BidirectionalState"),
        (lambda: StackRNN(3, 4, 2), r"^2 given as the stack, expected a Stack of ndstack.stacks, or None$"),
        (lambda: StackRNN(3, 4, None, bidirectional=2), r"^bidirectional is 2, expected True or False$"),
    ):
        with pytest.raises(NdstackError, match=message):
            use()


def test_new_arguments_are_saved(tmp_path):
    from ndstack.nn import load
    from ndstack.nn.storage.description import describe_part, make_part

    model = LanguageModel(StackRNN(2, 4, Superposition(2), 2, dropout=0.25), ("a", "b"))
    model.save(tmp_path)
    assert load(tmp_path).backbone.dropout == 0.25
    both = describe_part(StackRNN(2, 4, Superposition(2), bidirectional=True, batch_first=False))
    made = make_part(both, "here")
    assert (made.bidirectional, made.batch_first, made.dropout) == (True, False, 0.0)


def test_arguments_of_torchs_lstm() -> None:
    rnn = StackRNN(2, 4, Superposition(2), device="cpu", dtype=torch.float64)
    assert {parameter.dtype for parameter in rnn.parameters()} == {torch.float64}
    rnn.flatten_parameters()
    with pytest.raises(NdstackError, match=r"proj_size=3 given, which StackRNN does not take; put a torch"):
        StackRNN(2, 4, Superposition(2), proj_size=3)
    with pytest.raises(NdstackError, match=r"colour='red' given, which StackRNN does not take; see help"):
        StackRNN(2, 4, Superposition(2), colour="red")


@pytest.mark.parametrize("stack", [None, Superposition(2), Nondeterministic(1, 2)])
def test_inputs_of_another_dtype_and_lengths_in_the_wrong_place(stack) -> None:
    rnn = StackRNN(2, 4, stack)
    with pytest.raises(NdstackError, match=r"input of torch.float64 given to a network of torch.float32"):
        rnn(torch.zeros(1, 3, 2, dtype=torch.float64))
    with pytest.raises(NdstackError, match=r"a Tensor given as the state, .*; the lengths .* lengths="):
        rnn(torch.zeros(2, 3, 2), torch.tensor([3, 2]))


@pytest.mark.parametrize("inside", [True, False], ids=["read under autocast", "continued under autocast"])
def test_states_of_strings_are_those_of_the_call_under_autocast(inside):
    rnn, x = StackRNN(3, 4, Nondeterministic(2, 2)), torch.randn(2, 3, 3)
    with torch.autocast("cpu", torch.bfloat16, enabled=inside):
        _, state = rnn(x, lengths=[3, 1])
    with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
        groups = [state.of(place) for place in (0, 1)]
    for place, own in enumerate(groups):
        assert torch.allclose(state.hidden[0][place : place + 1], own.hidden[0], atol=1e-6)

"""Transducers: padding, gradients, carried states, decoding, storage."""

import itertools
import json
import math

import pytest
import torch

from ndstack import nn
from ndstack.errors import NdstackError
from ndstack.nn import beam_search, build_transducer, greedy, load_transducer, sample
from ndstack.stacks import Superposition

RECURRENT = {"hidden": 5}
TRANSFORMER = {"d_model": 8, "heads": 2, "feedforward": 8, "num_layers": 2, "dropout": 0.0}
MODELS = {
    "lstm": ("lstm", RECURRENT),
    "lstm with attention": ("lstm", {**RECURRENT, "attention": True, "num_layers": 2}),
    "sup with embeddings": ("sup-3", {**RECURRENT, "embedding": 4, "output_reading": True}),
    "vrns with attention": ("vrns-2-2-2", {**RECURRENT, "attention": True}),
    "rns with section 11.2.2": (
        "rns-1-2",
        {**RECURRENT, "reading_layers": 1, "output_reading": True, "normalize_reading": False},
    ),
    "strat": ("strat-2", RECURRENT),
    "tf": ("tf", TRANSFORMER),
    "tf+sup": ("tf+sup-4", TRANSFORMER),
    "tf+vrns both ways": ("tf+vrns-2-2-3", {**TRANSFORMER, "both_ways": True}),
}
SOURCES = ["xyxxy", "", "y", "xx", "yxyxyyx"]
TARGETS = ["ab", "bba", "", "b", "aaaab"]


def make(name, seed=0):
    model, options = MODELS[name]
    made = build_transducer(model, "xy", "ab", seed=seed, **options).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)  # so that choices are clear
    return made


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return make(request.param)


def test_a_padded_batch_equals_single_pairs(model):
    together = model.log_probability(SOURCES, TARGETS)
    alone = [model.log_probability([s], [t])[0] for s, t in zip(SOURCES, TARGETS, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-9, atol=1e-9)
    symbols = sum(len(target) + 1 for target in TARGETS)
    per = model.cross_entropy(SOURCES, TARGETS, per="symbol")
    assert per.item() == pytest.approx(-together.sum().item() / symbols)


def gradients(model):
    """Of all parameters that have one: the bottom of the decoder's stack is that of the encoder's."""
    found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    assert {*dict(model.named_parameters())} - {*found} <= {"network.decoder.stack.bottom"}
    return found


def test_gradients_of_a_padded_batch_equal_those_of_single_pairs(model):
    model.cross_entropy(SOURCES, TARGETS).backward()
    together = gradients(model)
    model.zero_grad()
    for source, target in zip(SOURCES, TARGETS, strict=True):
        (model.cross_entropy([source], [target]) / len(SOURCES)).backward()
    torch.testing.assert_close(together, gradients(model), rtol=1e-7, atol=1e-9)
    model.zero_grad()


def test_gradients_are_those_of_finite_differences(model):
    loss = model.cross_entropy(SOURCES, TARGETS)
    grads = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True, allow_unused=True)
    generator = torch.Generator().manual_seed(0)
    step = [torch.randn(p.shape, generator=generator, dtype=torch.float64) * 1e-6 for p in model.parameters()]
    values = []
    with torch.no_grad():
        for sign in (1, -2, 1):  # forward, backward, and back to the start
            for parameter, change in zip(model.parameters(), step, strict=True):
                parameter.add_(sign * change)
            values.append(model.cross_entropy(SOURCES, TARGETS).item())
    expected = sum((g * s).sum().item() for g, s in zip(grads, step, strict=True))
    assert (values[0] - values[1]) / 2 == pytest.approx(expected, rel=1e-4)
    assert values[2] == pytest.approx(loss.item(), rel=1e-9)


def test_decoding_with_a_carried_state_equals_decoding_from_scratch(model):
    for made, source in zip(greedy(model.given(SOURCES), [""] * 5, 6), SOURCES, strict=True):
        word = ""
        while len(word) < 6:
            logits = model.predict([source], [word])[0][0, -1]
            symbol = int(logits.argmax())
            if symbol == model.boundary:
                break
            word += "ab"[symbol]
        assert made.word == word
        expected = model.surprisals([source], [word])[0][0]
        total = expected.sum() if made.complete else expected[:-1].sum()
        assert -made.log_probability == pytest.approx(total.item(), abs=1e-8)


def test_beam_search_equals_exhaustive_search(model):
    words = ["".join(word) for n in range(4) for word in itertools.product("ab", repeat=n)]
    found = beam_search(model.given(SOURCES[:2]), ["", ""], 3, width=len(words))
    for source, made in zip(SOURCES[:2], found, strict=True):
        scores = model.log_probability([source] * len(words), words).tolist()
        ranked = sorted(zip(scores, words, strict=True), reverse=True)
        assert [one.word for one in made if one.complete] == [word for _, word in ranked]
        for one, (score, _) in zip(made, ranked, strict=False):
            assert one.log_probability == pytest.approx(score, rel=1e-10, abs=1e-8)


@pytest.mark.parametrize("training", [True, False])
def test_decoding_leaves_the_mode_of_the_model_as_it_is(training):
    model = make("lstm").train(training)
    greedy(model.given(["x"]), [""], 2)
    assert all(module.training == training for module in model.modules())


def test_samples_have_the_probabilities_of_the_model():
    model = make("vrns with attention")
    count = 3000
    made = sample(model.given(["xy"] * count), [""] * count, 2, seed=1)
    for word in ("", "a", "b"):
        p = math.exp(model.log_probability(["xy"], [word]).item())
        share = sum(one.complete and one.word == word for one in made) / count
        assert share == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / count) + 1e-3)
    assert made == sample(model.given(["xy"] * count), [""] * count, 2, seed=1)


def test_the_work_of_a_beam_grows_linearly_with_the_output(monkeypatch):
    """Every step of the decoder reads one symbol."""
    model, read = make("tf+sup"), []
    decode = model.network.decode
    monkeypatch.setattr(model.network, "decode", lambda y, state: read.append(y.shape[1]) or decode(y, state))
    beam_search(model.given(["xyx"]), [""], 20, width=3)
    assert set(read) == {1}
    assert len(read) <= 21


def test_stored_and_loaded(model, tmp_path):
    model.save(tmp_path)
    again = load_transducer(tmp_path)
    assert (again.source, again.target, again.input) == (model.source, model.target, model.input)
    torch.testing.assert_close(
        again.log_probability(SOURCES, TARGETS), model.log_probability(SOURCES, TARGETS), rtol=0, atol=0
    )
    with pytest.raises(NdstackError, match="does not describe a model"):
        nn.load(tmp_path)


def test_forged_descriptions_are_refused(tmp_path):
    make("lstm").save(tmp_path)
    text = json.loads((tmp_path / "model.json").read_text())
    for network, message in (
        ({"kind": "os.system"}, "there is no kind 'os.system'"),
        ({**text["network"], "more": 1}, "unexpected keyword argument 'more'"),
        ({**text["network"], "hidden_size": "5"}, "hidden_size"),
    ):
        (tmp_path / "model.json").write_text(json.dumps({**text, "network": network}))
        with pytest.raises(NdstackError, match=message):
            load_transducer(tmp_path)


def test_the_encoder_sees_everything_and_a_stack_only_what_comes_before():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    other = x.clone()
    other[:, -1] = torch.randn(8)
    for kinds, both_ways, sees in (
        (["attention"], False, True),
        ([Superposition(8)], False, False),
        ([Superposition(8)], True, True),
    ):
        network = nn.EncoderDecoder(8, kinds, ["attention"], 2, 8, 0.0, both_ways=both_ways).double().eval()
        one, two = (network.encode(given).memory[0][:, :, 0] for given in (x, other))
        assert torch.equal(one, two) != sees


def test_the_stack_goes_from_the_encoder_to_the_decoder():
    model = make("vrns with attention")
    state = model.read(["xyx", "yyx"])
    assert isinstance(state, nn.RecurrentDecoderState)
    assert isinstance(state.network, nn.RNNState)
    stack = state.network.stack
    assert stack is not None
    assert stack.batch_size == 2
    assert not torch.equal(stack.reading[0], stack.reading[1])


def test_errors():
    with pytest.raises(
        NdstackError, match="attention=True given for tf, but it is for models with a recurrent"
    ):
        build_transducer("tf", "x", "a", attention=True)
    with pytest.raises(
        NdstackError, match="both_ways=True given for tf, but it is for models with stack attention"
    ):
        build_transducer("tf", "x", "a", both_ways=True)
    with pytest.raises(NdstackError, match="attention=True given for lstm"):
        nn.models.build("lstm", "dyck", attention=True)
    with pytest.raises(NdstackError, match="output='adaptive' given for a transducer"):
        build_transducer("lstm", "x", "a", output="adaptive")
    with pytest.raises(NdstackError, match="cannot be built: hidden"):
        build_transducer("lstm", "x", "a", hidden=0)
    model = make("lstm")
    with pytest.raises(NdstackError, match="the symbol 'z' is not in the alphabet x y"):
        model.log_probability(["xz"], ["a"])
    with pytest.raises(NdstackError, match="1 inputs and 2 outputs given"):
        model.log_probability(["x"], ["a", "b"])
    with pytest.raises(NdstackError, match="per is 'word'"):
        model.cross_entropy(["x"], ["a"], per="word")
    with pytest.raises(NdstackError, match="2 prefixes given for 1 inputs"):
        greedy(model.given(["x"]), ["", ""], 3)
    with pytest.raises(NdstackError, match="state of another network"):
        make("tf").network.decode(torch.zeros(1, 1, 8).double(), model.read(["x"]))
    with pytest.raises(NdstackError, match="state of another network"):
        model.network.decode(torch.zeros(1, 1, 3).double(), make("tf").read(["x"]))
    shared = Superposition(4)
    with pytest.raises(NdstackError, match="in the encoder and in the decoder"):
        nn.EncoderDecoder(8, [shared], [shared])
    with pytest.raises(NdstackError, match="the encoder reads vectors of size 4, expected 3"):
        nn.Transducer(nn.RecurrentEncoderDecoder(4, 3, 5, None), "xy", "ab")
    with pytest.raises(NdstackError, match="expected an encoder and decoder"):
        nn.Transducer(torch.nn.Linear(1, 1), "xy", "ab")
    with pytest.raises(NdstackError, match="input is 'two-hot'"):
        nn.Transducer(nn.RecurrentEncoderDecoder(3, 3, 5, None), "xy", "ab", "two-hot")


def test_an_empty_input_in_a_batch_has_nothing_to_attend_to():
    network = nn.RecurrentEncoderDecoder(3, 2, 4, Superposition(2), attention=True).double()
    x, y = torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 2, 2, dtype=torch.float64)
    both = network.decode(y, network.encode(x, lengths=[0, 3]))[0]
    alone = [
        network.decode(y[:1], network.encode(x[:1, :0]))[0],
        network.decode(y[1:], network.encode(x[1:]))[0],
    ]
    assert torch.allclose(both, torch.cat(alone), atol=1e-12)
    found, expected = (
        torch.autograd.grad(part.square().sum(), list(network.parameters()))
        for part in (both, torch.cat(alone))
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)

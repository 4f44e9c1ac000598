"""Models by name: their sizes, their numbers in whole, chunks and steps, and that they learn."""

import copy

import pytest
import torch

from ndstack import languages
from ndstack.errors import NdstackError
from ndstack.nn import StackRNN, Transformer, initialize, load, models
from ndstack.nn.models import ModelName, parse

WORDS = ["01#10", "11#11", "00#00"]


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("language", "name", "expected"),
    [
        ("marked-reversal", "lstm", 2_084),
        ("marked-reversal", "strat-20", 4_146),
        ("marked-reversal", "sup-20", 4_167),
        ("marked-reversal", "ns-2-3", 4_088),
        ("marked-reversal", "rns-2-3", 4_328),
        ("hardest-cfl", "lstm", 2_488),
        ("hardest-cfl", "ns-3-3", 6_697),
        ("hardest-cfl", "rns-3-3", 7_177),
        ("count-3", "lstm", 2_084),
        ("count-3", "sup-10", 3_157),
        ("count-3", "sup-3-3-3", 3_182),
        ("count-3", "sup-h", 3_747),
        ("count-3", "rns-3-3", 6_773),
        ("marked-reversal(k=200)", "lstm", 22_082),
        ("marked-reversal(k=200)", "sup-3", 22_448),
        ("marked-reversal(k=200)", "rns-2-3", 24_326),
        ("marked-reversal(k=200)", "vrns-2-3-3", 25_352),
    ],
)
def test_parameter_counts_on_formal_languages(language, name, expected):
    assert size(models.build(name, languages.get(language))) == expected


@pytest.mark.parametrize(
    ("name", "hidden", "expected"),
    [
        ("lstm", 256, 5_656_336),
        ("sup-h", 247, 5_684_828),
        ("sup-22", 256, 5_685_289),
        ("rns-1-29", 256, 6_125_759),
        ("rns-2-13", 256, 6_043_788),
        ("rns-4-5", 256, 5_902_976),
        ("vrns-1-1-32", 256, 5_698_131),
        ("vrns-3-3-5", 256, 5_752_279),
    ],
)
def test_parameter_counts_on_natural_language(name, hidden, expected):
    words = [str(number) for number in range(9_999)]  # and <eos>
    depth, window = (10 if name.startswith("sup") else None), (35 if "rns" in name else None)
    model = models.build(name, words, hidden=hidden, embedding=hidden, depth=depth, window=window)
    assert size(model) == expected


@pytest.mark.parametrize("name", models.NAMES)
def test_whole_equals_chunks_equals_steps(name):
    model = models.build(name, "marked-reversal", seed=1).double().eval()
    initialize(model, 1, bound=1.0)
    symbols = model.encode(["010011#110010", "111000#000111"])[0]
    whole = model.logits(symbols)
    for chunk in (1, 5):
        parts, state = [], None
        for part in symbols.split(chunk, dim=1):
            logits, state = model(part, state)
            parts.append(logits)
        torch.testing.assert_close(torch.cat(parts, 1), whole)
    rows = [1, 1, 0]
    again, _ = model(symbols[rows, 5:], model(symbols[:, :5])[1].select(rows))
    torch.testing.assert_close(again, whole[rows, 6:])
    single = copy.deepcopy(model).float().logits(symbols)
    torch.testing.assert_close(single.double(), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", models.NAMES)
def test_a_gradient_step_decreases_the_loss(name):
    model = models.build(name, "marked-reversal", seed=2).eval()
    before = model.cross_entropy(WORDS)
    before.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    assert model.cross_entropy(WORDS).item() < before.item()


@pytest.mark.parametrize("name", models.NAMES)
def test_a_seed_gives_the_same_numbers_and_leaves_torchs_alone(name):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = models.build(name, "dyck", seed=7)
    assert torch.equal(torch.rand(3), expected)
    other = models.build(name, "dyck", seed=7)
    different = models.build(name, "dyck", seed=8)
    pairs = list(zip(one.parameters(), other.parameters(), different.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


def test_initialisation_is_as_the_text_says():
    model = models.build("vrns-2-3-3", "dyck")
    rnn = model.backbone
    assert not model.output.bias.any()
    assert not rnn.pushed.bias.any()
    bound = (6 / sum(model.output.weight.shape)) ** 0.5
    assert 0.9 * bound < model.output.weight.abs().max() <= bound
    for parameter in (
        rnn.actions.weight,
        rnn.actions.bias,
        rnn.controller.bias_ih_l0,
        rnn.controller.weight_ih_l0,
    ):
        assert 0.08 < parameter.abs().max() <= 0.1
    assert 0 < rnn.stack.bottom.abs().max() <= 0.1
    xavier = models.build("vrns-2-3-3", "dyck", actions_init="xavier").backbone.actions
    assert not xavier.bias.any()
    assert xavier.weight.abs().max() > 0.15
    flat = models.build("lstm", "dyck", layers_init="uniform", init_bound=0.05)
    assert all(
        0.04 < parameter.abs().max() <= 0.05 for parameter in flat.parameters() if parameter.numel() > 20
    )
    norm = models.build("tf", "dyck").backbone.norm
    assert norm.weight.eq(1).all()
    assert norm.bias.eq(0).all()


def test_stack_attention_begins_with_xavier_actions():
    """The text has Xavier for all fully connected layers, and so has the public code for these."""
    for name in ("tf+vrns-2-3-3", "tf+sup-8"):
        actions = models.build(name, "dyck").backbone.layers[2].attention.actions.weight
        bound = (6 / sum(actions.shape)) ** 0.5
        assert 0.9 * bound < actions.abs().max() <= bound
        flat = models.build(name, "dyck", attention_actions_init="uniform").backbone.layers[2]
        assert 0.08 < flat.attention.actions.weight.abs().max() <= 0.1


def test_details_of_the_public_code():
    pushed = models.build("vrns-2-3-3", "dyck", pushes_init="uniform").backbone.pushed
    assert 0.05 < pushed.weight.abs().max() <= 0.1
    assert pushed.bias.any()
    plain = models.build("strat-3", "dyck").backbone.pushed.weight
    wide = models.build("strat-3", "dyck", tanh_gain=5 / 3).backbone.pushed.weight
    torch.testing.assert_close(wide, plain * 5 / 3)
    together, apart = (
        models.build("sup-3-3-3", "dyck", stacks_apart=apart).backbone for apart in (False, True)
    )
    for layer in ("actions", "pushed"):
        one, other = getattr(together, layer).weight, getattr(apart, layer).weight
        assert one.shape == other.shape == (9, 20)
        assert one.abs().max() <= (6 / 29) ** 0.5 < other.abs().max() <= (6 / 23) ** 0.5


def test_exponentials_of_pushed_vectors(tmp_path):
    model = models.build("tf+vrns-2-3-3", "dyck", exp_pushes=True, dropout=0.0)
    attention, x = model.backbone.layers[2].attention, torch.randn(1, 2, 32)
    torch.testing.assert_close(attention.controls(x)[1], attention.pushed(x).exp())
    plain = models.build("tf+vrns-2-3-3", "dyck").backbone.layers[2].attention
    torch.testing.assert_close(plain.controls(x)[1], plain.pushed(x))
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").backbone.exp_pushes


def test_what_the_names_stand_for():
    assert parse("tf+vrns-3-3-5") == ModelName(True, "vrns", (3, 3, 5))
    stack = {name: models.build(name, "dyck").backbone.stack for name in models.NAMES if "tf" not in name}
    assert stack["lstm"] is None
    assert stack["sup-3-3-3"].sizes == (3, 3, 3)
    kinds = {
        name: (
            stack[name].normalized,
            stack[name].read_states,
            stack[name].bottom_fix,
            stack[name].vector_size,
        )
        for name in ("ns-2-3", "ns+s-2-3", "ns+u-2-3", "rns-2-3", "vrns-2-3-3")
    }
    assert kinds == {
        "ns-2-3": (True, False, False, None),
        "ns+s-2-3": (True, True, False, None),
        "ns+u-2-3": (False, False, False, None),
        "rns-2-3": (False, True, True, None),
        "vrns-2-3-3": (False, True, True, 3),
    }
    assert models.build("sup-h", "dyck").backbone.push_hidden
    transformer = models.build("tf+vrns-3-3-5", "dyck").backbone
    assert isinstance(transformer, Transformer)
    assert [hasattr(layer.attention, "stack") for layer in transformer.layers] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_options_reach_the_model():
    rnn = models.build(
        "rns-2-3", ["a", "b"], hidden=6, num_layers=2, controller="gru", window=4, bottom_fix=False,
        reading_layers=1, output_reading=True,
    ).backbone  # fmt: skip
    assert isinstance(rnn, StackRNN)
    assert (rnn.hidden_size, rnn.num_layers, rnn.controller_kind) == (6, 2, "gru")
    assert (rnn.stack.window, rnn.stack.bottom_fix) == (4, False)
    assert (rnn.reading_layers, rnn.output_reading) == (1, True)
    assert models.build("sup-4", "dyck", depth=10).backbone.stack.depth == 10
    assert len(models.build("tf", "dyck", num_layers=3, d_model=8, heads=2).backbone.layers) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rnss-2-3", "no model called 'rnss-2-3'; did you mean rns-2-3?"),
        ("LSTM", "did you mean lstm"),
        ("transformer-xl", "models are lstm, strat-20"),
        ("rns-2", "expected numbers of states and symbols after 'rns', as in rns-2-3"),
        (
            "vrns-2-3",
            "expected numbers of states and symbols and a vector size after 'vrns', as in vrns-2-3-3",
        ),
        ("sup", "expected one or more vector sizes after 'sup', as in sup-10"),
        ("sup-0", "expected one or more vector sizes"),
        ("sup--3", "expected one or more vector sizes"),
        ("tf+sup-h", "expected one or more vector sizes after 'tf.sup', as in tf.sup-32"),
        ("strat-1-2", "expected a vector size after 'strat', as in strat-20"),
        ("", "models are"),
    ],
)
def test_wrong_names_get_one_line(name, message):
    with pytest.raises(NdstackError, match=message) as error:
        models.build(name, "dyck")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        (
            "lstm",
            {"window": 3},
            "window=3 given for lstm, but it is for models with a nondeterministic stack",
        ),
        ("lstm", {"bottom_fix": False}, "with a nondeterministic stack only"),
        ("sup-3", {"bottom_fix": True}, "with a nondeterministic stack only"),
        ("rns-2-3", {"depth": 3}, "with a superposition stack only"),
        ("tf", {"normalize_reading": False}, "normalize_reading=False given for tf"),
        ("tf", {"output_reading": True}, "with a recurrent network only"),
        ("tf", {"hidden": 30}, "with a recurrent network only"),
        ("rns-2-3", {"heads": 2}, "with a transformer only"),
        ("rns-2-3", {"window": 0}, "window: Input should be greater than or equal to 1"),
        ("tf", {"heads": 5}, "expected a positive multiple of heads, 5"),
        ("tf", {"num_layers": 0}, "num_layers: Input should be greater than or equal to 1"),
        (
            "lstm",
            {"hidden": 0},
            "lstm cannot be built: hidden: Input should be greater than or equal to 1",
        ),
        ("tf", {"dropout": 1.0}, "tf cannot be built: dropout: Input should be less than 1"),
        ("lstm", {"controller": "lstn"}, "there is no controller called 'lstn'; there are lstm, gru, rnn"),
    ],
)
def test_wrong_options_get_one_line(name, option, message):
    with pytest.raises(NdstackError, match=message) as error:
        models.build(name, "dyck", **option)
    assert "\n" not in str(error.value)


def test_unknown_languages_get_one_line():
    with pytest.raises(NdstackError, match="did you mean dyck"):
        models.build("lstm", "dick")

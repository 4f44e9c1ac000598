"""LanguageModel: what is read and predicted, for one word or many, of equal lengths or not."""

import math

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ndstack import languages
from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel, StackRNN, Transformer, models
from ndstack.ops.runtime import in_graph
from ndstack.stacks import Superposition

LSTM = ("lstm", "vrns-1-2-2", "tf+sup-32")


def model_of(name, alphabet="01#", **options):
    if name.startswith("tf"):
        options["dropout"] = 0.0
    return models.build(name, list(alphabet), seed=3, **options).double()


@pytest.mark.parametrize("name", LSTM)
def test_probabilities_of_all_strings_up_to_a_length_and_of_longer_ones_sum_to_one(name):
    model = model_of(name, "ab")
    words = [""]
    total = 0.0
    for _ in range(4):
        total += model.log_probability(words).exp().sum().item()
        words = [word + symbol for word in words for symbol in "ab"]
    logits = model.logits(words)
    taken = logits.log_softmax(-1)[:, :-1].gather(2, model.encode(words)[0][..., None]).sum((1, 2))
    assert total + taken.exp().sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("name", LSTM)
def test_unequal_lengths_are_the_same_as_one_by_one(name):
    model, words = model_of(name), ["01#10", "", "#", "0011#1100"]
    one_by_one = torch.cat([model.log_probability([word]) for word in words])
    torch.testing.assert_close(model.log_probability(words), one_by_one)
    symbols = sum(len(word) + 1 for word in words)
    assert model.cross_entropy(words).item() == pytest.approx(-one_by_one.mean().item())
    assert model.cross_entropy(words, per="symbol").item() == pytest.approx(
        -one_by_one.sum().item() / symbols
    )
    without = torch.cat([model.log_probability([word], eos=False) for word in words])
    torch.testing.assert_close(model.log_probability(words, eos=False), without)
    expected = -without.sum().item() / (symbols - len(words))
    assert model.cross_entropy(words, eos=False, per="symbol").item() == pytest.approx(expected)


def test_without_eos_it_is_a_model_that_does_not_know_eos():
    model = model_of("lstm")
    log_p = model.logits(["0#1"])[0, :3, :3].log_softmax(-1)
    expected = log_p[0, 0] + log_p[1, 2] + log_p[2, 1]
    torch.testing.assert_close(model.log_probability(["0#1"], eos=False)[0], expected)


def test_first_symbol_is_predicted_from_the_zero_hidden_state():
    model = model_of("rns-2-2")
    torch.testing.assert_close(model.logits(["0", "1"])[:, 0], model.output.bias.expand(2, 4))


def test_eos_is_predicted_and_never_read():
    model = model_of("lstm")
    assert model.output.out_features == 4
    assert model.backbone.input_size == 3
    with pytest.raises(NdstackError, match="symbol index 3 given, expected indices from 0 to 2"):
        model(torch.tensor([[3]]))


def test_a_stream_is_read_with_the_boundary_between_strings():
    model = model_of("lstm", embedding=5)
    assert model.bos
    assert model.embedding.num_embeddings == 4
    stream = torch.tensor([[3, 0, 1, 3, 2]])
    logits, state = model(stream[:, :3], model.start(1))
    torch.testing.assert_close(logits, model.logits(["01"]))
    again, _ = model(stream[:, 3:], state.detach())
    whole, _ = model(stream, model.start(1))
    torch.testing.assert_close(torch.cat([logits, again], 1), whole)


def test_chunks_put_together_are_the_whole():
    for name in LSTM:
        model = model_of(name)
        symbols = model.encode(["01#10", "11#11"])[0]
        first, state = model(symbols[:, :2])
        second, _ = model(symbols[:, 2:], state)
        torch.testing.assert_close(torch.cat([first, second], 1), model.logits(symbols))


def test_indices_will_do_instead_of_strings():
    model, words = model_of("sup-3"), ["01#10", "11#11"]
    symbols = model.encode(words)[0]
    assert torch.equal(model.log_probability(symbols), model.log_probability(words))
    assert [model.decode(row) for row in symbols.tolist()] == words


def test_symbols_may_be_longer_than_a_character():
    model = models.build("lstm", ["the", "cat", "sat"])
    assert model.decode([0, 1]) == ("the", "cat")
    assert model.log_probability([("the", "cat"), ["sat"]]).shape == (2,)


def test_loss_near_uniform_at_the_beginning():
    language = languages.get("dyck")
    model = models.build("lstm", language)
    loss = model.cross_entropy(["()"] * 2, per="symbol").item()
    assert loss == pytest.approx(math.log(len(language.alphabet) + 1), abs=0.2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model_of("lstm").logits(["0x"]), "the symbol 'x' is not in the alphabet 0 1 #"),
        (lambda: model_of("lstm").logits("01"), "expected a list of strings"),
        (lambda: model_of("lstm")(torch.zeros(2)), "expected .batch, length. and torch.int64"),
        (lambda: model_of("lstm").cross_entropy([""], per="word"), "per is 'word'"),
        (lambda: LanguageModel(StackRNN(3, 4, None), "01"), "reads vectors of size 3, expected 2"),
        (lambda: LanguageModel(StackRNN(3, 4, None), "011"), "repeats symbols"),
        (lambda: LanguageModel(StackRNN(3, 4, None), "01#", input="1-hot"), "input is '1-hot'"),
        (lambda: LanguageModel(StackRNN(3, 4, None), "01#", output="small"), "output is 'small'"),
        (
            lambda: LanguageModel(StackRNN(3, 4, None), "01#", output="adaptive"),
            "4 symbols from 4 numbers",
        ),
        (lambda: LanguageModel(Transformer(), "01#", input="embedding", bos=False), "has to read BOS first"),
    ],
)
def test_misuse_gets_one_line(make, message):
    with pytest.raises(NdstackError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore")
def test_data_parallel_training_gives_the_same_gradients():
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for name in ("vrns-1-2-2", "tf+sup-32"):
            model = model_of(name)
            symbols = model.encode(["01#10", "11#11"])[0]
            model.logits(symbols).sin().sum().backward()
            expected = [p.grad.clone() for p in model.parameters()]
            model.zero_grad()
            logits, _ = DistributedDataParallel(model)(symbols)
            logits.sin().sum().backward()
            torch.testing.assert_close([p.grad for p in model.parameters()], expected)
    finally:
        torch.distributed.destroy_process_group()


def test_any_backbone_with_one_hot_bos():
    model = LanguageModel(StackRNN(4, 5, Superposition(2)), "01#", bos=True)
    assert model.logits(["01"]).shape == (1, 3, 4)


def losses_and_gradients(model, words, **options):
    model.zero_grad()
    loss = model.cross_entropy(words, **options)
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in model.parameters()]


@pytest.mark.compiled
@pytest.mark.parametrize("options", [{}, {"eos": False}, {"per": "symbol"}], ids=str)
@pytest.mark.parametrize("words", [["01#10", "11#11"], ["01#10", "0#"]], ids=["equal", "padded"])
@pytest.mark.parametrize("name", ["rns-2-3", "ns-2-2", "vrns-2-2-3", "sup-3", "strat-3"])
def test_symbols_read_in_one_operation_are_one_hot_vectors(name, words, options, monkeypatch):
    model = model_of(name)
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "_embed", None)  # so there are no vectors
        loss, gradients = losses_and_gradients(model, words, **options)
    model.backbone.register_forward_hook(lambda *_: None)  # so the network is called
    expected, others = losses_and_gradients(model, words, **options)
    torch.testing.assert_close(loss, expected)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.compiled
@pytest.mark.parametrize("part", ["backbone", "backbone.actions", "backbone.stack", "backbone.controller"])
def test_parts_with_hooks_are_called(part):
    model, called = model_of("rns-2-2"), []
    model.get_submodule(part).register_forward_hook(lambda *_: called.append(part))
    model.cross_entropy(["01#10"])
    assert called


def test_a_language_model_with_hidden_states_of_its_own_is_asked_for_them():
    class Own(LanguageModel):
        def hidden(self, symbols, state=None, lengths=None):
            hidden, state = super().hidden(symbols, state, lengths)
            return 2 * hidden, state

    network = StackRNN(3, 4, Superposition(2))
    torch.manual_seed(0)
    plain, own = LanguageModel(network, "01#"), Own(network, "01#")
    own.output = plain.output
    assert plain.cross_entropy(["01#"]) != own.cross_entropy(["01#"])


@pytest.mark.compiled
@pytest.mark.parametrize("wrong", [-1, 3])
def test_unknown_symbols_are_refused_in_the_loss(wrong):
    model = model_of("rns-2-2")
    with pytest.raises(NdstackError, match=f"symbol index {wrong} given, expected indices from 0 to 2"):
        model.cross_entropy(torch.tensor([[0, 1, wrong]]))


@pytest.mark.compiled
def test_sequences_that_are_too_narrow_for_float32_are_computed_again_in_the_loss(monkeypatch):
    model, apart, calls = model_of("rns-2-3").float(), in_graph.apart, []
    monkeypatch.setattr(in_graph, "apart", lambda work: calls.append(work) or apart(work))
    with torch.no_grad():
        model.backbone.actions.weight.mul_(3000)
    words = torch.randint(3, (3, 40), generator=torch.Generator().manual_seed(1))
    loss, gradients = losses_and_gradients(model, words)
    assert len(calls) == 2  # forwards and backwards
    model.backbone.register_forward_hook(lambda *_: None)
    expected, others = losses_and_gradients(model, words)
    torch.testing.assert_close(loss, expected)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-3)


@pytest.mark.compiled
def test_weights_that_change_between_the_passes_and_second_derivatives_are_refused():
    model = model_of("rns-2-2")
    loss = model.cross_entropy(["01#10"])
    with pytest.raises(NdstackError, match="second derivatives"):
        torch.autograd.grad(loss, model.backbone.actions.weight, create_graph=True)
    loss = model.cross_entropy(["01#10"])
    with torch.no_grad():
        model.backbone.actions.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = model.cross_entropy(["01#10"])
    (gradient,) = torch.autograd.grad(loss, model.output.weight, create_graph=True)
    assert torch.autograd.grad(gradient.square().sum(), model.output.bias)[0].abs().sum() > 0

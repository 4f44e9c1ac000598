"""LanguageModel: what is read and predicted, for one word or many, of equal lengths or not."""

import math

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ndstack import languages
from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel, StackRNN, Transformer, models
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

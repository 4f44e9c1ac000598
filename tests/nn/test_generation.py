"""Generation: with the state carried along it is the same as reading everything again at every step."""

import math

import pytest
import torch

from ndstack.errors import NdstackError
from ndstack.nn import beam_search, greedy, initialize, models, sample

NAMES = ("lstm", "sup-4", "strat-3", "rns-2-2", "vrns-1-2-3", "tf", "tf+vrns-2-2-3")


def model_of(name, bound=2.0):
    sizes = {} if name.startswith("tf") else {"hidden": 6}
    model = models.build(name, ["a", "b", "c"], **sizes).double()
    initialize(model, 4, layers="uniform", bound=bound)
    return model


def from_scratch(model, prefix, max_length, choose):
    """A string made without carrying any state, and its log probability."""
    model = model.eval()
    word, score = list(model.encode([prefix])[0][0]), 0.0
    given = len(word)
    with torch.no_grad():
        for time in range(max_length + 1):
            log_p = model.logits(torch.tensor([word[:time]], dtype=torch.long))[0, -1].log_softmax(-1)
            symbol = int(word[time]) if time < given else choose(log_p)
            if symbol == model.boundary:
                return model.decode(word), score + log_p[symbol].item(), True
            if time == max_length:
                return model.decode(word), score, False
            score += log_p[symbol].item()
            if time >= given:
                word.append(symbol)
    raise AssertionError


@pytest.mark.parametrize("name", NAMES)
def test_greedy_is_the_same_from_scratch(name):
    model, prefixes = model_of(name), ["", "a", "cab", "b", "c"]
    made = greedy(model, prefixes, 9)
    for prefix, one in zip(prefixes, made, strict=True):
        word, score, complete = from_scratch(model, prefix, 9, lambda log_p: int(log_p.argmax()))
        assert (one.word, one.complete) == (word, complete)
        assert one.log_probability == pytest.approx(score)
        assert one.word.startswith(prefix)


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_the_probability_that_the_model_says(name):
    model = model_of(name)
    made = sample(model, [""] * 6 + ["ab"] * 2, 8, seed=3)
    assert made == sample(model, [""] * 6 + ["ab"] * 2, 8, seed=3)
    assert len({one.word for one in made}) > 1
    model.eval()
    for one in made:
        if one.complete:
            expected = model.log_probability([one.word]).item()
        else:
            assert len(one.word) == 8
            log_p = model.logits([one.word])[0, :-1].log_softmax(-1)
            expected = log_p.gather(1, model.encode([one.word])[0].T).sum().item()
        assert one.log_probability == pytest.approx(expected)


def test_a_sample_is_the_same_from_scratch():
    model, generator = model_of("rns-2-2", bound=0.5), torch.Generator().manual_seed(11)

    def choose(log_p):
        return int(torch.multinomial((log_p / 0.7).softmax(-1)[None], 1, generator=generator))

    expected = from_scratch(model, "", 12, choose)
    one = sample(model, [""], 12, temperature=0.7, seed=11)[0]
    assert (one.word, one.complete) == expected[::2]
    assert one.log_probability == pytest.approx(expected[1])


def test_samples_follow_the_distribution():
    model = model_of("lstm", bound=1.0)
    with torch.no_grad():
        expected = model.logits([""])[0, 0]
    for temperature in (1.0, 0.5):
        made = sample(model, [""] * 4000, 1, temperature=temperature, seed=5)
        shares = [sum(one.word == symbol for one in made) / 4000 for symbol in ("a", "b", "c", "")]
        exact = (expected / temperature).softmax(-1).tolist()
        assert shares == pytest.approx(exact, abs=4 * math.sqrt(0.25 / 4000))


@pytest.mark.parametrize("name", ["lstm", "vrns-1-2-3", "tf+vrns-2-2-3"])
def test_a_wide_beam_finds_the_likeliest_strings(name):
    model, prefixes, length = model_of(name, bound=0.7), ["", "cb", "a"], 4
    found = beam_search(model, prefixes, length, width=200)
    words = [""]
    for _ in range(length):
        words += [word + symbol for word in words if len(word) == len(words[-1]) for symbol in "abc"]
    model.eval()
    scores = dict(zip(words, model.log_probability(words).tolist(), strict=True))
    assert len(scores) == 121
    for prefix, results in zip(prefixes, found, strict=True):
        exact = sorted((word for word in words if word.startswith(prefix)), key=lambda word: -scores[word])
        complete = [one for one in results if one.complete]
        assert [one.word for one in complete] == exact
        assert [one.log_probability for one in complete] == pytest.approx([scores[word] for word in exact])
        assert all(len(one.word) == length for one in results if not one.complete)


@pytest.mark.parametrize("name", NAMES)
def test_a_beam_of_one_is_not_worse_than_greedy(name):
    model = model_of(name, bound=1.0)
    for prefix in ("", "b"):
        one, other = beam_search(model, [prefix], 7, width=1)[0][0], greedy(model, [prefix], 7)[0]
        assert one.log_probability >= other.log_probability - 1e-9 or not other.complete


def test_searches_side_by_side_are_the_same_as_alone():
    model, prefixes = model_of("rns-2-2", bound=1.0), ["", "abc", "b"]
    together = beam_search(model, prefixes, 6, width=3)
    for prefix, results in zip(prefixes, together, strict=True):
        (alone,) = beam_search(model, [prefix], 6, width=3)
        assert [one.word for one in results] == [one.word for one in alone]
        scores = [one.log_probability for one in alone]
        assert [one.log_probability for one in results] == pytest.approx(scores)


def test_training_mode_is_kept_and_dropout_is_off():
    model = models.build("tf", ["a", "b"], dropout=0.5)
    assert greedy(model, [""], 5) == greedy(model, [""], 5)
    assert model.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda model: sample(model, [""], 5, temperature=0.0),
            "temperature is 0.0, expected a positive number",
        ),
        (lambda model: greedy(model, ["abc"], 2), "max_length is 2, expected at least 3"),
        (lambda model: greedy(model, ["x"], 2), "the symbol 'x' is not in the alphabet"),
        (lambda model: beam_search(model, [""], 2, width=0), "width is 0"),
    ],
)
def test_misuse_gets_one_line(call, message):
    with pytest.raises(NdstackError, match=message):
        call(model_of("lstm"))


def test_nothing_asked_nothing_made():
    model = model_of("rns-2-2")
    assert greedy(model, [], 3) == sample(model, [], 3) == beam_search(model, [], 3) == []
    assert greedy(model, ["ab"], 2)[0].word == "ab"

"""Dyck and padded reversal as in the public data: what they lost, and how far they are from section 5.3."""

import math
import random
from itertools import product

import pytest

from ndstack import languages
from ndstack.errors import LanguageError


def top_level_parts(word):
    depth, parts = 0, 0
    for symbol in word:
        depth += 1 if symbol in "([" else -1
        parts += depth == 0
    return parts


@pytest.mark.parametrize("name, shortest", [("dyck(public)", 4), ("padded-reversal(public)", 2)])
def test_probabilities_sum_to_one_and_nothing_else_is_in_the_language(name, shortest):
    public, printed = languages.get(name), languages.get(name.removesuffix("(public)"))
    assert public.name == name
    assert min(public.lengths(0, 20)) == shortest
    assert public.lengths(shortest, 80) == [n for n in printed.lengths(0, 80) if n >= shortest]
    for length in public.lengths(0, 8):
        words = ["".join(word) for word in product(public.alphabet, repeat=length)]
        found = [math.exp(public.log_probability(word)) for word in words]
        assert math.fsum(found) == pytest.approx(1, abs=1e-12)
        if name == "dyck(public)":
            for word, p in zip(words, found, strict=True):
                assert (p > 0) == (word in printed and top_level_parts(word) >= 2), word


def test_public_dyck_strings_have_two_or_more_parts_where_most_printed_ones_have_one():
    public, printed, rng = languages.get("dyck(public)"), languages.get("dyck"), random.Random(1)
    assert all(top_level_parts(public.sample(60, rng)) >= 2 for _ in range(300))
    single = sum(top_level_parts(printed.sample(60, rng)) == 1 for _ in range(3000)) / 3000
    assert single == pytest.approx(0.78, abs=0.03)


@pytest.mark.parametrize("length, nats", [(40, 0.0403), (60, 0.0254)])
def test_divergence_of_public_dyck_from_the_printed_grammar_per_symbol(length, nats):
    """A sampled estimate of D(public || printed), by way of the lower bounds, which are cross-entropies."""
    public, printed, rng = languages.get("dyck(public)"), languages.get("dyck"), random.Random(2)
    words = [public.sample(length, rng) for _ in range(200)]
    own = public.lower_bound(words, lengths=None, eos=False)
    assert own == pytest.approx(-math.fsum(map(public.log_probability, words)) / length / 200)
    assert printed.lower_bound(words, lengths=None, eos=False) - own == pytest.approx(nats, abs=5e-4)


def test_public_padded_reversal_is_the_printed_one_without_strings_that_are_all_padding():
    public, printed = languages.get("padded-reversal(public)"), languages.get("padded-reversal")
    content, padding = 60 / 61, 30 / 31
    ways = [content**i * padding ** (40 - 2 * i) for i in range(21)]
    lost = ways[0] / math.fsum(ways)
    word = "0110" + "1" * 32 + "0110"
    difference = public.log_probability(word) - printed.log_probability(word)
    assert difference == pytest.approx(-math.log(1 - lost), abs=1e-9)
    assert difference / 40 == pytest.approx(0.0007, abs=5e-5)


def test_data_sets_and_names(tmp_path):
    plan = languages.Plan(train=5, validation=3, test_per_length=1, lengths=(10, 14), test_lengths=(10, 12))
    made = languages.make_dataset(languages.get("dyck(public)"), 1, plan)
    languages.write_dataset(made, tmp_path / "data")
    read = languages.read_dataset(tmp_path / "data")
    assert read.language.name == "dyck(public)"
    assert read.train == made.train
    with pytest.raises(LanguageError, match="unmarked-reversal has no public version"):
        languages.get("unmarked-reversal(public)")

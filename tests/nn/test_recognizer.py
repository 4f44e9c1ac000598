"""Recognisers compiled from grammars agree with the grammars (section 8.3)."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from ndstack.automata import BOTTOM, PDA, RestrictedPDA, RestrictedWPDA, Transition
from ndstack.errors import NdstackError
from ndstack.grammars import CFG, PCFG, LengthTable, generates, uniform
from ndstack.nn import examples
from ndstack.nn.recognizer import recognize_lines, recognizer, split_line
from tests.oracles import all_words, language_of_grammar
from tests.strategies import ALPHABET, grammars_with_small_automata


def accepted(network, words):
    return {word for word, y in zip(words, network(words).tolist(), strict=True) if y > 0.5}


ONE_BRACKET = "S -> '(' S ')' S |"
SHORT_ENGLISH = "S -> N VP\nVP -> 'v' N | VP PP\nN -> N PP | 'n'\nPP -> 'p' N"

SINGLE = {
    "dyck": (examples.dyck(), 6),
    "one bracket": (CFG.fromstring(ONE_BRACKET), 8),
    "palindromes": (examples.palindromes(), 8),
    "marked reversal": (CFG.fromstring("S -> '0' S '0' | '1' S '1' | '#'"), 8),
    "equal counts": (CFG.fromstring("S -> 'a' S 'b' S | 'b' S 'a' S |"), 8),
    "english": (examples.english(), 4),
    "english of three words": (CFG.fromstring(SHORT_ENGLISH), 8),
}
SEVERAL = {
    "three-counts": (examples.three_counts(), 8),
    "cross-serial": (examples.cross_serial(), 6),
    "four-counts": (examples.four_counts(), 5),
}


@pytest.mark.parametrize("name", SINGLE)
def test_every_short_string(name):
    grammar, length = SINGLE[name]
    words = all_words(grammar.terminals, length)
    language = language_of_grammar(grammar, grammar.terminals, length)
    assert len(language) > 0
    assert accepted(recognizer(grammar), words) == language


@pytest.mark.parametrize("name", SEVERAL)
def test_every_short_string_of_an_intersection(name):
    parts, length = SEVERAL[name]
    alphabet = parts[0].terminals
    languages = [language_of_grammar(grammar, alphabet, length) for grammar in parts]
    common = set.intersection(*languages)
    assert common not in languages
    assert accepted(recognizer(parts), all_words(alphabet, length)) == common


@pytest.mark.parametrize("name", ["cross-serial", "four-counts"])
def test_every_ordered_string_of_an_intersection(name):
    """a*b*c*d* up to length 8: the strings that some part accepts are among them."""
    parts, _ = SEVERAL[name]
    words = sorted_words("abcd", 8)
    expected = {w for w in words if all(generates(grammar, w) for grammar in parts)}
    assert len(expected) > 2
    assert accepted(recognizer(parts), words) == expected


def sorted_words(alphabet, length):
    if not alphabet:
        return [()]
    return [
        (alphabet[0],) * n + rest
        for n in range(length + 1)
        for rest in sorted_words(alphabet[1:], length - n)
    ]


def spoilt(word, alphabet, rng):
    """The word with one symbol changed, left out or added, or two swapped."""
    word, place = list(word), int(rng.integers(len(word)))
    match rng.integers(4):
        case 0:
            word[place] = alphabet[rng.integers(len(alphabet))]
        case 1:
            del word[place]
        case 2:
            word.insert(place, alphabet[rng.integers(len(alphabet))])
        case _:
            other = rng.integers(len(word))
            word[place], word[other] = word[other], word[place]
    return tuple(word[:40])


@pytest.mark.parametrize("name", SINGLE)
def test_long_strings(name):
    grammar, _ = SINGLE[name]
    rng = np.random.default_rng(1)
    table = LengthTable(uniform(grammar))
    lengths = rng.choice(table.lengths(1, 40), 100)
    members = [table.sample(int(length), rng) for length in lengths]
    words = [*members, *(spoilt(word, grammar.terminals, rng) for word in members)]
    expected = {word for word in words if generates(grammar, word)}
    assert expected >= set(members)
    assert set(words) - expected
    assert accepted(recognizer(grammar), words) == expected


def powers(*counts):
    return tuple(symbol for symbol, count in zip("abcd", counts, strict=False) for _ in range(count))


MEMBERS = {
    "three-counts": lambda rng: powers(*[rng.integers(14)] * 3),
    "cross-serial": lambda rng: powers(*[*rng.integers(11, size=2)] * 2),
    "four-counts": lambda rng: powers(*[rng.integers(11)] * 4),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_long_strings_of_an_intersection(name):
    parts, _ = SEVERAL[name]
    alphabet = parts[0].terminals
    rng = np.random.default_rng(1)
    members = [MEMBERS[name](rng) for _ in range(100)]
    near = [spoilt(word, alphabet, rng) for word in members[:60] if word]
    tables = [LengthTable(uniform(grammar)) for grammar in parts]
    of_parts = [tables[i % len(parts)].sample(int(rng.integers(1, 41)), rng) for i in range(40)]
    words = [*members, *near, *of_parts]
    expected = {word for word in words if all(generates(grammar, word) for grammar in parts)}
    assert expected >= set(members)
    assert max(map(len, expected)) > 36
    assert len(set(words) - expected) > 50
    assert accepted(recognizer(parts), words) == expected


@given(grammars_with_small_automata())
@settings(max_examples=25)
def test_any_grammar(grammar):
    network = recognizer(grammar)
    words = all_words(ALPHABET, 5)
    assert accepted(network, words) == language_of_grammar(grammar, ALPHABET, 5)


@given(grammars_with_small_automata(), grammars_with_small_automata())
@settings(max_examples=20)
def test_any_two_grammars(one, other):
    words = all_words(ALPHABET, 4)
    expected = language_of_grammar(one, ALPHABET, 4) & language_of_grammar(other, ALPHABET, 4)
    assert accepted(recognizer([one, other]), words) == expected


def many_runs():
    """aⁿ, by one run of more than 2ⁿ; aⁿb and aⁿc by most of the others."""
    moves = [(q, "a", r) for q, targets in (("g", "gxy"), ("x", "xy"), ("y", "xy")) for r in targets]
    moves += [("x", "b", "f"), ("y", "c", "f")]
    transitions = tuple(Transition(q, a, (BOTTOM,), r, (BOTTOM,)) for q, a, r in moves)
    return RestrictedPDA(transitions, "g", frozenset({"g", "f"}))


@pytest.mark.parametrize("n", [1, 2, 40, 60, 120])
def test_one_accepting_run_among_very_many(n):
    """p is 2⁻ⁿ and less, far below the precision of floats around 1/2."""
    some_a = CFG.fromstring("S -> 'a' S | 'a' | 'a' 'b'")
    for network in (recognizer(many_runs()), recognizer([many_runs(), some_a])):
        words = ["a" * n, "a" * n + "b", "a" * (n - 1) + "ca", "b" + "a" * n]
        assert (network(words) > 0.5).tolist() == [True, True, False, False]


def test_the_arithmetic_is_that_of_the_proof():
    network = recognizer(examples.three_counts())
    words = ["aabbcc", "aabbbc", "abcabc", "xaabbc"]
    x = network.encode(words)
    h, _ = network.rnn(x)
    actions = network.rnn.actions(h)
    assert set(actions.unique().tolist()) == {0.0, -math.inf}
    base, offset = network.layout.base, network.layout.offset
    for t in range(1, 8):
        assert h[:, t - 1, offset].tolist() == pytest.approx([math.tanh(base**-t)] * 4, rel=1e-12)
    accept = h[:, -1, network.layout.accept]
    assert (accept > 0).tolist() == [[True, True], [False, False], [False, False], [False, False]]
    words += ["aabbc", "abbcc"]
    sums = [0.5, -1.5, -1.5, -1.5, -0.5, -0.5]  # parts that accept, minus 3/2
    assert network(words).tolist() == pytest.approx([1 / (1 + math.exp(-z)) for z in sums])


def test_symbol_by_symbol():
    network = recognizer(examples.palindromes())
    x = network.encode(["abba", "abab"])
    whole, _ = network.rnn(x)
    state, steps = None, []
    for t in range(x.shape[1]):
        h, state = network.rnn(x[:, t : t + 1], state)
        steps.append(h)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)


def test_some_run_always_survives():
    network = recognizer(examples.dyck())
    x = network.encode(["))", "(]"])
    _, state = network.rnn(x[:, :-1])
    assert state.stack.reading.sum(1).tolist() == pytest.approx([1, 1])


def test_the_network_is_a_module():
    network = recognizer(examples.palindromes())
    other = copy.deepcopy(network)
    other.load_state_dict(network.state_dict())
    assert other.accepts("abba")
    assert not other.accepts("abb")
    assert "languages=1, states=3, stack_symbols=3" in repr(network)
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_machines_of_all_kinds():
    counter = PDA(
        (
            Transition("p", "a", (), "p", ("c",)),
            Transition("p", "", (), "q", ()),
            Transition("q", "b", ("c",), "q", ()),
        ),
        "p",
        frozenset({"q"}),
    )
    some = recognizer(counter)
    assert [some.accepts(w) for w in ("", "aab", "abb")] == [True, True, False]
    weighted = RestrictedWPDA(
        (Transition("q", "a", (BOTTOM,), "q", (BOTTOM,), 0.25),), "q", frozenset({"q"}), BOTTOM
    )
    assert [recognizer(weighted).accepts(w) for w in ("", "aa", "ab")] == [True, True, False]
    probabilistic = PCFG.fromstring("S -> 'a' S 'b' [0.5] | 'c' [0.5]")
    both = recognizer([probabilistic, CFG.fromstring("S -> 'a' S | S 'b' | 'c'")])
    assert [both.accepts(w) for w in ("c", "acb", "acbb", "")] == [True, True, False, False]


def test_degenerate_languages():
    nothing = PDA((Transition("p", "a", (), "q", ()),), "p", frozenset())
    assert not any(recognizer(nothing).accepts(w) for w in ("", "a", "aa"))
    empty = recognizer(CFG.fromstring("S -> "))
    assert empty.accepts("")
    assert not empty.accepts("a")
    assert recognizer(examples.dyck())([]).shape == (0,)


def test_unknown_symbols_are_rejected():
    network = recognizer([CFG.fromstring("S -> 'a' S | 'a'"), CFG.fromstring("S -> 'a' S | 'b' S |")])
    assert [network.accepts(w) for w in ("aa", "ab", "ax", "x", "")] == [True, False, False, False, False]
    named = recognizer(CFG.fromstring("S -> 'EOS' S | 'unknown'"))
    assert named.accepts(("EOS", "EOS", "unknown"))
    assert not named.accepts(("EOS", "EOS"))


def test_errors_say_what_to_do():
    with pytest.raises(NdstackError, match="no grammars given"):
        recognizer([])
    with pytest.raises(NdstackError, match="'dyck' given, expected a CFG or a PDA"):
        recognizer(["dyck"])
    network = recognizer(examples.palindromes())
    with pytest.raises(NdstackError, match=f"exact up to length {network.longest} in float64"):
        network(["a" * (network.longest + 1)])
    with pytest.raises(NdstackError, match="expected float64"):
        recognizer(examples.palindromes()).float()(["a"])
    with pytest.raises(
        NdstackError, match=r"3 states and 3 stack symbols.*limit of 9.77 KiB.*raise `memory`"
    ):
        recognizer(examples.palindromes(), memory=10_000)


def test_the_ambiguous_sentence():
    """The grammar as printed has 5 trees; the dissertation shows the first, the fourth and the fifth."""
    found = examples.ambiguity(examples.english(), examples.SENTENCE)
    assert len(found.trees) == 5
    assert sorted(trees for _, trees in found.runs) == [1, 2, 2]
    assert len(list(found.lines())) == 1 + 5 + 1 + 3 * 8
    assert recognizer(examples.english()).accepts(examples.SENTENCE)


def test_lines_of_text():
    lines = list(recognize_lines(examples.three_counts(), ["aabbcc", "aabbc", ""]))
    assert lines == [("aabbcc", True), ("aabbc", False), ("", True)]
    sentence = "Mary saw a man  in the park with a telescope"
    assert split_line(sentence, examples.english().terminals) == examples.SENTENCE
    assert list(recognize_lines([examples.english()], [sentence, "Mary saw", "Mary saw the"])) == [
        (sentence, True),
        ("Mary saw", False),
        ("Mary saw the", False),
    ]


@pytest.mark.parametrize("name", [*examples.grammars, *examples.intersections])
def test_examples_are_small(name):
    network = examples.example(name)
    assert len(network.layout.states) * len(network.layout.tops) <= 28
    assert network.longest > 300

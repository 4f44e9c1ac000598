"""What a compiled recogniser is made of: its arithmetic, the machines it takes, its errors."""

import copy
import math

import pytest
import torch

from ndstack.automata import BOTTOM, PDA, RestrictedPDA, RestrictedWPDA, Transition, accepting_runs
from ndstack.errors import NdstackError
from ndstack.grammars import CFG, PCFG
from ndstack.nn.proofs import examples
from ndstack.nn.proofs.recognition import recognize_lines, recognizer, split_line


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


def rivals(count):
    """aⁿbⁿ, by one run that pushes and pops beside `count`²ⁿ runs that do not."""
    moves = [("g", (BOTTOM,), (BOTTOM, "x")), ("g", ("x",), ("x", "x"))]
    transitions = [Transition(q, "a", pop, "g", push) for q, pop, push in moves]
    transitions += [Transition(q, "b", ("x",), "h", ()) for q in "gh"]
    names = [f"k{i}" for i in range(count)]
    for i, name in enumerate(names):
        transitions.append(Transition("g", "a", (BOTTOM,), name, (BOTTOM,)))
        transitions.append(Transition(name, str(i), (BOTTOM,), "f", (BOTTOM,)))
        transitions += [Transition(name, s, (BOTTOM,), r, (BOTTOM,)) for r in names for s in "ab"]
    return RestrictedPDA(tuple(transitions), "g", frozenset({"h", "f"}))


@pytest.mark.parametrize("n", [3, 30])
def test_a_stack_of_one_run_among_very_many(n):
    any_end = CFG.fromstring("S -> 'a' S | 'b' S | '0' | 'b'")
    for network in (recognizer(rivals(4)), recognizer([rivals(4), any_end])):
        word = "a" * n + "b" * n
        words = [word, word[:-1], word[:-1] + "0", word + "b", "a" + word]
        assert (network(words) > 0.5).tolist() == [True, False, True, False, False]


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
        NdstackError, match=r"3 states and 3 stack symbols.*limit of 9.77 KiB.*`max_bytes` in Python"
    ):
        recognizer(examples.palindromes(), max_bytes=10_000)


def test_the_ambiguous_sentence():
    """The grammar as printed has 5 trees, of which figure 1.1 shows 3."""
    found = examples.ambiguity(examples.english(), examples.SENTENCE)
    assert len(set(map(str, found.trees))) == 5
    assert sorted(trees for _, trees in found.runs) == [1, 2, 2]
    assert len(list(found.lines())) == 1 + 5 + 1 + 3 * 8 + 1 + 5 * 8
    assert len(found.apart) == 5
    network = recognizer(examples.english())
    assert len(list(accepting_runs(network.layout.union.pda, examples.SENTENCE))) == 3
    assert network.accepts(examples.SENTENCE)


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

"""The twelve languages against probabilities computed in another way."""

import math
import random
import re
from collections import Counter
from functools import cache
from itertools import product

import nltk
import numpy as np
import pytest
from scipy.stats import chisquare

from ndstack import languages
from ndstack.errors import LanguageError
from ndstack.grammars import WeightedCFG

NON_EMPTY = {  # how many lengths in 40..80 have strings
    "marked-reversal": 20,
    "unmarked-reversal": 21,
    "padded-reversal": 41,
    "dyck": 21,
    "hardest-cfl": 41,
    "count-3": 13,
    "marked-reverse-and-copy": 14,
    "count-and-copy": 13,
    "marked-copy": 20,
    "unmarked-copy-different-alphabets": 21,
    "unmarked-reverse-and-copy": 13,
    "unmarked-copy": 21,
}


def f(mu):
    return 1 - 1 / (mu + 1)


def members(language, length):
    return [w for w in map("".join, product(language.alphabet, repeat=length)) if w in language]


@pytest.mark.parametrize("name", languages.NAMES)
def test_number_of_non_empty_lengths(name):
    assert len(languages.get(name).lengths(40, 80)) == NON_EMPTY[name]


@pytest.mark.parametrize("name", languages.NAMES)
def test_probabilities_given_the_length_sum_to_one(name):
    language = languages.get(name)
    for length in language.lengths(0, 6):
        total = math.fsum(math.exp(language.log_probability(w)) for w in members(language, length))
        assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", languages.NAMES)
def test_samples_are_members_of_the_right_length(name):
    language = languages.get(name)
    rng = random.Random(0)
    for length in language.lengths(40, 80):
        word = language.sample(length, rng)
        assert isinstance(word, str)
        assert len(word) == length
        assert word in language
        assert set(word) <= set(language.alphabet)


DEFINITIONS = {
    "marked-reversal": lambda w: w.count("#") == 1 and w == w[::-1],
    "unmarked-reversal": lambda w: len(w) % 2 == 0 and w == w[::-1],
    "padded-reversal": lambda w: any(
        w[:i] == w[len(w) - i :][::-1] and len(set(w[i : len(w) - i])) <= 1 for i in range(len(w) // 2 + 1)
    ),
    "dyck": lambda w: bool(w) and _balanced(w),
    "count-3": lambda w: w == "a" * (len(w) // 3) + "b" * (len(w) // 3) + "c" * (len(w) // 3),
    "marked-reverse-and-copy": lambda w: any(
        w == f"{u}#{u[::-1]}#{u}" for u in [w[: (len(w) - 2) // 3]] if "#" not in u
    ),
    "count-and-copy": lambda w: any(w == u + "#" * len(u) + u for u in [w[: len(w) // 3]] if "#" not in u),
    "marked-copy": lambda w: any(w == f"{u}#{u}" for u in [w[: len(w) // 2]] if "#" not in u),
    "unmarked-copy-different-alphabets": lambda w: any(
        w == u + u.translate({48: "2", 49: "3"}) for u in [w[: len(w) // 2]] if set(u) <= set("01")
    ),
    "unmarked-reverse-and-copy": lambda w: any(w == u + u[::-1] + u for u in [w[: len(w) // 3]]),
    "unmarked-copy": lambda w: any(w == u + u for u in [w[: len(w) // 2]]),
}


def _balanced(w):
    while w != (w := w.replace("()", "").replace("[]", "")):
        pass
    return not w


@pytest.mark.parametrize("name", DEFINITIONS)
def test_membership_is_the_definition(name):
    language = languages.get(name)
    for length in range(8):
        for w in map("".join, product(language.alphabet, repeat=length)):
            assert (w in language) == bool(DEFINITIONS[name](w)), w


def test_marked_and_unmarked_reversal_are_uniform_at_each_length():
    for name, mark in (("marked-reversal", "#"), ("unmarked-reversal", "")):
        language = languages.get(name)
        for half in ("01101", "0" * 20, "10" * 24):
            expected = -len(half) * math.log(2)
            assert language.log_probability(half + mark + half[::-1]) == pytest.approx(expected, abs=1e-9)


@cache
def _padded(w):
    """Σ over all ways to write w = u a^p u^R of their probabilities, by hand."""
    total = 0.0
    for i in range(len(w) // 2 + 1):
        outer, middle = (w[:i], w[len(w) - i :]), w[i : len(w) - i]
        if outer[0] == outer[1][::-1]:
            around = (f(60) / 2) ** i * (1 - f(60)) / 2
            for a in "01":
                if set(middle) <= {a}:
                    total += around * f(30) ** len(middle) * (1 - f(30))
    return total


@pytest.mark.parametrize("word", ["0110", "00000", "0111110", "01" + "1" * 37 + "10", "0" * 40])
def test_padded_reversal_sums_over_all_centres(word):
    language = languages.get("padded-reversal")
    length = len(word)
    # all strings of the length: every half, then every padding
    everything = {u + a * (length - 2 * i) + u[::-1] for i in range(min(length // 2, 9) + 1) for a in "01"
                  for u in map("".join, product("01", repeat=i))}  # fmt: skip
    total = _total_padded(length)
    if length < 19:
        assert total == pytest.approx(math.fsum(map(_padded, everything)), rel=1e-12)
    assert language.log_probability(word) == pytest.approx(math.log(_padded(word) / total), abs=1e-9)


def _total_padded(length):
    """Each derivation counted by its outer part: 2^i of them."""
    return math.fsum(
        2**i * (f(60) / 2) ** i * (1 - f(60)) * f(30) ** (length - 2 * i) * (1 - f(30))
        for i in range(length // 2 + 1)
    )


@cache
def _dyck_s(w):
    """p(S ⇒ w) by trying the last split: S → S T | T."""
    return 0.5 * _dyck_t(w) + math.fsum(
        0.5 * _dyck_s(w[:i]) * _dyck_t(w[i:]) for i in range(2, len(w) - 1, 2)
    )


@cache
def _dyck_t(w):
    if len(w) < 2 or w[0] + w[-1] not in ("()", "[]"):
        return 0.0
    return (1 - f(40)) / 2 if len(w) == 2 else f(40) / 2 * _dyck_s(w[1:-1])


@cache
def _dyck_total(length):
    """p(|w|) for S and T, over all strings of the length."""
    if length < 2 or length % 2:
        return 0.0, 0.0
    t = 1 - f(40) if length == 2 else f(40) * _dyck_total(length - 2)[0]
    s = 0.5 * t + 0.5 * math.fsum(_dyck_total(k)[0] * _dyck_total(length - k)[1] for k in range(2, length, 2))
    return s, t


def test_dyck_by_recursion_on_the_string():
    language = languages.get("dyck")
    rng = np.random.default_rng(1)
    for length in (2, 4, 10, 40, 60):
        for _ in range(5):
            word = language.sample(length, rng)
            expected = math.log(_dyck_s(word)) - math.log(_dyck_total(length)[0])
            assert language.log_probability(word) == pytest.approx(expected, abs=1e-9)


HARDEST = """
Start -> R '$' Q S L ';' [1]
L -> Ls ',' U [1]
Ls -> ',' V Ls [1/3] | [2/3]
R -> U ',' Rs [1]
Rs -> Rs V ',' [1/3] | [2/3]
U -> W U [1/3] | [2/3]
V -> W V [1/2] | W [1/2]
W -> '(' [0.2] | ')' [0.2] | '[' [0.2] | ']' [0.2] | '$' [0.2]
Q -> L ';' R [1/4] | [3/4]
S -> S Q T [3/5] | T [2/5]
T -> '(' Q S Q ')' [3/8] | '[' Q S Q ']' [3/8] | '(' Q ')' [1/8] | '[' Q ']' [1/8]
"""  # figure 5.2 with its parameters put in by hand: f(0.5) = 1/3, f(1) = 1/2, f(1.5) = 3/5, f(3) = 3/4


def test_hardest_cfl_by_enumeration_of_derivations():
    """All derivations up to length 10, leftmost, with a bound on what is still to come."""
    grammar = nltk.PCFG.fromstring(
        re.sub(r"\[(\d)/(\d)\]", lambda m: f"[{int(m[1]) / int(m[2]):.17f}]", HARDEST)
    )
    shortest = {"Start": 5, "L": 1, "Ls": 0, "R": 1, "Rs": 0, "U": 0, "V": 1, "W": 1, "Q": 0, "S": 2, "T": 2}
    limit = 10
    found: Counter = Counter()
    open_ = [("", (grammar.start(),), 1.0)]
    while open_:
        done, rest, p = open_.pop()
        if not rest:
            found[done] += p
            continue
        first, *later = rest
        if isinstance(first, str):
            open_.append((done + first, tuple(later), p))
            continue
        for rule in grammar.productions(lhs=first):
            new = (*rule.rhs(), *later)
            size = len(done) + sum(1 if isinstance(s, str) else shortest[s.symbol()] for s in new)
            if size <= limit:
                open_.append((done, new, p * rule.prob()))
    language = languages.get("hardest-cfl")
    assert len(found) > 500
    for length in range(limit + 1):
        words = [w for w in found if len(w) == length]
        total = math.fsum(found[w] for w in words)
        for w in words:
            assert language.log_probability(w) == pytest.approx(math.log(found[w] / total), abs=1e-9)


def test_non_context_free_probabilities_count_the_free_part():
    assert languages.get("count-3").log_probability("aabbcc") == 0
    for name, word in [
        ("marked-reverse-and-copy", "011#110#011"),
        ("count-and-copy", "011###011"),
        ("marked-copy", "011#011"),
        ("unmarked-copy-different-alphabets", "011233"),
        ("unmarked-reverse-and-copy", "011110011"),
        ("unmarked-copy", "011011"),
    ]:
        assert languages.get(name).log_probability(word) == pytest.approx(-3 * math.log(2))


@pytest.mark.parametrize("name", ["padded-reversal", "dyck", "hardest-cfl", "marked-copy", "count-and-copy"])
def test_sampling_follows_the_exact_distribution(name):
    language = languages.get(name)
    length = language.lengths(6, 9)[0]
    rng = np.random.default_rng(11)
    count = 30_000
    seen = Counter(language.sample(length, rng) for _ in range(count))
    expected = {w: count * math.exp(language.log_probability(w)) for w in members(language, length)}
    assert set(seen) <= set(expected)
    common = [w for w, e in expected.items() if e >= 5]
    rare = [w for w in expected if w not in set(common)]
    observed = [seen[w] for w in common] + [sum(seen[w] for w in rare)] * bool(rare)
    theory = [expected[w] for w in common] + [sum(expected[w] for w in rare)] * bool(rare)
    assert chisquare(observed, np.array(theory) * (sum(observed) / sum(theory))).pvalue > 0.001


@pytest.mark.parametrize("k", [1, 2, 3, 10, 11, 200])
def test_k_symbols(k):
    rng = random.Random(k)
    reversal = languages.get(f"marked-reversal(k={k})")
    assert len(reversal.alphabet) == k + 1
    word = reversal.sample(41, rng)
    assert isinstance(word, str if k <= 10 else tuple)
    assert reversal.log_probability(word) == pytest.approx(-20 * math.log(k), abs=1e-8)
    dyck = languages.get(f"dyck(k={k})")
    assert len(dyck.alphabet) == 2 * k
    brackets = dyck.sample(20, rng)
    opened = []
    pairs = dict(zip(dyck.alphabet[::2], dyck.alphabet[1::2], strict=True))
    for symbol in brackets:
        if symbol in pairs:
            opened.append(pairs[symbol])
        else:
            assert opened.pop() == symbol
    assert not opened
    copy = languages.get(f"unmarked-copy-different-alphabets(k={k})")
    assert len(copy.alphabet) == 2 * k
    assert copy.log_probability(copy.sample(10, rng)) == pytest.approx(-5 * math.log(k), abs=1e-12)


def test_k_two_is_the_plain_language():
    assert languages.get("dyck(k=2)").name == "dyck"
    assert languages.get("dyck( k = 3 )").name == "dyck(k=3)"


def test_words_may_be_given_as_tuples():
    language = languages.get("dyck")
    assert language.log_probability(tuple("()[]")) == language.log_probability("()[]")
    assert tuple("()[]") in language
    assert 5 not in language


def test_outside_the_language_the_probability_is_zero():
    for name in languages.NAMES:
        assert languages.get(name).log_probability("zzz") == -math.inf
    assert languages.get("dyck").log_probability("((") == -math.inf


@pytest.mark.parametrize(
    "name, message",
    [
        ("dyk", "no language called 'dyk'; did you mean dyck?"),
        ("qqqq", "there are marked-reversal, "),
        ("dyck(k=0)", "k=0 is not a number of symbols"),
        ("dyck(k=x)", "k=x is not a number of symbols"),
        ("dyck(k=-1)", "k=-1 is not a number of symbols"),
        ("dyck(k=99999)", "expected 1 to 10,000"),
        ("count-3(k=4)", "fixed alphabet"),
        ("dyck(m=4)", "no language called 'dyck(m=4)'"),
    ],
)
def test_bad_names_are_clear_errors(name, message):
    with pytest.raises(LanguageError) as error:
        languages.get(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_length_without_strings_is_a_clear_error():
    with pytest.raises(
        LanguageError, match=r"dyck has no strings of length 41; nearby lengths: 36, 38, 40, 42"
    ):
        languages.get("dyck").sample(41, random.Random(0))
    with pytest.raises(LanguageError, match="no strings of length -1"):
        languages.get("unmarked-copy").sample(-1, random.Random(0))


class TestLowerBound:
    WORDS = ("0110", "010010")

    def test_with_and_without_eos(self):
        """-log p(w) = log(#lengths) + |w|/2 log 2, lengths 4..8: three of them."""
        language = languages.get("unmarked-reversal")
        total = 2 * math.log(3) + 5 * math.log(2)
        assert language.lower_bound(self.WORDS, lengths=(4, 8)) == pytest.approx(total / 12)
        assert language.lower_bound(self.WORDS, lengths=(4, 8), eos=False) == pytest.approx(total / 10)

    def test_with_known_length(self):
        language = languages.get("unmarked-reversal")
        assert language.lower_bound(self.WORDS, lengths=None) == pytest.approx(5 * math.log(2) / 12)

    def test_is_the_entropy_in_expectation(self):
        """Averaged over samples it approaches the exact entropy of the language per symbol."""
        language = languages.get("dyck")
        exact = math.log(2)
        for length in (4, 6):
            for w in members(language, length):
                log_p = language.log_probability(w)
                exact -= 0.5 * math.exp(log_p) * log_p
        rng = np.random.default_rng(0)
        words = [language.sample(4 + 2 * int(rng.random() * 2), rng) for _ in range(20_000)]
        bound = language.lower_bound(words, lengths=(4, 6)) * sum(len(w) + 1 for w in words) / len(words)
        assert bound == pytest.approx(exact, rel=0.01)

    @pytest.mark.parametrize("words, lengths, message", [
        (["01"], (2, 4), "'01' is not in the language"),
        (["00"], (4, 8), "cannot come from lengths 4..8"),
        ([], (4, 8), "no symbols"),
    ])  # fmt: skip
    def test_errors(self, words, lengths, message):
        with pytest.raises(LanguageError, match=message):
            languages.get("unmarked-reversal").lower_bound(words, lengths=lengths)


def test_grammar_of_the_user():
    language = languages.from_grammar(
        "S -> NP VP [1]\nNP -> 'Mary' [0.5] | 'the cat' [0.5]\nVP -> 'sleeps' [1]"
    )
    word = language.sample(2, random.Random(0))
    assert isinstance(word, tuple)
    assert language.log_probability(("Mary", "sleeps")) == pytest.approx(-math.log(2))
    assert language.lengths(0, 9) == [2]


def test_weighted_grammar_keeps_its_weights():
    language = languages.from_grammar(WeightedCFG.fromstring("S -> 'a' [0.2] | 'b' [0.6]"))
    assert language.log_probability("a") == pytest.approx(math.log(0.25))


def test_grammar_without_probabilities_is_uniform():
    language = languages.from_grammar("S -> 'a' | 'b' | 'c' 'c'")
    assert language.log_probability("a") == pytest.approx(-math.log(2))

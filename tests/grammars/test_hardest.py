import random
from itertools import product

import pytest

from ndstack.errors import GrammarError
from ndstack.grammars import (
    CFG,
    generates,
    greibach,
    hardest_cfl_encoding,
    hardest_cfl_homomorphism,
    in_hardest_cfl,
)
from tests.oracles import all_words


def in_hardest_by_definition(word):
    """Every choice of one y between two commas of each piece; then brackets are matched by hand."""
    text = "".join(word)
    if not text.endswith(";"):
        return False
    choices = [piece.split(",")[1:-1] for piece in text[:-1].split(";")]
    for ys in product(*choices):
        joined = "".join(ys)
        if joined[:1] != "$" or "$" in joined[1:]:
            continue
        rest = joined[1:]
        while rest != (rest := rest.replace("()", "").replace("[]", "")):
            pass
        if not rest:
            return True
    return False


@pytest.mark.parametrize("text", [",$,;", ",$(),;", ",(,$(),[;", ",$(,;],),;", "),$([,;,],(;,),[;"])
def test_members(text):
    assert in_hardest_cfl(text)
    assert in_hardest_by_definition(text)


@pytest.mark.parametrize(
    "text", ["", ";", ",;", ",,;", ",$(,;", ",(),;", ",$,", "$;", ",$,;,(,;", ",$,;,$,;"]
)
def test_non_members(text):
    assert not in_hardest_cfl(text)
    assert not in_hardest_by_definition(text)


def test_membership_of_all_short_strings():
    """Two kinds of characters short of the alphabet, so that length 7 stays small."""
    words = all_words("(),$;", 6)
    assert any(map(in_hardest_by_definition, words))
    assert all(in_hardest_cfl(w) == in_hardest_by_definition(w) for w in words)


@pytest.mark.parametrize("text", ["S -> 'a' S 'b' | 'a' 'b'", "S -> 'a' S 'a' | 'b' S 'b' | 'a' | 'b'",
                                  "S -> S S | 'a' S 'b' | 'a' 'b'", "S -> S 'a' | S S 'b' | 'b'",
                                  "S -> 'a' T U\nT -> 'a' | 'b' 'b'\nU -> 'b' U | 'a'"])  # fmt: skip
def test_w_is_in_the_language_iff_its_encoding_is_in_the_hardest_language(text):
    grammar = greibach(CFG.fromstring(text))
    members = 0
    for word in all_words("ab", 6)[1:]:
        member = generates(grammar, word)
        members += member
        assert in_hardest_cfl(hardest_cfl_encoding(grammar, word)) == member
    assert members > 0


def test_encoding_of_a_rule():
    """S → a S' T, with S' the second and T the third nonterminal, T on the stack below S'."""
    grammar = CFG.fromstring("S -> 'a' A B\nA -> 'b'\nB -> 'b'")
    assert hardest_cfl_homomorphism(grammar) == {"a": ",$([[[(([[(,;", "b": ",)]]),)]]]),;"}


def test_symbols_that_begin_no_rule_lead_out_of_the_language():
    grammar = CFG.fromstring("S -> 'a'")
    assert hardest_cfl_encoding(grammar, "ax") == ",$,;;"
    assert not in_hardest_cfl(hardest_cfl_encoding(grammar, "ax"))


def test_needs_greibach_normal_form():
    with pytest.raises(GrammarError, match="not in Greibach normal form"):
        hardest_cfl_homomorphism(CFG.fromstring("S -> S 'a' | 'a'"))


@pytest.mark.parametrize("seed", range(40))
def test_membership_of_random_strings(seed):
    """Shuffled pieces of members: half of them members still, on average far from empty."""
    rng = random.Random(seed)
    brackets = rng.choice(["([])", "()[]()", "(([]))[]", "([)]", "(("])
    cuts = sorted(rng.randrange(len(brackets) + 1) for _ in range(3))
    ys = ["$" + brackets[: cuts[0]], *(brackets[a:b] for a, b in zip(cuts, [*cuts[1:], None], strict=True))]
    filler = [rng.choice(["", "(", "])", "$", "[,", ",(]"]) for _ in range(8)]
    text = "".join(f"{filler[2 * i]},{y},{filler[2 * i + 1]};" for i, y in enumerate(ys))
    assert in_hardest_cfl(text) == in_hardest_by_definition(text)


def test_membership_is_not_exponential():
    """Sixty pieces with three choices each; what opens can be closed in many ways."""
    text = ",$,;" + ",(,[,((,;" * 30 + ",),],)),;" * 30
    assert in_hardest_cfl(text)
    assert not in_hardest_cfl(text + ",[,;")

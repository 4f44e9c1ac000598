"""Greibach's hardest context-free language L₀ and the homomorphism onto it (section 5.2).

A string of L₀ is a sequence of pieces x,y,z; such that the y's, put together, are `$` followed by a string of
balanced brackets, which may be empty; x and z are any brackets, commas and `$`. For every grammar G in
Greibach normal form there is a homomorphism h such that w ∈ L(G) iff h(w) ∈ L₀, for every non-empty w.

The code differs from the printed text in three points. First, a piece needs a comma on either side of its y,
so h(b) begins and ends with a comma, which the printed equation leaves out; if no rule begins with b, h(b) is
`;`, a piece without commas, which is part of no string of L₀. Second, a leftmost derivation expands A₁ first
in A → aA₁⋯A_m, so A₁ must be pushed last: rule(A → aA₁⋯A_m) = pop(A) push(A_m) ⋯ push(A₁). Third, L₀ contains
more than the PCFG of section 5.3 generates: there, neither the brackets nor the inner fillers are empty.
"""

from collections.abc import Sequence

from ndstack.errors import GrammarError
from ndstack.grammars.grammar import CFG, Nonterminal
from ndstack.grammars.greibach import is_greibach

Frame = tuple[str, int, int, int]
"""An open bracket: which bracket, and the piece, part and position in which it was read."""

FLOOR: Frame = ("$", -1, -1, -1)


def in_hardest_cfl(word: Sequence[str]) -> bool:
    """Return whether a string is in L₀, in quadratic time.

    All choices of y's are followed at once, piece by piece. The stacks of open brackets form a graph in which
    a frame stands on every frame that was on top when its bracket was read.
    """
    text = "".join(word)
    if not text.endswith(";") or not set(text) <= set("()[]$,;"):
        return False
    beneath: dict[Frame, frozenset[Frame]] = {FLOOR: frozenset()}
    # whether some choice has not read $ yet, and the frames on top in those that have
    before, tops = True, frozenset[Frame]()
    for number, piece in enumerate(text[:-1].split(";")):
        after: set[Frame] = set()
        parts = piece.split(",")[1:-1]
        for place, y in enumerate(parts):
            if y.startswith("$"):
                after |= _read(y[1:], frozenset({FLOOR} if before else ()), (number, place), beneath)
            else:
                after |= _read(y, tops, (number, place), beneath)
        before, tops = before and "" in parts, frozenset(after)
    return FLOOR in tops


def _read(
    y: str, tops: frozenset[Frame], where: tuple[int, int], beneath: dict[Frame, frozenset[Frame]]
) -> frozenset[Frame]:
    """Return the frames on top after y is read on all stacks that have one of `tops` on top."""
    for position, symbol in enumerate(y):
        if symbol in "([":
            frame = (symbol, *where, position)
            beneath[frame] = beneath.get(frame, frozenset()) | tops
            tops = frozenset({frame}) if tops else tops
        else:
            opened = {")": "(", "]": "["}.get(symbol)
            tops = frozenset().union(*(beneath[f] for f in tops if f[0] == opened))
    return tops


def hardest_cfl_homomorphism(grammar: CFG) -> dict[str, str]:
    """Return h, from terminals to strings over ( ) [ ] $ , ; for a grammar in Greibach normal form."""
    if not is_greibach(grammar):
        raise GrammarError("the grammar is not in Greibach normal form; convert it with greibach()")
    number = {A: i for i, A in enumerate(grammar.nonterminals, 1)}

    def push(A: Nonterminal) -> str:
        return "(" + "[" * number[A] + "("

    def pop(A: Nonterminal) -> str:
        return "$" if grammar.start == A else ")" + "]" * number[A] + ")"

    h = {}
    for b in grammar.terminals:
        encoded = [
            pop(rule.left) + "".join(map(push, reversed(rule.variables)))
            for rule in grammar.rules
            if rule.right and rule.right[0] == b
        ]
        h[b] = "".join(f",{e}" for e in encoded) + ",;" if encoded else ";"
    return h


def hardest_cfl_encoding(grammar: CFG, word: Sequence[str]) -> str:
    """Return h(w), which is in L₀ if and only if w is in the language of the grammar; w must not be empty."""
    h = hardest_cfl_homomorphism(grammar)
    return "".join(h.get(symbol, ";") for symbol in word)

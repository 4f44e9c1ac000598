"""Greibach's hardest context-free language L₀ and the homomorphism onto it (section 5.2).

A string of L₀ is a sequence of pieces x,y,z; such that the y's together are `$` and a string of balanced
brackets (the empty one included); x and z are any brackets, commas and `$`. For every grammar G in
Greibach normal form there is a homomorphism h with w ∈ L(G) iff h(w) ∈ L₀, for every non-empty w.

Three remarks on the text. A piece needs a comma on either side of its y, so h(b) begins and ends with a
comma, which the printed equation leaves out; where no rule begins with b, h(b) is `;`, a piece without
commas, which no string of L₀ has. A leftmost derivation expands A₁ first in A → aA₁⋯A_m, so A₁ has to be
pushed last: rule(A → aA₁⋯A_m) = pop(A) push(A_m) ⋯ push(A₁). And L₀ is wider than what the PCFG of section
5.3 generates: there the brackets are not empty, nor is any filler between two commas but the outermost.
"""

from collections.abc import Sequence

from ndstack.errors import GrammarError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.greibach import is_greibach

Frame = tuple[str, int, int, int]  # an open bracket: which, in what piece, part and place

FLOOR: Frame = ("$", -1, -1, -1)


def in_hardest_cfl(word: Sequence[str]) -> bool:
    """Whether a string is in L₀, in quadratic time.

    All choices of y's are followed at once, piece by piece, with the stack of open brackets as a graph:
    a frame stands on every frame that was on top when its bracket was read.
    """
    text = "".join(word)
    if not text.endswith(";") or not set(text) <= set("()[]$,;"):
        return False
    beneath: dict[Frame, frozenset[Frame]] = {FLOOR: frozenset()}
    before, tops = True, frozenset[Frame]()  # no $ read so far is possible; frames on top after $
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
    """The frames on top after reading y, for all stacks with one of `tops` on top."""
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
    """h for a grammar in Greibach normal form: from terminals to strings over ( ) [ ] $ , ;"""
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
            pop(rule.left) + "".join(map(push, reversed(_variables(rule))))
            for rule in grammar.rules
            if rule.right and rule.right[0] == b
        ]
        h[b] = "".join(f",{e}" for e in encoded) + ",;" if encoded else ";"
    return h


def _variables(rule: Rule) -> list[Nonterminal]:
    return [symbol for symbol in rule.right if isinstance(symbol, Nonterminal)]


def hardest_cfl_encoding(grammar: CFG, word: Sequence[str]) -> str:
    """h(w), the string that is in L₀ if and only if w, which is not empty, is in the language."""
    h = hardest_cfl_homomorphism(grammar)
    return "".join(h.get(symbol, ";") for symbol in word)

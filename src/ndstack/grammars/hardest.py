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
from functools import cache

from ndstack.errors import GrammarError
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.greibach import is_greibach
from ndstack.grammars.inside import generates

_L0 = """
Start  -> Empty Before '$' Body After ';' Empty
Body   -> | '(' Body ')' Body | '[' Body ']' Body | After ';' Before Body
Empty  -> | Before After ';' Empty
Before -> ',' | Filler Before
After  -> ',' | After Filler
Filler -> '(' | ')' | '[' | ']' | '$' | ','
"""


@cache
def hardest_grammar() -> CFG:
    """A grammar for L₀. Body: balanced brackets, with piece boundaries anywhere inside."""
    return CFG.fromstring(_L0)


def in_hardest(word: Sequence[str]) -> bool:
    """Whether a string is in L₀."""
    return generates(hardest_grammar(), word)


def homomorphism(grammar: CFG) -> dict[str, str]:
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


def encode(grammar: CFG, word: Sequence[str]) -> str:
    """h(w)."""
    h = homomorphism(grammar)
    return "".join(h.get(symbol, ";") for symbol in word)

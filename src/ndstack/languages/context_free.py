"""Languages of probabilistic grammars: the five of section 5.3, with k symbols (section 9.3), and others."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndstack.grammars.binarization import weighted
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule, Symbol, WeightedCFG
from ndstack.grammars.inside import log_inside
from ndstack.grammars.length_sampling import LengthTable, Random
from ndstack.grammars.next_symbol import log_next_weights
from ndstack.grammars.next_symbol_sets import NextSymbolSets
from ndstack.grammars.notation import read_grammar
from ndstack.languages.language import Language


class ContextFreeLanguage(Language):
    """The strings of a weighted grammar, with the distribution p_G(w) / p_G(|w|) for each length."""

    def __init__(self, name: str, grammar: WeightedCFG) -> None:
        super().__init__(name, grammar.terminals)
        self.grammar = grammar
        self.table = LengthTable(grammar)

    def _has_length(self, length: int) -> bool:
        return self.table.log_weight(length) > -math.inf

    def _sample(self, length: int, rng: Random) -> tuple[str, ...]:
        return self.table.sample(length, rng)

    def _log_probability(self, symbols: tuple[str, ...]) -> float:
        return log_inside(self.grammar, symbols) - self.table.log_weight(len(symbols))

    def _log_next(self, symbols: tuple[str, ...], lengths: Sequence[int]) -> NDArray[np.float64]:
        return log_next_weights(self.table, symbols, {n: -self.table.log_weight(n) for n in lengths})

    @cached_property
    def _sets(self) -> NextSymbolSets:
        return NextSymbolSets(self.grammar)

    def _next_sets(self, symbols: tuple[str, ...]) -> NDArray[np.bool_]:
        return self._sets(symbols)


def from_grammar(source: str | Path | CFG, name: str = "grammar") -> ContextFreeLanguage:
    """Return the language of a grammar, given as text in NLTK's notation, as a file's `Path`, or as a CFG.

    In a grammar without probabilities, the rules of a nonterminal are equally probable.
    """
    grammar = source if isinstance(source, CFG) else read_grammar(source)
    return ContextFreeLanguage(name, weighted(grammar))


def f(mu: float) -> float:
    """Return the probability of a recursive rule that is applied mu times in a row on average."""
    return 1 - 1 / (mu + 1)


def digits(k: int) -> list[str]:
    """Return the symbols 0, 1, ..., k-1."""
    return [str(i) for i in range(k)]


def brackets(k: int) -> list[tuple[str, str]]:
    """Return k kinds of brackets: ( ) and [ ] for up to two, (1 )1 (2 )2 ... for more."""
    return [("(", ")"), ("[", "]")][:k] if k <= 2 else [(f"({i}", f"){i}") for i in range(1, k + 1)]


S, T = Nonterminal("S"), Nonterminal("T")


def marked_reversal_grammar(k: int) -> PCFG:
    """Return the grammar of { w#w^R } with μ = 60."""
    return _reversal(k, mu=60, centre=[("#",)])


def unmarked_reversal_grammar(k: int) -> PCFG:
    """Return the grammar of { ww^R } with μ = 60."""
    return _reversal(k, mu=60, centre=[()])


def padded_reversal_grammar(k: int) -> PCFG:
    """Return the grammar of { wa^p w^R } with μ_c = 60 and μ_p = 30."""
    padding = {a: Nonterminal(f"T{a}") for a in digits(k)}
    rules = [
        rule for a, Ta in padding.items() for rule in (Rule(Ta, (a, Ta), f(30)), Rule(Ta, (), 1 - f(30)))
    ]
    return _reversal(k, mu=60, centre=[(Ta,) for Ta in padding.values()], more=rules)


def _reversal(k: int, mu: float, centre: list[tuple[Symbol, ...]], more: list[Rule] | None = None) -> PCFG:
    around = [Rule(S, (a, S, a), f(mu) / k) for a in digits(k)]
    middle = [Rule(S, symbols, (1 - f(mu)) / len(centre)) for symbols in centre]
    return PCFG((*around, *middle, *(more or [])), S)


def dyck_grammar(k: int, nesting: float = 40) -> PCFG:
    """Return the grammar of balanced brackets of k kinds with μ_s = 1 and μ_n = `nesting`."""
    rules = [Rule(S, (S, T), f(1)), Rule(S, (T,), 1 - f(1))]
    for left, right in brackets(k):
        rules += [Rule(T, (left, S, right), f(nesting) / k), Rule(T, (left, right), (1 - f(nesting)) / k)]
    return PCFG(tuple(rules), S)


def hardest_cfl_grammar() -> PCFG:
    """Return the grammar of Greibach's hardest CFL (figure 5.2), with Ls, Rs and Start for L', R' and S'."""
    commas, short, long, semicolon, splits, nesting = 0.5, 0.5, 2.0, 0.25, 1.5, 3.0
    rules = [
        *_choice("Start", [("R $ Q S L ;", 1)]),
        *_choice("L", [("Ls , U", 1)]),
        *_choice("Ls", [(", V Ls", f(commas)), ("", 1 - f(commas))]),
        *_choice("R", [("U , Rs", 1)]),
        *_choice("Rs", [("Rs V ,", f(commas)), ("", 1 - f(commas))]),
        *_choice("U", [("W U", f(short)), ("", 1 - f(short))]),
        *_choice("V", [("W V", f(long - 1)), ("W", 1 - f(long - 1))]),
        *_choice("W", [(symbol, 0.2) for symbol in "()[]$"]),
        *_choice("Q", [("L ; R", semicolon), ("", 1 - semicolon)]),
        *_choice("S", [("S Q T", f(splits)), ("T", 1 - f(splits))]),
        *_choice("T", [(f"{a} Q S Q {b}", f(nesting) / 2) for a, b in brackets(2)]),
        *_choice("T", [(f"{a} Q {b}", (1 - f(nesting)) / 2) for a, b in brackets(2)]),
    ]
    return PCFG(tuple(rules), Nonterminal("Start"))


def _choice(left: str, options: list[tuple[str, float]]) -> list[Rule]:
    """Return rules from right sides in which words are variables and other characters are terminals."""
    return [
        Rule(
            Nonterminal(left), tuple(Nonterminal(s) if s.isalpha() else s for s in right.split()), probability
        )
        for right, probability in options
    ]


GRAMMARS: dict[str, Callable[[int], PCFG]] = {
    "marked-reversal": marked_reversal_grammar,
    "unmarked-reversal": unmarked_reversal_grammar,
    "padded-reversal": padded_reversal_grammar,
    "dyck": dyck_grammar,
}

"""Languages to compile into networks (section 8.3): grammars, and recognisers made from them.

`intersections` has languages that are not context-free, as lists of grammars: a string is in the language if
every grammar generates it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ndstack.automata import PDARun, accepting_runs
from ndstack.automata.compact import compact
from ndstack.automata.pda import show_stack
from ndstack.grammars import CFG, WeightedCFG, parses
from ndstack.nn.proofs.recognition import Recognizer, recognizer

if TYPE_CHECKING:
    from nltk import Tree

__all__ = [
    "SENTENCE",
    "Ambiguity",
    "ambiguity",
    "cross_serial",
    "dyck",
    "english",
    "example",
    "four_counts",
    "grammars",
    "intersections",
    "palindromes",
    "three_counts",
]

SENTENCE = ("Mary", "saw", "a man", "in", "the park", "with", "a telescope")
"""The ambiguous sentence of chapter 1."""


def dyck() -> CFG:
    """Balanced brackets of two kinds, at least one pair."""
    return CFG.fromstring("""
        S -> S T | T
        T -> '(' S ')' | '(' ')' | '[' S ']' | '[' ']'
    """)


def palindromes() -> CFG:
    """Strings over a and b that read the same from both ends: no deterministic PDA accepts them."""
    return CFG.fromstring("S -> 'a' S 'a' | 'b' S 'b' | 'a' | 'b' |")


def english() -> CFG:
    """Return the grammar of figure 1.2. The figure forgets the word "saw"; here it is."""
    return CFG.fromstring("""
        S -> NP VP
        VP -> V NP | VP PP
        NP -> NP PP | 'Mary' | 'a man' | 'the park' | 'a telescope'
        PP -> P NP
        P -> 'in' | 'with'
        V -> 'saw'
    """)


def three_counts() -> list[CFG]:
    """aⁿbⁿcⁿ = aⁿbⁿc* ∩ a*bⁿcⁿ."""
    return [
        CFG.fromstring("S -> A C\nA -> 'a' A 'b' |\nC -> 'c' C |"),
        CFG.fromstring("S -> 'a' S | B\nB -> 'b' B 'c' |"),
    ]


def cross_serial() -> list[CFG]:
    """aⁱbʲcⁱdʲ, the dependencies of Swiss German, = aⁱb*cⁱd* ∩ a*bʲc*dʲ."""
    return [
        CFG.fromstring("S -> A D\nA -> 'a' A 'c' | B\nB -> 'b' B |\nD -> 'd' D |"),
        CFG.fromstring("S -> 'a' S | B\nB -> 'b' B 'd' | C\nC -> 'c' C |"),
    ]


def four_counts() -> list[CFG]:
    """aⁿbⁿcⁿdⁿ = aⁿbⁿc*d* ∩ a*bⁿcⁿd* ∩ a*b*cⁿdⁿ."""
    return [
        CFG.fromstring("S -> A C\nA -> 'a' A 'b' |\nC -> 'c' C | D\nD -> 'd' D |"),
        CFG.fromstring("S -> 'a' S | B D\nB -> 'b' B 'c' |\nD -> 'd' D |"),
        CFG.fromstring("S -> 'a' S | B\nB -> 'b' B | C\nC -> 'c' C 'd' |"),
    ]


grammars: dict[str, Callable[[], CFG]] = {
    "dyck": dyck,
    "palindromes": palindromes,
    "english": english,
}
"""Grammars by name."""

intersections: dict[str, Callable[[], list[CFG]]] = {
    "three-counts": three_counts,
    "cross-serial": cross_serial,
    "four-counts": four_counts,
}
"""Lists of grammars by name: the intersections of their languages are not context-free."""


def example(name: str) -> Recognizer:
    """Return the recogniser of one of `grammars` or `intersections`."""
    return recognizer(grammars[name]() if name in grammars else intersections[name]())


@dataclass(frozen=True)
class Ambiguity:
    """A string's derivation trees beside the accepting runs of compiled automata.

    Attributes:
        trees: of the grammar.
        runs: of the automaton that a recogniser is made from, each with the number of trees it stands for.
            Nonterminals that derive the same strings are merged, so it may be more than one.
        apart: the runs of the automaton of the same grammar with a weight of its own for every rule. That
            keeps nonterminals apart whose rules are different ones.
    """

    trees: tuple["Tree", ...]
    runs: tuple[tuple[PDARun, int], ...]
    apart: tuple[PDARun, ...]

    def lines(self) -> Iterator[str]:
        """Yield all of it, as lines to print."""
        yield f"{len(self.trees)} trees of the grammar:"
        for tree in self.trees:
            yield f"  {tree.pformat(margin=1000)}"
        yield f"{len(self.runs)} accepting runs of the automaton:"
        for run, trees in self.runs:
            yield f"  a run that stands for {trees} tree{'s' * (trees > 1)}"
            yield from _steps(run)
        yield f"{len(self.apart)} accepting runs if all rules are kept apart:"
        for number, run in enumerate(self.apart, 1):
            yield f"  run {number}"
            yield from _steps(run)


def ambiguity(grammar: CFG, word: tuple[str, ...]) -> Ambiguity:
    """Return the trees of a string and the runs of compiled automata on it.

    With weight 1 for every rule, the weights of transitions, and so those of runs, count derivations.
    """
    counting = WeightedCFG(grammar.rules, grammar.start)
    rules = [replace(rule, weight=1 + i / len(grammar.rules)) for i, rule in enumerate(grammar.rules)]
    apart = WeightedCFG(tuple(rules), grammar.start)
    return Ambiguity(
        tuple(parses(grammar, word)),
        tuple((run, round(run.weight)) for run in accepting_runs(compact(counting), word)),
        tuple(accepting_runs(compact(apart), word)),
    )


def _steps(run: PDARun) -> Iterator[str]:
    for transition, after in zip(run.transitions, run.configurations[1:], strict=True):
        yield f"    {transition.read:14}{after.state:8}{show_stack(after.stack)}"

"""The command for derivation trees of a grammar: trees."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import AsJson, GrammarFile, OutPictureIfGiven, find_language, parse_word, strings
from ndstack.cli.output import nested_lists
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from nltk import Tree

    from ndstack.grammars import Rule
    from ndstack.grammars.parse_forest import Forest
    from ndstack.languages import ContextFreeLanguage

DEEPEST = 300
"""The largest number of levels of a tree that is shown."""


@command(
    "ndstack trees --grammar my.cfg 'the cat sleeps' --best 3",
    "ndstack trees --grammar my.cfg aaa --count",
    "ndstack trees dyck '([])()' --bracketed",
)
def trees(
    words: Annotated[list[str], strings("The string to parse.")],
    grammar: GrammarFile = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of trees.")] = False,
    best: Annotated[int, typer.Option(min=1, help="The number of trees, the most probable first.")] = 1,
    bracketed: Annotated[
        bool, typer.Option("--bracketed", help="Print trees as bracketed text instead of drawings.")
    ] = False,
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Parse a string with a grammar, and print the number of trees and the most probable ones.

    Trees are those of the grammar as written. In a grammar without probabilities, the rules of a nonterminal
    are equally probable. With --out, the last tree that is printed is drawn. The exit code is 1 if there is
    no tree.
    """
    from ndstack import plotting
    from ndstack.grammars import log_inside
    from ndstack.grammars.parse_forest import Forest
    from ndstack.progress import progress_bar

    plotting.check_format(out)
    source = _context_free(None if grammar else words.pop(0), grammar)
    if len(words) != 1:
        raise NdstackError(f"expected one string to parse, got {len(words)}: ndstack trees dyck '()'")
    word = parse_word(source, words[0])
    with progress_bar(f"parsing with {source.name}", len(word)) as advance:
        forest = Forest(source.grammar, word, progress=advance)
    number = forest.count()
    found = [] if count else [(log, _tree(rules)) for log, rules in forest.k_best(best)]
    total = log_inside(source.grammar, word) if number else -math.inf
    if as_json:
        print(json.dumps(_as_json(words[0], number, total, found)))
    else:
        print(_summary(number, total, forest))
        for rank, (log, tree) in enumerate(found, 1):
            print(f"\ntree {rank}: probability {math.exp(log):.4g}, {math.exp(log - total):.2%} of all trees")
            print(tree.pformat(margin=100, indent=2) if bracketed else _drawn(tree))
    if out is not None and found:
        _draw(found, out)
    if not number:
        raise typer.Exit(1)


def _context_free(name: str | None, grammar: Path | None) -> "ContextFreeLanguage":
    from ndstack.languages import ContextFreeLanguage

    source = find_language(name, grammar)
    if not isinstance(source, ContextFreeLanguage):
        raise NdstackError(f"{source.name} is not context-free and has no trees")
    return source


def _tree(rules: list["Rule"]) -> "Tree":
    """Return the tree of a derivation; an error if it is too deep to be shown."""
    from nltk import Tree

    from ndstack.grammars.trees import tree_of_derivation

    tree = tree_of_derivation(rules)
    levels, open_ = 0, [tree]
    while open_:
        levels += 1
        open_ = [child for node in open_ for child in node if isinstance(child, Tree)]
    if levels > DEEPEST:
        raise NdstackError(
            f"the tree has {levels} levels, more than the {DEEPEST} that are shown; use --count"
        )
    return tree


def _with_epsilon(tree: "Tree") -> "Tree":
    """Return the tree with ε below each nonterminal that derives nothing."""
    from nltk import Tree

    below = [_with_epsilon(child) if isinstance(child, Tree) else child for child in tree]
    return Tree(tree.label(), below or ["ε"])


def _summary(number: float, total: float, forest: "Forest") -> str:
    if not number:
        return "no tree: the string is not in the language of the grammar"
    p = f"probability {math.exp(total):.4g} in all"
    if number == math.inf:
        cycle = ", ".join(forest.cycle())
        return f"infinitely many trees, {p}; these nonterminals derive themselves: {cycle}"
    return f"{number} tree{'s' * (number != 1)}, {p}"


def _drawn(tree: "Tree") -> str:
    from nltk.tree.prettyprinter import TreePrettyPrinter

    numbered = _with_epsilon(tree)
    leaves = numbered.leaves()
    # nltk misplaces leaves in right sides that mix terminals and nonterminals, unless leaves are numbers
    for number, place in enumerate(numbered.treepositions("leaves")):
        numbered[place] = number
    return str(TreePrettyPrinter(numbered, leaves).text(unicodelines=True)).rstrip()


def _draw(found: list[tuple[float, "Tree"]], out: Path) -> None:
    from ndstack.analysis.figures import draw_nltk_tree

    log, tree = found[-1]
    draw_nltk_tree(_with_epsilon(tree), f"Tree {len(found)}, of probability {math.exp(log):.3g}").save(out)


def _as_json(
    string: str, number: float, total: float, found: list[tuple[float, "Tree"]]
) -> dict[str, object]:
    finite = number != math.inf
    return {
        "string": string,
        "count": number if finite else None,
        "infinite": not finite,
        "log_probability": total if number else None,
        "trees": [{"log_probability": log, "tree": nested_lists(tree)} for log, tree in found],
    }

"""All parses of one string as a shared forest: how many there are, the best one, each of them.

An item (A, i, j) says that symbol A of the binary grammar derives the symbols i..j-1; its alternatives
are the steps that do so with the items they use. ε- and unary rules may make an item part of a cycle;
then the string has infinitely many parses.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nltk import Tree


from ndstack.errors import DivergenceError, GrammarError
from ndstack.grammars.binarization import BinaryGrammar, Step, binarise, uniform
from ndstack.grammars.fixed_point import strongly_connected_components
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.trees import tree_of_derivation
from ndstack.progress import Advance, no_progress

Item = tuple[int, int, int]

MOST_WORK = 3e8
"""Spans, split points and rules that are looked at for one string, at most; so many take a minute."""


_Chain = Any  # None or (value, _Chain): linked, so that partial derivations share what they have in common


@dataclass(frozen=True)
class _Alternative:
    step: Step
    items: tuple[int, ...]  # numbers of the items below


def count_parses(grammar: CFG, word: Sequence[str]) -> int | float:
    """The number of derivation trees of `word`; `math.inf` if rules without symbols form a cycle."""
    return Forest(grammar, word).count()


def best_parse(grammar: CFG, word: Sequence[str]) -> tuple[float, "Tree"]:
    """The log weight of the heaviest derivation of `word` (Viterbi), and its tree."""
    forest = Forest(grammar, word)
    if forest.root is None:
        raise GrammarError(f"the grammar does not generate {word!r}, so it has no best parse")
    best, choice = forest.maximise()
    return best[forest.root], tree_of_derivation(forest.derivation(choice))


def best_parses(grammar: CFG, word: Sequence[str], k: int) -> list[tuple[float, "Tree"]]:
    """The k derivation trees of `word` of greatest weight, heaviest first, each with its log weight.

    Fewer if there are fewer; also where there are infinitely many. A grammar without weights counts with
    weight 1 for every rule.
    """
    return [(log, tree_of_derivation(rules)) for log, rules in Forest(grammar, word).k_best(k)]


def parses(grammar: CFG, word: Sequence[str]) -> Iterator["Tree"]:
    """Every derivation tree of `word`, one by one."""
    forest = Forest(grammar, word)
    if any(map(forest.is_cyclic, forest.components)):
        raise DivergenceError(f"{word!r} has infinitely many parses: some rules form an empty cycle")
    if forest.root is not None:
        for derivation in forest.derivations(forest.root):
            yield tree_of_derivation(derivation)


class Forest:
    """The items below (S, 0, n) and their alternatives."""

    def __init__(self, grammar: CFG, word: Sequence[str], *, progress: Advance = no_progress) -> None:
        """`progress` is called with 1 for each length of spans that has been looked at, n in all."""
        self._weights = {(rule.left, rule.right): rule.weight for rule in grammar.rules}
        binary = binarise(uniform(grammar))
        work = len(word) ** 3 / 6 * len(binary.binary_steps())
        if work > MOST_WORK:
            raise GrammarError(
                f"a string of {len(word)} symbols and a grammar of {len(grammar.rules)} rules take too long "
                "to parse; `ndstack probability` sums over all trees without making them"
            )
        spans = _derivable(binary, word, progress)
        root: Item = (binary.start, 0, len(word))
        self.root = 0 if binary.start in spans[0][len(word)] else None
        self.alternatives: list[list[_Alternative]] = []
        numbers: dict[Item, int] = {root: 0} if self.root is not None else {}
        items = list(numbers)
        while len(self.alternatives) < len(items):
            own = []
            for step, derived in _expansions(binary, spans, items[len(self.alternatives)]):
                below = [item for item in derived if not isinstance(binary.nodes[item[0]], str)]
                for item in below:
                    if item not in numbers:
                        numbers[item] = len(items)
                        items.append(item)
                own.append(_Alternative(step, tuple(numbers[item] for item in below)))
            self.alternatives.append(own)
        self.nodes = [binary.nodes[item[0]] for item in items]
        self._below = [[i for a in own for i in a.items] for own in self.alternatives]
        self.components = strongly_connected_components(self._below)

    def is_cyclic(self, component: Sequence[int]) -> bool:
        """Whether an item of the component derives itself."""
        return len(component) > 1 or component[0] in self._below[component[0]]

    def cycle(self) -> list[str]:
        """The names of nonterminals that derive themselves and nothing else; empty if none do."""
        cyclic = next((own for own in self.components if self.is_cyclic(own)), [])
        return sorted({node.name for i in cyclic if isinstance(node := self.nodes[i], Nonterminal)})

    def count(self) -> int | float:
        """The number of trees; `math.inf` if there is a cycle."""
        counts = [0] * len(self.alternatives)
        for component in self.components:
            if self.is_cyclic(component):
                return math.inf
            counts[component[0]] = sum(
                math.prod(counts[i] for i in alternative.items)
                for alternative in self.alternatives[component[0]]
            )
        return counts[self.root] if self.root is not None else 0

    def k_best(self, k: int) -> list[tuple[float, list[Rule]]]:
        """The k leftmost derivations of greatest weight with their log weights.

        Partial derivations are taken from a queue by the weight of their best completion, which `maximise`
        knows exactly; the leftmost open item is expanded in every way.
        """
        if self.root is None:
            return []
        best, _ = self.maximise()
        totals = [
            [self._log_weight(a.step) + sum(best[i] for i in a.items) for a in own]
            for own in self.alternatives
        ]
        found: list[tuple[float, list[Rule]]] = []
        number = itertools.count()  # of two equally good ones, the older comes first
        queue: list[tuple[float, int, _Chain, _Chain]] = [(-best[0], next(number), (0, None), None)]
        while queue and len(found) < k:
            cost, _, open_, steps = heapq.heappop(queue)
            if open_ is None:
                rules = [self.alternatives[i][a].step.rule for i, a in _unchain(steps)]
                kept = [rule for rule in rules if rule is not None]
                log = math.fsum(math.log(self._weights[rule.left, rule.right]) for rule in kept)
                found.append((log, kept))
                continue
            item, rest = open_
            for place, alternative in enumerate(self.alternatives[item]):
                below: _Chain = rest
                for child in reversed(alternative.items):
                    below = (child, below)
                loss = best[item] - totals[item][place]
                heapq.heappush(queue, (cost + loss, next(number), below, ((item, place), steps)))
        return sorted(found, key=lambda pair: -pair[0])

    def maximise(self) -> tuple[list[float], list[int]]:
        """The best log weight of every item and which alternative has it."""
        best = [-math.inf] * len(self.alternatives)
        choice = [-1] * len(self.alternatives)
        for component in self.components:
            rounds = 0
            while self._improve(component, best, choice) and self.is_cyclic(component):
                rounds += 1
                if rounds > len(component):
                    raise DivergenceError(
                        "there is no best parse: a cycle of rules weighs more than 1, "
                        "so longer derivations weigh ever more"
                    )
        return best, choice

    def _improve(self, component: Sequence[int], best: list[float], choice: list[int]) -> bool:
        improved = False
        for item in component:
            for number, alternative in enumerate(self.alternatives[item]):
                log = self._log_weight(alternative.step) + sum(best[i] for i in alternative.items)
                # rounding must not make a cycle of weight 1 look like a gain
                least = 1e-12 * max(1.0, abs(log)) if best[item] > -math.inf else 0.0
                if log > best[item] + least:
                    best[item], choice[item], improved = log, number, True
        return improved

    def _log_weight(self, step: Step) -> float:
        """The log weight of the rule that the step begins, if it begins one."""
        return 0.0 if step.rule is None else math.log(self._weights[step.rule.left, step.rule.right])

    def derivation(self, choice: Sequence[int]) -> list[Rule]:
        """The leftmost derivation that takes the chosen alternative of every item."""
        rules: list[Rule] = []
        open_ = [0]
        while open_:
            item = open_.pop()
            alternative = self.alternatives[item][choice[item]]
            rules += _rules(alternative.step)
            open_.extend(reversed(alternative.items))
        return rules

    def derivations(self, item: int) -> Iterator[list[Rule]]:
        """All leftmost derivations of an item of a forest without cycles."""
        for alternative in self.alternatives[item]:
            for rest in self._sequences(alternative.items):
                yield _rules(alternative.step) + rest

    def _sequences(self, items: Sequence[int]) -> Iterator[list[Rule]]:
        if not items:
            yield []
            return
        for first in self.derivations(items[0]):
            for rest in self._sequences(items[1:]):
                yield first + rest


def _unchain(chain: _Chain) -> list[tuple[int, int]]:
    """What was put into a chain, the first first."""
    found = []
    while chain is not None:
        value, chain = chain
        found.append(value)
    return found[::-1]


def _rules(step: Step) -> list[Rule]:
    return [] if step.rule is None else [step.rule]


def _derivable(binary: BinaryGrammar, word: Sequence[str], progress: Advance) -> list[list[set[int]]]:
    """[i][j] -> the symbols that derive word[i:j]."""
    n = len(word)
    nullable = {a for a in range(binary.size) if binary.null[a] > 0}
    above: dict[int, set[int]] = {}
    for parent, child in zip(binary.closure.parents.tolist(), binary.closure.children.tolist(), strict=True):
        above.setdefault(child, set()).add(parent)
    by_left: dict[int, list[tuple[int, int]]] = {}
    for step in binary.binary_steps():
        by_left.setdefault(step.children[0], []).append((step.children[1], step.parent))
    spans: list[list[set[int]]] = [[set() for _ in range(n + 1)] for _ in range(n + 1)]
    for i in range(n + 1):
        spans[i][i] = nullable
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j = i + length
            direct: set[int] = set()
            if length == 1 and word[i] in binary.index:
                direct.add(binary.index[word[i]])
            for k in range(i + 1, j):
                right = spans[k][j]
                for left in spans[i][k]:
                    direct.update(p for other, p in by_left.get(left, ()) if other in right)
            spans[i][j] = set().union(*(above[a] for a in direct))
        progress(1)
    return spans


def _expansions(
    binary: BinaryGrammar, spans: list[list[set[int]]], item: Item
) -> Iterator[tuple[Step, tuple[Item, ...]]]:
    """The steps of an item with the items below, all of them derivable."""
    node, i, j = item
    for step in binary.steps[node]:
        if not step.children:
            if i == j:
                yield step, ()
        elif len(step.children) == 1:
            if step.children[0] in spans[i][j]:
                yield step, ((step.children[0], i, j),)
        else:
            left, right = step.children
            for k in range(i, j + 1):
                if left in spans[i][k] and right in spans[k][j]:
                    yield step, ((left, i, k), (right, k, j))

"""All parses of one string as a shared forest: their number, the best ones, and each of them.

An item (A, i, j) states that the symbol A of the binary grammar derives the symbols i..j-1 of the string. Its
alternatives are the steps by which it does so, with the items that they use. If ε-rules and unary rules make
an item part of a cycle, the string has infinitely many parses.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndstack.errors import DivergenceError, GrammarError
from ndstack.grammars.binarization import BinaryGrammar, Step, binarise, uniform
from ndstack.grammars.grammar import CFG, Nonterminal, Rule
from ndstack.grammars.graphs import Linked, elements, grouped, prepend, strongly_connected_components
from ndstack.grammars.trees import tree_of_derivation
from ndstack.progress import Advance, no_progress

if TYPE_CHECKING:
    from nltk import Tree

Item = tuple[int, int, int]

MOST_WORK = 3e8
"""The largest product of spans, split points and rules for one string; parsing then takes about a minute."""


@dataclass(frozen=True)
class _Alternative:
    step: Step
    items: tuple[int, ...]  # numbers of the items below


def count_parses(grammar: CFG, word: Sequence[str]) -> int | float:
    """Return the number of derivation trees of `word`; `math.inf` if a cycle of rules consumes nothing."""
    return Forest(grammar, word).count()


def best_parse(grammar: CFG, word: Sequence[str]) -> tuple[float, "Tree"]:
    """Return the log weight of the heaviest derivation of `word` (Viterbi), and its tree."""
    forest = Forest(grammar, word)
    if forest.root is None:
        raise GrammarError(f"the grammar does not generate {word!r}, so it has no best parse")
    best, choice = forest.maximise()
    return best[forest.root], tree_of_derivation(forest.derivation(choice))


def best_parses(grammar: CFG, word: Sequence[str], k: int) -> list[tuple[float, "Tree"]]:
    """Return the k derivation trees of `word` of greatest weight, in order, each with its log weight.

    The list is shorter if there are fewer trees; there may also be infinitely many. In a grammar without
    weights, every rule has weight 1.
    """
    return [(log, tree_of_derivation(rules)) for log, rules in Forest(grammar, word).k_best(k)]


def parses(grammar: CFG, word: Sequence[str]) -> Iterator["Tree"]:
    """Yield the derivation trees of `word` one by one."""
    forest = Forest(grammar, word)
    if any(map(forest.is_cyclic, forest.components)):
        raise DivergenceError(f"{word!r} has infinitely many parses: some rules form an empty cycle")
    if forest.root is not None:
        for derivation in forest.derivations(forest.root):
            yield tree_of_derivation(derivation)


class Forest:
    """The items below (S, 0, n) and their alternatives.

    Args:
        grammar: the grammar.
        word: the string to be parsed.
        progress: a function that is called with 1 after each length of spans, n times in all.
    """

    def __init__(self, grammar: CFG, word: Sequence[str], *, progress: Advance = no_progress) -> None:
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
        """Return whether an item of the component derives itself."""
        return len(component) > 1 or component[0] in self._below[component[0]]

    def cycle(self) -> list[str]:
        """Return the names of nonterminals that derive themselves alone; the list is empty if none do."""
        cyclic = next((own for own in self.components if self.is_cyclic(own)), [])
        return sorted({node.name for i in cyclic if isinstance(node := self.nodes[i], Nonterminal)})

    def count(self) -> int | float:
        """Return the number of trees; `math.inf` if there is a cycle."""
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
        """Return the k leftmost derivations of greatest weight, each with its log weight.

        Partial derivations are taken from a queue in the order of their best completion's weight, which is
        known exactly from `maximise`; the leftmost open item is then expanded in every way.
        """
        if self.root is None:
            return []
        best, _ = self.maximise()
        totals = [
            [self._log_weight(a.step) + sum(best[i] for i in a.items) for a in own]
            for own in self.alternatives
        ]
        found: list[tuple[float, list[Rule]]] = []
        number = itertools.count()  # of two derivations of equal weight, the older one comes first
        queue: list[tuple[float, int, Linked[int], Linked[Rule]]] = [
            (-best[0], next(number), (0, None), None)
        ]
        while queue and len(found) < k:
            cost, _, open_, used = heapq.heappop(queue)
            if open_ is None:
                rules = list(elements(used))[::-1]
                log = math.fsum(math.log(self._weights[rule.left, rule.right]) for rule in rules)
                found.append((log, rules))
                continue
            item, rest = open_
            for alternative, total in zip(self.alternatives[item], totals[item], strict=True):
                below = prepend(alternative.items, rest)
                rules_used = prepend(_rules(alternative.step), used)
                heapq.heappush(queue, (cost + (best[item] - total), next(number), below, rules_used))
        return sorted(found, key=lambda pair: -pair[0])

    def maximise(self) -> tuple[list[float], list[int]]:
        """Return the best log weight of every item, and the number of the alternative that has it."""
        best = [-math.inf] * len(self.alternatives)
        choice = [-1] * len(self.alternatives)
        for component in self.components:
            rounds = 0
            while self._improve(component, best, choice) and self.is_cyclic(component):
                rounds += 1
                if rounds > len(component):
                    raise DivergenceError(
                        "there is no best parse: the weight of a cycle of rules is greater than 1, "
                        "so longer derivations have ever greater weights"
                    )
        return best, choice

    def _improve(self, component: Sequence[int], best: list[float], choice: list[int]) -> bool:
        improved = False
        for item in component:
            for number, alternative in enumerate(self.alternatives[item]):
                log = self._log_weight(alternative.step) + sum(best[i] for i in alternative.items)
                # A cycle of weight 1 must not count as an improvement because of rounding.
                least = 1e-12 * max(1.0, abs(log)) if best[item] > -math.inf else 0.0
                if log > best[item] + least:
                    best[item], choice[item], improved = log, number, True
        return improved

    def _log_weight(self, step: Step) -> float:
        """Return the log weight of the rule that the step begins; 0 if it begins none."""
        return 0.0 if step.rule is None else math.log(self._weights[step.rule.left, step.rule.right])

    def derivation(self, choice: Sequence[int]) -> list[Rule]:
        """Return the leftmost derivation that takes the chosen alternative of every item."""
        rules: list[Rule] = []
        open_ = [0]
        while open_:
            item = open_.pop()
            alternative = self.alternatives[item][choice[item]]
            rules += _rules(alternative.step)
            open_.extend(reversed(alternative.items))
        return rules

    def derivations(self, item: int) -> Iterator[list[Rule]]:
        """Yield all leftmost derivations of an item of a forest without cycles."""
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


def _rules(step: Step) -> list[Rule]:
    return [] if step.rule is None else [step.rule]


def _derivable(binary: BinaryGrammar, word: Sequence[str], progress: Advance) -> list[list[set[int]]]:
    """Return the symbols that derive word[i:j], at [i][j]."""
    n = len(word)
    nullable = {a for a in range(binary.size) if binary.null[a] > 0}
    above: dict[int, set[int]] = {}
    for parent, child in zip(binary.closure.parents.tolist(), binary.closure.children.tolist(), strict=True):
        above.setdefault(child, set()).add(parent)
    by_left = grouped(binary.binary_steps(), lambda step: step.children[0])
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
                    direct.update(s.parent for s in by_left.get(left, ()) if s.children[1] in right)
            spans[i][j] = set().union(*(above[a] for a in direct))
        progress(1)
    return spans


def _expansions(
    binary: BinaryGrammar, spans: list[list[set[int]]], item: Item
) -> Iterator[tuple[Step, tuple[Item, ...]]]:
    """Yield the steps of an item whose items below are all derivable, with these."""
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

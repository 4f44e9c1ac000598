"""Slow, simple, obviously right versions of what the library computes."""

from functools import cache
from itertools import product

import numpy as np

from ndstack.automata import PDA
from ndstack.grammars import CFG, Nonterminal


def all_words(alphabet, max_length):
    """Every string up to a length, as tuples, shortest first."""
    return [w for n in range(max_length + 1) for w in product(alphabet, repeat=n)]


@cache
def _concatenations(size, max_length):
    """Index triples (i, j, k) with word[i] + word[j] == word[k] over an alphabet of `size`."""
    words = all_words(range(size), max_length)
    index = {w: i for i, w in enumerate(words)}
    by_length = [[w for w in words if len(w) == n] for n in range(max_length + 1)]
    triples = [
        (index[u], index[v], index[u + v])
        for n in range(max_length + 1)
        for m in range(max_length + 1 - n)
        for u in by_length[n]
        for v in by_length[m]
    ]
    return np.array(triples).T


def _iterate(grammar: CFG, alphabet, max_length, *, boolean, rounds):
    """x_A ← Σ_{A→β} w Π x_B from 0, where x_A has an entry for every string up to the length."""
    words = all_words(alphabet, max_length)
    index = {w: i for i, w in enumerate(words)}
    left, right, whole = _concatenations(len(alphabet), max_length)
    value = {A: np.zeros(len(words)) for A in grammar.nonterminals}

    def unit(word):
        return (np.arange(len(words)) == index.get(word, -1)).astype(float)

    for _ in range(rounds):
        new = {A: np.zeros(len(words)) for A in grammar.nonterminals}
        for rule in grammar.rules:
            total = unit(()) * (1.0 if boolean else rule.weight)
            for symbol in rule.right:
                factor = value[symbol] if isinstance(symbol, Nonterminal) else unit((symbol,))
                total = np.bincount(whole, total[left] * factor[right], len(words))
            new[rule.left] += total
        if boolean:
            new = {A: (x > 0).astype(float) for A, x in new.items()}
        change = max(np.abs(new[A] - value[A]).max() for A in new)
        value = new
        if change < 1e-16:
            return dict(zip(words, value[grammar.start], strict=True))
    return None


def language_of_grammar(grammar: CFG, alphabet, max_length):
    """The strings of the grammar up to a length."""
    found = _iterate(grammar, alphabet, max_length, boolean=True, rounds=1000)
    return {w for w, x in found.items() if x > 0}


def weights_of_grammar(grammar: CFG, alphabet, max_length, rounds=3000):
    """String -> weight, up to a length; None if the iteration has not settled."""
    return _iterate(grammar, alphabet, max_length, boolean=False, rounds=rounds)


def language_of_pda(pda: PDA, alphabet, max_length, max_silent=0):
    """The strings up to a length that a PDA accepts, from sets of configurations.

    Right for automata with at most `max_silent` transitions in a row that read nothing.
    """

    def step(configurations, symbol):
        for state, stack in configurations:
            for t in pda.from_state(state):
                height = len(stack) - len(t.pop)
                if t.read == symbol and height >= 0 and stack[height:] == t.pop:
                    yield t.target, stack[:height] + t.push

    def close(configurations):
        everything = set(configurations)
        for _ in range(max_silent):
            everything |= set(step(everything, ""))
        return everything

    found = set()
    layer = {(): close({(pda.start, pda.initial_stack)})}
    for _ in range(max_length + 1):
        found |= {w for w, now in layer.items() if any(pda.accepts_in(*c) for c in now)}
        layer = {(*w, a): close(step(now, a)) for w, now in layer.items() for a in alphabet}
    return found

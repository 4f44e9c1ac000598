"""Random weights of small automata, and all their runs by the enumeration of tests/kernels."""

import math

import numpy as np
import torch

from ndstack.analysis import Names, TransitionWeights
from tests.ops.oracle import enumerate_runs

SETTINGS = [(None, True), (None, False), (1, True), (2, True), (2, False), (3, False)]


def random_weights(seed, n=4, states=2, symbols=2, window=None, bottom_fix=True, scale=2.0, zeros=0.3):
    rng = np.random.default_rng(seed)
    shapes = [(n, states, symbols, states, symbols)] * 2 + [(n, states, symbols, states)]
    arrays = [np.where(rng.random(s) < zeros, -math.inf, scale * rng.normal(size=s)) for s in shapes]
    push, replace, pop = arrays
    names = Names.numbered("abcdefgh"[:n], states, symbols)
    return TransitionWeights(push, replace, pop, names, window, bottom_fix)


def every_run(weights):
    """The runs to each time: (log weight, moves, state, stack as symbols)."""
    push, replace, pop = (torch.from_numpy(part) for part in (weights.push, weights.replace, weights.pop))
    runs = enumerate_runs(push, replace, pop, window=weights.window, bottom_fix=weights.bottom_fix)
    return [[(0.0, (), 0, (0,))]] + [
        [
            (run.weight.item(), run.moves, run.state, tuple(element[0] for element in run.stack))
            for run in after
        ]
        for after in runs
    ]


def key(run):
    """A run's moves as the enumeration writes them."""
    return tuple(
        (m.action, (m.time - 1, m.state, m.symbol, m.target, *(() if m.pushed is None else (m.pushed,))))
        for m in run.moves
    )

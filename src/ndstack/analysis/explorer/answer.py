"""The answer about one string and one model, which contains everything that the page shows about it."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ndstack.analysis.explorer.about import shown_output, string_note
from ndstack.analysis.explorer.requests import Check, always_wanted
from ndstack.analysis.explorer.stack_flows import flows
from ndstack.analysis.source import Source
from ndstack.analysis.stack_run import ACTIONS, StackRun
from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.stack_trace import StackTrace
from ndstack.analysis.stack_wfa import StackProbability, marginal_numbers, most_probable_stacks
from ndstack.analysis.trace import BOS, DECODER, ENCODER, EOS, Trace
from ndstack.analysis.transition_weights import Floats, TransitionWeights
from ndstack.nn.proofs.recognition import Recognizer

if TYPE_CHECKING:
    from nltk import Tree

Json = dict[str, object]
"""A JSON object."""

STACKS = 6
"""The number of stacks that are shown side by side."""
EDGES = 48
"""The number of edges of the stack WFA that are drawn."""
BEST = 3
"""The number of runs that can be selected."""
SEARCH = 500_000
"""The number of multiplications in the search for the most probable stacks at each time."""


def answer(
    source: Source, word: tuple[str, ...], trace: Trace | None = None, check: Check = always_wanted
) -> Json:
    """Return what the page needs to show a model reading a string, for `json.dumps`.

    Args:
        source: the model.
        word: the string.
        trace: the trace of the model on the string, if there is one already.
        check: a function that is called regularly, and ends the computation by raising an error.
    """
    trace = source.trace(word) if trace is None else trace
    first = _first(source, trace)
    inputs = trace.stacks[0].inputs if trace.stacks else _read(source, trace)
    expected = None if trace.written is None else source.expected(word)
    return {
        "text": source.join(word),
        "inputs": list(inputs),
        "first": first(trace.stacks[0] if trace.stacks else None),
        "accepted": trace.accepted,
        "decides": trace.decides,
        "written": None if trace.written is None else shown_output(trace.written),
        "expected": None if expected is None else shown_output(expected),
        "outputs": list(trace.outputs),
        "predictions": _rounded(trace.predictions),
        "truth": _rounded(trace.truth),
        "notes": _notes(source, trace),
        "stacks": [
            {"inputs": list(stack.inputs), "first": first(stack), **_stack(stack, check)}
            for stack in trace.stacks
        ],
    }


def _first(source: Source, trace: Trace) -> Callable[[StackTrace | None], int | None]:
    """Return a function from stacks to the time of the first prediction; None if there is none in its steps.

    Without a stack, the steps are those of `_read`.
    """
    if trace.written is None:
        begun = int(trace.predictions is not None and bool(getattr(source.model, "bos", False)))
        return lambda stack: begun

    def of_transducer(stack: StackTrace | None) -> int | None:
        if stack is not None and stack.where.startswith(ENCODER):
            return None
        decoder = stack is not None and stack.where.startswith(DECODER)
        return 1 if decoder else len(trace.word) + 2

    return of_transducer


def _read(source: Source, trace: Trace) -> tuple[str, ...]:
    """Return the symbols that a model without a stack reads, one for each step."""
    if trace.written is not None:
        return (*trace.word, EOS, BOS, *trace.written)
    return (BOS,) * bool(trace.predictions is not None and getattr(source.model, "bos", False)) + trace.word


def _notes(source: Source, trace: Trace) -> Json:
    """Return sentences about what is missing, and why."""
    notes = {}
    if trace.written is not None:
        notes["next"] = "What the decoder expects after each symbol of the output."
        notes["before"] = "Nothing is written before the whole input has been read."
    elif trace.decides:
        notes["next"] = "The probability that the string up to here is in the language"
        notes["next"] += ", and that each symbol may come next." if len(trace.outputs) > 1 else "."
    elif isinstance(source.model, Recognizer):
        notes["next"] = "A compiled recogniser accepts or rejects; it does not predict."
    elif source.language is None:
        notes["next"] = (
            "It is not known which language the model was trained on, so there is no true distribution."
        )
    else:
        low, high = source.lengths
        notes["nowhere"] = f"No string of length {low} to {high} of {source.language.name} begins like this."
    if trace.predictions is not None:
        notes["string"] = string_note(source, trace)
    if not trace.stacks:
        notes["stack"] = "This model has no stack; only its predictions are shown."
    return {**notes}


def _stack(trace: StackTrace, check: Check) -> Json:
    check()
    return {
        "where": trace.where,
        "kind": trace.kind,
        "action_names": list(trace.action_names),
        "actions": _rounded(trace.actions),
        "reading_names": list(trace.reading_names),
        "readings": _rounded(trace.readings),
        "attention": _rounded(trace.attention),
        "automaton": None if trace.weights is None else _automaton(trace.runs, check),
    }


def _automaton(runs: StackRuns, check: Check) -> Json:
    """Return the posterior and the best runs of a nondeterministic stack, and its stacks at each time."""
    weights = runs.weights
    ahead = threading.Thread(target=lambda: runs.chart.best)  # it needs no other chart, and releases the lock
    ahead.start()
    alive = runs.log_weight > -math.inf
    accepting = runs.accepting() if weights.accept is not None else runs
    accepts = weights.accept is not None and accepting.log_weight > -math.inf
    chosen = accepting if accepts else runs
    times = _times(runs, check)
    ahead.join()
    return {
        "states": list(weights.names.states),
        "symbols": list(weights.names.symbols),
        "window": weights.window,
        "accept": None if weights.accept is None else sorted(q for q, _ in weights.accept),
        "accepting": accepts,
        "entropy": round(chosen.entropy(), 4) if alive else None,
        "posterior": _rounded(chosen.posterior.actions()) if alive else None,
        "runs": [_run(run) for run in chosen.k_best(BEST)] if alive else [],
        "times": times,
    }


def _run(run: StackRun) -> Json:
    """Return a run; a move is [action, state, symbol, next state, symbol pushed or None]."""
    leaves = iter(range(1, len(run.moves) + 1))
    moves = [[ACTIONS.index(m.action), m.state, m.symbol, m.target, m.pushed] for m in run.moves]
    return {
        "probability": _short(run.probability),
        "log_probability": round(run.log_probability, 4),
        "moves": moves,
        "tree": _tree(run.tree(), leaves),
    }


def _tree(tree: Tree, leaves: Iterator[int]) -> Json:
    """Return a node with its children; a leaf is the step at which its symbol is read."""
    children = [next(leaves) if isinstance(child, str) else _tree(child, leaves) for child in tree]
    return {"label": tree.label(), "children": children}


def _times(runs: StackRuns, check: Check) -> list[Json]:
    """Return the most probable stacks and the stack WFA at each time, from 0 on."""
    found: list[Json] = []
    before: list[StackProbability] = []
    bottom_once = _has_bottom_once(runs.weights)
    for time in range(runs.time + 1):
        check()
        now = runs.at(time)
        stacks = most_probable_stacks(now, STACKS, SEARCH, parts=True)
        if bottom_once:  # an upper part with the bottom is a whole stack
            stacks = [dataclasses.replace(one, whole=one.whole or one.stack[0] == 0) for one in stacks]
        found.append(
            {
                "stacks": [
                    [one.state, list(one.stack), _short(one.probability), one.whole] for one in stacks
                ],
                "flows": [[i, j, _short(p)] for i, j, p in flows(runs, time, before, stacks)] if time else [],
                **_graph(now),
            }
        )
        before = stacks
    return found


def _has_bottom_once(weights: TransitionWeights) -> bool:
    """Return whether no transition writes the bottom symbol above the bottom."""
    above = (weights.push[..., 0], weights.replace[:, :, 1:, :, 0])
    return not any(np.isfinite(part).any() for part in above)


def _graph(runs: StackRuns) -> Json:
    """Return nodes [time, state, symbol, probability], edges [from, to, symbol, log weight, probability]."""
    names, S = runs.weights.names, runs.weights.symbols
    reached, found = marginal_numbers(runs, 0.0, EDGES)
    number = {node: place for place, node in enumerate(reached)}
    nodes = [
        [row - 1, *(("", "") if row == 0 else (names.states[kind // S], names.symbols[kind % S])), _short(p)]
        for (row, kind), p in reached.items()
    ]
    edges = [
        [number[below], number[above], names.symbols[above[1] % S], round(weight, 4), _short(p)]
        for below, above, weight, p in found
    ]
    return {"nodes": nodes, "edges": edges}


def _short(number: float) -> float:
    """Return a number rounded to five significant digits."""
    return float(f"{number:.5g}")


def _rounded(array: Floats | None) -> list[object] | None:
    """Return an array, rounded to six decimals, as lists."""
    return None if array is None else np.round(array, 6).tolist()

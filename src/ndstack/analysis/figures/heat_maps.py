"""Readings, actions, attention and predictions over time as heat maps (fig. 9.5)."""

from __future__ import annotations

import numpy as np

from ndstack.analysis.figures.picture import CELL, Picture, check_steps, heat_map, label_steps, plain, upright
from ndstack.analysis.stack_trace import StackTrace
from ndstack.analysis.trace import Trace
from ndstack.automata import BOTTOM
from ndstack.errors import NdstackError
from ndstack.plotting import new_axes, new_grid

SHARE = "probability"
EMPTY = "∅"


def draw_readings(trace: StackTrace, title: str = "Stack readings") -> Picture:
    """The reading after each step: columns are steps, rows the numbers of a reading."""
    check_steps(trace.steps)
    rows = len(trace.reading_names)
    probabilities = trace.kind == "nondeterministic" and trace.vectors is None
    low, high = (0.0, 1.0) if probabilities else _range(trace.readings)
    figure, axes = new_axes(_width(trace.steps, trace.reading_names), 1.3 + _row_height(trace.inputs, rows))
    heat_map(axes, trace.readings.T, low=low, high=high, bar=SHARE if probabilities else "value")
    label_steps(axes, trace.inputs)
    axes.set_yticks(range(rows), [plain(name) for name in trace.reading_names], fontsize=8)
    kind = "state, top symbol" if probabilities else "number of the reading"
    axes.set(title=title, xlabel="symbol read", ylabel=kind)
    return Picture(figure)


def draw_actions(trace: StackTrace, title: str = "Stack actions") -> Picture:
    """The weight of each action at each step; of a nondeterministic stack also its posterior over runs."""
    check_steps(trace.steps)
    panels = [("weight", trace.actions)]
    if trace.weights is not None:
        panels.append(("posterior of the runs to the end", trace.runs.posterior.actions()))
    rows = len(trace.action_names)
    height = 0.9 + len(panels) * (0.6 + _row_height(trace.inputs, rows))
    figure, grid = new_grid(len(panels), 1, _width(trace.steps, trace.action_names), height)
    for (name, values), (axes,) in zip(panels, grid, strict=True):
        heat_map(axes, values.T, bar="share" if trace.kind != "stratification" else "strength")
        label_steps(axes, trace.inputs)
        axes.set_yticks(range(rows), trace.action_names, fontsize=9)
        axes.set_title(f"{title}: {name}", fontsize=10)
    grid[-1][0].set_xlabel("symbol read")
    return Picture(figure)


def draw_attention(trace: StackTrace, title: str = "Attention over pushed positions") -> Picture:
    """How much of each reading was pushed at each step: rows are readings, columns what was pushed."""
    check_steps(trace.steps)
    side = max(3.2, trace.steps * 0.2)
    figure, axes = new_axes(side + 2.2, side + 1.2)
    heat_map(axes, trace.attention, bar="share of the reading")
    start = BOTTOM if trace.kind == "nondeterministic" else EMPTY
    label_steps(axes, (start, *trace.inputs))
    label_steps(axes, trace.inputs, vertical=True)
    axes.set(title=title, xlabel="pushed when this was read", ylabel="on top after this was read")
    return Picture(figure)


def draw_predictions(trace: Trace, title: str = "Next symbol") -> Picture:
    """The distribution of the next symbol after each prefix, and the true one if it is known."""
    if trace.predictions is None:
        raise NdstackError("the model accepts or rejects; it predicts no symbols")
    panels = [("model", trace.predictions)]
    if trace.truth is not None:
        panels.append(("language", trace.truth))
    steps, rows = len(trace.word) + 1, len(trace.outputs)
    check_steps(steps)
    height = 0.9 + len(panels) * (0.6 + _row_height(trace.word, rows))
    figure, grid = new_grid(len(panels), 1, _width(steps, trace.outputs), height)
    for (name, values), (axes,) in zip(panels, grid, strict=True):
        heat_map(axes, values.T, bar=SHARE)
        label_steps(axes, ("", *trace.word))
        axes.set_yticks(range(rows), [plain(symbol) for symbol in trace.outputs], fontsize=9)
        axes.set_title(f"{title}: {name}", fontsize=10)
    grid[-1][0].set_xlabel("last symbol read")
    return Picture(figure)


def _range(values: np.typing.NDArray[np.float64]) -> tuple[float, float]:
    low, high = min(0.0, float(values.min())), float(values.max())
    return low, high if high > low else low + 1.0


def _width(steps: int, names: tuple[str, ...]) -> float:
    return max(4.2, 2.1 + 0.07 * max(map(len, names), default=0) + steps * CELL)


def _row_height(inputs: tuple[str, ...], rows: int) -> float:
    """Inches for so many rows and the labels below them."""
    return 0.2 * max(rows, 3) + (0.075 * max(map(len, inputs)) if upright(inputs) else 0.0)

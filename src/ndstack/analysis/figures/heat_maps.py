"""Readings, actions, attention and predictions over time as heat maps (fig. 9.5)."""

from collections.abc import Sequence

from ndstack.analysis.figures.picture import CELL, Picture, check_steps, heat_map, label_steps, plain, upright
from ndstack.analysis.stack_trace import StackTrace
from ndstack.analysis.trace import Trace
from ndstack.analysis.transition_weights import Floats
from ndstack.automata import BOTTOM
from ndstack.errors import NdstackError
from ndstack.plotting import new_axes, new_grid

SHARE = "probability"
EMPTY = "∅"


def draw_readings(trace: StackTrace, title: str = "Stack readings") -> Picture:
    """Draw the reading after each step: columns are steps, and rows are the numbers of a reading."""
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
    """Draw the weight of each action at each step and, for a nondeterministic stack, its posterior."""
    panels = {"weight": trace.actions}
    if trace.weights is not None:
        panels["posterior of the runs to the end"] = trace.runs.posterior.actions()
    bar = "share" if trace.kind != "stratification" else "strength"
    return _draw_panels(title, panels, trace.action_names, trace.inputs, bar, "symbol read")


def draw_attention(trace: StackTrace, title: str = "Attention over pushed positions") -> Picture:
    """Draw the share of each reading (row) that was pushed at each step (column)."""
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
    """Draw the distribution of the next symbol after each prefix, and the true one if it is known.

    For a transducer, prefixes are those of its output; for a trained recogniser, decisions are drawn.
    """
    if trace.predictions is None:
        raise NdstackError("the model accepts or rejects; it predicts no symbols")
    panels = {"model": trace.predictions} | ({} if trace.truth is None else {"language": trace.truth})
    read = trace.word if trace.written is None else trace.written
    below = "last symbol read" if trace.written is None else "last symbol written"
    return _draw_panels(title, panels, trace.outputs, ("", *read), SHARE, below)


def _draw_panels(
    title: str, panels: dict[str, Floats], names: Sequence[str], inputs: Sequence[str], bar: str, below: str
) -> Picture:
    """Draw matrices [steps, rows] one below the other, with the names of rows and the symbols read."""
    check_steps(len(inputs))
    height = 0.9 + len(panels) * (0.6 + _row_height(inputs, len(names)))
    figure, grid = new_grid(len(panels), 1, _width(len(inputs), names), height)
    for (name, values), (axes,) in zip(panels.items(), grid, strict=True):
        heat_map(axes, values.T, bar=bar)
        label_steps(axes, inputs)
        axes.set_yticks(range(len(names)), [plain(row) for row in names], fontsize=9)
        axes.set_title(f"{title}: {name}", fontsize=10)
    grid[-1][0].set_xlabel(below)
    return Picture(figure)


def _range(values: Floats) -> tuple[float, float]:
    low, high = min(0.0, float(values.min())), float(values.max())
    return low, high if high > low else low + 1.0


def _width(steps: int, names: Sequence[str]) -> float:
    return max(4.2, 2.1 + 0.07 * max(map(len, names), default=0) + steps * CELL)


def _row_height(inputs: Sequence[str], rows: int) -> float:
    """Return the height of rows and of the labels below them, in inches."""
    return 0.2 * max(rows, 3) + (0.075 * max(map(len, inputs)) if upright(inputs) else 0.0)

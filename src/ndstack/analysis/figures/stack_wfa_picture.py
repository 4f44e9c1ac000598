"""A picture of the stack WFA at one time, in which the width of lines shows probabilities (section 4.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ndstack.analysis.figures.picture import Picture, plain
from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.stack_wfa import stack_wfa_marginals
from ndstack.automata import ROOT, Edge, Node, StackWFA
from ndstack.automata import stack_wfa_drawing as layout
from ndstack.errors import NdstackError
from ndstack.plotting import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_EDGES = 28
INK = "#333333"
NODE_WIDTH = 104.0


def draw_wfa(
    runs: StackRuns, *, most: int = MOST_EDGES, weights: bool = True, title: str | None = None
) -> Picture:
    """Draw the stack WFA at `runs.time`. Paths from the left to a double box are stacks.

    Columns are times. Edges are stack symbols; new edges are dashed. An edge is the wider, the more probable
    it is that the stack has it.

    Args:
        runs: the runs to the time of the picture, such as `runs.at(t)`.
        most: the largest number of edges; if there are more, the most probable stacks are shown.
        weights: whether the probability of each edge is shown.
        title: the title of the picture.
    """
    graph = stack_wfa_marginals(runs, most=most)
    if not graph.wfa.accept:
        raise NdstackError(f"no run survives to time {runs.time}, so there are no stacks to draw")
    compact = _compact(graph.wfa)
    labels = [
        f"{edge.symbol} / {p:.2g}" if weights else edge.symbol
        for edge, p in zip(graph.wfa.edges, graph.edges, strict=True)
    ]
    gap = max(layout.GAP, 7.0 * max(map(len, labels), default=0) + 12)
    place = layout.node_places(compact, layout.MARGIN, gap + NODE_WIDTH - layout.WIDTH)
    lanes = layout.edge_lanes(compact, place)
    width = max(x for x, _ in place.values()) + NODE_WIDTH / 2 + layout.MARGIN
    height = max([y for _, y in place.values()] + list(lanes.values())) + layout.HEIGHT
    figure, axes = new_axes(width / 72 + 0.2, (height + 40) / 72)
    axes.axis("off")
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    for edge, label, p in zip(compact.edges, labels, graph.edges, strict=True):
        new = edge.target in compact.accept
        _edge(axes, edge, label, place, lanes.get(edge), p, dashed=new)
    for node, original in zip(compact.states, graph.wfa.states, strict=True):
        _node(axes, place[node], graph.wfa.label(original), node == ROOT, original in graph.wfa.accept)
    ends = [
        p for edge, p in zip(graph.wfa.edges, graph.edges, strict=True) if edge.target in graph.wfa.accept
    ]
    left_out = ", the most probable stacks" if sum(ends) < 0.9995 else ""
    axes.set_title(title or f"Stack WFA at t = {runs.time}{left_out}")
    return Picture(figure)


def _compact(wfa: StackWFA[float]) -> StackWFA[float]:
    """Return the stack WFA with times renumbered, so that there are no columns without nodes."""
    times = sorted({node.time for node in wfa.states if node != ROOT})
    rank = {time: number for number, time in enumerate(times)}
    new = {node: node if node == ROOT else node._replace(time=rank[node.time]) for node in wfa.states}
    edges = tuple(Edge(new[e.source], e.symbol, new[e.target], e.weight) for e in wfa.edges)
    accept = frozenset(new[node] for node in wfa.accept)
    return replace(wfa, states=tuple(new.values()), edges=edges, accept=accept)


def _node(axes: Axes, centre: tuple[float, float], label: str, root: bool, accept: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = centre
    for inset in (0, 3) if accept else (0,):
        width = (layout.HEIGHT if root else NODE_WIDTH) - 2 * inset
        height = layout.HEIGHT - 2 * inset
        corner = (x - width / 2, y - height / 2)
        style = "round,pad=0,rounding_size=7"
        box = FancyBboxPatch(
            corner, width, height, style, facecolor="white", edgecolor=INK, linewidth=1, zorder=3
        )
        axes.add_patch(box)
    size = min(10.0, 1.62 * (NODE_WIDTH - 10) / max(1, len(label)))
    axes.text(x, y, plain(label), ha="center", va="center", fontsize=size, zorder=4)


def _edge(
    axes: Axes,
    edge: Edge[float],
    label: str,
    place: dict[Node, tuple[float, float]],
    lane: float | None,
    probability: float,
    *,
    dashed: bool,
) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    points, at = layout.edge_curve(edge, place, lane, NODE_WIDTH)
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3][: len(points)]
    arrow = FancyArrowPatch(
        path=Path(points, codes),
        arrowstyle="-|>,head_length=4,head_width=2.2",
        linewidth=0.5 + 2.5 * probability,
        linestyle=(0, (4, 2)) if dashed else "solid",
        color=INK,
        mutation_scale=1.5,
        shrinkA=0,
        shrinkB=0,
        zorder=1,
    )
    axes.add_patch(arrow)
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
    axes.text(at[0], at[1] - 8, plain(label), ha="center", va="center", fontsize=9, zorder=2, bbox=paper)

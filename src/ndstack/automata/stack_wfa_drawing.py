"""The stack WFA as an SVG picture, laid out by time, without any other program.

Columns are times and edges are stack symbols, as in the figure of section 4.5. New edges are dashed, and the
configuration types of the current time have a double border.
"""

from dataclasses import dataclass
from html import escape
from itertools import count
from typing import TypeVar

from ndstack.automata.langs_algorithm import Lang
from ndstack.automata.stack_wfa import ROOT, Edge, Node, StackWFA
from ndstack.semirings import Best

T = TypeVar("T")

GAP, ROW, LANE = 40, 58, 24
WIDTH, HEIGHT = 92, 30
MARGIN = 26


def stack_wfa_svg(wfa: StackWFA[T], *, weights: bool = False) -> str:
    """Return a picture of one stack WFA; with `weights`, the weights of the edges are shown."""
    return _document([_panel(wfa, weights=weights)])


def run_svg(lang: Lang[T], *, weights: bool = False) -> str:
    """Return pictures of the stack WFA after every symbol read so far, one below the other."""
    return _document(
        [_panel(lang.stack_wfa(t), weights=weights, title=f"t = {t}") for t in range(lang.time + 1)]
    )


@dataclass(frozen=True)
class _Panel:
    body: str
    width: float
    height: float


def _document(panels: list[_Panel]) -> str:
    width = max(panel.width for panel in panels)
    height = sum(panel.height for panel in panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="Helvetica, Arial, sans-serif" font-size="14">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 Z" fill="#333"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
    ]
    top = 0.0
    for panel in panels:
        parts.append(f'<g transform="translate(0 {top:g})">\n{panel.body}\n</g>')
        top += panel.height
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(wfa: StackWFA[T], *, weights: bool, title: str = "") -> _Panel:
    labels = {edge: _label(edge, weights=weights) for edge in wfa.edges}
    gap = max([GAP, *(8.0 * len(label) + 16 for label in labels.values())])
    left = MARGIN + (56 if title else 0)
    place = node_places(wfa, left, gap)
    lanes = edge_lanes(wfa, place)
    width = max(x for x, _ in place.values()) + WIDTH / 2 + MARGIN
    height = max([y for _, y in place.values()] + list(lanes.values())) + HEIGHT / 2 + MARGIN / 2
    parts = [
        f'<text x="{MARGIN}" y="{MARGIN + HEIGHT / 2 + 5:g}">{title}</text>' if title else "",
        *(_edge(edge, label, place, lanes, wfa.time) for edge, label in labels.items()),
        *(_node(wfa, node, place[node]) for node in wfa.states),
    ]
    return _Panel("\n".join(filter(None, parts)), width, height)


def _label(edge: Edge[T], *, weights: bool) -> str:
    if not weights:
        return edge.symbol
    value = edge.weight.log_weight if isinstance(edge.weight, Best) else edge.weight
    shown = f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"{edge.symbol} / {shown}"


def node_places(wfa: StackWFA[T], left: float, gap: float) -> dict[Node, tuple[float, float]]:
    """Return the centre of each node: a column for each time, one row below the other."""
    rows: dict[int, int] = {}
    place = {}
    for node in wfa.states:
        row = rows.get(node.time, 0)
        rows[node.time] = row + 1
        column = left + HEIGHT + gap + WIDTH / 2 + node.time * (WIDTH + gap)
        x = left + HEIGHT / 2 if node == ROOT else column
        place[node] = (x, MARGIN + HEIGHT / 2 + row * ROW)
    return place


def edge_lanes(wfa: StackWFA[T], place: dict[Node, tuple[float, float]]) -> dict[Edge[T], float]:
    """Return the lane of each edge that skips a column; it is below all nodes that the edge passes."""
    lanes: dict[Edge[T], float] = {}
    used: dict[int, list[tuple[int, int]]] = {}
    for edge in sorted(wfa.edges, key=lambda e: (e.target.time - e.source.time, e.target.time)):
        first, last = edge.source.time, edge.target.time
        if last - first < 2:
            continue
        passed = [y for node, (_, y) in place.items() if first < node.time < last]
        start = max([*passed, place[edge.source][1]]) + HEIGHT / 2 + LANE * 0.8
        for number in count():
            level = round(start / LANE) + number
            if all(last <= a or b <= first for a, b in used.get(level, [])):
                used.setdefault(level, []).append((first, last))
                lanes[edge] = level * LANE
                break
    return lanes


Point = tuple[float, float]


def edge_curve(
    edge: Edge[T], place: dict[Node, Point], lane: float | None, width: float
) -> tuple[list[Point], Point]:
    """Return the points of an edge and the position of its label, for nodes of this width.

    The points are those of one Bézier curve or, in a lane, of a curve, a line and another curve.
    """
    (x1, y1), (x2, y2) = place[edge.source], place[edge.target]
    x1 += HEIGHT / 2 if edge.source == ROOT else width / 2
    x2 -= width / 2
    middle, bend = (x1 + x2) / 2, 34
    if lane is None:
        return [(x1, y1), (middle, y1), (middle, y2), (x2, y2)], (middle, (y1 + y2) / 2)
    down = [(x1, y1), (x1 + bend, y1), (x1, lane), (x1 + bend, lane)]
    return [*down, (x2 - bend, lane), (x2, lane), (x2 - bend, y2), (x2, y2)], (middle, lane)


def _edge(
    edge: Edge[T], label: str, place: dict[Node, tuple[float, float]], lanes: dict[Edge[T], float], time: int
) -> str:
    points, (label_x, label_y) = edge_curve(edge, place, lanes.get(edge), WIDTH)
    commands = ("M", "C", "", "", "L", "C", "", "")
    path = " ".join(f"{c}{x:g},{y:g}" for c, (x, y) in zip(commands, points, strict=False))
    dashes = ' stroke-dasharray="6 4"' if edge.target.time == time else ""
    return (
        f'<path d="{path}" fill="none" stroke="#333" stroke-width="1.4"{dashes} marker-end="url(#tip)"/>'
        f'<text x="{label_x:g}" y="{label_y - 6:g}" text-anchor="middle" stroke="white" stroke-width="4" '
        f'paint-order="stroke">{escape(label)}</text>'
    )


def _node(wfa: StackWFA[T], node: Node, centre: tuple[float, float]) -> str:
    x, y = centre
    width = HEIGHT if node == ROOT else WIDTH
    box = _box(x, y, width, HEIGHT)
    if node in wfa.accept:
        box += _box(x, y, width - 7, HEIGHT - 7)
    label = escape(wfa.label(node))
    return f'{box}<text x="{x:g}" y="{y + 5:g}" text-anchor="middle">{label}</text>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}" rx="8" '
        'fill="white" stroke="#333" stroke-width="1.4"/>'
    )

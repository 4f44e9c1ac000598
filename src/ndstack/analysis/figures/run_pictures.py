"""Pictures of a run: its stacks over time, and its tree."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ndstack.analysis.figures.picture import Picture, check_steps, color, ink, plain, upright
from ndstack.analysis.stack_run import StackRun
from ndstack.plotting import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from nltk import Tree

ROW = 0.3
"""The height of an element of a stack, in inches."""


def draw_stacks(run: StackRun, title: str | None = None) -> Picture:
    """Draw the stack before the first step and after each, with the state and the symbol read below it."""
    check_steps(len(run.moves))
    names, configurations = run.names, run.configurations
    tallest = max(len(c.stack) for c in configurations)
    widest = max(map(len, (*names.states, *names.symbols)), default=1)
    longest = max(map(len, names.inputs), default=1)
    cell = max(0.32, 0.085 * widest + 0.1)
    turned = upright(names.inputs)
    height = 1.2 + ROW * tallest + (0.075 * longest if turned else 0.0)
    figure, axes = new_axes(1.1 + cell * len(configurations), height)
    for place, configuration in enumerate(configurations):
        for level, element in enumerate(configuration.stack):
            _box(axes, place, level, color(element.symbol), names.symbols[element.symbol])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlim(-0.6, len(configurations) - 0.4)
    axes.set_ylim(-1.05, tallest + 0.1)
    for place, configuration in enumerate(configurations):
        axes.text(
            place, -0.55, plain(names.states[configuration.state]), ha="center", va="center", fontsize=8
        )
    axes.set_yticks([-0.55, 0.5], ["state", "bottom"], fontsize=8)
    axes.set_xticks(
        range(len(configurations)),
        ["", *(plain(symbol) for symbol in names.inputs[: len(run.moves)])],
        rotation=90 if turned else 0,
        fontsize=9,
    )
    axes.tick_params(length=0)
    axes.set(xlabel="symbol read", title=title or f"Stacks of a run of probability {run.probability:.3g}")
    return Picture(figure)


def _box(axes: Axes, place: float, level: float, background: str, name: str) -> None:
    from matplotlib.patches import Rectangle

    box = Rectangle((place - 0.44, level + 0.06), 0.88, 0.88, facecolor=background, edgecolor="none")
    axes.add_patch(box)
    axes.text(place, level + 0.48, plain(name), ha="center", va="center", fontsize=9, color=ink(background))


def draw_tree(run: StackRun, types: bool = False, title: str | None = None) -> Picture:
    """Draw the tree of a run (`StackRun.tree`), with its leaves in a row at the bottom."""
    check_steps(len(run.moves))
    return draw_nltk_tree(
        run.tree(types), title or f"Tree of a run of probability {run.probability:.3g}", wide=types
    )


def draw_nltk_tree(tree: Tree, title: str, *, wide: bool = False) -> Picture:
    """Draw any tree, with its leaves in a row at the bottom; `wide` leaves room for long labels."""
    check_steps(len(tree.leaves()))
    depth = tree.height() - 1
    labels = [len(part.label()) for part in tree.subtrees()] + [len(leaf) for leaf in tree.leaves()]
    cell = max(0.3, 0.08 * max(map(len, tree.leaves())) + 0.14, 0.055 * max(labels) if wide else 0.0)
    level = max(0.34, min(0.6, 6.0 / depth))
    figure, axes = new_axes(0.8 + cell * len(tree.leaves()), 0.8 + level * (depth + 1))
    axes.axis("off")
    _Drawer(axes, depth).draw(tree, 0)
    axes.set_xlim(-0.8, len(tree.leaves()) - 0.2)
    axes.set_ylim(-depth - 0.5, 0.5)
    axes.set_title(title)
    return Picture(figure)


class _Drawer:
    """Draws leaves from left to right, and every node above the middle of its children."""

    def __init__(self, axes: Axes, depth: int) -> None:
        self.axes, self.depth, self.leaves = axes, depth, 0

    def draw(self, node: Tree | str, level: int) -> tuple[float, float]:
        """Draw a subtree, and return the position of its label."""
        write = functools.partial(self.axes.text, ha="center", va="center", zorder=3, bbox=_PAPER)
        if isinstance(node, str):
            x, y = float(self.leaves), -float(self.depth)
            self.leaves += 1
            write(x, y, plain(node), fontsize=10)
            return x, y
        below = [self.draw(child, level + 1) for child in node]
        x = (below[0][0] + below[-1][0]) / 2 if below else float(self.leaves)
        y = -float(level)
        for child_x, child_y in below:  # a line goes down one level, then straight, so that lines never cross
            self.axes.plot(
                [x, child_x, child_x], [y, y - 1, child_y], color="#888888", linewidth=0.9, zorder=1
            )
        write(x, y, plain(node.label()), fontsize=9, color="#0072B2")
        return x, y


_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}

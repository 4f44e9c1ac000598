"""Principal components of stack readings (section 9.3.3, fig. 9.4)."""

from collections.abc import Iterable, Sequence

import numpy as np

from ndstack.analysis.figures.picture import Picture, plain
from ndstack.analysis.trace import Model, trace
from ndstack.analysis.transition_weights import Floats
from ndstack.errors import NdstackError
from ndstack.grammars.grammar import Word
from ndstack.plotting import COLORS, new_axes

MARKERS = "osD^vP*X"
MOST_IN_LEGEND = 24


def readings_by_next_symbol(
    model: Model, words: Iterable[Word], after: str | None = None, stack: int = 0
) -> tuple[Floats, list[str]]:
    """Return the readings just before each symbol is predicted, [N, R], and the symbols.

    Args:
        model: a model with a stack.
        words: the strings that it reads.
        after: a symbol; only positions after its first occurrence are taken, as in figure 9.4 after #.
        stack: the number of the stack.
    """
    rows: list[Floats] = []
    labels: list[str] = []
    for word in words:
        symbols = tuple(word)
        found = trace(model, symbols).stack(stack)
        extra = found.steps - len(symbols)  # 1 if BOS is read too
        first = 0 if after is None else symbols.index(after) + 1 if after in symbols else len(symbols)
        for place in range(first, len(symbols)):
            step = place + extra  # the reading after this many steps
            if step:
                rows.append(found.readings[step - 1])
                labels.append(symbols[place])
    if not rows:
        raise NdstackError("no readings to draw; give longer strings, or another symbol to begin after")
    return np.stack(rows), labels


def components(readings: Floats) -> tuple[Floats, Floats]:
    """Return the first two principal components, [N, 2], and their shares of the variance, [2].

    The signs make the coefficient of greatest magnitude in each component positive.
    """
    centred = readings - readings.mean(axis=0)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    count = min(2, len(values))
    points = np.zeros((len(readings), 2))
    signs = np.sign(right[np.arange(count), np.abs(right[:count]).argmax(axis=1)])
    points[:, :count] = left[:, :count] * values[:count] * signs
    variance = np.zeros(2)
    total = float((values**2).sum())
    if total > 0:
        variance[:count] = values[:count] ** 2 / total
    return points, variance


def draw_pca(readings: Floats, labels: Sequence[str], title: str = "Stack readings") -> Picture:
    """Draw readings in two dimensions, with a colour and a marker for each label.

    Args:
        readings: the readings, [N, R].
        labels: the label of each reading, such as the next symbol.
        title: the title of the picture.
    """
    if len(readings) != len(labels) or len(readings) < 2:
        raise NdstackError(
            f"{len(readings)} readings and {len(labels)} labels given, expected as many, 2 or more"
        )
    points, variance = components(np.asarray(readings, np.float64))
    return draw_points(points, variance, labels, title)


def draw_points(points: Floats, variance: Floats, labels: Sequence[str], title: str) -> Picture:
    """Draw points [N, 2] in the plane of two components, with their shares of the variance, [2]."""
    kinds = list(dict.fromkeys(sorted(labels)))
    figure, axes = new_axes(6.4, 5.0)
    for number, kind in enumerate(kinds):
        own = points[[label == kind for label in labels]]
        axes.scatter(
            own[:, 0],
            own[:, 1],
            s=26,
            alpha=0.75,
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[(number + number // len(COLORS)) % len(MARKERS)],
            label=plain(kind),
            linewidths=0,
        )
    axes.set(
        title=title,
        xlabel=f"component 1 ({variance[0]:.0%} of the variance)",
        ylabel=f"component 2 ({variance[1]:.0%})",
    )
    if len(kinds) <= MOST_IN_LEGEND:
        axes.legend(title="next symbol", loc="center left", bbox_to_anchor=(1.0, 0.5))
        return Picture(figure)
    for kind in kinds:  # there are too many for a legend, so each name is in the middle of its points
        middle = np.median(points[[label == kind for label in labels]], axis=0)
        paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.5}
        axes.text(middle[0], middle[1], plain(kind), ha="center", va="center", fontsize=8, bbox=paper)
    return Picture(figure)

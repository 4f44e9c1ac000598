"""Pictures that can be saved or shown in a notebook, and functions that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ndstack import plotting
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 0.24
"""The width of one step, in inches."""
MOST = 400
"""The largest number of steps in a picture."""
LIGHT_TEXT, DARK_TEXT = "white", "black"


@dataclass(frozen=True, eq=False)
class Picture:
    """A matplotlib figure that notebooks display."""

    figure: Figure

    @cached_property
    def _svg(self) -> str:
        # kept, because the layout changes slightly if the figure is drawn again
        return plotting.render(self.figure, "svg").decode()

    def svg(self) -> str:
        """Return the picture as SVG."""
        return self._svg

    def png(self) -> bytes:
        """Return the picture as PNG."""
        return plotting.render(self.figure, "png")

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> None:
        """Write the picture to a file in the format of its suffix: .svg, .png or .pdf."""
        plotting.save_figure(self.figure, Path(path))


def check_steps(count: int) -> None:
    """Raise an error unless the number of steps is at least 1 and not too large."""
    if not count:
        raise NdstackError("nothing has been read, so there is nothing to draw; give a longer string")
    if count > MOST:
        raise NdstackError(
            f"{count} steps given, expected at most {MOST} in a picture; give a shorter string"
        )


def label_steps(axes: Axes, inputs: Sequence[str], *, first: int = 0, vertical: bool = False) -> None:
    """Label the ticks of a time axis with the symbols read."""
    places = [first + step for step in range(len(inputs))]
    size = 9 if len(inputs) <= 40 else 7.5
    if vertical:
        axes.set_yticks(places, [plain(symbol) for symbol in inputs], fontsize=size)
    else:
        rotation = 90 if upright(inputs) else 0
        axes.set_xticks(places, [plain(symbol) for symbol in inputs], fontsize=size, rotation=rotation)


def upright(inputs: Sequence[str]) -> bool:
    """Return whether symbols are so long that their labels have to be vertical."""
    return max(map(len, inputs), default=1) > 3


def plain(text: str) -> str:
    """Return text in a form that matplotlib does not interpret as a formula."""
    return text.replace("$", r"\$")


def heat_map(
    axes: Axes,
    values: NDArray[np.float64],
    *,
    low: float = 0.0,
    high: float = 1.0,
    bar: str | None = None,
    colors: str = "cividis",
) -> None:
    """Draw a matrix [rows, columns] in colours, by default from dark to light; `bar` labels a colour bar."""
    axes.grid(False)
    image = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    if bar is not None:
        assert axes.figure is not None
        axes.figure.colorbar(image, ax=axes, label=bar, fraction=0.05, pad=0.02)


def color(number: int) -> str:
    """Return the colour of the stack symbol with this number, which is grey for ⊥."""
    return "#999999" if number == 0 else plotting.COLORS[(number - 1) % len(plotting.COLORS)]


def ink(background: str) -> str:
    """Return black or white, whichever is readable on a colour #rrggbb."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return DARK_TEXT if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else LIGHT_TEXT

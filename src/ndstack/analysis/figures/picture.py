"""A picture that can be saved or shown in a notebook, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ndstack import plotting
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 0.24
"""Inches for one step."""
MOST = 400
"""Steps that a picture may have."""
LIGHT_TEXT, DARK_TEXT = "white", "black"


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure of matplotlib that shows itself in notebooks."""

    figure: Figure

    @cached_property
    def _svg(self) -> str:
        # kept, since the layout moves by a hair if it is drawn again
        return plotting.render(self.figure, "svg").decode()

    def svg(self) -> str:
        """The picture as SVG."""
        return self._svg

    def png(self) -> bytes:
        """The picture as PNG."""
        return plotting.render(self.figure, "png")

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> None:
        """Write it; the suffix, .svg, .png or .pdf, decides the format."""
        plotting.save_figure(self.figure, Path(path))


def check_steps(count: int) -> None:
    """Raise an error in one line unless there is something to draw, and not too much."""
    if not count:
        raise NdstackError("nothing has been read, so there is nothing to draw; give a longer string")
    if count > MOST:
        raise NdstackError(
            f"{count} steps given, expected at most {MOST} in a picture; give a shorter string"
        )


def label_steps(axes: Axes, inputs: Sequence[str], *, first: int = 0, vertical: bool = False) -> None:
    """Put the symbols read at the ticks of an axis; one that counts time."""
    places = [first + step for step in range(len(inputs))]
    size = 9 if len(inputs) <= 40 else 7.5
    if vertical:
        axes.set_yticks(places, [plain(symbol) for symbol in inputs], fontsize=size)
    else:
        rotation = 90 if upright(inputs) else 0
        axes.set_xticks(places, [plain(symbol) for symbol in inputs], fontsize=size, rotation=rotation)


def upright(inputs: Sequence[str]) -> bool:
    """Whether symbols are so long that their labels are turned."""
    return max(map(len, inputs), default=1) > 3


def plain(text: str) -> str:
    """Text that is not taken for a formula."""
    return text.replace("$", r"\$")


def heat_map(
    axes: Axes,
    values: Any,
    *,
    low: float = 0.0,
    high: float = 1.0,
    bar: str | None = None,
    colors: str = "cividis",
) -> None:
    """A matrix [rows, columns] in colours, by default from dark to light, on request with a colour bar."""
    axes.grid(False)
    image = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    if bar is not None:
        assert axes.figure is not None
        axes.figure.colorbar(image, ax=axes, label=bar, fraction=0.05, pad=0.02)


def color(number: int) -> str:
    """The colour of the stack symbol with this number; ⊥ is grey."""
    return "#999999" if number == 0 else plotting.COLORS[(number - 1) % len(plotting.COLORS)]


def ink(background: str) -> str:
    """Black or white, whichever is readable on a colour #rrggbb."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return DARK_TEXT if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else LIGHT_TEXT

"""A moving picture, as SVG with CSS: the most probable stacks of a model, step by step, while it reads."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from ndstack import files, plotting
from ndstack.analysis.figures.picture import check_steps, color, ink
from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.stack_wfa import StackProbability, most_probable_stacks
from ndstack.errors import NdstackError

SHOWN = 6
"""The number of stacks that are shown side by side."""
SECONDS, LAST = 1.1, 3.0
"""How long each step is shown, and the last one."""
CELL, WIDE, TALL, MARGIN = 34, 92, 22, 18
DEEPEST = 9
"""The largest number of symbols of a stack that are shown; the lower ones of a deeper stack are not."""


@dataclass(frozen=True)
class Animation:
    """A moving picture that notebooks display."""

    text: str

    def svg(self) -> str:
        """Return the picture as SVG."""
        return self.text

    def _repr_svg_(self) -> str:
        return self.text

    def save(self, path: str | Path) -> None:
        """Write the picture to a file, whose suffix must be .svg."""
        if Path(path).suffix.lower() != ".svg":
            raise NdstackError(f"{path} cannot be drawn, expected a name that ends in .svg, which can move")
        files.replace(Path(path), self.text)


def animate_stacks(runs: StackRuns) -> Animation:
    """Return the most probable stacks after each step, as a moving picture.

    The stack with which a recogniser accepts has a frame. A reader who prefers no motion sees the last step.
    """
    steps = runs.time
    check_steps(steps)
    listed = [_ordered(most_probable_stacks(runs.at(time), SHOWN, parts=True)) for time in range(steps + 1)]
    deepest = min(DEEPEST, max(len(one.stack) for stacks in listed for one in stacks))
    width = max(SHOWN * WIDE, steps * CELL) + 2 * MARGIN
    floor = 96 + TALL * deepest + 20
    whole = SECONDS * steps + LAST
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {floor + 46}" width="{width}" '
        f'height="{floor + 46}" font-family="Helvetica, Arial, sans-serif" font-size="13" role="img" '
        f'aria-label="The most probable stacks while {escape(" ".join(runs.weights.names.inputs))} is read">',
        f"<style>{_style(steps, whole)}</style>",
        f'<rect width="{width}" height="{floor + 46}" rx="10" fill="white"/>',
    ]
    for time, stacks in enumerate(listed):
        columns = [
            _column(runs, one, MARGIN + WIDE * (place + 0.5), floor, time) for place, one in enumerate(stacks)
        ]
        parts += [f'<g class="t{time}">', _tape(runs.weights.names.inputs, time), *columns, "</g>"]
    return Animation("\n".join([*parts, "</svg>"]) + "\n")


def _ordered(stacks: list[StackProbability]) -> list[StackProbability]:
    """Return stacks by their states, the higher ones first, so that a stack keeps its place for a while."""
    return sorted(stacks, key=lambda one: (one.state, -len(one.stack), one.stack))


def _style(steps: int, whole: float) -> str:
    """Return the rules that show each step in its turn."""
    rules = [f"g{{opacity:0;animation:{whole:g}s infinite step-end}}"]
    for time in range(steps + 1):
        start = 100 * SECONDS * time / whole
        end = 100 * SECONDS * (time + 1) / whole
        frames = f"0%{{opacity:{int(time == 0)}}}{start:.3f}%{{opacity:1}}"
        frames += f"{end:.3f}%{{opacity:0}}" if time < steps else ""
        rules.append(f"@keyframes k{time}{{{frames}}}.t{time}{{animation-name:k{time}}}")
    rules.append(f"@media (prefers-reduced-motion){{g{{animation:none}}.t{steps}{{opacity:1}}}}")
    return "".join(rules)


def _tape(inputs: tuple[str, ...], time: int) -> str:
    """Return the string, with what has been read shaded and the symbol just read emphasised."""
    parts = []
    for place, symbol in enumerate(inputs, 1):
        x = MARGIN + CELL * (place - 1)
        fill = plotting.COLORS[0] if place == time else "#e8e6df" if place < time else "white"
        text = "white" if place == time else "#23272d"
        parts.append(
            f'<rect x="{x}" y="14" width="{CELL - 3}" height="28" rx="5" fill="{fill}" stroke="#d0cdc4"/>'
            f'<text x="{x + (CELL - 3) / 2:g}" y="33" text-anchor="middle" fill="{text}">'
            f"{escape(symbol)}</text>"
        )
    said = f"after {time} of {len(inputs)} symbols" if time else "before the first symbol"
    parts.append(f'<text x="{MARGIN}" y="66" fill="#656d76">{said}: the most probable stacks</text>')
    return "".join(parts)


def _column(runs: StackRuns, one: StackProbability, x: float, floor: float, time: int) -> str:
    """Return a stack, from the floor up, with its state and probability below."""
    names, accept = runs.weights.names, runs.weights.accept or frozenset()
    shown = one.stack[-DEEPEST:]
    parts = []
    for place, symbol in enumerate(shown):
        y, fill, name = floor - TALL * (place + 1), color(symbol), escape(names.symbols[symbol])
        parts.append(
            f'<rect x="{x - 34:g}" y="{y:g}" width="68" height="{TALL - 2}" rx="4" fill="{fill}"/>'
            f'<text x="{x:g}" y="{y + 15:g}" text-anchor="middle" fill="{ink(fill)}">{name}</text>'
        )
    whole = one.whole and len(one.stack) == 1 and (one.state, one.stack[-1]) in accept
    if whole and time == runs.time:
        parts.append(
            f'<rect x="{x - 39:g}" y="{floor - TALL - 4:g}" width="78" height="{TALL + 6}" rx="6" '
            f'fill="none" stroke="{plotting.COLORS[2]}" stroke-width="3"/>'
            f'<text x="{x:g}" y="{floor - TALL - 10:g}" text-anchor="middle" font-weight="bold" '
            f'fill="{plotting.COLORS[2]}">accepted</text>'
        )
    state = escape(names.states[one.state])
    parts.append(
        f'<text x="{x:g}" y="{floor + 18:g}" text-anchor="middle" fill="#23272d">{state}</text>'
        f'<text x="{x:g}" y="{floor + 35:g}" text-anchor="middle" fill="#656d76">{one.probability:.0%}</text>'
    )
    return "".join(parts)

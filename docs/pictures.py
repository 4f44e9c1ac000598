"""Draws the pictures of docs/ and the README again: `make docs`."""

import re
import tomllib
from pathlib import Path

from ndstack.analysis import trace
from ndstack.analysis.figures import animate_stacks, draw_stacks, draw_wfa
from ndstack.automata import Lang, run_svg, unmarked_reversal_pda
from ndstack.nn import recognizer
from ndstack.nn.proofs.examples import SENTENCE, english, palindromes
from ndstack.semirings import REAL

HERE = Path(__file__).parent / "pictures"
ROOT = Path(__file__).parent.parent
BLUE, ORANGE, GREY, PALE = "#4477aa", "#ee7733", "#bbbbbb", "#f2f2f2"

WIDE = 860
ROOMS = {
    "errors": "what a user can cause, in one line",
    "plotting": "the looks of all pictures",
    "grammars": "grammars, normal forms, inside weights, sampling by length, parses",
    "automata": "pushdown automata, Lang's algorithm over any semiring, the stack WFA",
    "languages": "formal languages with exact probabilities, data sets",
    "transductions": "functions from strings to strings, data sets of pairs",
    "settings": "every setting of a run, declared once",
    "ops": "one folder per operation: readable versions, compiled versions, one runtime",
    "functional": "the operations as documented functions of whole sequences",
    "stacks": "the stacks behind one interface: start, step, scan, drive",
    "nn": "networks that own a stack, language models, storage, compiled grammars",
    "training": "batches, the loop, metrics, checkpoints, resuming",
    "text": "corpora, truncated BPTT, perplexity, syntactic generalization",
    "hf": "models of Hugging Face's transformers, and back",
    "analysis": "what a stack does while it reads: runs, pictures, the explorer",
    "experiments": "figures and tables as data, sweeps, engines, reports, the ledger",
    "cli": "the command ndstack",
}
"""What is in each room that has a row of its own."""


def main() -> None:
    """Write every picture."""
    HERE.mkdir(exist_ok=True)
    lang = Lang(unmarked_reversal_pda(), REAL, "0110")
    (HERE / "lang-0110.svg").write_text(run_svg(lang), encoding="utf-8")
    runs = trace(recognizer(english()), SENTENCE).stack().runs
    draw_stacks(runs.accepting().best()).save(HERE / "english-stacks.svg")
    draw_wfa(runs.at(5)).save(HERE / "english-wfa.svg")
    (HERE / "pop.svg").write_text(pop_rule(), encoding="utf-8")
    (HERE / "chart.svg").write_text(charts(), encoding="utf-8")
    (HERE / "rooms.svg").write_text(rooms(), encoding="utf-8")
    animate_stacks(trace(recognizer(palindromes()), "abaaba").stack().runs).save(HERE / "reading.svg")
    for name, badge in badges().items():
        (HERE / f"badge-{name}.svg").write_text(badge, encoding="utf-8")


def badges() -> dict[str, str]:
    """Labels for the README, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = project["project"]["classifiers"]
    versions = [line.rpartition(" ")[2] for line in lines if re.search(r":: 3\.\d+$", line)]
    strict = "mypy, strict" if project["tool"]["mypy"]["strict"] else "mypy"
    return {
        "python": _badge("Python", " | ".join(versions)),
        "licence": _badge("licence", project["project"]["license"]),
        "types": _badge("types", strict),
    }


def _badge(name: str, value: str) -> str:
    """A label in two colours."""
    left, right = 12 + 7 * len(name), 14 + 7 * len(value)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{name}: {value}" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" '
        f'text-anchor="middle" fill="white"><clipPath id="round"><rect width="{left + right}" height="20" '
        f'rx="4"/></clipPath><g clip-path="url(#round)"><rect width="{left}" height="20" fill="#555"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="#0072b2"/></g>'
        f'<text x="{left / 2:g}" y="14">{name}</text>'
        f'<text x="{left + right / 2:g}" y="14">{value}</text></svg>\n'
    )


def pop_rule() -> str:
    """A run around a pop at step t: blocks are symbols, from their push to their pop."""
    step, level, left, floor = 56, 40, 30, 150
    i, k, t = 2, 6, 11
    parts = []

    def block(first: float, last: float, height: int, fill: str, label: str) -> None:
        x, y = left + step * first, floor - level * (height + 1)
        parts.append(_box(x, y, step * (last - first), level - 4, fill))
        parts.append(_text(x + 8, y + 25, label, anchor="start"))

    block(0, t + 1, 0, PALE, "a")
    block(i + 1, t + 1, 1, "#cfe0f0", "pushed at i + 1: y at time k, and again at time t")
    block(k + 1, t, 2, "#fbdcc4", "pushed at k + 1")
    for time, name in ((i, "i"), (k, "k"), (t - 1, "t - 1"), (t, "t")):
        x = left + step * (time + 0.5)
        parts.append(_text(x, floor + 22, name, weight="bold"))
        parts.append(f'<path d="M{x:g},{floor - 4} v8" stroke="#333"/>')
    middle = [left + step * (time + 0.5) for time in (i, k, t - 1, t)]
    parts.append(_arc(middle[2], middle[1], floor + 34, 26, ORANGE))
    parts.append(
        _text((middle[1] + middle[2]) / 2, floor + 68, "P[k, (u, y) | d] of time t - 1", fill=ORANGE)
    )
    parts.append(_arc(middle[1], middle[0], floor + 34, 26, BLUE))
    parts.append(_text((middle[0] + middle[1]) / 2 - 4, floor + 68, "P[i, a | (u, y)] of time k", fill=BLUE))
    parts.append(_arc(middle[3], middle[0], floor + 78, 40, "#333"))
    parts.append(_text((middle[0] + middle[3]) / 2, floor + 132, "adds to P[i, a | b] of time t"))
    return _document(730, 300, parts)


def charts() -> str:
    """Which columns a step forward reads, and which the gradient of a column gathers."""
    parts = [
        _text(20, 24, "forward: step t = 8", anchor="start", weight="bold"),
        _text(380, 24, "backward: the gradient of t = 4", anchor="start", weight="bold"),
    ]
    step = {8: BLUE, 7: ORANGE} | dict.fromkeys(range(7), "#f7c9a6")
    parts += _triangle(20, 8, step, {})
    gathered = {4: BLUE, 5: ORANGE} | dict.fromkeys(range(6, 9), "#f7c9a6")
    parts += _triangle(380, 8, gathered, dict.fromkeys(range(5, 9), 4))
    captions = ("written", "read twice: to replace, and to pop", "uncovered by pops: the cubic part")
    backward = ("written, in one go", "of step t + 1: replace and pop", "of later steps: the cubic part")
    for x, lines in ((20, captions), (380, backward)):
        for row, (fill, line) in enumerate(zip((BLUE, ORANGE, "#f7c9a6"), lines, strict=True)):
            parts.append(_box(x, 346 + 24 * row, 16, 16, fill))
            parts.append(_text(x + 24, 359 + 24 * row, line, anchor="start"))
    return _document(730, 430, parts)


def rooms() -> str:
    """The rooms in the order of the contract in pyproject.toml; imports go up."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts, y, with_torch = [], 16, "#cfe0f0"
    for layer in reversed(project["tool"]["importlinter"]["contracts"][0]["layers"]):
        names = [name.strip("() ") for name in layer.split("|")]
        room, letters = WIDE - 40 - 10 * (len(names) - 1), sum(len(name) + 3 for name in names)
        x = 20.0
        for name in names:
            width = 150 if len(names) == 1 else room * (len(name) + 3) / letters
            parts.append(_box(x, y, width, 30, with_torch if _imports_torch(name) else PALE))
            parts.append(_text(x + width / 2, y + 20, name, weight="bold"))
            x += width + 10
        if len(names) == 1:
            parts.append(_text(184, y + 20, ROOMS[names[0]], anchor="start"))
        y += 38
    legend = ((20, PALE, "does not import torch"), (230, with_torch, "imports torch"))
    for x, fill, line in legend:
        parts.append(_box(x, y + 10, 16, 16, fill))
        parts.append(_text(x + 24, y + 23, line, anchor="start"))
    return _document(WIDE, y + 40, parts)


def _imports_torch(room: str) -> bool:
    """Whether a file of a room, which is a folder or a module, imports torch."""
    place = ROOT / "src" / "ndstack" / room
    files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    return any(
        re.search(r"^\s*(import|from) torch\b", file.read_text(encoding="utf-8"), re.M) for file in files
    )


def _triangle(left: float, n: int, fills: dict[int, str], below: dict[int, int]) -> list[str]:
    """A chart: times across, the i that a symbol stands on down; coloured up to i < below[t]."""
    cell, top = 30, 66
    parts = [_text(left + 12, 60, "t", anchor="start"), _text(left - 10, 86, "i", anchor="start")]
    for t in range(n + 1):
        x = left + 36 + cell * t
        parts.append(_text(x + 13, top - 6, str(t)))
        for i in range(-1, t):
            fill = fills.get(t, PALE) if i < below.get(t, n) else PALE
            parts.append(_box(x, top + cell * (i + 1), cell - 4, cell - 4, fill))
    parts += [_text(left + 26, top + 18 + cell * (i + 1), str(i), anchor="end") for i in range(-1, n)]
    return parts


def _document(width: int, height: int, parts: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="14">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0,0 L8,4 L0,8 Z" fill="#333"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{GREY}"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "middle", weight: str = "normal", fill: str = "#333"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}">{text}</text>'
    )


def _arc(start: float, end: float, y: float, depth: float, stroke: str) -> str:
    curve = f"M{start:g},{y:g} C{start:g},{y + depth:g} {end:g},{y + depth:g} {end:g},{y:g}"
    return f'<path d="{curve}" fill="none" stroke="{stroke}" stroke-width="2" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    main()

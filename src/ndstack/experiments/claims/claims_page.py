"""The ledger as the page `claims.md`, with a picture for each claim that has runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ndstack import files, plotting
from ndstack.experiments.claims.claim import Claim
from ndstack.experiments.claims.evidence import (
    EPOCHS,
    FAR,
    PATIENCE,
    SOLVED,
    TEXT_EPOCHS,
    TEXT_PATIENCE,
    Side,
    describe,
    is_settled,
    is_solved,
    metric_of,
)
from ndstack.experiments.claims.ledger import Decided, Entry, decide
from ndstack.experiments.records import Tables
from ndstack.experiments.registry import find

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, PICTURES = "claims.md", "claims"
MOST_SIDES = 30
"""The largest number of sides in one picture."""
ANSWERS = {"yes": "holds", "no": "does not hold", "differs": "neither", None: "undecided"}

HEAD = f"""# The ledger

This page lists the empirical claims of the dissertation, and what our runs say about each of them. It
is made by `ndstack claims results --out docs` from the tables in [results](../results); no verdict is
written by hand.

- A run **solves** a language if its best validation cross-entropy (lengths 40 to 80) is within
  {SOLVED} nats per symbol of the lower bound.
- A verdict needs **at least three runs on each side**. With fewer, a claim is *undecided*, and the
  number of runs that exist and that the rule needs is given. The statement that a model cannot do
  what the best of 10 or 20 runs does in the dissertation needs ten runs, or three if none of them
  comes within {FAR} nats.
- A run that was **cut short** counts if it has succeeded, and otherwise not at all. Only runs that
  ended by the recipe's own rule count as failures to learn, or as the losing side of a comparison:
  no improvement for {PATIENCE} epochs, or all {EPOCHS} epochs ({TEXT_PATIENCE} and {TEXT_EPOCHS} on
  text), whatever their own limit was. Shares of successful runs are therefore upper bounds if runs
  were cut short.
- If the best runs of two models are compared, both have **the same number** of runs: for the side
  with more runs, it is the expected best of as many runs as the other side has.
- Runs have the settings of the dissertation's experiment: sizes, learning rates, end of string,
  bottom of the stack. Runs with **stages** of training (short strings first) are not mixed with
  them; their results are listed separately.
- *Reproduced*: all parts of a claim hold. *Not reproduced*: no part holds. *Differs*: some parts
  hold, or two sides are alike where one should be better; no further run of other parts can change
  this. Otherwise, a claim is undecided as long as one of its parts is.
- A side is **better** if it is better by more than 0.002 nats per symbol and by more than a twentieth
  of the worse side's distance to the lower bound, unless the claim requires more. The rules, and the
  reasons for them, are in [claims.toml](../src/ndstack/experiments/claims/claims.toml).

"""


def write_page(claims: Sequence[Claim], tables: Tables, out: Path) -> list[Entry]:
    """Write `claims.md` and its pictures to a folder, and return the decided claims."""
    entries, staged = decide(claims, tables), decide(claims, tables, staged=True)
    pictures = out / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    drawn: set[str] = set()
    for entry in entries:
        figure = draw_claim(entry)
        if figure is not None:
            drawn.add(entry.claim.id)
            plotting.save_figure(figure, pictures / f"{entry.claim.id}.svg")
    for old in pictures.glob("C*.svg"):
        if old.stem not in drawn:
            old.unlink()
    files.replace(out / PAGE, make_page(entries, staged, tables, drawn))
    return entries


def make_page(entries: Sequence[Entry], staged: Sequence[Entry], tables: Tables, drawn: set[str]) -> str:
    """Return the page as Markdown."""
    counts = Counter(entry.verdict.partition(":")[0] for entry in entries)
    hours = sum(one.seconds for one in tables.runs.values()) / 3600
    shown = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind])
    lines = [f"{len(tables.runs)} runs, {hours:.1f} hours of training: {shown}.\n\n"]
    lines.append("| claim | section | verdict |\n|---|---|---|\n")
    for entry in entries:
        name = f"[{entry.claim.id}](#{entry.claim.id.lower()})"
        lines.append(f"| {name} {_cell(entry.claim.text)} | {entry.claim.section} | *{entry.verdict}* |\n")
    for entry, other in zip(entries, staged, strict=True):
        lines.append(_entry(entry, other, entry.claim.id in drawn))
    return HEAD + "".join(lines)


_KINDS = ("reproduced", "not reproduced", "differs", "undecided")


def _entry(entry: Entry, staged: Entry, drawn: bool) -> str:
    claim = entry.claim
    lines = [f"\n## {claim.id}\n\n{_cell(claim.text)} ({claim.section})\n\n"]
    figure = f" **Drawn by** `ndstack report results` as {claim.figure}." if claim.figure else ""
    theirs = claim.theirs or "no numbers printed."
    still = "; undecided parts cannot change it" if entry.open and entry.is_decided else ""
    lines.append(f"**Verdict**: *{entry.verdict}*{still}. **Theirs**: {theirs}{figure}\n\n")
    sides = _sides(entry)
    if entry.runs:
        lines.append("| what the rule compares | |\n|---|---|\n")
        lines += [f"| {_cell(one.about)} | {ANSWERS[one.answer]} |\n" for one in entry.outcomes]
        lines.append("\nOur runs, best first, with their spread:\n\n")
        lines += [f"- {text}\n" for text in dict.fromkeys(sides)]
        lines.append("\n")
    else:
        lines.append("There are no runs with these settings yet.\n\n")
    if staged.runs:
        lines.append(f"With stages of training: *{staged.verdict}*.\n\n")
        lines += [f"- {text}\n" for text in dict.fromkeys(_sides(staged))]
        lines.append("\n")
    if drawn:
        lines.append(f"![{claim.id}]({PICTURES}/{claim.id}.svg)\n\n")
    lines.append("```\n" + "\n".join(commands(claim)) + "\n```\n")
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sides(entry: Entry) -> list[str]:
    """Return our numbers for the sides that have runs."""
    return [
        _cell(describe(side, decided.part.metric) + _named(decided))
        for decided in entry.decided
        for side in decided.sides
        if side.runs
    ]


def _named(decided: Decided) -> str:
    return "" if decided.part.metric == "difference" else f" ({decided.part.metric.replace('_', ' ')})"


def commands(claim: Claim) -> list[str]:
    """Return the commands that make the runs that a claim needs."""
    found: dict[str, None] = {}
    for part in claim.parts:
        for name in part.experiments:
            experiment = find(name)
            labels = [model.label for model in experiment.models if model.label in {*part.left, *part.right}]
            chosen = [f"model={label}" for label in labels if "," not in label]
            chosen += [f"language={language}" for language in part.languages]
            only = f" --only '{','.join(chosen)}'" if chosen and len(chosen) < 12 else ""
            corpus = " --corpus CORPUS --suites SUITES" if experiment.text else ""
            found[f"ndstack reproduce {name} --scale paper{only}{corpus} --out runs"] = None
    return [*found, "ndstack gather runs --out results", "ndstack claims results --out docs"]


def draw_claim(entry: Entry) -> Figure | None:
    """Draw every run of every side: filled if it counts, hollow if it was cut short.

    A line shows where a language counts as solved. The result is None if nothing was measured.
    """
    rows: dict[tuple[str, str], Side] = {}
    for decided in entry.decided:
        for side in decided.sides:
            if side.runs and any(metric_of(one, decided.part.metric) is not None for one in side.runs):
                rows.setdefault((side.name, decided.part.metric), side)
    shown = dict(list(rows.items())[:MOST_SIDES])
    if not shown:
        return None
    metrics = list(dict.fromkeys(metric for _, metric in shown))
    figure, grid = plotting.new_grid(len(metrics), 1, 7.0, 0.9 * len(metrics) + 0.28 * len(shown))
    for metric, (axes,) in zip(metrics, grid, strict=True):
        names = [name for name, own in shown if own == metric]
        for place, name in enumerate(names):
            for one in shown[name, metric].runs:
                value = metric_of(one, metric)
                if value is None or not math.isfinite(value):
                    continue
                color = plotting.COLORS[0]
                full = is_solved(one) or is_settled(one)
                axes.plot(value, place, "o", color=color, fillstyle="full" if full else "none", alpha=0.8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_ylim(len(names) - 0.5, -0.5)
        if metric == "difference":
            axes.axvline(SOLVED, color="#888888", linewidth=0.8, linestyle=":")
            axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        axes.set_xlabel(
            metric.replace("_", " ") + " (nats per symbol)" * (metric == "difference"), fontsize=8
        )
    return figure

"""Figures of surprisals word by word, and of syntactic generalization by circuit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ndstack.model_names import label
from ndstack.plotting import label_lines, model_styles, new_axes, new_grid
from ndstack.text.generalization import Averaging, Generalization
from ndstack.text.scoring import ScoredWord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANCE: dict[Averaging, float] = {"dissertation": 0.5, "hu": 0.285}
"""The SG score of random surprisals on the suites of Hu et al. (2020)."""


def draw_surprisals(sentences: Mapping[str, Sequence[Sequence[ScoredWord]]]) -> Figure:
    """Draw the surprisal of each word, with one plot per sentence and one line per model.

    Args:
        sentences: the results of `score_words` by the name of the model, for the same sentences.
    """
    count = len(next(iter(sentences.values())))
    longest = max(len(words) for words in next(iter(sentences.values())))
    figure, grid = new_grid(count, 1, max(4.0, 0.65 * longest + 1.5), 2.6 * count)
    for place, row in enumerate(grid):
        axes = row[0]
        for name, style in model_styles(sentences).items():
            words = sentences[name][place]
            bits = [word.bits for word in words]
            axes.plot(range(len(words)), bits, marker="o", markersize=4, label=label(name), **style)
        texts = [word.text if word.known else f"{word.text}*" for word in words]
        axes.set_xticks(range(len(texts)), texts, rotation=35, ha="right")
        axes.set(ylabel="surprisal (bits)")
        axes.set_ylim(bottom=0)
    if len(sentences) > 1:
        label_lines(figure)
    return figure


def draw_circuits(
    results: Mapping[str, Generalization], averaging: Averaging = "dissertation", chance: float | None = None
) -> Figure:
    """Draw the SG scores by circuit, with one group of bars per circuit and one bar per model.

    Args:
        results: the results by the name of the model.
        averaging: the way of averaging.
        chance: the score of random surprisals, drawn as a line if it is given.
    """
    scores = {name: one.by_circuit(averaging) for name, one in results.items()}
    circuits = list(dict.fromkeys(circuit for own in scores.values() for circuit in own))
    figure, axes = new_axes(max(5.0, 1.3 * len(circuits) + 1.5), 3.6)
    width, styles = 0.8 / max(1, len(scores)), model_styles(scores)
    for index, (name, own) in enumerate(scores.items()):
        places = [at + (index - (len(scores) - 1) / 2) * width for at in range(len(circuits))]
        heights = [own.get(circuit, 0.0) for circuit in circuits]
        axes.bar(places, heights, width, label=label(name), color=styles[name]["color"])
    if chance is not None:
        axes.axhline(chance, color="#888888", linewidth=0.8, linestyle="--", label="chance")
    labels = [circuit.replace(" ", "\n", 1).replace("-Distance ", "-Distance\n") for circuit in circuits]
    axes.set_xticks(range(len(circuits)), labels)
    axes.set(ylabel=f"SG score ({averaging} averaging)", ylim=(0, 1))
    axes.legend()
    return figure

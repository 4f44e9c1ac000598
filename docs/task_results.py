"""The tables of docs/transduction.md and docs/recognition.md, made from results/tasks by docs/results.py."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from ndstack import plotting
from ndstack.experiments import figures
from ndstack.experiments.experiment import Experiment
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import Tables
from ndstack.experiments.registry import read_experiments
from ndstack.experiments.results import Finished
from ndstack.experiments.sheets import Sheet, make_sheet

PAGES = ("transduction.md", "recognition.md")
PICTURES = ("chomsky", "recognition")
SCALES = {"chomsky": "single"}
"""The scale of an experiment whose runs are shown, if it is not the short one."""
PAPER = {
    "RNN": (62.0, 56.0, 41.3, 51.0),
    "LSTM": (60.9, 59.1, 59.2, 67.8),
    "Stack-RNN": (100.0, 100.0, 96.1, 56.2),
    "Tape-RNN": (100.0, 100.0, 95.4, 64.4),
    "Transformer": (62.3, 57.5, 32.5, 25.7),
}
"""Scores of table 2 of Delétang et al. (2023), in the order of the tasks; not compared with the paper yet."""
KINDS = ("inside", "1 edit", "2 edits", "3 edits", "uniform")


def shown(name: str, scale: str | None = None) -> Experiment:
    """An experiment that ships, at a scale, or at that whose runs are shown."""
    file = "recognition" if name == "modelling" else name
    found = next(one for one in read_experiments(Path(file)) if one.name == name)
    return found.at(scale or SCALES.get(name, "short"))


class Tasks:
    """The parts that are made."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def chomsky(self) -> str:
        """Scores on long inputs; in brackets, the accuracy on inputs of the training lengths.

        Where the run is not complete, the short one stands in, with a star.
        """
        experiment, runs = self._runs("chomsky")
        brief = runs_of(self.tables, shown("chomsky", "short"))
        rows: list[list[str | float | int | None]] = []
        for model in experiment.models:
            row: list[str | float | int | None] = [model.label]
            for language in experiment.languages:
                long, short = (
                    [one for one in some if (one.label, one.language) == (model.label, language)]
                    for some in (runs, brief)
                )
                score = _beside(long)
                row.append(score if score != "-" else f"{_beside(short)} *".replace("- *", "-"))
            rows.append(row)
        rows += [[f"{name} (paper)", *(f"{score:.1f}" for score in scores)] for name, scores in PAPER.items()]
        return Sheet(["", *experiment.languages], rows).markdown()

    def questions(self) -> str:
        """Shares of outputs by the rule that they follow."""
        experiment, runs = self._runs("questions")
        sheet = make_sheet(experiment.outputs[0], experiment, runs)
        assert sheet is not None
        return sheet.markdown()

    def recognition(self) -> str:
        """Accuracy of recognisers, and the difference to the lower bound of language models."""
        experiment, runs = self._runs("recognition")
        _, models = self._runs("modelling")
        rows: list[list[str | float | int | None]] = []
        for model in experiment.models:
            row: list[str | float | int | None] = [model.label]
            for language in experiment.languages:
                place = (model.label, language)
                for some, name in ((runs, "test_accuracy"), (models, "test_difference")):
                    found = [getattr(one.record, name) for one in some if (one.label, one.language) == place]
                    row.append(f"{statistics.fmean(found):.3f}" if found and None not in found else "-")
            rows.append(row)
        pairs = [(f"{one}: accuracy", "nats") for one in experiment.languages]
        return Sheet(["", *(name for pair in pairs for name in pair)], rows).markdown()

    def kinds(self) -> str:
        """Accuracy of recognisers by the kind of string, over all languages."""
        experiment, runs = self._runs("recognition")
        rows: list[list[str | float | int | None]] = []
        for model in experiment.models:
            mine = [one.record.accuracy_by_kind for one in runs if one.label == model.label]
            row = [[one[kind] for one in mine if kind in one] for kind in KINDS]
            rows.append([model.label, *(f"{statistics.fmean(some):.3f}" if some else "-" for some in row)])
        return Sheet(["", *KINDS], rows).markdown()

    def draw(self, folder: Path) -> None:
        """Draw accuracy by length."""
        for name in PICTURES:
            experiment, runs = self._runs(name)
            figure = figures.draw_figure(experiment.outputs[0], experiment, runs)
            assert figure is not None
            plotting.save_figure(figure, folder / f"{name}-{SCALES.get(name, 'short')}.svg")

    def _runs(self, name: str) -> tuple[Experiment, list[Finished]]:
        experiment = shown(name)
        return experiment, runs_of(self.tables, experiment)


def _beside(runs: Sequence[Finished]) -> str:
    """The score on the test lengths and the accuracy at validation of the best run that is complete."""
    complete = [one for one in runs if one.record.test_accuracy is not None]
    if not complete:
        return "-"
    record = min(complete, key=lambda one: one.score).record
    assert record.test_accuracy is not None
    assert record.accuracy is not None
    return f"{100 * record.test_accuracy:.1f} ({100 * record.accuracy:.1f})"

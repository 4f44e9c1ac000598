"""Tables of our numbers beside the dissertation's, as Markdown and CSV."""

import csv
import dataclasses
import io
import statistics
from collections.abc import Sequence

from ndstack.experiments.experiment import Experiment, Output
from ndstack.experiments.results import Finished, perplexity, select

Cell = str | float | int | None


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table."""

    columns: list[str]
    rows: list[list[Cell]]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[show_cell(cell).replace("|", "\\|") for cell in row] for row in self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def csv(self) -> str:
        """Return the table as CSV, in which numbers have all digits."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if cell is None else cell for cell in row] for row in self.rows])
        return buffer.getvalue()


def show_cell(cell: Cell) -> str:
    """Return a cell as text, in which numbers are rounded."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4f}" if abs(cell) < 1 else f"{cell:.2f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def as_printed(cell: Cell) -> Cell:
    """Return a cell with as many digits as in the dissertation: perplexities have two, scores three."""
    return cell if not isinstance(cell, float) else f"{cell:.3f}" if cell < 1 else f"{cell:.2f}"


def make_sheet(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Sheet | None:
    """Return the table of an output, or the numbers in a figure; None if it has no table."""
    if output.kind in ("curves", "accuracy"):
        return _by_language(output, experiment, runs)
    if output.kind == "generalization":
        return _generalization(output, experiment, runs)
    if output.kind == "capacity":
        return _capacity(output, experiment, runs)
    if output.kind in ("times", "perplexity", "circuits"):
        return _beside(output, experiment, runs)
    if output.kind == "scatter":
        chosen = [one for one in runs if one.label in experiment.shown_models(output)]
        rows: list[list[Cell]] = [
            [one.label, one.restart, one.record.test_perplexity, one.record.sg_score] for one in chosen
        ]
        return Sheet(["Model", "Restart", "Test perplexity", "SG score"], rows)
    return None


def trials_sheet(runs: Sequence[Finished]) -> Sheet:
    """Return a table with a row for each complete trial."""
    rows: list[dict[str, Cell]] = []
    for one in runs:
        record, training = one.record, one.record.settings.training
        rows.append(
            {
                "Trial": record.id,
                "Model": one.label,
                "Language": one.language,
                "Parameters": record.parameters,
                "Learning rate": training.learning_rate,
                "Clip": training.clip,
                "Seed": str(record.seed),
                "Epochs": record.epochs,
                "Best epoch": record.best_epoch,
                "Validation": one.score,
                "Seconds per epoch": record.seconds / record.epochs,
                "Seconds": record.seconds,
                "Updates": record.updates,
                "Stages before": " ".join("{}:{}".format(*stage.lengths) for stage in training.stages),
            }
        )
    return Sheet(list(rows[0]) if rows else ["Trial"], [list(row.values()) for row in rows])


def _by_language(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Sheet:
    """Return the mean of the selected runs, with rows for models and columns for languages.

    It is that of validation differences, or of test accuracies.
    """
    tongues, rows = experiment.shown_languages(output), []
    for label in experiment.shown_models(output):
        row: list[Cell] = [label]
        for language in tongues:
            mine = [one for one in runs if one.label == label and one.language == language]
            chosen = select(mine, output.select)
            numbers = [one.record.test_accuracy if output.kind == "accuracy" else one.score for one in chosen]
            known = [number for number in numbers if number is not None]
            row.append(statistics.fmean(known) if known else None)
        rows.append(row)
    return Sheet(["Model", *tongues], rows)


def _generalization(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Sheet:
    """Return the shares of outputs by the rule that they follow: the mean of runs, and each run."""
    kinds = ("hierarchical", "linear", "other", "entirely correct")
    rows: list[list[Cell]] = []
    for label in experiment.shown_models(output):
        chosen = select([one for one in runs if one.label == label], output.select)
        shares = [one.record.generalization for one in chosen if one.record.generalization]
        means = [statistics.fmean(one.get(kind, 0.0) for one in shares) if shares else None for kind in kinds]
        each = " ".join(f"{one.get('hierarchical', 0.0):.2f}" for one in shares)
        rows.append([label, len(shares), *means, each])
    return Sheet(["Model", "Runs", *map(str.capitalize, kinds), "Hierarchical in each run"], rows)


def _capacity(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Sheet:
    """Return the statistic of a figure by language, model and alphabet size."""
    rows: list[list[Cell]] = []
    for language in experiment.shown_languages(output):
        for label in experiment.shown_models(output):
            row: list[Cell] = [language, label]
            for size in experiment.alphabet_sizes:
                scores = [
                    one.score
                    for one in runs
                    if one.label == label and one.language == f"{language}(k={size})"
                ]
                row.append(_statistic(output, scores))
            rows.append(row)
    return Sheet(["Language", "Model", *(f"k = {size}" for size in experiment.alphabet_sizes)], rows)


def _statistic(output: Output, scores: Sequence[float]) -> float | None:
    if not scores:
        return None
    if output.statistic == "best":
        return min(scores)
    return statistics.fmean(scores) if output.statistic == "mean" else statistics.pstdev(scores)


def _beside(output: Output, experiment: Experiment, runs: Sequence[Finished]) -> Sheet:
    """Return our numbers and the dissertation's in adjacent columns."""
    columns = [part for name in output.columns for part in (name, f"{name} (dissertation)")]
    rows: list[list[Cell]] = []
    for label in experiment.shown_models(output):
        chosen = select([one for one in runs if one.label == label], output.select)
        ours = _ours(output, chosen) if chosen else [None] * len(output.columns)
        printed = [as_printed(cell) for cell in output.printed.get(label, [None] * len(output.columns))]
        rows.append([label, *(cell for pair in zip(ours, printed, strict=True) for cell in pair)])
    return Sheet(["Model", *columns], rows)


def _ours(output: Output, chosen: Sequence[Finished]) -> list[Cell]:
    if output.kind == "times":
        epochs = [epoch for one in chosen for epoch in one.curve]
        worked = [one.processor_seconds for one in epochs if one.processor_seconds is not None]
        seconds = worked or [one.seconds for one in epochs if one.seconds is not None]
        return [statistics.fmean(seconds) if seconds else None]
    best = chosen[0]
    if output.kind == "circuits":
        return [best.record.circuits.get(name) for name in output.columns]
    known: dict[str, Cell] = {
        "# Params": best.record.parameters,
        "Val": perplexity(best),
        "Test": best.record.test_perplexity,
        "SG Score": best.record.sg_score,
    }
    return [known[name.rstrip(".")] for name in output.columns]

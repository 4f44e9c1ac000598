"""What was spent on each label and language, and whether it was as much for all that are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ndstack.experiments.estimate import show_seconds
from ndstack.experiments.experiment import Experiment
from ndstack.experiments.groups import Spent, members, spent
from ndstack.experiments.jobs import Measure
from ndstack.experiments.sheets import Cell, Sheet
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial


def sheet(
    folder: SweepFolder,
    experiment: Experiment,
    trials: Sequence[Trial],
    measures: tuple[Measure, ...],
    reasons: Mapping[str, str],
) -> Sheet:
    """A row for each group: runs, what they spent, and what came of it."""
    columns = [
        "Model",
        "Language",
        "Trials",
        "Complete",
        "Known from tables",
        "Not needed",
        "Epochs",
        "Updates",
        "Seconds",
        "Best",
    ]
    if experiment.until is not None:
        columns.append(f"Within {experiment.until.difference:g}")
    if experiment.budget is not None:
        columns += ["Budget", "Share of the budget", "Budget spent"]
    rows: list[list[Cell]] = []
    for (label, language), mine in members(trials).items():
        total = spent(folder, mine, measures, experiment.extend)
        best = None if math.isinf(total.best) else total.best
        left_out = sum(trial.id in reasons for trial in mine)
        row: list[Cell] = [label, language, len(mine), total.complete, total.known, left_out]
        row += [total.epochs, total.updates, round(total.seconds, 1), best]
        if experiment.until is not None:
            row.append(sum(score <= experiment.until.difference for score in total.scores))
        if experiment.budget is not None:
            share = _share(experiment, total)
            row += [_budget(experiment), share, "yes" if share >= 1 else "no"]
        rows.append(row)
    return Sheet(columns, rows)


def about(
    folder: SweepFolder, experiment: Experiment, trials: Sequence[Trial], measures: tuple[Measure, ...]
) -> str:
    """Whether models that are compared on a language had equal budgets, in a sentence or two."""
    if experiment.budget is None:
        return "No budget is set: each model has as many runs as the table says."
    short: list[str] = []
    for (label, language), mine in members(trials).items():
        total = spent(folder, mine, measures, experiment.extend)
        solved = experiment.until is not None and total.best <= experiment.until.difference
        if _share(experiment, total) < 1 and not solved:
            short.append(f"{label} on {language}")
    budget = _budget(experiment)
    text = f"Each model has a budget of {budget} on each language; the run that exceeds it is completed."
    if not short:
        return f"{text} All have spent it or succeeded: the comparison is at equal budgets."
    return f"{text} Not at equal budgets yet: {', '.join(short)}."


def _share(experiment: Experiment, total: Spent) -> float:
    budget = experiment.budget
    assert budget is not None
    if budget.epochs is not None:
        return total.epochs / budget.epochs
    return total.seconds / (budget.seconds or math.inf)


def _budget(experiment: Experiment) -> str:
    budget = experiment.budget
    assert budget is not None
    return f"{budget.epochs:,} epochs" if budget.epochs is not None else show_seconds(budget.seconds or 0.0)

"""What was spent on each label and language, and whether all that are compared had equal budgets."""

import math
from collections.abc import Mapping, Sequence

from ndstack.experiments.estimate import show_seconds
from ndstack.experiments.experiment import Budget, Experiment
from ndstack.experiments.groups import Spent, members, spent
from ndstack.experiments.jobs import Measure
from ndstack.experiments.sheets import Cell, Sheet
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial

COLUMNS = (
    "Model", "Language", "Trials", "Complete", "Known from tables", "Not needed", "Epochs", "Updates",
    "Seconds", "Best",
)  # fmt: skip


def describe_spending(
    folder: SweepFolder,
    experiment: Experiment,
    trials: Sequence[Trial],
    measures: tuple[Measure, ...],
    reasons: Mapping[str, str],
) -> tuple[Sheet, str]:
    """Return a table with a row for each group, and a sentence about whether budgets were equal.

    `reasons` has the trials that are not needed.
    """
    until, budget, columns = experiment.until, experiment.budget, list(COLUMNS)
    if until is not None:
        columns.append(f"Within {until.difference:g}")
    if budget is not None:
        columns += ["Budget", "Share of the budget", "Budget spent"]
    rows: list[list[Cell]] = []
    short: list[str] = []
    for (label, language), mine in members(trials).items():
        total = spent(folder, mine, measures, experiment.extend)
        best = None if math.isinf(total.best) else total.best
        left_out = sum(trial.id in reasons for trial in mine)
        row: list[Cell] = [label, language, len(mine), total.complete, total.known, left_out]
        row += [total.epochs, total.updates, round(total.seconds, 1), best]
        if until is not None:
            row.append(sum(score <= until.difference for score in total.scores))
        if budget is not None:
            share = _share(budget, total)
            row += [_show(budget), share, "yes" if share >= 1 else "no"]
            if share < 1 and (until is None or total.best > until.difference):
                short.append(f"{label} on {language}")
        rows.append(row)
    return Sheet(columns, rows), _about(budget, short)


def _about(budget: Budget | None, short: Sequence[str]) -> str:
    if budget is None:
        return "There is no budget; the table shows how many runs each model has."
    text = (
        f"Each model has a budget of {_show(budget)} on each language; the run that exceeds it is completed."
    )
    if not short:
        return f"{text} All models have spent it or succeeded, so the comparison is at equal budgets."
    return f"{text} These have not spent it yet: {', '.join(short)}."


def _share(budget: Budget, total: Spent) -> float:
    if budget.epochs is not None:
        return total.epochs / budget.epochs
    return total.seconds / (budget.seconds or math.inf)


def _show(budget: Budget) -> str:
    return f"{budget.epochs:,} epochs" if budget.epochs is not None else show_seconds(budget.seconds or 0.0)

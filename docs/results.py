"""Writes the numbers and pictures of docs/results.md again from the tables: `python docs/results.py`.

So it does for the pages about tasks, whose tables are in results/tasks (`docs/task_results.py`).

What stands between `<!-- made: NAME -->` and `<!-- /made -->` is replaced; the text around it is not.
"""

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from task_results import PAGES, Tasks

from ndstack import files, plotting
from ndstack.experiments import figures
from ndstack.experiments.claims import decide, read_claims
from ndstack.experiments.claims.evidence import (
    PATIENCE,
    SOLVED,
    TEXT_PATIENCE,
    is_settled,
    is_solved,
    metric_of,
)
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import Record, Tables
from ndstack.experiments.registry import find
from ndstack.experiments.results import Finished

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
PICTURES = ("figure-6.1", "figure-8.1", "figure-8.2", "figure-10.2")
CFLS = ("marked-reversal", "unmarked-reversal", "padded-reversal", "dyck", "hardest-cfl")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(runs: Sequence[Finished]) -> str:
    """Validation and test of the best run, in italics if it was cut short; runs solved, and all runs."""
    if not runs:
        return "-"
    best = min(runs, key=lambda one: one.score)
    test = best.record.test_difference
    value = f"{best.score:.3f}" + ("" if test is None else f", {test:.3f}")
    shown = value if is_solved(best) or is_settled(best) else f"*{value}*"
    return f"{shown} ({sum(map(is_solved, runs))} of {len(runs)})"


def median(values: Sequence[float]) -> str:
    """Minutes, or nothing."""
    return f"{statistics.median(values) / 60:.0f}" if values else "-"


class Page:
    """The parts that are made."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def by_language(self, name: str) -> str:
        """Languages down, models across."""
        experiment = find(name)
        runs, labels = runs_of(self.tables, experiment), [model.label for model in experiment.models]
        rows = [
            [language, *(cell(_chosen(runs, label, language)) for label in labels)]
            for language in experiment.languages
        ]
        return table(["", *labels], rows)

    def summary(self) -> str:
        """How much there is."""
        runs = self.tables.runs.values()
        verdicts = [not one.verdict.startswith("undecided") for one in decide(read_claims(), self.tables)]
        hours = sum(one.seconds for one in runs) / 3600
        cut = sum(one.waited < (TEXT_PATIENCE if one.is_text else PATIENCE) for one in runs)
        return (
            f"{len(runs)} runs, {hours:.1f} hours of training, {cut} of the runs cut short by a limit of "
            f"epochs or by hand; {sum(verdicts)} of {len(verdicts)} [claims](claims.md) are decided.\n"
        )

    def cfls(self) -> str:
        """Validation and test, figure 6.1."""
        return self.by_language("cfls")

    def ns_cfls(self) -> str:
        """Validation and test, figure 5.3."""
        return self.by_language("ns-cfls")

    def restarts(self) -> str:
        """How often the RNS-RNN learns a language, with the recipe as it stands and with stages."""
        experiment, rows = find("cfls"), []
        plain = runs_of(self.tables, experiment)
        staged = runs_of(self.tables, experiment, staged=True)
        for language in CFLS:
            row = [language]
            for runs in (plain, staged):
                mine = _chosen(runs, "NS+S+U", language)
                counted = [one for one in mine if is_solved(one) or is_settled(one)]
                minutes = [one.record.seconds / 60 for one in mine if is_solved(one)]
                solved, cut = sum(map(is_solved, mine)), len(mine) - len(counted)
                row.append(f"{solved} of {len(counted)}" + f", {cut} cut short" * bool(cut) if mine else "-")
                row.append(f"{min(minutes):.0f}" if minutes else "-")
            rows.append(row)
        return table(["RNS", "recipe: solved", "minutes", "with stages: solved", "minutes"], rows)

    def staged(self) -> str:
        """Runs with stages: how many there are, how many solved their language, and how long they took."""
        groups: dict[tuple[str, str], list[Record]] = {}
        for one in self.tables.runs.values():
            if one.stages:
                groups.setdefault((one.language, one.model), []).append(one)
        rows = []
        for (language, model), mine in sorted(groups.items()):
            best = min(mine, key=lambda one: one.score)
            test = "-" if best.test_difference is None else f"{best.test_difference:.3f}"
            solved = f"{sum(one.score < SOLVED for one in mine)} of {len(mine)}"
            rows.append(
                [language, model, solved, f"{best.score:.3f}", test, median([r.seconds for r in mine])]
            )
        return table(["language", "model", "solved", "best, validation", "test", "median minutes"], rows)

    def superposition(self) -> str:
        """Superposition stacks by size, on the languages of figure 6.1."""
        names = ("sup-2", "sup-10", "sup-20", "sup-40")
        rows = []
        for language in CFLS:
            row = [language]
            for name in names:
                mine = [
                    one
                    for one in self.tables.runs.values()
                    if (one.model, one.language, one.stages) == (name, language, "")
                    and one.settings.training.eos
                ]
                solved = sum(one.score < SOLVED for one in mine)
                best = f"{min(one.score for one in mine):.4f} ({solved} of {len(mine)})" if mine else "-"
                row.append(best)
            rows.append(row)
        return table(["", *names], rows)

    def attention(self) -> str:
        """Validation and test, figure 10.2."""
        return self.by_language("stack-attention")

    def non_cfls(self) -> str:
        """Validation and test, figures 8.1 and 8.2."""
        return self.by_language("non-cfls")

    def capacity(self) -> str:
        """Validation with 200 symbols, figures 9.1 to 9.3."""
        experiment = find("capacity")
        runs, labels = runs_of(self.tables, experiment), [model.label for model in experiment.models]
        names = [f"{language}(k={experiment.alphabet_sizes[-1]})" for language in experiment.languages]
        rows = [[name, *(cell(_chosen(runs, label, name)) for label in labels)] for name in names]
        return table(["", *labels], rows)

    def verdicts(self) -> str:
        """What was decided, claim by claim."""
        entries = [one for one in decide(read_claims(), self.tables) if one.is_decided]
        if not entries:
            return "No claim has three complete runs on each side yet.\n"
        rows = [
            [f"[{one.claim.id}](claims.md#{one.claim.id.lower()})", one.claim.text, one.verdict]
            for one in entries
        ]
        return table(["", "claim", "verdict"], [[cell.replace("|", "\\|") for cell in row] for row in rows])

    def ptb(self) -> str:
        """Perplexity and SG score of the best run of each model, beside table 9.1."""
        experiment = find("ptb-vectors")
        printed = experiment.outputs[0].printed
        runs, rows = runs_of(self.tables, experiment), []
        for model in experiment.models:
            mine = [one for one in runs if one.label == model.label]
            if not mine:
                continue
            best = min(mine, key=lambda one: one.score).record
            circuits = [f"{best.circuits[name]:.3f}" if name in best.circuits else "-" for name in CIRCUITS]
            numbers = [best.perplexity, best.test_perplexity]
            shown = ["-" if value is None else f"{value:.2f}" for value in numbers]
            score = "-" if best.sg_score is None else f"{best.sg_score:.3f}"
            theirs = [f"{value:.2f}" for value in printed[model.label]]
            rows.append([model.label, str(len(mine)), *shown, *theirs, score, *circuits])
        columns = ["", "runs", "validation", "test", "theirs, validation", "theirs, test", "SG", *CIRCUITS]
        return table(columns, rows)

    def times(self) -> str:
        """Seconds per epoch on marked reversal, beside table 6.1."""
        experiment = find("times")
        printed = experiment.outputs[0].printed
        runs, rows = runs_of(self.tables, experiment), []
        for model in experiment.models:
            mine = [one for one in runs if one.label == model.label]
            worked = [value for one in mine if (value := metric_of(one, "processor_seconds")) is not None]
            epochs = sum(one.record.epochs for one in mine)
            clock = f"{sum(one.record.seconds for one in mine) / epochs:.1f}" if epochs else "-"
            shown = f"{statistics.fmean(worked):.1f} ({len(worked)})" if worked else "-"
            rows.append([model.label, shown, f"{clock} ({len(mine)})", f"{printed[model.label][0]:,}"])
        return table(["", "processor seconds (runs)", "by the clock (runs)", "theirs"], rows)


CIRCUITS = ("Agr.", "Lic.", "GPE", "GSE", "CE", "LDD")


def _chosen(runs: Sequence[Finished], label: str, language: str) -> list[Finished]:
    return [one for one in runs if one.label == label and one.language == language]


def fill(text: str, page: Page | Tasks) -> str:
    """The text with all its parts made again."""

    def make(found: re.Match[str]) -> str:
        name = found.group(1)
        return f"<!-- made: {name} -->\n{getattr(page, name)()}<!-- /made -->"

    return re.sub(r"<!-- made: (\w+) -->\n.*?<!-- /made -->", make, text, flags=re.S)


def main() -> None:
    """Write the page and its pictures."""
    tables = Tables.read(RESULTS)
    path = HERE / "results.md"
    files.replace(path, fill(path.read_text(encoding="utf-8"), Page(tables)).encode())
    for label in PICTURES:
        experiment = find(label)
        output = next(one for one in experiment.outputs if one.label == label)
        figure = figures.draw_figure(output, experiment, runs_of(tables, experiment))
        if figure is not None:
            plotting.save_figure(figure, HERE / "results" / f"{label}.svg")
    tasks = Tasks(Tables.read(RESULTS / "tasks"))
    for name in PAGES:
        path = HERE / name
        files.replace(path, fill(path.read_text(encoding="utf-8"), tasks).encode())
    tasks.draw(HERE / "results")


if __name__ == "__main__":
    main()

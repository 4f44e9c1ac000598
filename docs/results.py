"""Writes the numbers and pictures of docs/results.md again from the tables: `python docs/results.py`.

What stands between `<!-- made: NAME -->` and `<!-- /made -->` is replaced; the text around it is not.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from ndstack import files, plotting
from ndstack.experiments import figures
from ndstack.experiments.claims import decide, read_claims
from ndstack.experiments.claims.evidence import PATIENCE, SOLVED, TEXT_PATIENCE, is_settled, is_solved
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import Tables
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
    """The best validation difference, in italics if that run was cut short; runs solved, and all runs."""
    if not runs:
        return "-"
    best = min(runs, key=lambda one: one.score)
    value = f"{best.score:.4f}"
    shown = value if is_solved(best) or is_settled(best) else f"*{value}*"
    return f"{shown} ({sum(map(is_solved, runs))} of {len(runs)})"


def test_cell(runs: Sequence[Finished]) -> str:
    """The test difference of the best run by validation."""
    if not runs:
        return "-"
    value = min(runs, key=lambda one: one.score).record.test_difference
    return "-" if value is None else f"{value:.3f}"


class Page:
    """The parts that are made."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def by_language(
        self, name: str, languages: Sequence[str], labels: Sequence[str], show: Callable[..., str] = cell
    ) -> str:
        """Languages down, models across."""
        runs = runs_of(self.tables, find(name))
        rows = [
            [language, *(show(_chosen(runs, label, language)) for label in labels)] for language in languages
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
        """Validation, figure 6.1."""
        return self.by_language("cfls", CFLS, ("LSTM", "Strat.", "Sup.", "NS", "NS+S", "NS+U", "NS+S+U"))

    def cfls_test(self) -> str:
        """Test, figure 6.1."""
        labels = ("LSTM", "Strat.", "Sup.", "NS", "NS+S", "NS+U", "NS+S+U")
        return self.by_language("cfls", CFLS, labels, test_cell)

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
        """All runs with stages."""
        runs = sorted(
            (one for one in self.tables.runs.values() if one.stages),
            key=lambda one: (one.language, one.model, one.score),
        )
        rows = [
            [
                one.language,
                one.model,
                one.stages.replace(",", ", "),
                f"{one.score:.4f} ({one.best_epoch} of {one.epochs})",
                "-" if one.test_difference is None else f"{one.test_difference:.3f}",
                f"{one.seconds / 60:.0f}",
            ]
            for one in runs
        ]
        return table(["language", "model", "stages", "validation (epoch)", "test", "minutes"], rows)

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
        """Validation, figure 10.2."""
        labels = ("RNS", "Trans.", "Trans. + Sup.", "Trans. + VRNS")
        return self.by_language("stack-attention", CFLS, labels)

    def attention_test(self) -> str:
        """Test, figure 10.2."""
        labels = ("RNS", "Trans.", "Trans. + Sup.", "Trans. + VRNS")
        return self.by_language("stack-attention", CFLS, labels, test_cell)

    def non_cfls(self) -> str:
        """Figures 8.1 and 8.2."""
        labels = ("LSTM", "Sup. 10", "Sup. 3-3-3", "Sup. h", "RNS 3-3")
        return self.by_language("non-cfls", find("non-cfls").languages, labels)

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
            mine = [one.record for one in runs if one.label == model.label]
            epochs = sum(one.epochs for one in mine)
            ours = f"{sum(one.seconds for one in mine) / epochs:.1f}" if epochs else "-"
            rows.append([model.label, str(len(mine)), ours, f"{printed[model.label][0]:,}"])
        return table(["", "runs", "seconds per epoch", "theirs"], rows)


CIRCUITS = ("Agr.", "Lic.", "GPE", "GSE", "CE", "LDD")


def _chosen(runs: Sequence[Finished], label: str, language: str) -> list[Finished]:
    return [one for one in runs if one.label == label and one.language == language]


def fill(text: str, page: Page) -> str:
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
        figure = figures.draw(output, experiment, runs_of(tables, experiment))
        if figure is not None:
            plotting.save_figure(figure, HERE / "results" / f"{label}.svg")


if __name__ == "__main__":
    main()

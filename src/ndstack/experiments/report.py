"""A report: figures as SVG and PNG, tables as Markdown and CSV, and one page with everything on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ndstack import files, plotting
from ndstack.errors import NdstackError
from ndstack.experiments import estimate, figures, sheets, spending
from ndstack.experiments.experiment import PAPER, Experiment, Output
from ndstack.experiments.groups import not_needed
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import Tables, is_tables
from ndstack.experiments.registry import ORDER, all_experiments, find
from ndstack.experiments.report_page import Section, render_page
from ndstack.experiments.results import Finished, finished
from ndstack.experiments.sweep import measures_of
from ndstack.experiments.sweep_folder import Planned, SweepFolder
from ndstack.experiments.trials import Trial, expand
from ndstack.processes import cores
from ndstack.training.run import ENVIRONMENT


@dataclasses.dataclass(frozen=True)
class Report:
    """A report that was written."""

    index: Path
    outputs: list[str]
    """Labels of figures and tables."""
    trials: int
    complete: int
    not_needed: int
    """Trials that are not run, since their group has ended."""
    known: int = 0
    """Complete trials that are known from tables of runs that were made elsewhere."""

    @property
    def counts(self) -> str:
        """How many trials are complete, in words."""
        known = f", {self.known} of them known from tables" if self.known else ""
        rest = f", {self.not_needed} not needed" if self.not_needed else ""
        return f"{self.complete} of {self.trials} trials complete{known}{rest}"


def make_report(folder: SweepFolder | Path, out: Path | None = None) -> Report:
    """Draw everything that the runs in a folder allow.

    Args:
        folder: of one or more experiments, or of tables that `ndstack gather` made.
        out: where the report goes; `report/` in the folder if not given.
    """
    if not isinstance(folder, SweepFolder):
        folder = SweepFolder(folder)
    out = out or folder.folder / "report"
    return _of_tables(folder.folder, out) if is_tables(folder.folder) else _of_sweep(folder, out)


def _of_tables(folder: Path, out: Path) -> Report:
    """All figures and tables of the dissertation, from the runs that have its settings."""
    read = Tables.read(folder)
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Section] = []
    labels: list[str] = []
    shown: set[str] = set()
    for experiment in all_experiments():
        runs = runs_of(read, experiment)
        shown |= {one.record.id for one in runs}
        facts = {"runs": str(len(runs)), "time spent": _spent(runs)}
        about = f"Section {experiment.section}. {experiment.name}. {experiment.about}".strip()
        parts.append(Section(experiment.title, about, facts=facts, level=2))
        for output in experiment.outputs:
            labels.append(output.label)
            parts.append(_part(out, output.label, output, experiment, runs))
    text = f"{len(read.runs)} runs; {len(shown)} of them have the settings of the dissertation's experiments."
    _write(out / "index.html", render_page(files.real_path(folder).name, text, parts))
    complete = sum(one.complete for one in read.runs.values())
    return Report(out / "index.html", labels, len(read.runs), complete, not_needed=0)


def _of_sweep(folder: SweepFolder, out: Path) -> Report:
    several = len(plans := folder.planned()) > 1
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Section] = []
    labels: list[str] = []
    total = complete = known = left_out = 0
    for plan in plans:
        trials, measures = expand(plan.experiment), measures_of(plan.experiment)
        runs = finished(folder, trials, measures, plan.experiment.extend)
        reasons = not_needed(folder, trials, plan.experiment, measures)
        total, complete, left_out = total + len(trials), complete + len(runs), left_out + len(reasons)
        known += sum(one.run is None for one in runs)
        facts = _facts(folder, plan, trials, runs, reasons)
        parts.append(
            Section(plan.experiment.title or plan.experiment.name, _about(plan), facts=facts, level=2)
        )
        prefix = f"{plan.experiment.name}-{plan.scale}-" if several else ""
        for output in plan.experiment.outputs:
            labels.append(prefix + output.label)
            parts.append(_part(out, prefix + output.label, output, plan.experiment, runs))
        parts.append(_spending(out, prefix, folder, plan.experiment, trials, reasons))
        sheet = sheets.trials_sheet(runs)
        _write(out / f"{prefix}trials.csv", sheet.csv())
        parts.append(
            Section("Trials", f"All complete trials, also in {prefix}trials.csv.", sheet=sheet, folded=True)
        )
        parts += _failures(folder, trials)
    name = files.real_path(folder.folder).name
    made = Report(out / "index.html", labels, total, complete, left_out, known)
    _write(made.index, render_page(name, f"{made.counts}.", parts))
    return made


def _part(out: Path, name: str, output: Output, experiment: Experiment, runs: list[Finished]) -> Section:
    """One figure or table, written to its files."""
    figure = figures.draw_figure(output, experiment, runs)
    svg = ""
    if figure is not None:
        svg = plotting.render(figure, "svg").decode()
        files.replace(out / f"{name}.svg", svg.encode())
        files.replace(out / f"{name}.png", plotting.render(figure, "png"))
    sheet = sheets.make_sheet(output, experiment, runs)
    if sheet is not None:
        _write(out / f"{name}.md", sheet.markdown())
        _write(out / f"{name}.csv", sheet.csv())
    number = output.label.replace("-", " ").capitalize()
    title = f"{number}: {output.title}" if output.title else number
    return Section(title, _caption(output, experiment, runs), svg=svg, sheet=sheet, folded=bool(svg))


def _caption(output: Output, experiment: Experiment, runs: list[Finished]) -> str:
    """The note of an output, and how many runs there are behind each of its lines."""
    counts = []
    for label in experiment.shown_models(output):
        mine = [one for one in runs if one.label == label]
        by_language = [
            sum(one.record.is_text or one.record.base_language == language for one in mine)
            for language in experiment.shown_languages(output)
        ]
        low, high = min(by_language), max(by_language)
        counts.append(f"{label}: {low}" if low == high else f"{label}: {low} to {high}")
    what = "a language" if len(experiment.shown_languages(output)) > 1 else "each"
    return f"{output.note} Runs ({what}): {'; '.join(counts)}.".strip()


def _spent(runs: list[Finished]) -> str:
    spent = sum(one.record.seconds for one in runs)
    return f"{estimate.show_seconds(spent)} of one core, in training"


def _about(plan: Planned) -> str:
    experiment, scale = plan.experiment, plan.full.scales.get(plan.scale)
    section = f"Section {experiment.section}. " if experiment.section else ""
    note = f" ({scale.about})" if scale is not None and scale.about else ""
    at = f" at the scale {plan.scale}" if plan.full.scales else ""
    return f"{section}{experiment.name}{at}{note}. {experiment.about}".strip()


def _spending(
    out: Path,
    prefix: str,
    folder: SweepFolder,
    experiment: Experiment,
    trials: list[Trial],
    reasons: dict[str, str],
) -> Section:
    """What the runs of each label on each language spent, against their budget."""
    measures = measures_of(experiment)
    sheet = spending.sheet(folder, experiment, trials, measures, reasons)
    _write(out / f"{prefix}spent.csv", sheet.csv())
    text = f"{spending.about(folder, experiment, trials, measures)} Also in {prefix}spent.csv."
    return Section("What was spent", text, sheet=sheet, folded=True)


def _facts(
    folder: SweepFolder, plan: Planned, trials: list[Trial], runs: list[Finished], reasons: dict[str, str]
) -> dict[str, str]:
    """Trials, seeds, versions, time spent, and the time at full scale."""
    known = sum(one.run is None for one in runs)
    left_out = (f", {known} of them known from tables" if known else "") + (
        f", {len(reasons)} not needed" if reasons else ""
    )
    facts = {
        "trials": f"{len(runs)} of {len(trials)} complete{left_out}",
        "seed of the sweep": str(plan.experiment.seed),
    }
    facts["time spent"] = _spent(runs)
    facts |= _full_scale(folder, plan, trials)
    for key, values in _environments(runs).items():
        facts[key] = ", ".join(sorted(values))
    return facts


def _full_scale(folder: SweepFolder, plan: Planned, trials: list[Trial]) -> dict[str, str]:
    """How long the experiment would take at full scale: here, and by the dissertation's table 6.1."""
    full = expand(plan.full.at(PAPER))
    printed: dict[str, float] = {}
    if plan.full.name in ORDER:
        (table,) = find("times").outputs
        printed = {label: float(row[0]) for label, row in table.printed.items() if isinstance(row[0], int)}
    found = estimate.full_scale(folder, trials, full, printed)
    if found is None:
        why = "not every kind of model was trained on the full data here"
        return {"at full scale": f"{len(full):,} trials; {why}"}
    here, most = f"the {cores()} cores of this machine", estimate.show_seconds(found.most / cores())
    text = f"{len(full):,} trials would take {most} on {here} with all epochs that are allowed"
    if found.likely is not None:
        likely = estimate.show_seconds(found.likely / cores())
        text += f", {likely} with as many as the trials here took"
    facts = {"at full scale": f"{text}; {found.pairs} pairs of model and language were measured"}
    if found.elsewhere is not None:
        there, epochs = estimate.show_seconds(found.elsewhere), "all" if found.likely is None else "as many"
        facts["in the dissertation"] = f"{there} of one CPU or GPU with {epochs} epochs, by table 6.1"
    return facts


def _environments(runs: list[Finished]) -> dict[str, set[str]]:
    """The versions and machines that the runs had, each value once."""
    found: dict[str, set[str]] = {}
    for one in runs:
        path = None if one.run is None else one.run.folder / ENVIRONMENT
        if path is None or not path.exists():
            continue
        values = files.read_json(path)
        if not isinstance(values, dict):
            raise NdstackError(f"{path} is damaged: expected JSON with versions and machine")
        for key, value in values.items():
            found.setdefault(key, set()).add(str(value))
    return found


def _failures(folder: SweepFolder, trials: list[Trial]) -> list[Section]:
    rows: list[list[sheets.Cell]] = [
        [trial.id, folder.failure(trial)] for trial in trials if folder.status(trial) == "failed"
    ]
    if not rows:
        return []
    return [
        Section("Trials that failed", "For reasons of their own.", sheet=sheets.Sheet(["Trial", "Why"], rows))
    ]


def _write(path: Path, text: str) -> None:
    files.replace(path, text.encode())

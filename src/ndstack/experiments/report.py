"""Reports: figures as SVG and PNG, tables as Markdown and CSV, and one page with all of them."""

import dataclasses
from collections import Counter
from pathlib import Path

from ndstack import files, plotting
from ndstack.experiments import estimate, figures, sheets
from ndstack.experiments.claims.open_claims import OpenClaims
from ndstack.experiments.experiment import PAPER, Experiment, Output
from ndstack.experiments.groups import not_needed
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import Tables, is_tables
from ndstack.experiments.registry import ORDER, all_experiments, find
from ndstack.experiments.report_page import Section, render_page
from ndstack.experiments.results import Finished, finished
from ndstack.experiments.spending import describe_spending
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
    """The labels of figures and tables."""
    trials: int
    complete: int
    not_needed: int
    """The number of trials that were not run because their group has ended or no claim needs them."""
    known: int = 0
    """The number of complete trials that are known from tables of runs made elsewhere."""

    @property
    def counts(self) -> str:
        """The number of complete trials, in words."""
        return f"{self.complete} of {self.trials} trials complete{_also(self.known, self.not_needed)}"


def _also(known: int, not_needed: int) -> str:
    text = f", {known} of them known from tables" if known else ""
    return text + (f", {not_needed} not needed" if not_needed else "")


def make_report(folder: SweepFolder | Path, out: Path | None = None) -> Report:
    """Write a report with all figures and tables for which there are runs in a folder.

    Args:
        folder: the folder of a sweep, or of tables that `ndstack gather` made.
        out: the folder of the report; by default, `report/` in the folder.
    """
    if not isinstance(folder, SweepFolder):
        folder = SweepFolder(folder)
    out = out or folder.folder / "report"
    return _of_tables(folder.folder, out) if is_tables(folder.folder) else _of_sweep(folder, out)


def _of_tables(folder: Path, out: Path) -> Report:
    """Write all figures and tables of the dissertation, from the runs that have its settings."""
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
    files.replace(out / "index.html", render_page(files.real_path(folder).name, text, parts))
    complete = sum(one.complete for one in read.runs.values())
    return Report(out / "index.html", labels, len(read.runs), complete, not_needed=0)


def _of_sweep(folder: SweepFolder, out: Path) -> Report:
    """Write the figures and tables of all experiments in the folder of a sweep."""
    several = len(plans := folder.planned()) > 1
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Section] = []
    labels: list[str] = []
    total = complete = known = left_out = 0
    claims = OpenClaims(folder, [name for plan in plans for name in plan.experiment.claims])
    for plan in plans:
        trials, measures = expand(plan.experiment), measures_of(plan.experiment)
        runs = finished(folder, trials, measures, plan.experiment.extend)
        reasons = _left_out(folder, trials, plan.experiment, claims)
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
        spent, about = describe_spending(folder, plan.experiment, trials, measures, reasons)
        files.replace(out / f"{prefix}spent.csv", spent.csv())
        about = f"{about} Also in {prefix}spent.csv."
        parts.append(Section("What was spent", about, sheet=spent, folded=True))
        sheet = sheets.trials_sheet(runs)
        files.replace(out / f"{prefix}trials.csv", sheet.csv())
        parts.append(
            Section("Trials", f"All complete trials, also in {prefix}trials.csv.", sheet=sheet, folded=True)
        )
        parts += _failures(folder, trials)
    name = files.real_path(folder.folder).name
    made = Report(out / "index.html", labels, total, complete, left_out, known)
    files.replace(made.index, render_page(name, f"{made.counts}.", parts))
    return made


def _left_out(
    folder: SweepFolder, trials: list[Trial], experiment: Experiment, claims: OpenClaims
) -> dict[str, str]:
    """Return the trials that are not needed, by the rules for restarts or for any claim, with reasons."""
    measures = measures_of(experiment)
    reasons = not_needed(folder, trials, experiment, measures)
    for trial in trials if experiment.claims else ():
        if trial.id not in reasons and folder.status(trial, measures, experiment.extend) == "waiting":
            reason = claims.reason(trial, experiment)
            reasons |= {} if reason is None else {trial.id: reason}
    return reasons


def _part(out: Path, name: str, output: Output, experiment: Experiment, runs: list[Finished]) -> Section:
    """Write one figure or table, and return its section of the page."""
    figure = figures.draw_figure(output, experiment, runs)
    svg = ""
    if figure is not None:
        svg = plotting.render(figure, "svg").decode()
        files.replace(out / f"{name}.svg", svg)
        files.replace(out / f"{name}.png", plotting.render(figure, "png"))
    sheet = sheets.make_sheet(output, experiment, runs)
    if sheet is not None:
        files.replace(out / f"{name}.md", sheet.markdown())
        files.replace(out / f"{name}.csv", sheet.csv())
    number = output.label.replace("-", " ").capitalize()
    title = f"{number}: {output.title}" if output.title else number
    return Section(title, _caption(output, experiment, runs), svg=svg, sheet=sheet, folded=bool(svg))


def _caption(output: Output, experiment: Experiment, runs: list[Finished]) -> str:
    """Return the note of an output, and the number of runs of each model."""
    counts = []
    for label in experiment.shown_models(output):
        mine = [one for one in runs if one.label == label]
        by_language = [
            sum(one.record.is_text or one.record.base_language == language for one in mine)
            for language in experiment.shown_languages(output)
        ]
        low, high = min(by_language), max(by_language)
        counts.append(f"{label}: {low}" if low == high else f"{label}: {low} to {high}")
    what = "Runs per language" if len(experiment.shown_languages(output)) > 1 else "Runs"
    return f"{output.note} {what}: {'; '.join(counts)}.".strip()


def _spent(runs: list[Finished]) -> str:
    spent = sum(one.record.seconds for one in runs)
    return f"{estimate.show_seconds(spent)} of one core, in training"


def _about(plan: Planned) -> str:
    experiment, scale = plan.experiment, plan.full.scales.get(plan.scale)
    section = f"Section {experiment.section}. " if experiment.section else ""
    note = f" ({scale.about})" if scale is not None and scale.about else ""
    at = f" at the scale {plan.scale}" if plan.full.scales else ""
    return f"{section}{experiment.name}{at}{note}. {experiment.about}".strip()


def _facts(
    folder: SweepFolder, plan: Planned, trials: list[Trial], runs: list[Finished], reasons: dict[str, str]
) -> dict[str, str]:
    """Return facts about an experiment: trials, seeds, versions, the time spent, the time at full scale."""
    known = sum(one.run is None for one in runs)
    facts = {
        "trials": f"{len(runs)} of {len(trials)} complete{_also(known, len(reasons))}",
        "seed of the sweep": str(plan.experiment.seed),
        "time spent": _spent(runs),
        **_full_scale(folder, plan, trials),
    }
    if reasons:
        counts = Counter(reasons.values()).most_common()
        facts["not needed"] = "; ".join(f"{count} ({reason})" for reason, count in counts)
    for key, values in _environments(runs).items():
        facts[key] = ", ".join(sorted(values))
    return facts


def _full_scale(folder: SweepFolder, plan: Planned, trials: list[Trial]) -> dict[str, str]:
    """Return the time of the experiment at full scale: here, and according to table 6.1."""
    full = expand(plan.full.at(PAPER))
    printed: dict[str, float] = {}
    if plan.full.name in ORDER:
        (table,) = find("times").outputs
        printed = {label: float(row[0]) for label, row in table.printed.items() if isinstance(row[0], int)}
    found = estimate.full_scale(folder, trials, full, printed)
    if found is None:
        why = "there is no estimate, because not every kind of model was trained on the full data here"
        return {"at full scale": f"{len(full):,} trials; {why}"}
    here, most = f"the {cores()} cores of this machine", estimate.show_seconds(found.most / cores())
    text = f"{len(full):,} trials would take {most} on {here} with all epochs up to the limit"
    if found.likely is not None:
        likely = estimate.show_seconds(found.likely / cores())
        text += f", {likely} with as many epochs as the trials here had"
    facts = {"at full scale": f"{text}; {found.pairs} pairs of model and language were measured"}
    if found.elsewhere is not None:
        there, epochs = estimate.show_seconds(found.elsewhere), "all" if found.likely is None else "as many"
        facts["in the dissertation"] = f"{there} of one CPU or GPU with {epochs} epochs, by table 6.1"
    return facts


def _environments(runs: list[Finished]) -> dict[str, set[str]]:
    """Return the distinct versions and machines of the runs."""
    found: dict[str, set[str]] = {}
    for one in runs:
        path = None if one.run is None else one.run.folder / ENVIRONMENT
        if path is None or not path.exists():
            continue
        for key, value in files.read_json_as(path, dict[str, object], "versions and machine").items():
            found.setdefault(key, set()).add(str(value))
    return found


def _failures(folder: SweepFolder, trials: list[Trial]) -> list[Section]:
    rows: list[list[sheets.Cell]] = [
        [trial.id, folder.failure(trial)] for trial in trials if folder.status(trial) == "failed"
    ]
    if not rows:
        return []
    return [
        Section(
            "Failed trials",
            "They failed because of their settings.",
            sheet=sheets.Sheet(["Trial", "Error"], rows),
        )
    ]

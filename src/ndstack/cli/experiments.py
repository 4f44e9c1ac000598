"""Commands about experiments: reproduce, sweep, report."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ndstack.cli.app import command, resumable
from ndstack.cli.arguments import AsJson, OutFolderIfGiven, complete_experiment
from ndstack.cli.options import SweepOptions, unfold
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.experiments import Engine, Experiment, Portion, SweepFolder


@command(
    "ndstack reproduce list",
    "ndstack reproduce cfls --scale smoke --out results",
    "ndstack reproduce figure-6.1 --scale laptop --only model=lstm,language=dyck --out results",
    "ndstack reproduce capacity --scale paper --engine ray --address auto --out results",
)
@unfold
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="An experiment, a figure or a table; `list` shows all.", autocompletion=complete_experiment
        ),
    ],
    scale: Annotated[str, typer.Option(help="smoke, laptop or paper.")] = "laptop",
    *,
    options: SweepOptions,
) -> None:
    """Run an experiment of the dissertation, and report.

    `paper` is the dissertation's protocol; `laptop` has fewer restarts and smaller grids; `smoke` takes
    seconds. Interrupt it at any time: the same command resumes it, and what is complete is not run again.
    """
    from ndstack import experiments

    if name == "list":
        _list(options.as_json)
        return
    with resumable():
        _run([experiments.find(name)], scale, options)


@command(
    "ndstack sweep my.toml --out results",
    "ndstack sweep my.toml --out results --workers 8 --only language=dyck",
    "ndstack sweep campaign.toml --out sweep --known results --nice 19",
)
@unfold
def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.toml", help="An experiment, or a campaign: several [[experiments]]."),
    ],
    scale: Annotated[str, typer.Option(help="One of the file's scales; paper is as written.")] = "paper",
    *,
    options: SweepOptions,
) -> None:
    """Run an experiment of your own, and report; the format is that of the dissertation's own.

    A file with several [[experiments]] is a campaign: they are run in this order and share a report.
    Interrupt it at any time: the same command resumes it, and what is complete is not run again.
    """
    from ndstack import experiments

    with resumable():
        _run(experiments.read_experiments(file), scale, options)


@command("ndstack report sweep", "ndstack report results --out elsewhere --json")
def report(
    folder: Annotated[
        Path, typer.Argument(help="A folder that `ndstack reproduce`, `sweep` or `gather` made.")
    ],
    out: OutFolderIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Draw the figures and tables that the complete trials of a folder allow, and a page with all of them.

    Of tables that `ndstack gather` made, those of the dissertation are drawn, from the runs that have its
    settings. They go to the folder report inside, unless --out names another one.
    """
    from ndstack import experiments

    _report(experiments.SweepFolder(folder), out, as_json)


def _list(as_json: bool) -> None:
    from ndstack import experiments

    rows: list[dict[str, Any]] = []
    for one in experiments.all_experiments():
        counts = {scale: len(experiments.expand(one.at(scale))) for scale in ("smoke", "laptop", "paper")}
        labels = [output.label for output in one.outputs]
        rows.append({"name": one.name, "title": one.title, "outputs": labels, "trials": counts})
    if as_json:
        print(json.dumps(rows))
        return
    columns = ("experiment", "makes", "trials: smoke", "laptop", "paper", "about")
    print_table(
        columns,
        ([row["name"], " ".join(row["outputs"]), *row["trials"].values(), row["title"]] for row in rows),
    )


def _engine(options: SweepOptions, folder: "SweepFolder") -> "Engine":
    from ndstack import experiments
    from ndstack.processes import process_capacity

    workers = options.workers or process_capacity()
    if options.engine == "ray":
        from ndstack.experiments.engines.ray import Ray

        return Ray(options.address, workers=workers, cpus=options.cpus, gpus=options.gpus)
    return (
        experiments.Inline() if options.workers == 0 else experiments.Local(workers, folder.log, options.nice)
    )


def _run(planned: "list[Experiment]", scale: str, options: SweepOptions) -> None:
    from ndstack import experiments
    from ndstack.experiments.display import choose_watcher

    _check(options)
    assert options.out is not None
    for experiment in planned:
        experiment.at(scale)
    folder = experiments.SweepFolder(options.out)
    engine = _engine(options, folder)  # more processes than there is room for are refused before all else
    if options.known is not None:
        folder.learn(experiments.Tables.read(options.known))
    portions, without = _portions(planned, scale, folder, options)
    title = f"{planned[0].name if len(planned) == 1 else f'{len(planned)} experiments'}, {scale}"
    summary = experiments.run_campaign(
        folder,
        portions,
        engine,
        retry_failed=options.retry_failed,
        watcher=choose_watcher(folder, title, quiet=options.quiet, as_json=options.as_json),
    )
    for trial, message in {**summary.failed, **summary.given_up}.items():
        print(f"ndstack: {trial} failed: {message}", file=sys.stderr)
    _report(folder, None, options.as_json or not sys.stdout.isatty())
    if summary.given_up:
        print(f"ndstack: the same command tries {len(summary.given_up)} trials again", file=sys.stderr)
    if without:
        print(f"ndstack: not run without --corpus FOLDER: {', '.join(without)}", file=sys.stderr)
    if summary.failed or summary.given_up or without:
        raise typer.Exit(1)


def _check(options: SweepOptions) -> None:
    """Raise an error in one line if options do not fit together."""
    if options.engine == "local" and options.address is not None:
        raise NdstackError("--address given, but the engine is local; expected --engine ray with it")
    if options.nice and (options.engine == "ray" or options.workers == 0):
        raise NdstackError(
            "--nice given, but it is for processes of the local engine; expected --workers 1 or more"
        )
    if options.out is None:
        raise NdstackError("no folder given; expected --out FOLDER, a new one, or that of a sweep to resume")


def _portions(
    planned: "list[Experiment]", scale: str, folder: "SweepFolder", options: SweepOptions
) -> "tuple[list[Portion], list[str]]":
    """The trials of all experiments, and the experiments of a campaign that lack a corpus."""
    from ndstack import experiments, files

    for name, given in (("--corpus", options.corpus), ("--suites", options.suites)):
        if given is not None and not any(one.text for one in planned):
            about = planned[0].name if len(planned) == 1 else "every experiment"
            raise NdstackError(f"{name} given, but {about} is about formal languages")
    lacking = options.corpus is None and scale != "smoke" and len(planned) > 1
    without = [one.name for one in planned if one.text and lacking]
    portions: list[Portion] = []
    for place, one in enumerate(planned):
        if one.name in without:
            continue
        settings, suites = _text(one, scale, folder, options)
        chosen = folder.begin(one, scale, settings, place)
        path = None if suites is None else str(files.real_path(suites))
        measures = experiments.measures_of(chosen)
        portions.append(experiments.Portion(experiments.expand(chosen), measures, chosen, path))
    if options.only is not None:
        every = [trial for one in portions for trial in one.trials]
        kept = {id(trial) for trial in experiments.choose(every, options.only)}
        portions = [
            dataclasses.replace(one, trials=[trial for trial in one.trials if id(trial) in kept])
            for one in portions
        ]
    return portions, without


def _text(
    experiment: "Experiment", scale: str, folder: "SweepFolder", options: SweepOptions
) -> tuple[dict[str, Any] | None, Path | None]:
    """The corpus of an experiment on text; a smoke run may have one that is made for it."""
    corpus, suites = options.corpus, options.suites
    if not experiment.text:
        return None, None
    from ndstack.experiments.text_measures import make_example
    from ndstack.text.launch import corpus_settings
    from ndstack.text.suites import find_suites, read_suite

    for file in find_suites([suites]) if suites is not None else ():
        read_suite(file)  # what is wrong with one is found before anything is trained
    if corpus is None:
        if scale != "smoke":
            raise NdstackError(
                f"{experiment.name} needs a corpus: --corpus FOLDER, made by ndstack text prepare"
            )
        corpus, suites = make_example(folder.folder / "example")
    return corpus_settings(corpus), suites


def _report(folder: "SweepFolder", out: Path | None, as_json: bool) -> None:
    from ndstack import experiments

    made = experiments.make_report(folder, out)
    if as_json:
        counts = {name: getattr(made, name) for name in ("trials", "complete", "known", "not_needed")}
        print(json.dumps({"report": str(made.index), "outputs": made.outputs, **counts}))
    else:
        labels = ", ".join(made.outputs) or "no outputs"
        print(f"{made.index}: {labels}; {made.counts}")

"""Commands about experiments: reproduce, sweep, report, gather, claims, zoo."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ndstack.cli.app import command, resumable
from ndstack.cli.arguments import AsJson, OutFolder, OutFolderIfGiven, complete_experiment
from ndstack.cli.options import SweepOptions, unfold
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.experiments import Engine, Experiment, Portion, SweepFolder, Tables
    from ndstack.experiments.claims import Entry
    from ndstack.settings.reading import Table

EXAMPLE_SENTENCES = 60
"""The number of sentences in the text that is made for a smoke run."""


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
    """Run an experiment of the dissertation, and report the results.

    `paper` is the dissertation's protocol; `laptop` has fewer restarts and smaller grids; `smoke` takes
    seconds. The command can be interrupted at any time; the same command resumes it, and what is complete is
    not run again.
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
    "ndstack sweep questions --scale short --out questions",
)
@unfold
def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.toml", help="An experiment, or a campaign: several [[experiments]]."),
    ],
    scale: Annotated[str, typer.Option(help="A scale of the file; paper is the full one.")] = "paper",
    *,
    options: SweepOptions,
) -> None:
    """Run an experiment from a file, and report the results; the format is that of the dissertation's.

    The names chomsky, recognition and questions stand for files that ship with ndstack: transductions of the
    Chomsky-hierarchy benchmark, recognizers, and English questions.

    A file with several [[experiments]] is a campaign: they are run in this order and share a report. The
    command can be interrupted at any time; the same command resumes it, and what is complete is not repeated.
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
    """Draw the figures and tables for which there are complete trials, and a page with all of them.

    From tables that `ndstack gather` made, the figures and tables of the dissertation are drawn, with the
    runs that have its settings. They are written to the folder report in FOLDER, unless --out names another.
    """
    from ndstack import experiments

    _report(experiments.SweepFolder(folder), out, as_json)


def _list(as_json: bool) -> None:
    from ndstack import experiments

    found, rows = [], []
    for one in experiments.all_experiments():
        counts = {scale: len(experiments.expand(one.at(scale))) for scale in ("smoke", "laptop", "paper")}
        labels = [output.label for output in one.outputs]
        found.append({"name": one.name, "title": one.title, "outputs": labels, "trials": counts})
        rows.append([one.name, " ".join(labels), *counts.values(), one.title])
    if as_json:
        print(json.dumps(found))
    else:
        print_table(("experiment", "makes", "trials: smoke", "laptop", "paper", "about"), rows)


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
    from ndstack.experiments.claims.open_claims import check_claims
    from ndstack.experiments.display import choose_watcher
    from ndstack.experiments.records import CLAIMS

    _check(options)
    assert options.out is not None
    for experiment in planned:
        experiment.at(scale)
    folder = experiments.SweepFolder(options.out)
    engine = _engine(options, folder)  # first, because it refuses more processes than there is room for
    if options.known is not None:
        folder.learn(experiments.Tables.read(options.known), options.known / CLAIMS)
    check_claims(folder, planned)
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
        count = len(summary.given_up)
        print(f"ndstack: {count} trials are incomplete; the same command tries them again", file=sys.stderr)
    if without:
        print(f"ndstack: not run without --corpus FOLDER: {', '.join(without)}", file=sys.stderr)
    if summary.failed or summary.given_up or without:
        raise typer.Exit(1)


def _check(options: SweepOptions) -> None:
    """Raise an error if options contradict each other."""
    if options.engine == "local" and options.address is not None:
        raise NdstackError("--address given, but the engine is local; expected --engine ray with it")
    if options.nice and (options.engine == "ray" or options.workers == 0):
        raise NdstackError(
            "--nice given, but it is for processes of the local engine; expected --workers 1 or more"
        )
    if options.out is None:
        raise NdstackError("no folder given; expected --out FOLDER: a new one, or that of a sweep to resume")


def _portions(
    planned: "list[Experiment]", scale: str, folder: "SweepFolder", options: SweepOptions
) -> "tuple[list[Portion], list[str]]":
    """Return the trials of all experiments, and the names of experiments that lack a corpus."""
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
) -> "tuple[Table | None, Path | None]":
    """Return the settings of the corpus of an experiment on text, and its suites.

    If no corpus is given, a smoke run has a small one that is made for it.
    """
    corpus, suites = options.corpus, options.suites
    if not experiment.text:
        return None, None
    from ndstack.text.example import write_example
    from ndstack.text.launch import corpus_settings
    from ndstack.text.preparation import prepare
    from ndstack.text.suites import find_suites, read_suite

    for file in find_suites([suites]) if suites is not None else ():
        read_suite(file)  # so that errors in suites are found before anything is trained
    if corpus is None:
        if scale != "smoke":
            raise NdstackError(
                f"{experiment.name} needs a corpus: --corpus FOLDER, made by ndstack text prepare"
            )
        text, corpus = folder.folder / "example" / "text", folder.folder / "example" / "corpus"
        suites = text / "suites"
        if not text.exists():
            write_example(text, EXAMPLE_SENTENCES)
        if not corpus.exists():
            prepare(text, corpus)
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


@command(
    "ndstack gather sweep --out results",
    "ndstack gather runs/reversal runs/dyck --out results --this-machine --json",
)
def gather(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Run folders, sweep folders, or folders of them.")
    ],
    out: OutFolder,
    commit: Annotated[
        str, typer.Option(help="Git commit of the code that made the runs, for those that do not say.")
    ] = "",
    this_machine: Annotated[
        bool,
        typer.Option("--this-machine", help="The runs were made here: note the processor if they do not."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put runs into tables: runs.csv has a row for each run, curves.csv a row for each epoch.

    Runs that are there already are brought up to date; one that has not ended is marked as interrupted. The
    folders are not needed afterwards: `ndstack report` and `ndstack claims` read the tables.
    """
    from ndstack.experiments.gathering import gather as gather_runs

    found = gather_runs(folders, out, commit=commit, this_machine=this_machine)
    counts = {
        "added": len(found.added),
        "updated": len(found.updated),
        "same": len(found.same),
        "incomplete": len(found.incomplete),
    }
    if as_json:
        print(json.dumps({"tables": str(out), **counts}))
        return
    print(
        f"{out}: {counts['added']} runs added, {counts['updated']} updated, {counts['same']} as they were; "
        f"{counts['incomplete']} of them have not ended"
    )


@command(
    "ndstack claims results",
    "ndstack claims results --out docs",
    "ndstack claims results --plan",
    "ndstack claims results --plan --json",
)
def claims(
    folder: Annotated[Path, typer.Argument(help="The tables that `ndstack gather` made.")],
    out: OutFolderIfGiven = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show which runs the undecided claims need, and how many hours they take."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Decide the dissertation's empirical claims by the runs in the tables, each by a rule of its own.

    With --out, the page claims.md and a picture for each claim. With --plan, the runs that undecided claims
    need, the cheapest claim first, and processor hours by the times in the tables. A file claims.toml in the
    folder takes the place of the dissertation's claims.
    """
    from ndstack.experiments.claims import claims_for, decide, write_page
    from ndstack.experiments.records import Tables

    if plan and out is not None:
        raise NdstackError("--plan and --out given, expected one of them: a plan is printed")
    tables = Tables.read(folder)
    chosen = claims_for(folder)
    if plan:
        _plan(decide(chosen, tables), tables, as_json)
        return
    found = decide(chosen, tables) if out is None else write_page(chosen, tables, out)
    if as_json:
        print(json.dumps([{"claim": one.claim.id, "verdict": one.verdict} for one in found]))
        return
    print_table(
        ("claim", "verdict", ""), [(one.claim.id, one.verdict, one.claim.text) for one in found], right=None
    )


def _plan(entries: "list[Entry]", tables: "Tables", as_json: bool) -> None:
    """Print which runs undecided claims need."""
    from ndstack.experiments.claims.plan import ABOUT, make_plan

    steps = make_plan(entries, tables)
    if as_json:
        print(json.dumps([one.as_json() for one in steps]))
        return
    columns = ("claim", "runs", "hours", "in all", "missing")
    print_table(columns, [one.row() for one in steps], unbroken={*columns[:4]})
    print(ABOUT, end="")


@command("ndstack zoo", "ndstack zoo list --json", "ndstack zoo add runs/reversal")
def zoo(
    action: Annotated[Literal["list", "add"], typer.Argument(help="What to do.")] = "list",
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="To add: a run that has learned its language.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the trained networks that ship; their names can be given wherever a run folder can.

    For maintainers: `add` puts the best model of a run into the source tree, if it is within 0.05 nats per
    symbol of the lower bound and better than what is there.
    """
    from ndstack.experiments import zoo_entries

    if (action == "add") != (run is not None):
        raise NdstackError("expected ndstack zoo, or ndstack zoo add RUN with a run folder")
    found = zoo_entries.entries() if run is None else [zoo_entries.add(run)]
    rows = [one.as_json() for one in found]
    if as_json:
        print(json.dumps(rows))
        return
    columns = ("name", "lengths", "parameters", "bytes", "validation", "test", "epochs")
    keys = ("name", "lengths", "parameters", "bytes", "difference", "test_difference", "epochs")
    print_table(columns, [[row[key] for key in keys] for row in rows], right=1, unbroken={"name"})
    print("Lengths: of the strings in training. Validation and test: nats per symbol above the lower bound.")

"""Commands about experiments: reproduce, sweep, report."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ndstack.cli.app import app
from ndstack.cli.arguments import AsJson
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.experiments import Engine, Experiment, SweepFolder

PANEL = "Experiments"
EngineName = Annotated[Literal["local", "ray"], typer.Option(help="Processes of this machine, or Ray.")]
Address = Annotated[
    str | None,
    typer.Option(help="Of a Ray cluster; auto for the one this machine is in. [a Ray of our own]"),
]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Processes; 0 for none but this one. [the number of cores]")
]
Cpus = Annotated[float, typer.Option(min=0, help="CPUs that Ray gives to a trial.")]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs that Ray gives to a trial.")]
Only = Annotated[
    str | None, typer.Option(metavar="KEY=VALUE,...", help="Such as model=lstm,model=rns-2-3,language=dyck.")
]
Corpus = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="What `ndstack text prepare` made, for runs on text.")
]
Suites = Annotated[Path | None, typer.Option(metavar="FOLDER", help="SyntaxGym suites, for SG scores.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Try trials again that failed for reasons of their own.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show the result only.")]


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\nndstack reproduce list\n\n"
    "ndstack reproduce cfls --scale smoke --out results\n\n"
    "ndstack reproduce figure-6.1 --scale laptop --only model=lstm,language=dyck --out results\n\n"
    "ndstack reproduce capacity --scale paper --engine ray --address auto --out results",
)
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment, a figure or a table; `list` shows all.")],
    scale: Annotated[str, typer.Option(help="smoke, laptop or paper.")] = "laptop",
    out: Annotated[Path | None, typer.Option(help="A folder; the same one again continues.")] = None,
    only: Only = None,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
    corpus: Corpus = None,
    suites: Suites = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the dissertation, and report.

    `paper` is the dissertation's protocol; `laptop` has fewer restarts and smaller grids; `smoke` takes
    seconds. Interrupt it at any time: the same command goes on, and what is complete is not run again.
    """
    from ndstack import experiments

    if name == "list":
        _list(as_json)
        return
    experiment = experiments.find(name)
    chosen = _engine(engine, address, workers, cpus, gpus)
    _run(experiment, scale, out, only, chosen, corpus, suites, retry_failed, quiet, as_json)


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\nndstack sweep my.toml --out results\n\n"
    "ndstack sweep my.toml --out results --workers 8 --only language=dyck",
)
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Models, languages, search, outputs.")],
    scale: Annotated[str, typer.Option(help="One of the file's scales; paper is as written.")] = "paper",
    out: Annotated[Path | None, typer.Option(help="A folder; the same one again continues.")] = None,
    only: Only = None,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
    corpus: Corpus = None,
    suites: Suites = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of your own, and report; the format is that of the dissertation's experiments."""
    from ndstack import experiments

    experiment = experiments.Experiment.read(file)
    chosen = _engine(engine, address, workers, cpus, gpus)
    _run(experiment, scale, out, only, chosen, corpus, suites, retry_failed, quiet, as_json)


@app.command(rich_help_panel=PANEL, epilog="Example: ndstack report results")
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `ndstack reproduce` or `sweep` made.")],
    out: Annotated[Path | None, typer.Option(help="Where it goes. [FOLDER/report]")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the figures and tables that the complete trials of a folder allow, and a page with all of them."""
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


def _engine(name: str, address: str | None, workers: int | None, cpus: float, gpus: float) -> "Any":
    """Makes the engine once the folder is known."""
    from ndstack import experiments
    from ndstack.training.run import cores

    if name == "local" and address is not None:
        raise NdstackError("--address given, but the engine is local; expected --engine ray with it")

    def make(folder: "SweepFolder") -> "Engine":
        if name == "ray":
            from ndstack.experiments.engines.ray import Ray

            return Ray(address, workers=workers or cores(), cpus=cpus, gpus=gpus)
        if workers == 0:
            return experiments.Inline()
        return experiments.Local(workers or cores(), folder.log)

    return make


def _run(
    experiment: "Experiment",
    scale: str,
    out: Path | None,
    only: str | None,
    make_engine: Any,
    corpus: Path | None,
    suites: Path | None,
    retry_failed: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    from ndstack import experiments, files
    from ndstack.experiments.display import choose_watcher

    if out is None:
        raise NdstackError("no folder given; expected --out FOLDER, a new one or one to go on with")
    if suites is not None and not suites.exists():
        raise NdstackError(f"{suites} does not exist, expected a folder of suites")
    experiment.at(scale)
    folder = experiments.SweepFolder(out)
    settings, suites = _text(experiment, scale, folder, corpus, suites)
    chosen = experiments.expand(folder.begin(experiment, scale, settings))
    if only is not None:
        chosen = experiments.choose(chosen, only)
    summary = experiments.run_sweep(
        folder,
        chosen,
        make_engine(folder),
        measures=experiments.measures_of(experiment),
        suites=None if suites is None else str(files.real(suites)),
        retry_failed=retry_failed,
        watcher=choose_watcher(folder, f"{experiment.name}, {scale}", quiet=quiet, as_json=as_json),
    )
    for trial, message in {**summary.failed, **summary.given_up}.items():
        print(f"ndstack: {trial} failed: {message}", file=sys.stderr)
    _report(folder, None, as_json or not sys.stdout.isatty())
    if summary.given_up:
        print(f"ndstack: the same command tries {len(summary.given_up)} trials again", file=sys.stderr)
    if summary.failed or summary.given_up:
        raise typer.Exit(1)


def _text(
    experiment: "Experiment", scale: str, folder: "SweepFolder", corpus: Path | None, suites: Path | None
) -> tuple[dict[str, Any] | None, Path | None]:
    """The corpus of an experiment on text; a smoke run may have one that is made for it."""
    if not experiment.text:
        if corpus is not None:
            raise NdstackError(f"--corpus given, but {experiment.name} is about formal languages")
        return None, suites
    from ndstack.experiments import natural

    if corpus is None:
        if scale != "smoke":
            raise NdstackError(
                f"{experiment.name} needs a corpus: --corpus FOLDER, made by ndstack text prepare"
            )
        corpus, suites = natural.make_example(folder.folder / "example")
    return natural.corpus_settings(corpus), suites


def _report(folder: "SweepFolder", out: Path | None, as_json: bool) -> None:
    from ndstack import experiments

    made = experiments.make_report(folder, out)
    if as_json:
        values = {"report": str(made.index), "outputs": made.outputs}
        print(json.dumps({**values, "trials": made.trials, "complete": made.complete}))
    else:
        labels = ", ".join(made.outputs) or "no outputs"
        print(f"{made.index}: {labels}; {made.complete} of {made.trials} trials complete")

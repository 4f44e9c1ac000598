"""Commands that analyse stacks: parse, draw, explore."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import AsJson, OutPicture, Seed, as_text, read_grammar_file
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.analysis import StackRuns, StackTrace, Trace
    from ndstack.analysis.figures import Animation, Picture
    from ndstack.analysis.source import Source

What = Literal[
    "attention",
    "readings",
    "actions",
    "stacks",
    "wfa",
    "tree",
    "predictions",
    "pca",
    "evolution",
    "animation",
]
Source_ = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run folder, a saved model, a grammar file, or an automaton that ships, such as english.",
    ),
]
StackNumber = Annotated[int, typer.Option("--stack", min=1, help="The number of the stack.")]
Time = Annotated[
    int | None, typer.Option("--time", min=0, help="The number of steps, BOS included; by default, all.")
]
AllRuns = Annotated[bool, typer.Option("--all-runs", help="For a recogniser: also runs that do not accept.")]


@command(
    "ndstack parse english 'Mary saw a man in the park with a telescope' --best 3",
    "ndstack parse runs/reversal 0110#0110 --samples 5 --seed 1",
    "ndstack parse palindromes abba --json",
)
def parse(
    run: Source_,
    string: Annotated[
        str, typer.Argument(help="The string; spaces or tabs separate long symbols.", callback=as_text)
    ],
    best: Annotated[int, typer.Option(min=0, help="The number of runs, the most probable first.")] = 1,
    samples: Annotated[int, typer.Option(min=0, help="The number of runs to sample instead.")] = 0,
    time: Time = None,
    stack: StackNumber = 1,
    all_runs: AllRuns = False,
    tree: Annotated[bool, typer.Option("--tree", help="Print trees instead of stacks.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find the best runs of a nondeterministic stack on a string, and show their stacks.

    If a recogniser accepts the string, only accepting runs are shown; otherwise all runs are.
    """
    import numpy as np

    from ndstack.analysis.run_tables import run_lines, summary_lines
    from ndstack.analysis.source import open_source

    source = open_source(run, read_grammar_file)
    trace = source.trace(source.split(string))
    runs = _runs(trace, trace.stack(stack - 1), time, all_runs)
    if samples:
        found, name = runs.sample(samples, np.random.default_rng(seed)), "sample"
    else:
        found, name = runs.k_best(best), "run"
    if as_json:
        print(json.dumps(_as_json(source, string, trace, runs) | {"runs": [one.to_json() for one in found]}))
        return
    verdict = {None: "", True: ", accepted", False: ", rejected"}[trace.accepted]
    print(f"{source.name}: {source.label}{verdict}")
    print("\n".join(summary_lines(runs)))
    for number, one in enumerate(found, 1):
        print()
        if tree:
            print(f"{name} {number}: probability {one.probability:.4g}")
            print(one.tree().pformat(margin=100, indent=2))
        else:
            print("\n".join(run_lines(one, runs.posterior, f"{name} {number}")))


@command(
    "ndstack draw english 'Mary saw the park' --what stacks --out stacks.svg",
    "ndstack draw runs/reversal 0110#0110 --what wfa --time 4 --out wfa.png",
    "ndstack draw runs/reversal --what pca --samples 100 --after '#' --out pca.svg",
)
def draw(
    run: Source_,
    strings: Annotated[
        list[str] | None,
        typer.Argument(metavar="STRING", help="The string; for pca, one or more.", callback=as_text),
    ] = None,
    what: Annotated[What, typer.Option(help="The kind of picture.")] = "attention",
    out: OutPicture = Path("stack.svg"),
    time: Time = None,
    stack: StackNumber = 1,
    best: Annotated[int, typer.Option(min=1, help="For stacks and tree: the rank of the run.")] = 1,
    all_runs: AllRuns = False,
    samples: Annotated[int, typer.Option(min=0, help="For pca: the number of strings to sample.")] = 0,
    after: Annotated[str | None, typer.Option(help="For pca: only readings after this symbol.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Draw a stack while a model reads a string.

    attention, readings, actions: over time. stacks, tree: of the best run. wfa: the stack WFA at one time.
    predictions: those of the next symbol, beside the true distribution. pca: readings in two dimensions.
    evolution: actions during training, from snapshots (`ndstack train --snapshots`). animation: the most
    probable stacks step by step, as a moving SVG.
    """
    from ndstack import plotting
    from ndstack.analysis.source import open_source

    plotting.check_format(out)
    source = open_source(run, read_grammar_file)
    words = [source.split(string) for string in strings or []]
    picture: Picture | Animation
    if what == "pca":
        picture = _pca(source, words, samples, after, seed, stack - 1)
    else:
        if len(words) != 1:
            raise NdstackError(
                f"{len(words)} strings given, expected one: ndstack draw {run} STRING --what {what}"
            )
        picture = _picture(what, source, words[0], time, stack - 1, best, all_runs)
    picture.save(out)
    print(json.dumps({"what": what, "picture": str(out)}) if as_json else f"{what} drawn in {out}")


@command(
    "ndstack explore",
    "ndstack explore runs/reversal runs/dyck --port 8080 --no-browser",
    "ndstack explore --export site --string palindromes:abababa",
)
def explore(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Run folders, saved models, or grammar files to compile."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free port.")] = 8765,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; by default, 127.0.0.1 (this machine only).")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the page as a static site to this folder; start no server."
        ),
    ] = None,
    strings: Annotated[
        list[str] | None,
        typer.Option(
            "--string",
            metavar="MODEL:STRING",
            help="For --export: one more string for a model.",
            callback=as_text,
        ),
    ] = None,
) -> None:
    """Explore the stacks of any model on any string, step by step, in the browser.

    Trained networks and automata that ship are always available. Without RUN, the page begins with a guided
    tour. Ctrl-C ends the server.
    """
    if export is not None:
        _export(runs or (), export, strings or ())
        return
    if strings:
        raise NdstackError("--string given without --export; on the page of the server, type any string")
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise NdstackError(
            "the explorer needs fastapi and uvicorn; install them with pip install 'ndstack[explore]'"
        ) from None
    from ndstack.analysis.explorer.catalogue import Catalogue
    from ndstack.analysis.explorer.server import serve

    catalogue = Catalogue(runs or (), read=read_grammar_file)
    print("ndstack: starting (kernels are compiled the first time, which takes a minute)", file=sys.stderr)
    catalogue.warm_up()
    serve(catalogue, host, port, browser)


def _export(runs: Sequence[str], folder: Path, strings: Sequence[str]) -> None:
    from ndstack.analysis.explorer.catalogue import Catalogue
    from ndstack.analysis.explorer.export import export
    from ndstack.progress import progress_bar

    chosen: dict[str, list[str]] = {}
    for one in strings:
        model, colon, text = one.partition(":")
        if not colon:
            raise NdstackError(f"--string {one!r} given, expected MODEL:STRING, such as palindromes:abba")
        chosen.setdefault(model, []).append(text)
    catalogue = Catalogue(runs, read=read_grammar_file)
    with progress_bar("models", len(catalogue.identifiers())) as progress:
        number = export(catalogue, folder, chosen, progress=progress)
    print(f"{number} strings written to {folder}; open {folder / 'index.html'}")


def _picture(
    what: What,
    source: "Source",
    word: tuple[str, ...],
    time: int | None,
    stack: int,
    best: int,
    all_runs: bool,
) -> "Picture | Animation":
    from ndstack.analysis import figures

    if what == "evolution":
        if source.run is None:
            raise NdstackError(f"{source.name} is not a run; evolution needs a run trained with --snapshots")
        return figures.draw_evolution(figures.Evolution.of_run(source.run, word, stack))
    trace = source.trace(word)
    if what == "predictions":
        return figures.draw_predictions(trace)
    own = trace.stack(stack)
    simple = {
        "attention": figures.draw_attention,
        "readings": figures.draw_readings,
        "actions": figures.draw_actions,
    }
    if what in simple:
        return simple[what](own)
    if what == "wfa":
        return figures.draw_wfa(own.runs.at(time))
    if what == "animation":
        return figures.animate_stacks(own.runs.at(time))
    found = _runs(trace, own, time, all_runs).k_best(best)
    if len(found) < best:
        raise NdstackError(f"--best {best} given, but there are only {len(found)} runs")
    return figures.draw_stacks(found[-1]) if what == "stacks" else figures.draw_tree(found[-1])


def _pca(
    source: "Source", words: list[tuple[str, ...]], samples: int, after: str | None, seed: int, stack: int
) -> "Picture":
    import numpy as np

    from ndstack.analysis.figures import draw_pca, readings_by_next_symbol

    if samples:
        if source.language is None:
            raise NdstackError(f"the language of {source.name} is unknown; give strings instead of --samples")
        rng = np.random.default_rng(seed)
        lengths = source.language.lengths(*source.lengths)
        words = words + [
            tuple(source.language.sample(lengths[int(rng.random() * len(lengths))], rng))
            for _ in range(samples)
        ]
    if not words:
        raise NdstackError(
            f"nothing to read; expected strings or --samples: ndstack draw {source.name} --samples 100"
        )
    return draw_pca(*readings_by_next_symbol(source.model, words, after, stack))


def _runs(trace: "Trace", stack: "StackTrace", time: int | None, all_runs: bool) -> "StackRuns":
    """Return the runs to show: only accepting ones, if the string is accepted and read to its end."""
    runs = stack.runs.at(time)
    whole = time is None or time == stack.steps
    compiled = runs.weights.accept is not None
    return runs.accepting() if trace.accepted and compiled and whole and not all_runs else runs


def _as_json(source: "Source", string: str, trace: "Trace", runs: "StackRuns") -> dict[str, object]:
    alive = runs.log_weight > float("-inf")
    return {
        "model": source.name,
        "string": string,
        "accepted": trace.accepted,
        "log_weight": runs.log_weight if alive else None,
        "log_count": runs.log_count if alive else None,
        "entropy": runs.entropy() if alive else None,
        "actions": runs.posterior.actions().tolist() if alive else None,
    }

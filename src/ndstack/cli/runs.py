"""Commands about existing runs: evaluate, generate, show, compare."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import (
    AsJson,
    Count,
    Greedy,
    LengthsIfGiven,
    MaxLengthIfGiven,
    OutPictureIfGiven,
    Prefix,
    Seed,
    Split,
    Temperature,
    parse_lengths,
    parse_word,
)
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.training import Run

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A folder that `ndstack train` made, or one of `ndstack zoo`.")
]


@command(
    "ndstack evaluate runs/reversal",
    "ndstack evaluate runs/reversal --split validation --json",
    "ndstack evaluate runs/reversal --lengths 100:120",
)
def evaluate(
    run: RunFolder,
    split: Split = "test",
    lengths: LengthsIfGiven = None,
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Measure the best model of a run, overall and by length; the results are also written to its folder.

    Strings have the lengths that the run says, unless others are given; results on those are written beside
    its own, as test-100-120.json. Nothing is written to the zoo; the results of a network in it are shown
    and, with --out, drawn.
    """
    from ndstack import plotting, training, zoo
    from ndstack.progress import progress_bar
    from ndstack.training.material import count_strings, make_task, with_lengths
    from ndstack.training.pictures import draw_by_length

    folder, name = training.Run.open(run), str(split)
    trained = folder.config.data.lengths
    if lengths is not None:
        low, high = parse_lengths(lengths)
        folder.config, name = with_lengths(folder.config, (low, high)), f"{split}-{low}-{high}"
    picture = out if zoo.is_zoo(run) else out or run / f"{name}.svg"
    plotting.check_format(picture)
    task = make_task(folder.config)
    if task is not None:
        _print_task(folder, training.evaluate_task(folder.load(), task, split), as_json)
        return
    with progress_bar(f"reading {split} strings", count_strings(folder.config, split)) as advance:
        result = training.measure(folder, split, progress=advance)
    if not zoo.is_zoo(run):
        folder.replace(f"{name}.json", json.dumps(result.as_json(), indent=2) + "\n")
    if picture is not None:
        title = f"{folder.config.language}, {split} set"
        plotting.save_figure(draw_by_length({folder.label: result}, title, trained), picture)
    if as_json:
        print(json.dumps(result.as_json()))
        return
    columns, *rows = result.table()
    print_table([str(name) for name in columns], rows)
    print(result.note + ("" if picture is None else f" Plot: {picture}"))


def _print_task(run: "Run", result: "dict[str, str | float]", as_json: bool) -> None:
    """Print the results on a registered task, and write them to the folder of the run."""
    run.replace(f"{result['split']}.json", json.dumps(result, indent=2) + "\n")
    if as_json:
        print(json.dumps(result))
        return
    numbers = ", ".join(
        f"{name.replace('_', ' ')} {value:.4f}" for name, value in result.items() if isinstance(value, float)
    )
    print(f"{run.label} on {run.config.language}, {result['split']} data: {numbers}")


@command("ndstack generate runs/reversal --count 5", "ndstack generate runs/reversal --prefix 0110# --greedy")
def generate(
    run: RunFolder,
    count: Count = 10,
    prefix: Prefix = "",
    max_length: MaxLengthIfGiven = None,
    temperature: Temperature = 1.0,
    greedy: Greedy = False,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam search of this width.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Generate strings with the best model of a run, and show whether each is in the language."""
    from ndstack import training
    from ndstack.nn import beam_search, sample
    from ndstack.nn import greedy as take_best
    from ndstack.training.material import language_of

    folder = training.Run.open(run)
    if folder.config.task != "model":
        raise NdstackError(
            f"{run} has learned to {folder.config.task}, so it does not generate strings of its language"
        )
    model, language = folder.load(), language_of(folder.config)
    longest = max_length or folder.config.data.test_lengths[1]
    start = parse_word(language, prefix)
    if beam is not None:
        made = beam_search(model, [start], longest, beam)[0][:count]
    elif greedy:
        made = take_best(model, [start], longest)
    else:
        made = sample(model, [start] * count, longest, temperature=temperature, seed=seed)
    for one in made:
        inside = one.complete and one.word in language
        if as_json:
            row = {"string": one.word, "log_probability": one.log_probability, "complete": one.complete}
            print(json.dumps({**row, "in_language": inside}))
            continue
        verdict = "cut off" if not one.complete else "in the language" if inside else "not in the language"
        print(f"{one.log_probability:.3f}\t{verdict}\t{language.separator.join(one.word)}")


@command("ndstack show runs/reversal", "ndstack show runs/reversal --out curve.svg")
def show(run: RunFolder, out: OutPictureIfGiven = None, as_json: AsJson = False) -> None:
    """Show the learning curve of a run as a table and a plot."""
    from ndstack import plotting, training, zoo
    from ndstack.training.pictures import draw_curves
    from ndstack.training.run import best_epoch

    picture = out or Path("curve.svg" if zoo.is_zoo(run) else run / "curve.svg")
    plotting.check_format(picture)
    folder = training.Run.open(run)
    folder.check()
    history, seconds = folder.metrics(), folder.seconds()
    if history and (out is not None or not as_json):
        plotting.save_figure(draw_curves({folder.label: history}, folder.config.language), picture)
    if as_json:
        print(json.dumps([{**line, "seconds": seconds.get(int(line["epoch"]))} for line in history]))
        return
    if not history:
        told = (
            f"no results; `ndstack evaluate {run}` measures it"
            if folder.tuned
            else "no epoch is complete yet"
        )
        print(f"{run}: {told}")
        return
    names = [name for name in history[0] if name != "epoch"]
    best = best_epoch(history)["epoch"]
    print_table(
        ("epoch", *(name.replace("_", " ") for name in names), "seconds"),
        [
            (
                f"{line['epoch']}{' *' * (line['epoch'] == best)}",
                *(line.get(name) for name in names),
                round(seconds.get(int(line["epoch"]), 0.0), 1),
            )
            for line in history
        ],
    )
    print(f"* the best epoch. Plot: {picture}")


@command("ndstack compare runs/reversal runs/lstm --out both.svg", "ndstack compare runs/* --json")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders that `ndstack train` made.")],
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: best validation results, parameters and time; with --out, also their curves."""
    from ndstack import plotting, training
    from ndstack.training.pictures import draw_curves

    plotting.check_format(out)
    folders = [training.Run.open(run) for run in runs]
    rows = [folder.summary() for folder in folders]
    if as_json:
        print(json.dumps(rows))
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
    if out is not None:
        labels = _labels(folders)
        curves = {label: folder.metrics() for label, folder in zip(labels, folders, strict=True)}
        plotting.save_figure(draw_curves(curves), out)
        print(f"Plot: {out}", file=sys.stderr)


def _labels(folders: "list[Run]") -> list[str]:
    """Return names for a legend, with the folder if several runs have the same model."""
    names = [folder.label for folder in folders]
    return [
        name if names.count(name) == 1 else f"{name} ({folder.folder})"
        for name, folder in zip(names, folders, strict=True)
    ]

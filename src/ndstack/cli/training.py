"""Commands about training: train, evaluate, generate, show, compare."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ndstack.cli.app import Interrupted, command
from ndstack.cli.arguments import (
    AsJson,
    Count,
    GrammarFile,
    Greedy,
    LanguageName,
    MaxLengthIfGiven,
    ModelName,
    OutFolderIfGiven,
    OutPictureIfGiven,
    Prefix,
    Resume,
    Seed,
    Split,
    Temperature,
    parse_lengths,
)
from ndstack.cli.options import TrainOptions, unfold
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.training import Result, Run, RunConfig

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ndstack train` made.")]


@command(
    "ndstack train marked-reversal --model rns-2-3 --out runs/reversal",
    "ndstack train --resume runs/reversal",
    "ndstack train dyck --model lstm --out runs/short --lengths 10:20 --set options.hidden=40",
    "ndstack train --config my.toml --out runs/mine",
)
@unfold
def train(
    language: LanguageName = None,
    model: ModelName = None,
    out: OutFolderIfGiven = None,
    resume: Resume = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings, named as in config.json.")
    ] = None,
    grammar: GrammarFile = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Strings that `ndstack dataset` made.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="At the beginning [0.005].")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="The greatest number of epochs [200].")] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Lengths of strings, or one length [40:80].")
    ] = None,
    strings: Annotated[
        int | None, typer.Option("--train", help="Training strings [10000]; a tenth more to validate.")
    ] = None,
    eos: Annotated[bool | None, typer.Option("--eos/--no-eos", help="Predict the end? [yes]")] = None,
    snapshots: Annotated[
        int | None, typer.Option(help="Keep the parameters after so many first epochs.")
    ] = None,
    *,
    options: TrainOptions,
) -> None:
    """Train a model on a formal language, with the dissertation's recipe unless told otherwise.

    The run goes to a new folder, --out. Interrupt it at any time; --resume goes on and ends with the same
    numbers, to the last bit. On a terminal there are progress bars, elsewhere one line of JSON an epoch; the
    last line is the result.
    """
    from ndstack import training
    from ndstack.training.material import use_folder

    values: dict[str, Any] = {
        "model": model,
        "data": {"train": strings, "validation": strings and max(1, strings // 10)} | _lengths(lengths),
        "training": {
            "learning_rate": learning_rate,
            "max_epochs": max_epochs,
            "eos": eos,
            "snapshots": snapshots,
        },
    }
    values = options.apply_settings(_of_file(config), values | _language_values(language, grammar))
    values = values if data is None else use_folder(data, values)
    run_config = None
    if resume is not None:
        if out is not None:
            raise NdstackError(
                "--out and --resume given; expected --out for a new run, --resume for an old one"
            )
        training.change_settings(resume, values)
    else:
        _check_complete(out, values)
        run_config = training.RunConfig.of(values, str(config) if config else "the settings")
    folder = resume or out or Path()
    try:
        result = training.train(folder, run_config, show=options.show, tensorboard=options.tensorboard)
    except KeyboardInterrupt:
        raise Interrupted(f"ndstack train --resume {folder} goes on") from None
    _print_result(folder, training.Run.open(folder).config, result, options.result_as_json)


def _check_complete(out: Path | None, values: dict[str, Any]) -> None:
    """Raise an error in one line unless a new run has all it needs."""
    if out is None:
        raise NdstackError("no folder for the run given; expected --out FOLDER, or --resume FOLDER")
    if "model" not in values:
        raise NdstackError("no model given; expected --model NAME, such as rns-2-3 or lstm")
    if "language" not in values:
        raise NdstackError("no LANGUAGE, --grammar or --data given; `ndstack languages` lists the names")


def _print_result(folder: Path, config: "RunConfig", result: "Result", as_json: bool) -> None:
    if as_json:
        row = {"run": str(folder), "language": config.language, "model": config.model, **result.summary()}
        print(json.dumps(row))
        return
    best = result.best
    print(
        f"{folder}: {config.model} on {config.language}: {best['difference']:.4f} nats above the lower bound "
        f"(cross-entropy {best['cross_entropy']:.4f}) at epoch {result.best_epoch} of {result.epochs}; "
        f"{result.reason}"
    )


def _lengths(text: str | None) -> dict[str, Any]:
    """Training lengths as typed; test lengths reach a quarter further, as 100 does beyond 80."""
    if text is None:
        return {}
    low, high = parse_lengths(text)
    return {"lengths": (low, high), "test_lengths": (low, high + high // 4)}


def _language_values(language: str | None, grammar: Path | None) -> dict[str, Any]:
    if language is not None and grammar is not None:
        raise NdstackError("a LANGUAGE and --grammar given, expected one of them")
    if grammar is None:
        return {} if language is None else {"language": language}
    from ndstack.grammars import read_grammar

    return {"language": grammar.stem, "grammar": str(read_grammar(grammar))}


def _of_file(config: Path | None) -> dict[str, Any]:
    from ndstack.training.config import read_toml

    return {} if config is None else read_toml(config)


@command("ndstack evaluate runs/reversal", "ndstack evaluate runs/reversal --split validation --json")
def evaluate(
    run: RunFolder,
    split: Split = "test",
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Measure the best model of a run, overall and by length; the results also go to the run's folder."""
    from ndstack import plotting, training
    from ndstack.progress import progress_bar
    from ndstack.training.pictures import draw_by_length

    folder = training.Run.open(run)
    picture = out or run / f"{split}.svg"
    plotting.check_format(picture)
    model = folder.load()
    data = training.make_test_data(folder.config) if split == "test" else training.make_data(folder.config)
    with progress_bar(f"reading {split} strings", len(getattr(data, split))) as advance:
        result = training.evaluate(
            model,
            data,
            split,
            eos=folder.config.training.eos,
            progress=advance,
        )
    folder.replace(f"{split}.json", json.dumps(result.as_json(), indent=2) + "\n")
    plotting.save(draw_by_length({folder.label: result}, f"{folder.config.language}, {split} set"), picture)
    if as_json:
        print(json.dumps(result.as_json()))
        return
    print_table(
        ("length", "strings", "cross-entropy", "lower bound", "difference"),
        [
            (row.length or "all", row.strings, row.cross_entropy, row.lower_bound, row.difference)
            for row in (*result.by_length, result.overall)
        ],
    )
    print(f"Nats a symbol; for each length given the length. Plot: {picture}")


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
    """Let the best model of a run write strings; beside each, whether it is in the language."""
    from ndstack import training
    from ndstack.cli.arguments import parse_word
    from ndstack.nn import beam_search, sample
    from ndstack.nn import greedy as take_best
    from ndstack.training.material import find_language

    folder = training.Run.open(run)
    model, language = folder.load(), find_language(folder.config)
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
    """Show how a run went: its curve as a table and a plot."""
    from ndstack import plotting, training
    from ndstack.training.pictures import draw_curves
    from ndstack.training.run import best_epoch

    folder = training.Run.open(run)
    history, seconds = folder.metrics(), folder.seconds()
    if as_json:
        print(json.dumps([{**line, "seconds": seconds.get(line["epoch"])} for line in history]))
        return
    if not history:
        print(f"{run}: no epoch is complete yet")
        return
    names = [name for name in history[0] if name != "epoch"]
    best = best_epoch(history)["epoch"]
    print_table(
        ("epoch", *(name.replace("_", " ") for name in names), "seconds"),
        [
            (
                f"{line['epoch']}{' *' * (line['epoch'] == best)}",
                *(line.get(name) for name in names),
                round(seconds.get(line["epoch"], 0.0), 1),
            )
            for line in history
        ],
    )
    picture = out or run / "curve.svg"
    plotting.save(draw_curves({folder.label: history}, folder.config.language), picture)
    print(f"* the best epoch. Plot: {picture}")


@command("ndstack compare runs/reversal runs/lstm --out both.svg", "ndstack compare runs/* --json")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders that `ndstack train` made.")],
    out: OutPictureIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: best validation results, parameters, time; with --out their curves."""
    from ndstack import plotting, training
    from ndstack.training.pictures import draw_curves

    folders = [training.Run.open(run) for run in runs]
    rows = [folder.summary() for folder in folders]
    if as_json:
        print(json.dumps(rows))
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
    if out is not None:
        labels = _labels(folders)
        curves = {label: folder.metrics() for label, folder in zip(labels, folders, strict=True)}
        plotting.save(draw_curves(curves), out)
        print(f"Plot: {out}", file=sys.stderr)


def _labels(folders: "list[Run]") -> list[str]:
    """Names for a legend; with the folder where models alone would be the same."""
    names = [folder.label for folder in folders]
    return [
        name if names.count(name) == 1 else f"{name} ({folder.folder})"
        for name, folder in zip(names, folders, strict=True)
    ]

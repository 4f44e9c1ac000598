"""The command that trains models of formal languages: train."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import (
    GrammarFile,
    LanguageName,
    ModelName,
    OutFolderIfGiven,
    Resume,
    parse_lengths,
    read_grammar_file,
)
from ndstack.cli.options import MACHINE, Flags, TrainOptions, help_of, unfold
from ndstack.errors import NdstackError
from ndstack.settings.reading import Table, merge, read_toml
from ndstack.settings.recipes import with_task_defaults

if TYPE_CHECKING:
    from ndstack.training import Result, RunConfig


STAGE: dict[str, Callable[[str], int | float]] = {
    "max_epochs": int,
    "stop_after": int,
    "learning_rate": float,
}
"""The settings that may follow the lengths of a stage, in this order."""


@dataclasses.dataclass(frozen=True)
class FormalOptions:
    """The options of `train` alone: a language, and how it is learned."""

    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings, named as in config.json.")
    ] = None
    grammar: GrammarFile = None
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Strings that `ndstack dataset` made.")
    ] = None
    pairs: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Pairs of strings in tab-separated files, for --task transduce."),
    ] = None
    recipe: Annotated[
        str | None,
        typer.Option(help="dissertation, or public: its public code where it differs. [dissertation]"),
    ] = None
    lengths: Annotated[str | None, typer.Option(metavar="LOW:HIGH", help=help_of("data.lengths"))] = None
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="STAGE,...",
            help="The lengths of each stage, such as 4:20,8:40,40:80; each stage starts from the best "
            "parameters of the one before. 4:20@60/10/0.01: at most 60 epochs, stop after 10 without "
            "improvement, learning rate 0.01; what is left out is the same as in the last stage.",
        ),
    ] = None
    strings: Annotated[
        int | None,
        typer.Option("--train", help=f"{help_of('data.train')} For validation, there are a tenth as many."),
    ] = None

    def settings(self) -> Table:
        """Return settings in the form of config.json; None for what was not given."""
        counts: Table = {"train": self.strings, "validation": self.strings and max(1, self.strings // 10)}
        lengths, last = _stages(self.stages, self.lengths)
        pairs = {} if self.pairs is None else {"folder": str(self.pairs)}
        label = {} if self.pairs is None else {"language": self.pairs.absolute().name}
        return {
            "recipe": self.recipe,
            "data": counts | _lengths(lengths),
            "training": last,
            "pairs": pairs,
            **label,
        }


@command(
    "ndstack train marked-reversal --model rns-2-3 --out runs/reversal",
    "ndstack train --resume runs/reversal",
    "ndstack train dyck --model lstm --out runs/short --lengths 10:20 --set options.hidden=40",
    "ndstack train dyck --model lstm --out runs/long --start-from runs/short --set options.hidden=40",
    "ndstack train unmarked-reversal --model rns-2-3 --out runs/staged --stages 4:20@60,8:40@25,40:80",
    "ndstack train dyck --task recognize --model sup-10 --out runs/recognizer",
    "ndstack train reverse-string --task transduce --model sup-10 --out runs/reverse",
    "ndstack train --pairs pairs --task transduce --model tf --out runs/pairs --set pairs.units=characters",
    "ndstack train --config my.toml --out runs/mine",
)
@unfold
def train(
    language: LanguageName = None,
    model: ModelName = None,
    out: OutFolderIfGiven = None,
    resume: Resume = None,
    *,
    formal: FormalOptions,
    given: Annotated[
        Table,
        Flags(
            "task",
            "training.learning_rate",
            "training.max_epochs",
            "training.eos",
            "training.snapshots",
            *MACHINE,
        ),
    ],
    options: TrainOptions,
) -> None:
    """Train a model on a formal language or a transduction, by default with the dissertation's recipe.

    The task is to model the probabilities of strings, to recognize whether they are in the language, or to
    transduce: to write the outputs of inputs.

    The run is written to a new folder, --out. It can be interrupted at any time; --resume resumes it, and the
    results are the same to the last bit. On a terminal, there are progress bars; otherwise, one line of JSON
    per epoch. The last line is the result.
    """
    from ndstack import training
    from ndstack.training.material import use_folder

    config = formal.config
    flags = {"model": model, **formal.settings(), **_language_values(language, formal.grammar, formal.pairs)}
    values = options.apply_settings({} if config is None else read_toml(config), merge(flags, given))
    values = values if formal.data is None else use_folder(formal.data, values)
    run_config = None
    if resume is not None:
        if out is not None:
            raise NdstackError(
                "--out and --resume given; expected --out for a new run, --resume for an old one"
            )
        training.change_settings(resume, values)
    else:
        _check_complete(out, values)
        source = str(config) if config else "the settings"
        run_config = training.RunConfig.of(with_task_defaults(values), source)
    folder = resume or out or Path()
    result = options.train(training.train, folder, run_config)
    _print_result(folder, training.Run.open(folder).config, result, options.result_as_json)


def _check_complete(out: Path | None, values: Table) -> None:
    """Raise an error if a new run lacks a folder, a model or a language."""
    if out is None:
        raise NdstackError("no folder for the run given; expected --out FOLDER, or --resume FOLDER")
    if "model" not in values:
        raise NdstackError("no model given; expected --model NAME, such as rns-2-3 or lstm")
    if "language" not in values:
        raise NdstackError(
            "no LANGUAGE, --grammar, --data or --pairs given; `ndstack languages` lists the languages, "
            "`ndstack transductions` those for --task transduce"
        )


def _print_result(folder: Path, config: "RunConfig", result: "Result", as_json: bool) -> None:
    if as_json:
        row = {"run": str(folder), "language": config.language, "model": config.model, **result.summary()}
        print(json.dumps(row))
        return
    best = result.best
    numbers = f"cross-entropy {best['cross_entropy']:.4f}"
    if "accuracy" in best:
        numbers = f"accuracy {best['accuracy']:.4f} ({numbers})"
    if "difference" in best:
        numbers = f"{best['difference']:.4f} nats above the lower bound ({numbers})"
    print(
        f"{folder}: {config.model} on {config.language}: {numbers} at epoch {result.best_epoch} of "
        f"{result.epochs}; {result.reason}"
    )


def _stages(stages: str | None, lengths: str | None) -> tuple[str | None, Table]:
    """Return the lengths of the last stage as typed, and the settings of the training."""
    if stages is None:
        return lengths, {}
    if lengths is not None:
        raise NdstackError("--lengths and --stages given; expected only --stages, whose last has the lengths")
    *first, (lengths, own) = map(_stage, stages.split(","))
    return lengths, own | {"stages": [{"lengths": parse_lengths(text), **values} for text, values in first]}


def _stage(text: str) -> tuple[str, Table]:
    """Return the lengths and the settings in `4:20@60/10/0.01`."""
    lengths, at, rest = text.strip().partition("@")
    parts = rest.split("/") if at else []
    try:
        if len(parts) > len(STAGE):
            raise ValueError
        values: Table = {
            name: kind(part) for (name, kind), part in zip(STAGE.items(), parts, strict=False) if part
        }
    except ValueError:
        raise NdstackError(
            f"{text!r} is not a stage; write its lengths and, if it has its own, epochs, patience and "
            "learning rate, such as 4:20, 4:20@60, 4:20@60/10 or 4:20@60/10/0.01"
        ) from None
    parse_lengths(lengths)
    return lengths, values


def _lengths(text: str | None) -> Table:
    """Return the settings of lengths as typed; test strings are up to a quarter longer, as 100 is than 80."""
    if text is None:
        return {}
    low, high = parse_lengths(text)
    return {"lengths": (low, high), "test_lengths": (low, high + high // 4)}


def _language_values(language: str | None, grammar: Path | None, pairs: Path | None) -> Table:
    for option, value in (("--grammar", grammar), ("--pairs", pairs)):
        if language is not None and value is not None:
            raise NdstackError(f"a LANGUAGE and {option} given, expected one of them")
    if grammar is None:
        return {} if language is None else {"language": language}
    return {"language": grammar.stem, "grammar": str(read_grammar_file(grammar))}

"""The command that trains models of formal languages: train."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from ndstack.cli.options import TrainOptions, unfold
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.training import Result, RunConfig


@dataclasses.dataclass(frozen=True)
class FormalOptions:
    """Of `train` alone: a language and how it is learned."""

    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings, named as in config.json.")
    ] = None
    grammar: GrammarFile = None
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Strings that `ndstack dataset` made.")
    ] = None
    learning_rate: Annotated[float | None, typer.Option(help="At the beginning [0.005].")] = None
    max_epochs: Annotated[int | None, typer.Option(help="The greatest number of epochs [200].")] = None
    lengths: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Lengths of strings, or one length [40:80].")
    ] = None
    strings: Annotated[
        int | None, typer.Option("--train", help="Training strings [10000]; a tenth more to validate.")
    ] = None
    eos: Annotated[bool | None, typer.Option("--eos/--no-eos", help="Predict the end? [yes]")] = None
    snapshots: Annotated[int | None, typer.Option(help="Keep the parameters after so many first epochs.")] = (
        None
    )

    def settings(self) -> dict[str, Any]:
        """As in config.json; None for what was not given."""
        counts = {"train": self.strings, "validation": self.strings and max(1, self.strings // 10)}
        names = ("learning_rate", "max_epochs", "eos", "snapshots")
        return {
            "data": counts | _lengths(self.lengths),
            "training": {name: getattr(self, name) for name in names},
        }


@command(
    "ndstack train marked-reversal --model rns-2-3 --out runs/reversal",
    "ndstack train --resume runs/reversal",
    "ndstack train dyck --model lstm --out runs/short --lengths 10:20 --set options.hidden=40",
    "ndstack train dyck --model lstm --out runs/long --start-from runs/short --set options.hidden=40",
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
    options: TrainOptions,
) -> None:
    """Train a model on a formal language, with the dissertation's recipe unless told otherwise.

    The run goes to a new folder, --out. Interrupt it at any time; --resume goes on and ends with the same
    numbers, to the last bit. On a terminal there are progress bars, elsewhere one line of JSON an epoch; the
    last line is the result.
    """
    from ndstack import training
    from ndstack.training.material import use_folder

    config = formal.config
    flags = {"model": model, **formal.settings(), **_language_values(language, formal.grammar)}
    values = options.apply_settings(_of_file(config), flags)
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
        run_config = training.RunConfig.of(values, str(config) if config else "the settings")
    folder = resume or out or Path()
    result = options.train(training.train, folder, run_config)
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
    return {"language": grammar.stem, "grammar": str(read_grammar_file(grammar))}


def _of_file(config: Path | None) -> dict[str, Any]:
    from ndstack.training.config import read_toml

    return {} if config is None else read_toml(config)

"""Options that commands share as a group: a dataclass whose fields become options."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from ndstack.cli.app import Interrupted
from ndstack.cli.arguments import (
    AsJson,
    Corpus,
    OutFolderIfGiven,
    Quiet,
    SeedIfGiven,
)

if TYPE_CHECKING:
    from ndstack.training import Result, RunConfig
    from ndstack.training.material import Show


def unfold(function: Callable[..., None]) -> Callable[..., None]:
    """A function some of whose parameters are dataclasses, as one that takes the fields as options."""
    signature = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    for one in signature.parameters.values():
        group, found = one.annotation, [one]
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            found = list(_options(group))
            groups[one.name] = group, [option.name for option in found]
        parameters += (option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in found)

    @functools.wraps(function)
    def call(**values: Any) -> None:
        made = {
            name: group(**{option: values.pop(option) for option in options})
            for name, (group, options) in groups.items()
        }
        function(**values, **made)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _options(group: type[Any]) -> Iterator[inspect.Parameter]:
    """The fields of a dataclass as parameters."""
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    for field in dataclasses.fields(group):
        yield inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Of `train` and `text train`."""

    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of config.json: training.clip=3."),
    ] = None
    start_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Begin with the best parameters of this run.")
    ] = None
    seed: SeedIfGiven = None
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None
    precision: Annotated[str | None, typer.Option(help="32, 64 or bf16-mixed.")] = None
    processes: Annotated[int | None, typer.Option(help="Each takes a share of every batch [1].")] = None
    threads: Annotated[int | None, typer.Option(help="Of each process [all cores].")] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write for TensorBoard, too.")] = False
    quiet: Quiet = False
    as_json: AsJson = False

    @property
    def show(self) -> "Show":
        """How progress is shown: bars on a terminal, elsewhere one line of JSON an epoch."""
        if self.quiet:
            return "nothing"
        return "terminal" if sys.stderr.isatty() and not self.as_json else "json"

    @property
    def result_as_json(self) -> bool:
        """Whether the last line is JSON: if asked for, or if no person reads it."""
        return self.as_json or not sys.stdout.isatty()

    def train(self, train: Callable[..., "Result"], folder: Path, config: "RunConfig | None") -> "Result":
        """Call the given function with these options; Ctrl-C says how to resume."""
        from ndstack.training.run import Run, is_run

        try:
            return train(folder, config, show=self.show, tensorboard=self.tensorboard)
        except KeyboardInterrupt:
            advice = (
                f"resume with: {Run.open(folder).resuming}" if is_run(folder) else "nothing was saved yet"
            )
            raise Interrupted(advice) from None

    def apply_settings(self, values: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
        """Settings, changed by a command's own flags, changed by these, changed by --set."""
        from ndstack.settings.reading import merge, parse_setting

        names = ("device", "precision", "processes", "threads")
        shared = {
            "seed": self.seed,
            "start_from": None if self.start_from is None else str(self.start_from),
            "training": {name: getattr(self, name) for name in names},
        }
        for given in (flags, shared):
            values = merge(values, _given(given))
        for setting in self.settings or []:
            values = merge(values, parse_setting(setting))
        return values


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Without what was not given."""
    kept = {key: _given(value) if isinstance(value, dict) else value for key, value in values.items()}
    return {key: value for key, value in kept.items() if value is not None and value != {}}


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Of `reproduce` and `sweep`."""

    out: OutFolderIfGiven = None
    only: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE,...", help="Such as model=lstm,model=rns-2-3,language=dyck."),
    ] = None
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Processes of this machine, or Ray.")] = (
        "local"
    )
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster; auto for the one this machine is in. [a Ray of our own]"),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes; 0 for none but this one. [one a core, if there is memory]"),
    ] = None
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="Lower the priority of the processes; 19 is the lowest.")
    ] = 0
    cpus: Annotated[float, typer.Option(min=0, help="CPUs that Ray gives to a trial.")] = 1.0
    gpus: Annotated[float, typer.Option(min=0, help="GPUs that Ray gives to a trial.")] = 0.0
    corpus: Corpus = None
    suites: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="SyntaxGym suites, for SG scores.")
    ] = None
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Tables made by `ndstack gather`: complete runs in them are not run again."
        ),
    ] = None
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try trials again that failed for reasons of their own.")
    ] = False
    quiet: Quiet = False
    as_json: AsJson = False

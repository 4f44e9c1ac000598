"""Groups of options that commands share: settings of a run, and dataclasses whose fields are options."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer

from ndstack.cli.app import Interrupted
from ndstack.cli.arguments import AsJson, Corpus, OutFolderIfGiven, Quiet, SeedIfGiven
from ndstack.settings import RunConfig, Settings
from ndstack.settings.document import default_text, description, find_field, plain_type
from ndstack.settings.reading import Table, Values, flatten, merge, nested, parse_setting

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ndstack.training import Result
    from ndstack.training.material import Show


class Flags:
    """The mark of a parameter whose value is nested tables of settings, each set by a flag of its own.

    The name, the type, the help and the default of a flag follow from the declaration of the setting.

    Args:
        paths: the settings, such as `training.clip`, which becomes `--clip`.
        declared: the class that declares the settings.
        recipes: settings that replace defaults, by the prefix of these defaults in the help.
    """

    def __init__(
        self, *paths: str, declared: type[Settings] = RunConfig, recipes: Mapping[str, Values] | None = None
    ) -> None:
        self.paths = {path.rpartition(".")[2]: path for path in paths}
        self.declared, self.recipes = declared, recipes or {"": {}}

    def __call__(self, **values: object) -> Table:
        """Return the settings that were given, as nested tables."""
        found: Table = {}
        for name, value in values.items():
            if value is not None:
                found = merge(found, nested(self.paths[name].split("."), value))
        return found

    def options(self) -> Iterator[inspect.Parameter]:
        """Yield the flags as parameters of a function."""
        for name, path in self.paths.items():
            kind: Any = plain_type(find_field(self.declared, path))
            option = Annotated[kind | None, typer.Option(help=help_of(path, self.declared, self.recipes))]
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)


def help_of(
    path: str, declared: type[Settings] = RunConfig, recipes: Mapping[str, Values] | None = None
) -> str:
    """Return the description of a setting and its default, for the help of a flag."""
    field = find_field(declared, path)
    defaults: dict[str, str] = {}
    for word, recipe in (recipes or {"": {}}).items():
        text = default_text(field, flatten(recipe).get(path))
        if text and text not in defaults:
            defaults[text] = word + text
    return f"{description(field)} [{'; '.join(defaults.values())}]" if defaults else description(field)


def unfold(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that takes the options of each group among the parameters one by one.

    A group is a dataclass, or a parameter marked with `Flags`.
    """
    signature = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    for one in signature.parameters.values():
        group, found = one.annotation, [one]
        flags = next((mark for mark in get_args(group)[1:] if isinstance(mark, Flags)), None)
        if flags is not None:
            found = list(flags.options())
            groups[one.name] = flags, [option.name for option in found]
        elif isinstance(group, type) and dataclasses.is_dataclass(group):
            found = list(_options(group))
            groups[one.name] = group, [option.name for option in found]
        parameters += (option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in found)

    @functools.wraps(function)
    def call(**values: object) -> None:
        made = {
            name: group(**{option: values.pop(option) for option in options})
            for name, (group, options) in groups.items()
        }
        function(**values, **made)

    call.__dict__["__signature__"] = signature.replace(parameters=parameters)
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _options(group: "type[DataclassInstance]") -> Iterator[inspect.Parameter]:
    """Yield the fields of a dataclass as parameters."""
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    for field in dataclasses.fields(group):
        yield inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])


MACHINE = ("training.device", "training.precision", "training.processes", "training.threads")
"""The settings of the device, the precision, the processes and the threads of a run."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The options that `train` and `text train` share."""

    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of config.json, such as training.clip=3."
        ),
    ] = None
    start_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start with the best parameters of this run.")
    ] = None
    seed: SeedIfGiven = None
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write metrics for TensorBoard.")
    ] = False
    quiet: Quiet = False
    as_json: AsJson = False

    @property
    def show(self) -> "Show":
        """The form of progress: bars on a terminal, otherwise one line of JSON per epoch."""
        if self.quiet:
            return "nothing"
        return "terminal" if sys.stderr.isatty() and not self.as_json else "json"

    @property
    def result_as_json(self) -> bool:
        """Whether the last line is JSON: with --json, or if the output does not go to a terminal."""
        return self.as_json or not sys.stdout.isatty()

    def train(self, train: Callable[..., "Result"], folder: Path, config: "RunConfig | None") -> "Result":
        """Call the given function with these options; at Ctrl-C, print how to resume."""
        from ndstack.training.run import Run, is_run

        try:
            return train(folder, config, show=self.show, tensorboard=self.tensorboard)
        except KeyboardInterrupt:
            advice = (
                f"resume with: {Run.open(folder).resuming}" if is_run(folder) else "nothing was saved yet"
            )
            raise Interrupted(advice) from None

    def apply_settings(self, values: Table, flags: Table) -> Table:
        """Return settings, changed by a command's own flags, then by these options, then by --set."""
        start = None if self.start_from is None else str(self.start_from)
        shared: Table = {"seed": self.seed, "start_from": start}
        for given in (flags, shared):
            values = merge(values, _given(given))
        for setting in self.settings or []:
            values = merge(values, parse_setting(setting))
        return values


def _given(values: Table) -> Table:
    """Return the settings that were given, without None and empty tables."""
    kept = {key: _given(value) if isinstance(value, dict) else value for key, value in values.items()}
    return {key: value for key, value in kept.items() if value is not None and value != {}}


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """The options that `reproduce` and `sweep` share."""

    out: OutFolderIfGiven = None
    only: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE,...", help="Trials to run: model=lstm,model=rns-2-3,language=dyck."),
    ] = None
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Run trials in processes of this machine, or with Ray.")
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(help="The Ray cluster; auto for that of this machine. [Ray on this machine alone]"),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, help="The number of processes; 0: only this one. [one per core, memory allowing]"
        ),
    ] = None
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="Lower the priority of the processes; 19 is the lowest.")
    ] = 0
    cpus: Annotated[float, typer.Option(min=0, help="The number of CPUs that Ray gives to a trial.")] = 1.0
    gpus: Annotated[float, typer.Option(min=0, help="The number of GPUs that Ray gives to a trial.")] = 0.0
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
        bool, typer.Option("--retry-failed", help="Repeat trials that failed because of their settings.")
    ] = False
    quiet: Quiet = False
    as_json: AsJson = False

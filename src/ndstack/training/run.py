"""A run folder, which holds everything about one training run; every file is replaced atomically.

| file | content |
|---|---|
| `config.json` | the complete configuration, from which the same run can be repeated |
| `model.json` | the description of the model |
| `environment.json` | the versions of the software, and the machine |
| `metrics.jsonl` | one line per epoch; the same bytes, however often the run was interrupted |
| `times.jsonl` | the seconds of each epoch, by the clock and of the processors |
| `best.safetensors` | the parameters with the lowest validation cross-entropy |
| `last/state.safetensors` | what resuming needs: parameters, optimizer, schedule, position, metrics |
| `snapshots/` | the parameters after each epoch, on request |
| `log.txt` | what happened, with times |
"""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from pydantic import BaseModel, TypeAdapter, ValidationError

from ndstack import files, zoo
from ndstack.errors import NdstackError, TrainingError, first_problem
from ndstack.html_tables import table
from ndstack.nn import LanguageModel, Transducer
from ndstack.nn.storage.files import CONFIGURATION as MODEL
from ndstack.nn.storage.files import load, load_transducer, pack_tensors, read_note, read_tensors
from ndstack.processes import cores
from ndstack.settings.reading import Values, flatten, merge
from ndstack.settings.run import RunConfig

Metrics = dict[str, int | float]
"""What was measured in one epoch: a line of `metrics.jsonl` or of `times.jsonl`."""
_METRICS = TypeAdapter(Metrics)

CONFIG = "config.json"
METRICS = "metrics.jsonl"
TIMES = "times.jsonl"
BEST = "best.safetensors"
STATE = "last/state.safetensors"
LOG = "log.txt"
ENVIRONMENT = "environment.json"
SNAPSHOTS = "snapshots"


class Run:
    """A training run in a folder."""

    def __init__(self, folder: str | Path, config: RunConfig) -> None:
        self.folder, self.config = Path(folder), config

    @classmethod
    def create(cls, folder: str | Path, config: RunConfig, model: BaseModel | None = None) -> Run:
        """Start a run in a new or empty folder, and write its configuration and the description of its model.

        The configuration is written first: whatever happens afterwards, the run can be resumed.
        """
        folder = Path(folder)
        run = cls(folder, config)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            cls.check_new(folder)
            run.replace(CONFIG, config.model_dump_json(indent=2) + "\n")
            run.complete(model)
        except OSError as error:
            raise TrainingError(f"cannot make a run in {folder}: {error.strerror or error}") from None
        return run

    def complete(self, model: BaseModel | None) -> None:
        """Write the files that are missing besides the configuration, and the description of the model."""
        (self.folder / STATE).parent.mkdir(exist_ok=True)
        if not (self.folder / ENVIRONMENT).exists():
            self.replace(ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
        if not (self.folder / METRICS).exists():
            self.replace(METRICS, "")
        if model is not None:
            self.replace(MODEL, model.model_dump_json(indent=2) + "\n")

    def check_resumable(self) -> None:
        """Raise an error if there is a trained model that a new beginning would overwrite.

        Copies of runs, and those that `ndstack hf import` makes, have no training state. A run that was
        killed at the end of its first epoch has none either, and begins anew.
        """
        if (self.folder / STATE).exists() or not (self.folder / BEST).exists():
            return
        if (self.folder / LOG).exists() and len(self.metrics()) <= 1:
            return
        raise TrainingError(
            f"{self.folder} has a trained model but no training state, so it cannot be resumed; start a new "
            f"run from it with --start-from {self.folder}"
        )

    @property
    def tuned(self) -> bool:
        """Whether its parameters were changed elsewhere, so that no results of its training are theirs."""
        best, log = self.folder / BEST, self.folder / LOG
        return best.exists() and not log.exists() and not self.metrics()

    def tidy(self) -> None:
        """Remove what killed processes left behind; the caller must have locked the folder."""
        files.tidy(self.folder, (self.folder / STATE).parent, self.folder / SNAPSHOTS)

    @classmethod
    def check_new(cls, folder: Path) -> None:
        """Raise an error if a folder is not empty, so that no run can start there."""
        if not folder.is_dir():
            return
        if any(entry.name != files.LOCK and not files.is_leftover(entry) for entry in folder.iterdir()):
            hint = f"{cls.open(folder).resuming} resumes it; or " if is_run(folder) else ""
            raise TrainingError(f"{folder} is not empty: {hint}choose another folder")

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Return the run in a folder, or a network of the zoo: `zoo:LANGUAGE/MODEL`."""
        folder = zoo.resolve(folder)
        path = folder / CONFIG
        if is_of_transformers(folder):
            raise TrainingError(
                f"{folder} is a model of transformers; `ndstack hf import {folder} --out RUN` makes it a run"
            )
        if not path.exists():
            raise TrainingError(
                f"{folder} is not a run: it has no {CONFIG}; expected what ndstack train made"
            )
        try:
            return cls(folder, RunConfig.model_validate_json(files.read_bytes(path, TrainingError)))
        except ValidationError as error:
            raise TrainingError(f"{path} is not a run's configuration: {first_problem(error)}") from None

    def replace(self, name: str, content: str | bytes) -> None:
        """Replace a file of the run atomically."""
        with self._writing(name) as path:
            files.replace(path, content)

    def log(self, message: str) -> None:
        """Add a line to `log.txt`."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self._append(LOG, f"{now} {message}\n")

    def add_time(self, epoch: int, seconds: float, processor_seconds: float | None = None) -> None:
        """Record how long this process worked on an epoch, by the clock and on the processors."""
        times: Metrics = {"epoch": epoch, "seconds": round(seconds, 3)}
        if processor_seconds is not None:
            times["processor_seconds"] = round(processor_seconds, 3)
        self._append(TIMES, json.dumps(times) + "\n")

    def seconds(self, kind: str = "seconds") -> dict[int, float]:
        """Return how long each epoch took, summed over interruptions.

        Args:
            kind: "seconds" by the clock, or "processor_seconds", which do not depend on other programs; runs
                of older versions lack them.
        """
        total: dict[int, float] = {}
        for line in self._lines(TIMES, "epoch", "seconds"):
            if kind in line:
                epoch = int(line["epoch"])
                total[epoch] = total.get(epoch, 0.0) + line[kind]
        return total

    def metrics(self) -> list[Metrics]:
        """Return what was measured after each epoch."""
        return self._lines(METRICS, "epoch", "validation_cross_entropy")

    def write_metrics(self, history: Sequence[Metrics]) -> None:
        """Replace the metrics of all epochs."""
        self.replace(METRICS, "".join(json.dumps(line) + "\n" for line in history))

    def keep(self, name: str, model: torch.nn.Module) -> None:
        """Write the parameters of the model to a file."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        self.replace(name, pack_tensors(model.state_dict()))

    def load(self, parameters: str = BEST) -> LanguageModel:
        """Return the model with its best parameters, or with those of a snapshot."""
        if self.config.task == "transduce":
            raise TrainingError(f"{self.folder} is a transducer, but this needs a language model")
        self._check_parameters(parameters)
        return load(self.folder, parameters=parameters)

    def load_transducer(self, parameters: str = BEST) -> Transducer:
        """Return the transducer with its best parameters, or with those of a snapshot."""
        if self.config.task != "transduce":
            raise TrainingError(f"{self.folder} is not a transducer; expected a run with --task transduce")
        self._check_parameters(parameters)
        return load_transducer(self.folder, parameters=parameters)

    def _check_parameters(self, name: str) -> None:
        self.check()
        if not (self.folder / name).exists():
            raise TrainingError(f"{self.folder} has no {name} yet; it appears after the first epoch")

    def check(self, *, complete: bool = False) -> None:
        """Raise an error if a file is missing or empty that the run must have by now.

        A run that has not completed an epoch has no results yet, unless it is known to be `complete`.
        """
        epochs = self._saved_epochs()  # first, because a run in progress writes its metrics before its state
        metrics, best = self.folder / METRICS, self.folder / BEST
        found = len(self.metrics())
        if found < epochs or (found == 0 and (complete or (best.exists() and not metrics.exists()))):
            how = f"has {found} of {epochs} epochs" if found else _absence(metrics)
            hint = f"{self.resuming} writes it again" if epochs else "put it back from a copy, or train again"
            raise TrainingError(f"{metrics} {how}; {hint}")
        if found and (not best.exists() or not best.stat().st_size):
            raise TrainingError(
                f"{best} {_absence(best)}; put it back from a copy, or train again in another folder"
            )

    def _saved_epochs(self) -> int:
        """Return the number of complete epochs in the saved state; 0 if there is none."""
        path = self.folder / STATE
        if not path.exists():
            return 0
        try:
            return int(json.loads(read_note(path))["epoch"])
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            if isinstance(error, NdstackError):
                raise
            raise TrainingError(f"{path} is damaged: it does not say how many epochs are complete") from None

    @property
    def resuming(self) -> str:
        """The command that resumes the run."""
        return (
            f"ndstack {'text ' if self.config.corpus else ''}train --resume {shlex.quote(str(self.folder))}"
        )

    @property
    def label(self) -> str:
        """A short name for legends: the model's, or the folder's."""
        return self.config.model or self.folder.name

    def _repr_html_(self) -> str:
        return table(list(self.summary().items()), (), "training run")

    def summary(self) -> dict[str, str | int | float | None]:
        """Return one row of a comparison: the best epoch and what it took; None for what is not known."""
        self.check()
        history, seconds = self.metrics(), self.seconds()
        best = best_epoch(history) if history else {}
        return {
            "run": str(self.folder),
            "language": self.config.language,
            "model": self.label,
            "parameters": self.count_parameters(),
            "learning_rate": self.config.training.learning_rate,
            "seed": self.config.seed,
            "epochs": len(history),
            "best_epoch": best.get("epoch"),
            "difference": best.get("validation_difference"),
            "cross_entropy": best.get("validation_cross_entropy"),
            "accuracy": best.get("validation_accuracy"),
            "seconds_an_epoch": sum(seconds.values()) / len(history) if history and seconds else None,
        }

    def count_parameters(self) -> int | None:
        """Return the number of parameters of the best model; None if there is none yet."""
        path = self.folder / BEST
        return sum(tensor.numel() for tensor in read_tensors(path)[0].values()) if path.exists() else None

    def snapshots(self) -> dict[int, str]:
        """Return the file of each snapshot by epoch; epoch 0 is before training."""
        paths = sorted((self.folder / SNAPSHOTS).glob("epoch-*.safetensors"))
        return {int(path.stem.removeprefix("epoch-")): f"{SNAPSHOTS}/{path.name}" for path in paths}

    def _append(self, name: str, line: str) -> None:
        with self._writing(name) as path, path.open("a", encoding="utf-8") as file:
            file.write(line)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """Yield the path of a file to write to; if writing fails, the error says how to resume."""
        path = self.folder / name
        try:
            yield path
        except OSError as error:
            raise TrainingError(
                f"cannot write {path}: {error.strerror or error}; what was saved before is intact: "
                f"solve the problem, then resume with {self.resuming}"
            ) from None

    def _lines(self, name: str, *required: str) -> list[Metrics]:
        """Return the lines of a file of numbers, each of which has at least the required ones."""
        path = self.folder / name
        text = files.read_text(path, TrainingError) if path.exists() else ""
        rows = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = _METRICS.validate_json(line)
            except ValidationError:
                row = {}
            if not row.keys() >= {*required}:
                wanted = " and ".join(required)
                raise TrainingError(
                    f"{path} is damaged: line {number} is not a JSON object with the numbers {wanted}"
                )
            rows.append(row)
        return rows


def _absence(path: Path) -> str:
    return "is empty" if path.exists() else "is missing"


def best_epoch(history: Sequence[Metrics]) -> Metrics:
    """Return the metrics of the first epoch with the lowest validation cross-entropy.

    In a run with stages, only the last stage that it has reached counts, because their strings differ.
    """
    return min(last_stage(history), key=lambda line: line["validation_cross_entropy"])


def last_stage(history: Sequence[Metrics]) -> list[Metrics]:
    """Return the epochs of the last stage that a run has reached; all epochs of a run without stages."""
    last = max((line.get("stage", 1) for line in history), default=1)
    return [line for line in history if line.get("stage", 1) == last]


def is_run(folder: str | Path) -> bool:
    """Return whether there is a run in this folder."""
    return (Path(folder) / CONFIG).exists() and not is_of_transformers(folder)


def is_of_transformers(folder: str | Path) -> bool:
    """Return whether this folder is what `save_pretrained` made, which has a `config.json`, too."""
    return (Path(folder) / "generation_config.json").exists()


def environment() -> dict[str, str | int]:
    """Return the versions of the software, and a description of the machine."""
    from ndstack import __version__
    from ndstack.training import machine

    return {
        "ndstack": __version__,
        "commit": machine.commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": version("numba"),
        "platform": platform.platform(),
        "cores": cores(),
        "cpu": machine.cpu_model(),
        "simd": machine.simd(),
    }


FREE = ("max_epochs", "stop_after", "checkpoint_seconds", "snapshots")
"""The settings of the training that may change in the middle of a run."""


def change_settings(folder: str | Path, values: Values) -> None:
    """Change settings of a run before it is resumed; a setting that must not change is an error.

    Args:
        folder: the folder of the run.
        values: nested tables, such as {"training": {"max_epochs": 300}}.
    """
    if not values:
        return
    if "recipe" in values:
        raise TrainingError(
            "a recipe given for a run that started without it; start a new run in another folder"
        )
    run = Run.open(folder)
    new = RunConfig.of(merge(run.config.model_dump(mode="json"), values), "the settings")
    before, after = flatten(run.config.model_dump(mode="json")), flatten(new.model_dump(mode="json"))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name) and name.removeprefix("training.") not in FREE:
            raise TrainingError(
                f"{name} is {after.get(name)} now, but the run started with {before.get(name)}; resume "
                "without it, or start a new run in another folder"
            )
    with files.locked(run.folder):
        run.replace(CONFIG, new.model_dump_json(indent=2) + "\n")

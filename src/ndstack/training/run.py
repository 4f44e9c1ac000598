"""A run folder: everything about one training run, every file replaced in one move.

| file | what |
|---|---|
| `config.json` | the complete configuration: the same run again from it |
| `model.json` | what the model is made of |
| `environment.json` | versions and machine, for the record |
| `metrics.jsonl` | one line per epoch; the same bytes however often the run was interrupted |
| `times.jsonl` | seconds of each epoch, by the clock and of processors |
| `best.safetensors` | the parameters with the lowest validation cross-entropy |
| `last/state.safetensors` | all that resuming needs: parameters, optimizer, schedule, position, metrics |
| `snapshots/` | parameters after each epoch, on request |
| `log.txt` | what happened when |
"""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ndstack import files, zoo
from ndstack.errors import NdstackError, TrainingError, first_problem
from ndstack.nn import LanguageModel
from ndstack.nn.storage.description import ModelDescription
from ndstack.nn.storage.files import CONFIGURATION as MODEL
from ndstack.nn.storage.files import load, pack_tensors, read_note, read_tensors
from ndstack.processes import cores
from ndstack.settings.reading import flatten, merge
from ndstack.settings.run import RunConfig

CONFIG = "config.json"
METRICS = "metrics.jsonl"
TIMES = "times.jsonl"
BEST = "best.safetensors"
STATE = "last/state.safetensors"
LOG = "log.txt"
ENVIRONMENT = "environment.json"
SNAPSHOTS = "snapshots"


class Run:
    """A folder with a run in it."""

    def __init__(self, folder: str | Path, config: RunConfig) -> None:
        self.folder, self.config = Path(folder), config

    @classmethod
    def create(cls, folder: str | Path, config: RunConfig, model: ModelDescription | None = None) -> Run:
        """Begin a run in a new or empty folder.

        The configuration comes first: whatever happens after that, the run can be resumed.

        Args:
            folder: of the run.
            config: all of it.
            model: what the model is made of; described before a folder is made, since not every model can be.
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

    def complete(self, model: ModelDescription | None) -> None:
        """Write what a run has besides its configuration if it is missing, and what the model is made of."""
        (self.folder / STATE).parent.mkdir(exist_ok=True)
        if not (self.folder / ENVIRONMENT).exists():
            self.replace(ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
        if not (self.folder / METRICS).exists():
            self.replace(METRICS, "")
        if model is not None:
            self.replace(MODEL, model.model_dump_json(indent=2) + "\n")

    def tidy(self) -> None:
        """Remove what killed processes left behind; only for the process that has locked the folder."""
        files.tidy(self.folder, (self.folder / STATE).parent, self.folder / SNAPSHOTS)

    @classmethod
    def check_new(cls, folder: Path) -> None:
        """Raise an error in one line if a folder has something in it, so that no run can begin there."""
        if not folder.is_dir():
            return
        if any(entry.name != files.LOCK and not files.is_leftover(entry) for entry in folder.iterdir()):
            hint = f"{cls.open(folder).resuming} resumes it; or " if is_run(folder) else ""
            raise TrainingError(f"{folder} is not empty: {hint}choose another folder")

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """A run that is there, or a network of the zoo: `zoo:LANGUAGE/MODEL`."""
        folder = zoo.resolve(folder)
        path = folder / CONFIG
        if not path.exists():
            raise TrainingError(
                f"{folder} is not a run: it has no {CONFIG}; expected what ndstack train made"
            )
        try:
            return cls(folder, RunConfig.model_validate_json(files.read_bytes(path, TrainingError)))
        except ValidationError as error:
            raise TrainingError(f"{path} is not a run's configuration: {first_problem(error)}") from None

    def replace(self, name: str, content: str | bytes) -> None:
        """Replace a file of the run in one move."""
        with self._writing(name) as path:
            files.replace(path, content.encode() if isinstance(content, str) else content)

    def log(self, message: str) -> None:
        """Add a line to `log.txt`."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self._append(LOG, f"{now} {message}\n")

    def add_time(self, epoch: int, seconds: float, processor_seconds: float | None = None) -> None:
        """Note how long this process worked on an epoch: by the clock, and on processors."""
        times = {"seconds": seconds} | (
            {"processor_seconds": processor_seconds} if processor_seconds is not None else {}
        )
        line = {"epoch": epoch, **{name: round(value, 3) for name, value in times.items()}}
        self._append(TIMES, json.dumps(line) + "\n")

    def seconds(self, kind: str = "seconds") -> dict[int, float]:
        """How long each epoch took, all sessions together.

        Args:
            kind: "seconds" by the clock, or "processor_seconds", which other programs on the machine do not
                lengthen, and which runs of older versions lack.
        """
        total: dict[int, float] = {}
        for line in self._lines(TIMES, "epoch", "seconds"):
            if kind in line:
                total[line["epoch"]] = total.get(line["epoch"], 0.0) + line[kind]
        return total

    def metrics(self) -> list[dict[str, Any]]:
        """What was measured after each epoch."""
        return self._lines(METRICS, "epoch", "validation_cross_entropy")

    def write_metrics(self, history: list[dict[str, Any]]) -> None:
        """Replace the metrics of all epochs."""
        self.replace(METRICS, "".join(json.dumps(line) + "\n" for line in history))

    def keep(self, name: str, model: LanguageModel) -> None:
        """Write the parameters of the model to a file."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        self.replace(name, pack_tensors(model.state_dict()))

    def load(self, parameters: str = BEST) -> LanguageModel:
        """The model with its best parameters, or with those of a snapshot."""
        self.check()
        if not (self.folder / parameters).exists():
            raise TrainingError(f"{self.folder} has no {parameters} yet; it appears after the first epoch")
        return load(self.folder, parameters=parameters)

    def check(self, *, complete: bool = False) -> None:
        """Raise an error in one line if a file of the run is missing or empty that it must have by now.

        A run that has not finished an epoch has no results, and that is no error.

        Args:
            complete: whether the run is known to have ended, so that it must have results.
        """
        epochs = self._saved_epochs()  # first, since a run at work writes its metrics before its state
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
        """How many epochs the saved state knows of; 0 if there is none."""
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

    def summary(self) -> dict[str, Any]:
        """One row of a comparison: the best epoch and what it took; what is not known yet is None."""
        self.check()
        history, seconds = self.metrics(), self.seconds()
        best = best_epoch(history) if history else {}
        path = self.folder / BEST
        return {
            "run": str(self.folder),
            "language": self.config.language,
            "model": self.label,
            "parameters": sum(tensor.numel() for tensor in read_tensors(path)[0].values())
            if path.exists()
            else None,
            "learning_rate": self.config.training.learning_rate,
            "seed": self.config.seed,
            "epochs": len(history),
            "best_epoch": best.get("epoch"),
            "difference": best.get("validation_difference"),
            "cross_entropy": best.get("validation_cross_entropy"),
            "seconds_an_epoch": sum(seconds.values()) / len(history) if history and seconds else None,
        }

    def snapshots(self) -> dict[int, str]:
        """The snapshots that there are: epoch to file; 0 is before training."""
        paths = sorted((self.folder / SNAPSHOTS).glob("epoch-*.safetensors"))
        return {int(path.stem.removeprefix("epoch-")): f"{SNAPSHOTS}/{path.name}" for path in paths}

    def _append(self, name: str, line: str) -> None:
        with self._writing(name) as path, path.open("a", encoding="utf-8") as file:
            file.write(line)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """The path of a file to write to; if that fails, the error says how to resume."""
        path = self.folder / name
        try:
            yield path
        except OSError as error:
            raise TrainingError(
                f"cannot write {path}: {error.strerror or error}; what was saved before is untouched: "
                f"mend it, then {self.resuming}"
            ) from None

    def _lines(self, name: str, *numbers: str) -> list[dict[str, Any]]:
        """The objects in a file, which have at least these numbers."""
        path = self.folder / name
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            rows = [json.loads(line) for line in text.splitlines()]
        except (OSError, ValueError, RecursionError) as error:
            raise TrainingError(f"cannot read {path}: {' '.join(str(error).split())}") from None
        for row in rows:
            if not isinstance(row, dict) or not all(isinstance(row.get(key), int | float) for key in numbers):
                wanted = " and ".join(numbers)
                raise TrainingError(
                    f"{path} is damaged: expected a JSON object a line, with the numbers {wanted}"
                )
        return rows


def _absence(path: Path) -> str:
    return "is empty" if path.exists() else "is missing"


def best_epoch(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The metrics of the epoch with the lowest validation cross-entropy, the first if there are several.

    Of a run in stages, the best of the last stage that it has reached: stages have different strings.
    """
    return min(last_stage(history), key=lambda line: float(line["validation_cross_entropy"]))


def last_stage(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The epochs of the last stage that a run has reached; all of a run without stages."""
    last = max((line.get("stage", 1) for line in history), default=1)
    return [line for line in history if line.get("stage", 1) == last]


def is_run(folder: str | Path) -> bool:
    """Whether there is a run in this folder."""
    return (Path(folder) / CONFIG).exists()


def environment() -> dict[str, Any]:
    """Versions and machine."""
    import torch

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
"""Settings of the training that may change in the middle of a run."""


def change_settings(folder: str | Path, values: Mapping[str, Any]) -> None:
    """Change settings of a run before it is resumed; only those that may change.

    Args:
        folder: of the run.
        values: nested tables, such as {"training": {"max_epochs": 300}}.
    """
    if not values:
        return
    if "recipe" in values:
        raise TrainingError(
            "a recipe given for a run that began without it; begin a new run in another folder"
        )
    run = Run.open(folder)
    new = RunConfig.of(merge(run.config.model_dump(mode="json"), values), "the settings")
    before, after = flatten(run.config.model_dump(mode="json")), flatten(new.model_dump(mode="json"))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name) and name.removeprefix("training.") not in FREE:
            raise TrainingError(
                f"{name} is {after.get(name)} now, but the run began with {before.get(name)}; resume without "
                "it, or begin a new run in another folder"
            )
    with files.locked(run.folder):
        run.replace(CONFIG, new.model_dump_json(indent=2) + "\n")

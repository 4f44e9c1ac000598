"""A run folder: everything about one training run, every file replaced in one move.

| file | what |
|---|---|
| `config.json` | the complete configuration: the same run again from it |
| `model.json` | what the model is made of |
| `environment.json` | versions and machine, for the record |
| `metrics.jsonl` | one line an epoch; the same bytes however often the run was interrupted |
| `times.jsonl` | seconds of each epoch |
| `best.safetensors` | the parameters with the lowest validation cross-entropy |
| `last/state.safetensors` | all that going on needs: parameters, optimizer, schedule, position, metrics |
| `snapshots/` | parameters after each epoch, on request |
| `log.txt` | what happened when |
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ndstack import files
from ndstack.errors import TrainingError, first_problem
from ndstack.nn import LanguageModel
from ndstack.nn.configuration import describe
from ndstack.nn.storage import CONFIGURATION as MODEL
from ndstack.nn.storage import load, pack, read
from ndstack.training.config import RunConfig, merge

CONFIG = "config.json"
METRICS = "metrics.jsonl"
TIMES = "times.jsonl"
BEST = "best.safetensors"
STATE = "last/state.safetensors"
LOG = "log.txt"
ENVIRONMENT = "environment.json"


class Run:
    """A folder with a run in it."""

    def __init__(self, folder: str | Path, config: RunConfig) -> None:
        self.folder, self.config = Path(folder), config

    @classmethod
    def create(cls, folder: str | Path, config: RunConfig) -> Run:
        """Begin a run in a new or empty folder."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            cls.check_new(folder)
            (folder / STATE).parent.mkdir()
            run = cls(folder, config)
            run.replace(ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
            run.replace(METRICS, "")
            run.replace(CONFIG, config.model_dump_json(indent=2) + "\n")
        except OSError as error:
            raise TrainingError(f"cannot make a run in {folder}: {error.strerror or error}") from None
        return run

    @classmethod
    def check_new(cls, folder: Path) -> None:
        """Raise an error in one line if a folder has something in it, so that no run can begin there."""
        if folder.is_dir() and any(entry.name != files.LOCK for entry in folder.iterdir()):
            hint = f"{cls.open(folder).resuming} goes on with it; or " if is_run(folder) else ""
            raise TrainingError(f"{folder} is not empty: {hint}choose another folder")

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """A run that is there."""
        path = Path(folder) / CONFIG
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

    def add_time(self, epoch: int, seconds: float) -> None:
        """Note how long this process worked on an epoch."""
        self._append(TIMES, json.dumps({"epoch": epoch, "seconds": round(seconds, 3)}) + "\n")

    def seconds(self) -> dict[int, float]:
        """How long each epoch took, all sessions together."""
        total: dict[int, float] = {}
        for line in self._lines(TIMES, "epoch", "seconds"):
            total[line["epoch"]] = total.get(line["epoch"], 0.0) + line["seconds"]
        return total

    def metrics(self) -> list[dict[str, Any]]:
        """What was measured after each epoch."""
        return self._lines(METRICS, "epoch", "validation_cross_entropy")

    def write_metrics(self, history: list[dict[str, Any]]) -> None:
        """Replace the metrics of all epochs."""
        self.replace(METRICS, "".join(json.dumps(line) + "\n" for line in history))

    def describe(self, model: LanguageModel) -> None:
        """Write down what the model is made of."""
        self.replace(MODEL, describe(model).model_dump_json(indent=2) + "\n")

    def keep(self, name: str, model: LanguageModel) -> None:
        """Write the parameters of the model to a file."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        self.replace(name, pack(model.state_dict()))

    def load(self, parameters: str = BEST) -> LanguageModel:
        """The model with its best parameters, or with those of a snapshot."""
        if not (self.folder / parameters).exists():
            raise TrainingError(f"{self.folder} has no {parameters} yet; it appears after the first epoch")
        return load(self.folder, parameters=parameters)

    @property
    def resuming(self) -> str:
        """The command that goes on with the run."""
        return f"ndstack {'text ' if self.config.corpus else ''}train --resume {self.folder}"

    @property
    def label(self) -> str:
        """A short name for legends: the model's, or the folder's."""
        return self.config.model or self.folder.name

    def summary(self) -> dict[str, Any]:
        """One row of a comparison: the best epoch and what it took."""
        history, seconds = self.metrics(), self.seconds()
        best = best_epoch(history) if history else {}
        path = self.folder / BEST
        return {
            "run": str(self.folder),
            "language": self.config.language,
            "model": self.label,
            "parameters": sum(tensor.numel() for tensor in read(path)[0].values()) if path.exists() else None,
            "learning_rate": self.config.training.learning_rate,
            "seed": self.config.seed,
            "epochs": len(history),
            "best_epoch": best.get("epoch"),
            "difference": best.get("validation_difference"),
            "cross_entropy": best.get("validation_cross_entropy"),
            "seconds_an_epoch": sum(seconds.values()) / len(history) if history else None,
        }

    def snapshots(self) -> dict[int, str]:
        """The snapshots that there are: epoch to file; 0 is before training."""
        paths = sorted((self.folder / "snapshots").glob("epoch-*.safetensors"))
        return {int(path.stem.removeprefix("epoch-")): f"snapshots/{path.name}" for path in paths}

    def _append(self, name: str, line: str) -> None:
        with self._writing(name) as path, path.open("a", encoding="utf-8") as file:
            file.write(line)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """The path of a file to write to; if that fails, the error says how to go on."""
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


def best_epoch(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The metrics of the epoch with the lowest validation cross-entropy, the first if there are several."""
    return min(history, key=lambda line: float(line["validation_cross_entropy"]))


def is_run(folder: str | Path) -> bool:
    """Whether there is a run in this folder."""
    return (Path(folder) / CONFIG).exists()


def environment() -> dict[str, Any]:
    """Versions and machine."""
    import torch

    from ndstack import __version__

    return {
        "ndstack": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": version("numba"),
        "platform": platform.platform(),
        "cores": cores(),
    }


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as `training.clip` and the like."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


FREE = ("max_epochs", "stop_after", "checkpoint_seconds", "snapshots")
"""Settings of the training that may change in the middle of a run."""


def change_settings(folder: str | Path, values: Mapping[str, Any]) -> None:
    """Change settings of a run before it goes on; only those that may change.

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
                f"{name} is {after.get(name)} now, but the run began with {before.get(name)}; go on without "
                "it, or begin a new run in another folder"
            )
    with files.locked(run.folder):
        run.replace(CONFIG, new.model_dump_json(indent=2) + "\n")

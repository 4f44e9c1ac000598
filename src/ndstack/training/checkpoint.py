"""The state of a run in one file: tensors, and everything else as JSON in the note beside them."""

import hashlib
from collections.abc import Mapping, Sequence

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from torch import Tensor

from ndstack.errors import TrainingError, first_problem
from ndstack.nn.storage.files import pack_tensors, read_tensors
from ndstack.training.run import BEST, FREE, STATE, Metrics, Run
from ndstack.training.schedule import Schedule
from ndstack.training.stages import Stages
from ndstack.training.task import Model, Task


class Progress(BaseModel):
    """The position of a run."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    stage: NonNegativeInt = 0
    """The number of the current stage, from 0."""
    epoch: NonNegativeInt = 0
    """The number of complete epochs of all stages; `schedule.epochs` is that of the current stage."""
    step: NonNegativeInt = 0
    """The number of complete steps of the current epoch."""
    nats: float = 0.0
    """The sum of -log p over the training symbols of these steps, in this process."""
    symbols: NonNegativeInt = 0
    schedule: Schedule
    history: list[Metrics] = []
    """The metrics of all complete epochs."""
    fingerprint: str = ""
    """The checksum of the configuration and the model."""

    @property
    def best_epoch(self) -> int:
        """The best epoch of this stage, counted from the beginning of the run; 0 if there is none."""
        schedule = self.schedule
        return self.epoch - schedule.epochs + schedule.best_epoch if schedule.best_epoch else 0


def fingerprint(run: Run, model: Model) -> str:
    """Return a checksum of what must not change in the middle of a run."""
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    # Defaults are left out, so that a new version with a new setting can resume an old run.
    fixed = run.config.model_dump_json(exclude={"training": set(FREE)}, exclude_defaults=True)
    return hashlib.sha256(f"{fixed}{shapes}".encode()).hexdigest()


def save_state(
    run: Run,
    progress: Progress,
    model: Model,
    optimizer: torch.optim.Optimizer,
    carried: Sequence[Mapping[str, Tensor]],
) -> None:
    """Write the state of a run; `carried` is what each process carries from step to step."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, values in optimizer.state_dict()["state"].items():
        state = {key: value for key, value in values.items() if isinstance(value, Tensor)}
        tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items()}
    for rank, values in enumerate(carried):
        tensors |= {f"carried.{rank}.{name}": tensor for name, tensor in values.items()}
    progress.fingerprint = fingerprint(run, model)
    run.replace(STATE, pack_tensors(tensors, progress.model_dump_json()))


def restore_state(
    run: Run,
    fresh: Progress,
    model: Model,
    optimizer: torch.optim.Optimizer,
    stages: Stages,
    rank: int,
) -> Progress:
    """Restore the saved state in the process of this rank; return `fresh` if nothing was saved."""
    path = run.folder / STATE
    if not path.exists():
        return fresh
    tensors, note = read_tensors(path)
    given = fingerprint(run, model)
    try:
        progress = Progress.model_validate_json(note)
    except ValidationError as error:
        raise TrainingError(f"{path} is not the state of a run: {first_problem(error)}") from None
    if progress.fingerprint != given:
        raise TrainingError(
            f"{run.folder} was trained with another configuration or model than is given now; resume with "
            "the one it started with, or start a new run in another folder"
        )
    if progress.stage >= stages.count:
        raise TrainingError(f"{path} is in stage {progress.stage + 1}, but the run has {stages.count}")
    if progress.schedule.best_epoch:
        read_tensors(run.folder / BEST, model.state_dict())
    try:
        _put(tensors, model, optimizer, stages.task(progress.stage), rank)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        shown = " ".join(str(error).split())
        raise TrainingError(f"{path} is not the state of this model and optimizer: {shown}") from None
    return progress


def _put(
    tensors: Mapping[str, Tensor],
    model: Model,
    optimizer: torch.optim.Optimizer,
    task: Task,
    rank: int,
) -> None:
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "carried": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    model.load_state_dict(parts["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimizer"].items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    own = f"{rank}."
    task.carry({name.removeprefix(own): t for name, t in parts["carried"].items() if name.startswith(own)})

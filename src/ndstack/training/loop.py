"""The training loop: steps, epochs, validation, schedule, the best model, and the state for resuming."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from torch import Tensor

from ndstack import files
from ndstack.errors import TrainingError
from ndstack.html_tables import table
from ndstack.languages import Dataset
from ndstack.languages.datasets import own_grammar
from ndstack.nn.storage.files import CONFIGURATION as MODEL
from ndstack.nn.storage.files import describe, read_tensors
from ndstack.settings.data import DataConfig
from ndstack.settings.run import RunConfig
from ndstack.settings.training import TrainingConfig
from ndstack.training import checkpoint
from ndstack.training.checkpoint import Progress
from ndstack.training.group import Group, Signals
from ndstack.training.interruption import Interruption
from ndstack.training.observers import Observer
from ndstack.training.optimizers import make_optimizer, update
from ndstack.training.run import BEST, Metrics, Run, is_run
from ndstack.training.schedule import Schedule
from ndstack.training.stages import Stages
from ndstack.training.task import Model, Share, Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

DROPOUT_STREAM = 3
"""The number of the random stream for dropout during training."""
VALIDATION = "validation_"


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run."""

    reason: str
    """Why training stopped."""
    epochs: int
    best_epoch: int
    best: dict[str, float]
    """The validation metrics of the best epoch."""
    history: list[Metrics]
    """The metrics of every epoch, as in `metrics.jsonl`."""
    updates: int = 0
    """The number of updates of the parameters."""

    def _repr_html_(self) -> str:
        shown = [
            (name, value if isinstance(value, int | float) else str(value))
            for name, value in self.summary().items()
        ]
        return table(shown, (), "result of training")

    def summary(self) -> dict[str, object]:
        """Return the result as plain data, without the history."""
        return {
            **self.best,
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "updates": self.updates,
            "reason": self.reason,
        }


def fit(
    model: Model,
    data: Dataset | Task,
    config: TrainingConfig | None = None,
    *,
    folder: str | Path | None = None,
    observer: Observer | None = None,
    fabric: Fabric | None = None,
) -> Result:
    """Train a model; afterwards, it has the parameters that were best on the validation data.

    Args:
        model: any language model, or a transducer if the task is a transduction.
        data: a data set of a formal language, or another task. Stages before the last one sample strings of
            their own lengths, so they need a data set or a task that can be sampled again (`Resampled`).
        config: the settings; by default, the dissertation's recipe.
        folder: a run folder, either a new one or one to resume; by default, nothing is written.
        observer: an object that is notified of progress.
        fabric: a launched Fabric with the device and the processes; by default, there is one process, on the
            model's device.
    """
    config, observer = config or TrainingConfig(), observer or Observer()
    share = Share() if fabric is None else Share(fabric.global_rank, fabric.world_size)
    stages = Stages(model, data, config, share)
    run = None if folder is None else _run(Path(folder), model, data, config, fabric)
    own = run if fabric is None else None  # with a Fabric, the function that launched it holds the folder
    held = contextlib.nullcontext() if own is None else files.locked(own.folder)
    with held, torch.random.fork_rng(devices=[]), Interruption() as interruption:
        if own is not None:
            own.tidy()
        return _Trainer(model, stages, run, observer, fabric, interruption).train()


class _Trainer:
    """One process of a run; `writer` is the run in the process that writes to the folder, otherwise None."""

    def __init__(
        self,
        model: Model,
        stages: Stages,
        run: Run | None,
        observer: Observer,
        fabric: Fabric | None,
        interruption: Interruption,
    ) -> None:
        self.model, self.stages, self.run = model, stages, run
        self.group, self.interruption = Group(fabric), interruption
        self.writer = run if self.group.rank == 0 else None
        self.observer = observer if self.group.rank == 0 else Observer()
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(self.parameters, stages.config(0))
        self.progress = Progress(schedule=Schedule(learning_rate=stages.config(0).learning_rate))
        if run is not None:
            self.progress = checkpoint.restore_state(
                run, self.progress, model, self.optimizer, stages, self.group.rank
            )
        self._enter()
        self.best: dict[str, Tensor] = {}
        self.saved = time.monotonic()

    def train(self) -> Result:
        """Train in all stages, each until its schedule stops it."""
        progress = self.progress
        self.observer.start(self.stages.whole, progress)
        if self.writer is not None:
            self.writer.log(f"start at epoch {progress.epoch + 1}, step {progress.step + 1}")
            self.writer.write_metrics(progress.history)
            self._keep_snapshot()
        reason = self._stage()
        while progress.stage < self.stages.count - 1:
            self._next_stage(reason)
            reason = self._stage()
        if self.writer is not None:
            self.writer.log(f"end: {reason}")
        self._take_best()
        self.model.eval()
        best = next(line for line in progress.history if line["epoch"] == progress.best_epoch)
        # All stages have the same number of batches, so the steps of the last one count for all epochs.
        updates = sum(map(self.task.steps, range(progress.epoch)))
        result = Result(
            reason, progress.epoch, progress.best_epoch, validation_metrics(best), progress.history, updates
        )
        self.observer.end(result)
        return result

    def _enter(self) -> None:
        """Take the task and the settings of the current stage."""
        stage = self.progress.stage
        self.task, self.config = self.stages.task(stage), self.stages.config(stage)

    def _stage(self) -> str:
        """Train until the schedule of the stage stops it, and return the reason."""
        progress = self.progress
        while (reason := progress.schedule.stopped(self.config)) is None:
            began, worked = time.monotonic(), time.process_time()
            try:
                self._epoch()
                self._end_epoch()
            finally:
                if self.writer is not None:
                    epoch, seconds = progress.epoch + (progress.step > 0), time.monotonic() - began
                    self.writer.add_time(epoch, seconds, time.process_time() - worked)
        return reason

    def _next_stage(self, reason: str) -> None:
        """Start a stage with the best parameters of the one before, as a run does with `start_from`.

        A run that is interrupted before the state is saved resumes at the end of the previous stage, and
        repeats this method.
        """
        progress = self.progress
        if self.writer is not None:
            self.writer.log(f"end of stage {progress.stage + 1}: {reason}")
        self._take_best()
        progress.stage += 1
        self._enter()
        self.optimizer = make_optimizer(self.parameters, self.config)
        progress.schedule = Schedule(learning_rate=self.config.learning_rate)
        self._save()
        self.group.wait()

    def _take_best(self) -> None:
        """Give the model the best parameters of the current stage."""
        best = self.best
        if self.run is not None:
            best = read_tensors(self.run.folder / BEST, self.model.state_dict())[0]
        self.model.load_state_dict(best)

    def _epoch(self) -> None:
        progress = self.progress
        steps, self.saved = self.task.steps(progress.schedule.epochs), time.monotonic()
        self.model.train()
        self.observer.epoch(progress, steps)
        while progress.step < steps:
            total = self._step()
            progress.step += 1
            self.observer.step(progress, total.loss)
            if total.stop or (total.save and progress.step < steps):
                self._save()
            if total.stop:
                if self.writer is not None:
                    self.writer.log(f"interrupted in epoch {progress.epoch + 1} after step {progress.step}")
                self.group.wait()  # the exit of the first process ends the others
                raise KeyboardInterrupt

    def _step(self) -> Signals:
        """Update the parameters once."""
        progress, config = self.progress, self.config
        epoch = progress.schedule.epochs
        seeds = [config.seed, DROPOUT_STREAM, epoch, progress.step, self.group.rank]
        self.group.seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))
        with self.group.autocast():
            loss = self.task.loss(self.model, epoch, progress.step)
        for parameter in self.parameters:
            parameter.grad = None
        if loss.value.requires_grad:
            loss.value.backward()  # type: ignore[no-untyped-call]
        late = time.monotonic() - self.saved > config.checkpoint_seconds
        mine = Signals(loss.value.item(), loss.nats, loss.symbols, self.interruption.wanted, late)
        total = self.group.sum_up(self.parameters, mine)
        if not math.isfinite(total.loss):
            self._fail(f"the loss is {total.loss}")
        norm = update(self.optimizer, self.parameters, config.clip, progress.schedule.learning_rate)
        if not math.isfinite(norm):
            self._fail(f"the gradient's norm is {norm}")
        progress.nats += total.nats
        progress.symbols += total.symbols
        return total

    def _end_epoch(self) -> None:
        """Validate, advance the schedule, keep the best model, and save."""
        progress, schedule = self.progress, self.progress.schedule
        with self.group.autocast():
            validation = self.task.metrics(self.group.total(self.task.validate(self.model)))
        value = validation["cross_entropy"]
        if not math.isfinite(value):
            self._fail(f"the validation cross-entropy is {value}")
        line: Metrics = {
            "epoch": progress.epoch + 1,
            **({"stage": progress.stage + 1} if self.stages.count > 1 else {}),
            "learning_rate": schedule.learning_rate,
            "train_cross_entropy": progress.nats / progress.symbols,
            **{f"{VALIDATION}{name}": number for name, number in validation.items()},
        }
        improved = schedule.end_epoch(value, self.config)
        if improved:
            if self.writer is not None:
                self.writer.keep(BEST, self.model)
            elif self.run is None:
                self.best = copy.deepcopy(self.model.state_dict())
        progress.epoch, progress.step, progress.nats, progress.symbols = progress.epoch + 1, 0, 0.0, 0
        progress.history.append(line)
        self._keep_snapshot()
        if self.writer is not None:  # before the state, which must never have more epochs than the metrics
            self.writer.write_metrics(progress.history)
        self._save()
        self.group.wait()
        self.observer.validated(progress)

    def _save(self) -> None:
        carried = self.group.gather(self.task.carried())
        if self.writer is not None:
            checkpoint.save_state(self.writer, self.progress, self.model, self.optimizer, carried)
        self.saved = time.monotonic()

    def _keep_snapshot(self) -> None:
        epoch, snapshots = self.progress.epoch, self.config.snapshots
        if self.writer is not None and snapshots and epoch <= snapshots and not self.progress.step:
            self.writer.keep(f"snapshots/epoch-{epoch:03}.safetensors", self.model)

    def _fail(self, what: str) -> NoReturn:
        progress, best = self.progress, self.progress.best_epoch
        message = (
            f"{what} in epoch {progress.epoch + 1}, step {progress.step + 1}; "
            f"{f'the best model so far (epoch {best}) is kept' if best else 'no epoch was completed'}; "
            f"try a lower learning rate than {progress.schedule.learning_rate:g}"
        )
        if self.writer is not None:
            self.writer.log(message)
        raise TrainingError(message)


def validation_metrics(line: Metrics) -> dict[str, float]:
    """Return the metrics of an epoch that were measured on the validation data."""
    return {key.removeprefix(VALIDATION): value for key, value in line.items() if key.startswith(VALIDATION)}


def _run(
    folder: Path, model: Model, data: Dataset | Task, config: TrainingConfig, fabric: Fabric | None
) -> Run:
    """Return the run in a folder; if there is none, the first process creates it."""
    if fabric is None or fabric.global_rank == 0:
        if not is_run(folder):
            config_of_run, description = made_in_python(data, config), describe(model)
            Run.create(folder, config_of_run, description)
        elif not (folder / MODEL).exists():
            Run.open(folder).complete(describe(model))
    if fabric is not None:
        fabric.barrier()
    return Run.open(folder)


def made_in_python(data: Dataset | Task, config: TrainingConfig) -> RunConfig:
    """Return the configuration of a run whose model or data was made in Python."""
    if not isinstance(data, Dataset):
        return RunConfig(language="", model=None, training=config)
    name, grammar = data.language.name, own_grammar(data.language)
    plan = DataConfig(**data.plan.model_dump())
    return RunConfig(language=name, grammar=grammar, model=None, seed=data.seed, data=plan, training=config)

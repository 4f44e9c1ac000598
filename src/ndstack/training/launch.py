"""From a configuration to a trained model: device, processes, threads and folder."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.spawn import ProcessException, ProcessExitedException

from ndstack import files, processes
from ndstack.errors import NdstackError, TrainingError
from ndstack.languages import Dataset
from ndstack.nn.storage.files import describe
from ndstack.ops.runtime import threads
from ndstack.processes import cores
from ndstack.settings.run import RunConfig
from ndstack.settings.training import TrainingConfig
from ndstack.training.interruption import PassedOn
from ndstack.training.loop import Result, fit
from ndstack.training.material import (
    Show,
    data_checksums,
    is_task,
    make_checked,
    make_formal,
    start_checksum,
    take_start,
)
from ndstack.training.observers import MetricsLines, Observer, Observers, TensorBoard
from ndstack.training.run import STATE, Run, is_run
from ndstack.training.task import Model, Share, Task
from ndstack.transductions.pairs import pair_checksums

if TYPE_CHECKING:
    from lightning_fabric import Fabric

INTERRUPTED = "interrupted"
SMALL = 64
"""Up to this size of vectors, torch gets one thread, because more would not pay."""


Maker = Callable[[RunConfig, Share, Show], tuple[Model, Dataset | Task]]
"""A function that makes the model and what it learns, for one of several processes. It must be defined at the
top level of a module, so that it can be sent to other processes."""


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What each process of a run is to do."""

    folder: Path
    config: RunConfig
    resume: bool
    show: Show
    tensorboard: bool
    make: Maker


def train(
    folder: str | Path,
    config: RunConfig | None = None,
    *,
    show: Show = "nothing",
    tensorboard: bool = False,
    make: Maker = make_formal,
) -> Result:
    """Start a run in a new folder or, without a configuration, resume the one in the folder.

    Args:
        folder: the folder of the run.
        config: the configuration of a new run.
        show: progress bars on a terminal, a line of JSON per epoch, or nothing.
        tensorboard: whether metrics are also written for TensorBoard, to `tensorboard/` in the folder.
        make: the function that makes the model and what it learns.
    """
    folder = Path(folder)
    resume = config is None
    if config is None:
        run = Run.open(folder)
        config = run.config
        run.check_resumable()
        if config.model is None:
            raise TrainingError(
                f"the model of {folder} was made in Python; call training.fit with the same model and folder"
            )
    else:
        Run.check_new(folder)
        config = settle(config)
    count = config.training.processes
    processes.check_threads(config.training.threads or 1, count)
    plan = _Plan(folder, config, resume, show, tensorboard, make)
    if count == 1:
        return _work(make_fabric(config.training), plan)
    processes.check_room(count, "--processes", 0 if resume else _try(config, make))
    fabric = make_fabric(config.training)
    with tempfile.TemporaryDirectory() as notes:
        return _launch(fabric, Path(notes), plan)


def _try(config: RunConfig, make: Maker) -> int:
    """Make the model once, before all processes make it, and return the bytes of its parameters."""
    formal = make is make_formal and not is_task(config.language) and config.task != "transduce"
    model = make_checked(config)[0] if formal else make(config, Share(), "nothing")[0]
    take_start(config, model)
    return sum(parameter.nbytes for parameter in model.parameters())


def settle(config: RunConfig) -> RunConfig:
    """Return the configuration with what depends on this machine and on other folders, for resuming."""
    training = config.training
    if training.threads is None:
        training = training.model_copy(update={"threads": max(1, cores() // training.processes)})
    data = config.data
    if data.folder is not None:
        data = data.model_copy(update={"sha256": data_checksums(Path(data.folder))})
    settled: dict[str, object] = {"training": training, "data": data}
    if config.pairs is not None:
        folder = files.real_path(config.pairs.folder)
        own = {"folder": str(folder), "sha256": pair_checksums(folder)}
        settled["pairs"] = config.pairs.model_copy(update=own)
    if config.start_from is not None:
        source = files.real_path(config.start_from)
        settled |= {"start_from": str(source), "start_sha256": start_checksum(source)}
    return config.model_copy(update=settled)


def make_fabric(config: TrainingConfig) -> Fabric:
    """Return a Fabric with the device, the precision and the number of processes of a run."""
    from lightning_fabric import Fabric

    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("--device cuda given, but torch finds no CUDA device here; use --device cpu")
    if device == "cuda" and config.processes > torch.cuda.device_count():
        raise TrainingError(
            f"--processes {config.processes} given, expected at most {torch.cuda.device_count()} on CUDA, "
            "one per GPU"
        )
    mixed = config.precision if config.precision == "bf16-mixed" else None
    strategy = "auto" if config.processes == 1 else "ddp_spawn"
    return Fabric(accelerator=device, devices=config.processes, strategy=strategy, precision=mixed)


@contextlib.contextmanager
def use_threads(config: RunConfig) -> Iterator[None]:
    """Give the kernels the threads of a run and, if vectors are large, torch as well."""
    count = config.training.threads or cores()
    options = config.options
    small = max(options.hidden, options.embedding or 0, options.d_model) <= SMALL
    before = torch.get_num_threads(), threads.get_wanted()
    torch.set_num_threads(1 if small else count)
    threads.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        threads.set_num_threads(before[1])


def _launch(fabric: Fabric, notes: Path, plan: _Plan) -> Result:
    """Train in several processes; an error in one of them is raised here with the same message."""
    note = notes / "error"
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it reports every exit
    with processes.tied_children(), PassedOn() as asked:
        try:
            return Result(**fabric.launch(_Job(note, plan)))
        except ProcessException as error:
            text = note.read_text(encoding="utf-8") if note.exists() else ""
            if asked.wanted or text == INTERRUPTED:
                raise KeyboardInterrupt from None
            if text:
                raise TrainingError(text) from None
            if isinstance(error, ProcessExitedException):
                raise TrainingError(_lost(error, plan.folder)) from None
            raise


def _lost(error: ProcessExitedException, folder: Path) -> str:
    how = error.signal_name or f"exit code {error.exit_code}"
    text = f"process {error.error_index} of the run ended with {how}; if memory is short, use fewer processes"
    return f"{text}; resume with {Run.open(folder).resuming}" if is_run(folder) else text


class _Job:
    """What each of several processes does; errors are written to a file."""

    def __init__(self, note: Path, plan: _Plan) -> None:
        self.note, self.plan = note, plan

    def __setstate__(self, state: dict[str, object]) -> None:
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # in the new process
        self.__dict__.update(state)

    def __call__(self, fabric: Fabric) -> dict[str, object]:
        processes.die_with_parent()  # torch has asked for an interrupt only
        try:
            return dataclasses.asdict(_work(fabric, self.plan))
        except (NdstackError, KeyboardInterrupt) as error:
            if not self.note.exists():
                self.note.write_text(str(error) or INTERRUPTED, encoding="utf-8")
            if isinstance(error, KeyboardInterrupt):  # torch would treat it as success, and wait for a result
                raise TrainingError(INTERRUPTED) from None
            raise


def _work(fabric: Fabric, plan: _Plan) -> Result:
    """Train in one process; a new folder is made only when everything that it will hold has been checked."""
    first, folder, config = fabric.global_rank == 0, plan.folder, plan.config
    shown = plan.show if first else "nothing"
    with contextlib.ExitStack() as held:
        held.enter_context(use_threads(config))
        if first and plan.resume:
            held.enter_context(files.locked(folder))
        model, data = plan.make(config, Share(fabric.global_rank, fabric.world_size), shown)
        if not plan.resume or not (folder / STATE).exists():
            take_start(config, model)
        description = describe(model)
        if first and not plan.resume:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.locked(folder))
            Run.create(folder, config, description)
        if first and plan.resume:
            Run.open(folder).complete(description)
        if first:
            Run(folder, config).tidy()
        fabric.barrier()
        observer = _observer(folder, config, shown, plan.tensorboard and first)
        try:
            model = model.to(fabric.device)
            return fit(model, data, config.training, folder=folder, observer=observer, fabric=fabric)
        finally:
            observer.close()


def _observer(folder: Path, config: RunConfig, show: Show, tensorboard: bool) -> Observer:
    chosen: list[Observer] = []
    if show == "terminal":
        from ndstack.training.terminal import Terminal

        watched = "difference" if config.task == "model" else "accuracy"
        watched = "cross_entropy" if is_task(config.language) else watched
        watched = watched if config.corpus is None else "perplexity"
        chosen.append(Terminal(f"{config.model} on {config.language}", watched))
    if show == "json":
        chosen.append(MetricsLines())
    if tensorboard:
        chosen.append(TensorBoard(folder / "tensorboard"))
    return Observers(*chosen)

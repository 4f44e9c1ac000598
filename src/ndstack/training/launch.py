"""From a configuration to a trained model: device, processes, threads, and a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.spawn import ProcessException, ProcessExitedException

from ndstack import files, processes
from ndstack.errors import NdstackError, TrainingError
from ndstack.languages import Dataset
from ndstack.nn import LanguageModel
from ndstack.nn.storage.description import describe_model
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
from ndstack.training.task import Share, Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

INTERRUPTED = "interrupted"
SMALL = 64
"""Vectors up to this size are not worth more than one of torch's own threads."""


Maker = Callable[[RunConfig, Share, Show], tuple[LanguageModel, Dataset | Task]]
"""What is trained on what, for one of several processes: a function of a module, so that all can have it."""


def train(
    folder: str | Path,
    config: RunConfig | None = None,
    *,
    show: Show = "nothing",
    tensorboard: bool = False,
    make: Maker = make_formal,
) -> Result:
    """Begin a run in a new folder or, without a configuration, resume the one in the folder.

    Args:
        folder: of the run.
        config: all of it.
        show: progress bars on a terminal, a line of JSON per epoch, or nothing.
        tensorboard: whether to write for TensorBoard, too, to `tensorboard/` in the folder.
        make: makes the model and what it learns.
    """
    folder = Path(folder)
    resume = config is None
    if config is None:
        config = Run.open(folder).config
        if config.model is None:
            raise TrainingError(
                f"the model of {folder} was made in Python; call training.fit with the same model and folder"
            )
    else:
        Run.check_new(folder)
        config = settle(config)
    count = config.training.processes
    processes.check_threads(config.training.threads or 1, count)
    if count == 1:
        return _work(make_fabric(config.training), folder, config, resume, show, tensorboard, make)
    processes.check_room(count, "--processes", 0 if resume else _try(config, make))
    fabric = make_fabric(config.training)
    with tempfile.TemporaryDirectory() as notes:
        return _launch(fabric, Path(notes), folder, config, resume, show, tensorboard, make)


def _try(config: RunConfig, make: Maker) -> int:
    """Make the model once before processes are started that all make it; the bytes of its parameters."""
    formal = make is make_formal and not is_task(config.language)
    model = make_checked(config)[0] if formal else make(config, Share(), "nothing")[0]
    take_start(config, model)
    return sum(parameter.nbytes for parameter in model.parameters())


def settle(config: RunConfig) -> RunConfig:
    """Fill in what depends on this machine and on other folders, so that a resumed run is the same."""
    training = config.training
    if training.threads is None:
        training = training.model_copy(update={"threads": max(1, cores() // training.processes)})
    data = config.data
    if data.folder is not None:
        data = data.model_copy(update={"sha256": data_checksums(Path(data.folder))})
    settled: dict[str, Any] = {"training": training, "data": data}
    if config.start_from is not None:
        source = files.real_path(config.start_from)
        settled |= {"start_from": str(source), "start_sha256": start_checksum(source)}
    return config.model_copy(update=settled)


def make_fabric(config: TrainingConfig) -> Fabric:
    """Device, precision and processes."""
    from lightning_fabric import Fabric

    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("--device cuda given, but torch finds no CUDA device here; use --device cpu")
    mixed: Any = config.precision if "mixed" in config.precision else None
    strategy = "auto" if config.processes == 1 else "ddp_spawn"
    return Fabric(accelerator=device, devices=config.processes, strategy=strategy, precision=mixed)


@contextlib.contextmanager
def use_threads(config: RunConfig) -> Iterator[None]:
    """Give this process its threads: to the kernels, and to torch if vectors are large."""
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


def _launch(fabric: Fabric, notes: Path, folder: Path, *arguments: Any) -> Result:
    """Work in several processes; an error of one is raised here in its own words."""
    note = notes / "error"
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it tells of every end
    with processes.tied_children(), PassedOn() as asked:
        try:
            return Result(**fabric.launch(_Job(note, (folder, *arguments))))
        except ProcessException as error:
            text = note.read_text(encoding="utf-8") if note.exists() else ""
            if asked.wanted or text == INTERRUPTED:
                raise KeyboardInterrupt from None
            if text:
                raise TrainingError(text) from None
            if isinstance(error, ProcessExitedException):
                raise TrainingError(_lost(error, folder)) from None
            raise


def _lost(error: ProcessExitedException, folder: Path) -> str:
    how = error.signal_name or f"exit code {error.exit_code}"
    text = f"process {error.error_index} of the run ended with {how}; if memory is short, use fewer processes"
    return f"{text}; resume with {Run.open(folder).resuming}" if is_run(folder) else text


class _Job:
    """What each of several processes does; errors are left as a note."""

    def __init__(self, note: Path, arguments: tuple[Any, ...]) -> None:
        self.note, self.arguments = note, arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in a new process."""
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        self.__dict__.update(state)

    def __call__(self, fabric: Fabric) -> dict[str, Any]:
        processes.die_with_parent()  # torch has asked for a mere interrupt
        try:
            return dataclasses.asdict(_work(fabric, *self.arguments))
        except (NdstackError, KeyboardInterrupt) as error:
            if not self.note.exists():
                self.note.write_text(str(error) or INTERRUPTED, encoding="utf-8")
            if isinstance(error, KeyboardInterrupt):  # torch would take it for success, and wait for a result
                raise TrainingError(INTERRUPTED) from None
            raise


def _work(
    fabric: Fabric,
    folder: Path,
    config: RunConfig,
    resume: bool,
    show: Show,
    tensorboard: bool,
    make: Maker,
) -> Result:
    """What one process does; a new folder is made when all that it will hold is known to be right."""
    first, shown = fabric.global_rank == 0, show if fabric.global_rank == 0 else "nothing"
    with contextlib.ExitStack() as held:
        held.enter_context(use_threads(config))
        if first and resume:
            held.enter_context(files.locked(folder))
        model, data = make(config, Share(fabric.global_rank, fabric.world_size), shown)
        if not resume or not (folder / STATE).exists():
            take_start(config, model)
        description = describe_model(model)
        if first and not resume:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.locked(folder))
            Run.create(folder, config, description)
        if first and resume:
            Run.open(folder).complete(description)
        if first:
            Run(folder, config).tidy()
        fabric.barrier()
        observer = _observer(folder, config, shown, tensorboard and first)
        try:
            model = model.to(fabric.device)
            return fit(model, data, config.training, folder=folder, observer=observer, fabric=fabric)
        finally:
            observer.close()


def _observer(folder: Path, config: RunConfig, show: Show, tensorboard: bool) -> Observer:
    chosen: list[Observer] = []
    if show == "terminal":
        from ndstack.training.terminal import Terminal

        watched = "difference" if config.corpus is None else "perplexity"
        watched = "cross_entropy" if is_task(config.language) and config.corpus is None else watched
        chosen.append(Terminal(f"{config.model} on {config.language}", watched))
    if show == "json":
        chosen.append(MetricsLines())
    if tensorboard:
        chosen.append(TensorBoard(folder / "tensorboard"))
    return Observers(*chosen)

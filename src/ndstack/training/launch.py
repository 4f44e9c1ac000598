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
from torch.multiprocessing.spawn import ProcessException

from ndstack import files
from ndstack.errors import NdstackError, TrainingError
from ndstack.kernels import threads
from ndstack.languages import Dataset
from ndstack.nn import LanguageModel
from ndstack.training.config import RunConfig, TrainingConfig
from ndstack.training.loop import Result, fit
from ndstack.training.material import (
    Show,
    check,
    checksums,
    make_data,
    make_model,
    start_checksum,
    take_start,
)
from ndstack.training.observers import JSONLines, Observer, Observers, TensorBoard
from ndstack.training.run import STATE, Run, cores
from ndstack.training.task import Share, Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

INTERRUPTED = "interrupted"
SMALL = 64
"""Vectors up to this size are not worth more than one of torch's own threads."""


Maker = Callable[[RunConfig, Share, Show], tuple[LanguageModel, Dataset | Task]]
"""What is trained on what, for one of several processes: a function of a module, so that all can have it."""


def make_formal(config: RunConfig, share: Share, show: Show) -> tuple[LanguageModel, Dataset | Task]:
    """A model of a formal language."""
    data = make_data(config, show)
    return make_model(config, data.language), data


def train(
    folder: str | Path,
    config: RunConfig | None = None,
    *,
    show: Show = "nothing",
    tensorboard: bool = False,
    make: Maker = make_formal,
) -> Result:
    """Begin a run in a new folder or, without a configuration, go on with the one that is there.

    Args:
        folder: of the run.
        config: all of it.
        show: progress bars on a terminal, a line of JSON an epoch, or nothing.
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
        if config.corpus is None:
            check(config)
    fabric = make_fabric(config.training)
    if config.training.processes == 1:
        return _work(fabric, folder, config, resume, show, tensorboard, make)
    with tempfile.TemporaryDirectory() as notes:
        return _launch(fabric, Path(notes), folder, config, resume, show, tensorboard, make)


def settle(config: RunConfig) -> RunConfig:
    """Fill in what depends on this machine and on other folders, so that a resumed run is the same."""
    training = config.training
    if training.threads is None:
        training = training.model_copy(update={"threads": max(1, cores() // training.processes)})
    data = config.data
    if data.folder is not None:
        data = data.model_copy(update={"sha256": checksums(Path(data.folder))})
    settled: dict[str, Any] = {"training": training, "data": data}
    if config.start_from is not None:
        source = files.real(config.start_from)
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


def _launch(fabric: Fabric, notes: Path, *arguments: Any) -> Result:
    """Work in several processes; an error of one is raised here in its own words."""
    note = notes / "error"
    try:
        return Result(**fabric.launch(_Job(note, arguments)))
    except ProcessException:
        if note.exists():
            text = note.read_text(encoding="utf-8")
            raise (KeyboardInterrupt if text == INTERRUPTED else TrainingError(text)) from None
        raise


class _Job:
    """What each of several processes does; errors are left as a note."""

    def __init__(self, note: Path, arguments: tuple[Any, ...]) -> None:
        self.note, self.arguments = note, arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in a new process."""
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        self.__dict__.update(state)

    def __call__(self, fabric: Fabric) -> dict[str, Any]:
        try:
            return dataclasses.asdict(_work(fabric, *self.arguments))
        except (NdstackError, KeyboardInterrupt) as error:
            if not self.note.exists():
                self.note.write_text(str(error) or INTERRUPTED, encoding="utf-8")
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
    """What one process does."""
    first = fabric.global_rank == 0
    if first:
        folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder) if first else contextlib.nullcontext(), use_threads(config):
        if first and not resume:
            Run.create(folder, config)
        share = Share(fabric.global_rank, fabric.world_size)
        model, data = make(config, share, show if first else "nothing")
        if not (folder / STATE).exists():
            take_start(config, model)
        model = model.to(fabric.device)
        if first:
            Run.open(folder).describe(model)
        fabric.barrier()
        observer = _observer(folder, config, show if first else "nothing", tensorboard and first)
        try:
            return fit(model, data, config.training, folder=folder, observer=observer, fabric=fabric)
        finally:
            observer.close()


def _observer(folder: Path, config: RunConfig, show: Show, tensorboard: bool) -> Observer:
    chosen: list[Observer] = []
    if show == "terminal":
        from ndstack.training.terminal import Terminal

        watched = "difference" if config.corpus is None else "perplexity"
        chosen.append(Terminal(f"{config.model} on {config.language}", watched))
    if show == "json":
        chosen.append(JSONLines())
    if tensorboard:
        chosen.append(TensorBoard(folder / "tensorboard"))
    return Observers(*chosen)

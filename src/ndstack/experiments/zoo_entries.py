"""The networks of the zoo, with their rows of the tables, and how they are added."""

import dataclasses
import shutil
from pathlib import Path

from ndstack import files, zoo
from ndstack.errors import NdstackError
from ndstack.experiments.claims.evidence import SOLVED
from ndstack.experiments.gathering import Origin, read_run
from ndstack.experiments.records import Record
from ndstack.nn.storage.files import CONFIGURATION
from ndstack.training import Run
from ndstack.training.machine import cpu_model, simd
from ndstack.training.run import BEST, CONFIG, METRICS

KEPT = (CONFIG, CONFIGURATION, BEST, METRICS)
LARGEST = 1_000_000
"""The largest number of bytes of parameters."""


@dataclasses.dataclass(frozen=True)
class ZooEntry:
    """A network of the zoo."""

    name: str
    record: Record

    @property
    def bytes(self) -> int:
        """The number of bytes of its parameters."""
        return (zoo.resolve(self.name) / BEST).stat().st_size

    @property
    def lengths(self) -> str:
        """The lengths of the strings that it was trained on, in the last stage, such as 40:80."""
        low, high = Run.open(self.name).config.data.lengths
        return f"{low}:{high}"

    def as_json(self) -> dict[str, str | float | None]:
        """Return one row of a list of networks."""
        record = self.record
        return {
            "name": self.name,
            "language": record.language,
            "model": record.model,
            "parameters": record.parameters,
            "bytes": self.bytes,
            "difference": record.difference,
            "test_difference": record.test_difference,
            "epochs": record.epochs,
            "stages": record.stages,
            "lengths": self.lengths,
        }


def entries() -> list[ZooEntry]:
    """Return all networks of the zoo."""
    return [ZooEntry(name, read_row(zoo.resolve(name))) for name in zoo.names()]


def read_row(folder: Path) -> Record:
    """Return the row of a network of the zoo."""
    return files.read_json_as(folder / zoo.ROW, Record, "a row of the tables of results")


def add(folder: str | Path, *, into: Path = zoo.HERE) -> ZooEntry:
    """Add the best model of a run to the zoo, or replace a worse one.

    Args:
        folder: the folder of the run, which must be complete, measured on the test set, and within 0.05 nats
            per symbol of the lower bound on the validation set.
        into: the folder of the zoo.
    """
    run = Run.open(folder)
    if run.config.corpus is not None or run.config.model is None or run.config.grammar is not None:
        raise NdstackError(f"{folder} is not a run of a named model on one of ndstack's own languages")
    if not run.metrics() or not (run.folder / BEST).exists():
        raise NdstackError(f"{folder} has no complete epoch; expected a run that was trained")
    record, _ = read_run(run, Origin(cpu=cpu_model(), simd=simd()))
    if not record.complete:
        raise NdstackError(f"{folder} has not ended: resume it with {run.resuming}")
    if record.difference is None or record.difference >= SOLVED:
        raise NdstackError(
            f"{folder} has not learned {record.language}: it is {record.score:.4f} nats per symbol above the "
            f"lower bound, expected less than {SOLVED}"
        )
    if record.test_difference is None:
        raise NdstackError(f"{folder} was not measured on the test set; run ndstack evaluate {folder}")
    size = (run.folder / BEST).stat().st_size
    if size > LARGEST:
        raise NdstackError(f"{folder / Path(BEST)} has {size:,} bytes, expected at most {LARGEST:,}")
    name = zoo.entry(record.language, record.model)
    place = into / name.removeprefix(zoo.PREFIX)
    if (place / zoo.ROW).exists() and read_row(place).score <= record.score:
        raise NdstackError(f"{name} in the zoo is as good ({read_row(place).score:.4f} nats) as this run")
    _copy(run, place, record)
    return ZooEntry(name, record)


def _copy(run: Run, place: Path, record: Record) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    for name in KEPT:
        if (run.folder / name).exists():
            shutil.copyfile(run.folder / name, place / name)
    settings = run.config.model_copy(update={"start_from": None, "start_sha256": None})
    files.replace(place / CONFIG, settings.model_dump_json(indent=2) + "\n")
    files.replace(place / zoo.ROW, record.model_dump_json(indent=2) + "\n")

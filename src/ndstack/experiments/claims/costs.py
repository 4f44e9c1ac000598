"""What one run is expected to cost, in processor hours, judging by the runs in the tables of results.

The seconds per epoch are the median over runs of the same model, if possible on the same language or with as
many symbols: processor seconds or, if none were recorded, seconds by the clock of runs with one thread.
Otherwise, they are those of the nearest model of the same kind. The number of epochs is the median over runs
that ended by the recipe's own rule. What no run says is assumed.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from ndstack.errors import NdstackError
from ndstack.experiments.claims.evidence import is_settled
from ndstack.experiments.records import Epoch, Record, Tables
from ndstack.experiments.results import Finished
from ndstack.nn.models import ModelName, parse
from ndstack.training import RunConfig

EPOCHS, TEXT_EPOCHS = 70, 30
"""The number of epochs that is assumed if no run ended by the recipe's own rule."""
TEXT_SECONDS = 600.0
SECONDS = {
    (False, "none"): 2.0,
    (False, "deterministic"): 3.0,
    (False, "nondeterministic"): 15.0,
    (True, "none"): 13.0,
    (True, "deterministic"): 13.0,
    (True, "nondeterministic"): 30.0,
}
"""The seconds per epoch that are assumed: for recurrent networks and transformers, by their stack."""
ASSUMED = "assumed"


@dataclasses.dataclass(frozen=True)
class Cost:
    """The expected cost of one run."""

    model: str
    seconds: float
    """Processor seconds per epoch."""
    epochs: float
    source: str
    """The model on whose runs the seconds were measured, or "assumed"."""

    @property
    def hours(self) -> float:
        """Processor hours."""
        return self.seconds * self.epochs / 3600


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What a run in the tables says."""

    record: Record
    processor: float | None
    clock: float | None
    epochs: int | None
    """The number of epochs, if it ended by the recipe's own rule."""


class Costs:
    """The costs of runs, given tables."""

    def __init__(self, tables: Tables) -> None:
        runs = [one for one in tables.runs.values() if not one.stages and tables.curves.get(one.id)]
        self._seen = [_see(one, tables.curves[one.id]) for one in runs if _is_model(one.model)]

    def of(self, config: RunConfig, *, text: bool) -> Cost:
        """Return the cost of a run; `text` says whether it is on a corpus, which need not be given."""
        alike = [
            one for one in self._seen if _size(one.record.settings, one.record.is_text) == _size(config, text)
        ]
        model, family = str(config.model), _family(str(config.model))
        source, seconds = ASSUMED, TEXT_SECONDS if text else SECONDS[family]
        related = [one for one in alike if _family(one.record.model) == family]
        for some in ([one for one in related if one.record.model == model], related):
            for value, about in ((_processor, ""), (_clock, " by the clock")):
                near = _nearest(some, config, value)
                if near and source == ASSUMED:
                    source = near[0].record.model + about
                    seconds = _median(near, value)
        near = _nearest(related, config, _epochs) or [one for one in alike if one.epochs is not None]
        epochs = _median(near, _epochs) if near else TEXT_EPOCHS if text else EPOCHS
        return Cost(model, seconds, epochs, source)


def _processor(one: _Seen) -> float | None:
    return one.processor


def _clock(one: _Seen) -> float | None:
    return one.clock


def _epochs(one: _Seen) -> float | None:
    return one.epochs


def _see(record: Record, curve: Sequence[Epoch]) -> _Seen:
    single = record.threads == 1
    worked = [epoch.processor_seconds for epoch in curve if epoch.processor_seconds is not None]
    passed = [epoch.seconds for epoch in curve if epoch.seconds is not None and single]
    settled = record.best_epoch is not None and is_settled(Finished(record, (*curve,), "", (), 0))
    return _Seen(
        record,
        statistics.median(worked) if worked else None,
        statistics.median(passed) if passed else None,
        record.epochs if settled else None,
    )


def _size(config: RunConfig, text: bool) -> tuple[object, ...]:
    """Return what determines how long an epoch takes, besides the model."""
    data = config.data
    return (config.task, text) if text else (config.task, text, data.train, data.lengths, data.batch_size)


def _is_model(name: str) -> bool:
    """Return whether this is the name of a model; those of plug-ins that are not installed are not."""
    try:
        parse(name)
    except NdstackError:
        return False
    return True


def _family(model: str) -> tuple[bool, str]:
    name = parse(model)
    kind = "nondeterministic" if name.nondeterministic else "deterministic" if name.stack else "none"
    return name.transformer, kind


def _nearest(seen: Sequence[_Seen], config: RunConfig, value: Callable[[_Seen], float | None]) -> list[_Seen]:
    """Return the runs that have a value and are nearest, first by their model and then by their language."""
    known = [one for one in seen if value(one) is not None]
    mine = parse(str(config.model))

    def distance(one: _Seen) -> tuple[bool, float, int]:
        other = parse(one.record.model)
        size = abs(math.log(_states(other) / _states(mine)))
        return other.stack != mine.stack, size, _apart(one.record.language, config.language)

    nearest = min(map(distance, known), default=None)
    return [one for one in known if distance(one) == nearest]


def _states(name: ModelName) -> float:
    return float(max(1, math.prod(name.sizes)))


def _apart(one: str, other: str) -> int:
    """Return 0 for the same language, 1 for the same number of symbols, and otherwise 2."""
    if one == other:
        return 0
    return 1 if one.partition("(")[2] == other.partition("(")[2] else 2


def _median(seen: Sequence[_Seen], value: Callable[[_Seen], float | None]) -> float:
    return statistics.median(number for one in seen if (number := value(one)) is not None)

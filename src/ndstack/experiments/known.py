"""Runs that tables record: a sweep counts those that are complete, though it has no folders of them.

Thus a campaign is continued on a machine that has only the tables of what was done elsewhere.
"""

from __future__ import annotations

from functools import cached_property

from ndstack.experiments.experiment import Extend
from ndstack.experiments.identity import describe_stages, match_key
from ndstack.experiments.jobs import Measure
from ndstack.experiments.records import Record, Tables
from ndstack.experiments.trials import Trial


class KnownRuns:
    """The rows of tables, found by the configurations of trials."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._keys: dict[str, str] = {}

    @cached_property
    def _records(self) -> dict[str, Record]:
        return {match_key(one.settings, one.stages): one for one in self.tables.runs.values()}

    def find(self, trial: Trial, measures: tuple[Measure, ...], extend: Extend | None) -> Record | None:
        """The row of a trial, if it says all that the trial is to say; None if the trial has to be run.

        Args:
            trial: of a sweep.
            measures: what is measured with its model.
            extend: the rule by which it gets more epochs.
        """
        if not self.tables.runs:
            return None
        if trial.id not in self._keys:
            self._keys[trial.id] = match_key(trial.config, describe_stages(trial.config))
        record = self._records.get(self._keys[trial.id])
        if record is None or not self._ended(record, trial, extend):
            return None
        return record if self._measured(record, trial, measures) else None

    def _ended(self, record: Record, trial: Trial, extend: Extend | None) -> bool:
        """Whether a run is as long as the trial asks, which may be longer than its own settings asked."""
        training, curve = trial.config.training, self.tables.curves[record.id]
        if not record.complete or not curve:
            return False
        if record.waited >= training.stop_after:
            return True
        epochs = sum(epoch.stage == curve[-1].stage for epoch in curve)
        if epochs < training.max_epochs:
            return False
        most = training.max_epochs + (extend.times * extend.epochs if extend is not None else 0)
        return extend is None or record.waited >= extend.within or epochs + extend.epochs > most

    def _measured(self, record: Record, trial: Trial, measures: tuple[Measure, ...]) -> bool:
        """Whether the row has what was to be measured; of snapshots, what they show."""
        if trial.config.training.snapshots and "evolution" not in self.tables.views.get(record.id, {}):
            return False
        found: dict[Measure, bool] = {
            "test": bool(record.test_by_length),
            "text": record.test_perplexity is not None,
        }
        return all(found[measure] for measure in measures)

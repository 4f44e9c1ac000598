"""The two names of a run: the trial's, which every setting decides, and that of its row in the tables.

The row's name ignores the settings that may change in the middle of a run: a run that is given more epochs
stays the same row, while a trial with another epoch limit is another trial.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from ndstack.experiments.experiment import Values
from ndstack.training import RunConfig
from ndstack.training.run import FREE


def trial_id(config: RunConfig) -> str:
    """Of all settings that are not defaults; where a corpus lies does not matter."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    values.get("corpus", {}).pop("folder", None)
    return _name(config, values)


def record_id(config: RunConfig, stages: str = "") -> str:
    """The same if a run, or its last stage, is given more epochs.

    Args:
        config: of the run.
        stages: all stages as `describe_stages` writes them.
    """
    return _name(config, _lasting(config, stages))


def match_key(config: RunConfig, stages: str = "") -> str:
    """Like `record_id`, but the same on machines that keep a corpus in folders of different names."""
    values = _lasting(config, stages)
    values.get("corpus", {}).pop("folder", None)
    return _name(config, values)


def portable_settings(config: RunConfig) -> Values:
    """All settings that are not defaults; of paths only the last part, which is the same on every machine."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    for table, name in ((values, "start_from"), (values.get("data", {}), "folder")):
        if name in table:
            table[name] = Path(table[name]).name
    if "corpus" in values:
        values["corpus"]["folder"] = Path(values["corpus"]["folder"]).name
    return values


def describe_stages(*chain: RunConfig) -> str:
    """LENGTHS@EPOCHS/PATIENCE/RATE of every stage, separated by commas; empty if there is only one.

    Args:
        chain: of a run, the configurations of the runs that it started from first.
    """
    shown = []
    for config in chain:
        for number in range(len(config.training.stages) + 1):
            last = number == len(config.training.stages)
            low, high = config.data.lengths if last else config.training.stages[number].lengths
            own = config.training.at(number)
            shown.append(f"{low}:{high}@{own.max_epochs}/{own.stop_after}/{own.learning_rate:g}")
    return ",".join(shown) if len(shown) > 1 else ""


def _lasting(config: RunConfig, stages: str) -> Values:
    """The settings that cannot change in the middle of a run."""
    values = portable_settings(config)
    for name in FREE:
        values.get("training", {}).pop(name, None)
    if stages:
        for name in ("start_from", "start_sha256"):
            values.pop(name, None)
        *before, last = stages.split(",")
        values["stages"] = [*before, last.partition("@")[0]]
    return values


def _name(config: RunConfig, values: Values) -> str:
    """A readable name with a checksum."""
    checksum = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    language = re.sub(r"[^\w-]+", "", config.language.replace("(", "-"))
    return f"{config.model}-{language}-{checksum}"

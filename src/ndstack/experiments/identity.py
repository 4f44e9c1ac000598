"""The two names of a run: that of its trial, which depends on every setting, and that of its row in tables.

The name of the row does not depend on settings that may change in the middle of a run: a run that gets more
epochs keeps its row, whereas a trial with another epoch limit is another trial.
"""

import hashlib
import json
import re
from pathlib import Path

from ndstack.settings.reading import Table
from ndstack.training import RunConfig
from ndstack.training.run import FREE


def trial_id(config: RunConfig) -> str:
    """Return the name of a trial, which depends on all settings except the folder of a corpus."""
    return _name(config, _not_default(config, exclude={"corpus": {"folder"}}))


def record_id(config: RunConfig, stages: str = "") -> str:
    """Return the name of a row, which stays the same if a run, or its last stage, gets more epochs.

    `stages` describes all stages in the format of `describe_stages`.
    """
    return _lasting_name(config, stages, exclude={})


def match_key(config: RunConfig, stages: str = "") -> str:
    """Return `record_id` without the folder of a corpus, which may differ between machines."""
    return _lasting_name(config, stages, exclude={"corpus": {"folder"}})


def portable_settings(config: RunConfig) -> Table:
    """Return all settings that are not defaults, with paths reduced to their last part."""
    return _not_default(_portable(config), exclude={})


def describe_stages(*chain: RunConfig) -> str:
    """Return LENGTHS@EPOCHS/PATIENCE/RATE of every stage, separated by commas; "" if there is only one.

    `chain` has the configurations of the runs from which a run started, and then its own.
    """
    shown = []
    for config in chain:
        for number in range(len(config.training.stages) + 1):
            last = number == len(config.training.stages)
            low, high = config.data.lengths if last else config.training.stages[number].lengths
            own = config.training.at(number)
            shown.append(f"{low}:{high}@{own.max_epochs}/{own.stop_after}/{own.learning_rate:g}")
    return ",".join(shown) if len(shown) > 1 else ""


def _portable(config: RunConfig) -> RunConfig:
    """Return the configuration with paths reduced to their last part."""
    changes: Table = {}
    if config.start_from is not None:
        changes["start_from"] = Path(config.start_from).name
    if config.data.folder is not None:
        changes["data"] = config.data.model_copy(update={"folder": Path(config.data.folder).name})
    if config.corpus is not None:
        changes["corpus"] = config.corpus.model_copy(update={"folder": Path(config.corpus.folder).name})
    return config.model_copy(update=changes)


def _not_default(config: RunConfig, exclude: dict[str, set[str]]) -> Table:
    """Return the settings that are not defaults, without those that are excluded by table and name."""
    return config.model_dump(mode="json", exclude_defaults=True, exclude=exclude)


def _lasting_name(config: RunConfig, stages: str, exclude: dict[str, set[str]]) -> str:
    """Return the name for the settings that cannot change in the middle of a run."""
    values = _not_default(_portable(config), exclude={"training": {*FREE}, **exclude})
    if stages:
        for name in ("start_from", "start_sha256"):
            values.pop(name, None)
        *before, last = stages.split(",")
        values["stages"] = [*before, last.partition("@")[0]]
    return _name(config, values)


def _name(config: RunConfig, values: Table) -> str:
    """Return a readable name with a checksum."""
    checksum = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    language = re.sub(r"[^\w-]+", "", config.language.replace("(", "-"))
    return f"{config.model}-{language}-{checksum}"

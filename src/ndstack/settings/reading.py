"""Settings as plain data: tables within tables, from TOML files and from words on the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ndstack import files
from ndstack.errors import TrainingError

Table = dict[str, object]
"""A table of plain data, as in a TOML or JSON file; its values may be tables, too."""
Values = Mapping[str, object]
"""Settings as plain data that have not been checked yet."""


def read_toml(path: Path) -> Table:
    """Return the content of a TOML file."""
    text = files.read_text(path, TrainingError)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits is a plain ValueError
        raise TrainingError(f"{path} is not a TOML file: {error}") from None


def merge(base: Values, changes: Values) -> Table:
    """Return the base with changes to it, tables within tables included."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_setting(text: str) -> Table:
    """Return `training.clip=3` as nested tables; a value that is not in TOML's notation is a string."""
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(key.isidentifier() for key in keys):
        raise TrainingError(f"{text!r} is not a setting; write it as in training.clip=3 or options.hidden=40")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value.strip()
    return nested(keys, parsed)


def nested(keys: Sequence[str], value: object) -> Table:
    """Return tables within tables, with the value in the innermost."""
    *outer, last = keys
    table: Table = {last: value}
    for key in reversed(outer):
        table = {key: table}
    return table


def flatten(values: Values, prefix: str = "") -> Table:
    """Return nested tables as one, with names such as `training.clip`."""
    flat: Table = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat

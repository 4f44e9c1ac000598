"""What follows from the declarations of settings: signatures, docstrings, tables for the documentation."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ndstack.settings.base import Settings

_Function = TypeVar("_Function", bound=Callable[..., object])


def takes(settings: type[Settings]) -> Callable[[_Function], _Function]:
    """Let a function whose last parameter is `**options` show the fields of a class of settings instead."""

    def complete(function: _Function) -> _Function:
        signature, kind = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        fields = [
            inspect.Parameter(
                name, kind, default=field.get_default(call_default_factory=True), annotation=plain_type(field)
            )
            for name, field in settings.model_fields.items()
        ]
        function.__dict__["__signature__"] = signature.replace(parameters=[*own, *fields])
        described = "".join(
            textwrap.fill(
                f"{name}: {description(field)}", 106, initial_indent=" " * 8, subsequent_indent=" " * 12
            )
            + "\n"
            for name, field in settings.model_fields.items()
        )
        function.__doc__ = (function.__doc__ or "").rstrip() + "\n" + described + "    "
        return function

    return complete


def find_field(settings: type[Settings], path: str) -> FieldInfo:
    """The declaration of a setting, such as `training.clip`."""
    *tables, name = path.split(".")
    for table in tables:
        inner = _table(settings.model_fields[table])
        assert inner is not None, path
        settings = inner
    return settings.model_fields[name]


def plain_type(field: FieldInfo) -> object:
    """The type of a setting without its checks; None is not a part of it."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    optional = len(kinds) < len(get_args(field.annotation))
    kind: object = kinds[0] if optional and len(kinds) == 1 else field.annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def description(field: FieldInfo) -> str:
    """What a setting is, in one line."""
    return " ".join((field.description or "").split())


def default_text(field: FieldInfo, other: object = None) -> str:
    """The default of a setting, or another one, as a reader writes it; empty if there is none."""
    value = field.get_default(call_default_factory=True) if other is None else other
    if value is PydanticUndefined or value is None or value == () or value == {}:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        ":".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else f"{value}"
    )


def table(settings: type[Settings], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The name, the default and the description of every setting, those of inner tables included."""
    for name, field in settings.model_fields.items():
        inner = _table(field)
        if inner is not None:
            yield from table(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", default_text(field), description(field)


def _table(field: FieldInfo) -> type[Settings] | None:
    """The class of a field that is a table itself."""
    kinds = (
        field.annotation,
        *(get_args(field.annotation) if get_origin(field.annotation) is not tuple else ()),
    )
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), None)

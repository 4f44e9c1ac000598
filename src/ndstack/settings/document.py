"""What follows from the declarations of settings: signatures, docstrings, tables for the documentation."""

import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ndstack.settings.base import Settings

_Function = TypeVar("_Function", bound=Callable[..., object])


def takes(settings: type[Settings]) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a function with `**options` show the fields of a class of settings."""

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
    """Return the declaration of a setting, such as `training.clip`."""
    *tables, name = path.split(".")
    return find_table(settings, tables).model_fields[name]


def find_table(settings: type[Settings], tables: Sequence[str]) -> type[Settings]:
    """Return the class of the table inside these tables, each of which is a setting of the one before."""
    for name in tables:
        inner = _table(settings.model_fields[name])
        assert inner is not None, name
        settings = inner
    return settings


def near_name(error: ValidationError, settings: type[Settings]) -> str:
    """Return a hint at the name that may have been intended, if the error is an unknown name."""
    detail = error.errors()[0]
    if detail["type"] != "extra_forbidden":
        return ""
    *tables, name = detail["loc"]
    known = find_table(settings, [table for table in tables if isinstance(table, str)]).model_fields
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def plain_type(field: FieldInfo) -> object:
    """Return the type of a setting without its checks and without None."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    optional = len(kinds) < len(get_args(field.annotation))
    kind: object = kinds[0] if optional and len(kinds) == 1 else field.annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def description(field: FieldInfo) -> str:
    """Return the description of a setting in one line."""
    return " ".join((field.description or "").split())


def default_text(field: FieldInfo, other: object = None) -> str:
    """Return the default of a setting, or another value of it, as a user writes it; "" if there is none."""
    value = field.get_default(call_default_factory=True) if other is None else other
    if value is PydanticUndefined or value is None or value == () or value == {}:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def table(settings: type[Settings], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the name, the default and the description of every setting, those of inner tables included."""
    for name, field in settings.model_fields.items():
        inner = _table(field)
        if inner is not None and get_origin(field.annotation) is not tuple:
            yield from table(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", default_text(field), description(field)


def _table(field: FieldInfo) -> type[Settings] | None:
    """Return the class of a field that is a table or a list of tables; None for other fields."""
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), None)

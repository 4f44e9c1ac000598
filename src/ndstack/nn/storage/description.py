"""What a model is made of, as plain data: written to JSON, checked when read, and made again.

A stack or a network is described by its kind and by the arguments that it was made with, in the same way for
the parts of ndstack and for registered ones (`ndstack.register`). Arguments are numbers, strings, None,
stacks, networks and sequences of these. A part keeps each of them as an attribute of the same name, or has a
method `arguments` that returns them by name.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from ndstack import register, stacks
from ndstack.errors import NdstackError, first_problem
from ndstack.nn.language_models.adaptive import AdaptiveOutput
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.backbone import Backbone
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.networks.transformer import Transformer
from ndstack.settings.model import InputKind, OutputKind
from ndstack.stacks import Stack
from ndstack.stacks.base import AnyStack

Part = AnyStack | Backbone
Description = dict[str, JsonValue]
STACKS = {
    "superposition": "Superposition",
    "stratification": "Stratification",
    "several": "Several",
    "nondeterministic": "Nondeterministic",
}
"""The stacks of `ndstack.stacks`, by name, since the last one brings the compiler along."""
NETWORKS: dict[str, type[Backbone]] = {"rnn": StackRNN, "transformer": Transformer}
LARGEST = 10**9
"""Arguments are smaller than this: more than memory has room for, but not more than torch can count."""
register.stack.reserve(STACKS)
register.network.reserve(NETWORKS)


class ModelDescription(BaseModel):
    """What a `LanguageModel` is made of: the content of `model.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["ndstack model 1"] = "ndstack model 1"
    alphabet: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    input: InputKind
    bos: bool
    output: OutputKind = "full"
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    backbone: Description

    def make(self) -> LanguageModel:
        """Return the model, whose parameters are not set yet; torch's own random numbers are not touched."""
        with torch.random.fork_rng(devices=[]):
            network = make_part(self.backbone, "backbone")
            if not isinstance(network, Backbone):
                raise NdstackError(f"backbone: a {type(network).__name__} given, expected a network")
            model = LanguageModel(network, self.alphabet, self.input, self.bos, self.output)
        return model.to(getattr(torch, self.dtype))


def describe_model(model: LanguageModel) -> ModelDescription:
    """Return what this model is made of; an error says in one line what cannot be described."""
    values = {
        "alphabet": model.alphabet,
        "input": model.input,
        "bos": model.bos,
        "output": "adaptive" if isinstance(model.output, AdaptiveOutput) else "full",
        "dtype": str(model.dtype).removeprefix("torch."),
        "backbone": describe_part(model.backbone),
    }
    return ModelDescription.model_validate(values)


def describe_part(part: Part) -> Description:
    """Return the kind of a stack or a network, and its arguments."""
    kind = _kind(part)
    return {"kind": kind} | {
        name: plain_argument(part, name, value) for name, value in _arguments(part).items()
    }


def make_part(description: Mapping[str, object], place: str) -> Part:
    """Return the stack or network of this description.

    Args:
        description: as `describe_part` gives it, or as a file has it.
        place: where it stands, for error messages.
    """
    arguments = {name: restore_argument(value, f"{place}.{name}") for name, value in description.items()}
    kind = arguments.pop("kind", None)
    make = find_part(kind) if isinstance(kind, str) else None
    if make is None:
        known = ", ".join((*STACKS, *NETWORKS, *register.stack.names, *register.network.names))
        raise NdstackError(
            f"{place}: there is no stack or network called {kind!r}; there are {known}; {register.stack.hint}"
        )
    positional = [
        (name, value) for name in _several(make) for value in _as_tuple(arguments.pop(name, None), place)
    ]
    for name, value in (*positional, *arguments.items()):
        check_argument(make, name, value, f"{place}.{name}")
    try:
        bound = inspect.signature(make).bind(*(value for _, value in positional), **arguments)
    except TypeError as error:
        raise NdstackError(f"{place}: {error}") from None
    return make(*bound.args, **bound.kwargs)


def find_part(kind: str) -> type[Part] | None:
    """Return the class of stacks or networks of this name."""
    found: object = getattr(stacks, STACKS[kind]) if kind in STACKS else NETWORKS.get(kind)
    found = found or register.stack.find(kind) or register.network.find(kind)
    if found is None:
        return None
    if isinstance(found, type) and issubclass(found, Stack | Backbone):
        return found
    raise NdstackError(f"{kind} was registered as {found!r}, expected a class of stacks or networks")


def _kind(part: Part) -> str:
    registry, own = (register.stack, STACKS) if isinstance(part, Stack) else (register.network, NETWORKS)
    name = next((name for name in own if type(part) is find_part(name)), registry.name_of(type(part)))
    if name is None:
        raise NdstackError(
            f"a model with a {type(part).__name__} cannot be saved, since that is not registered; "
            f"{registry.hint}"
        )
    return name


def _arguments(part: Part) -> Mapping[str, object]:
    own = getattr(part, "arguments", None)
    if callable(own):
        return dict(own())
    names = [one.name for one in inspect.signature(type(part)).parameters.values()]
    missing = [name for name in names if not hasattr(part, name)]
    if missing:
        raise NdstackError(
            f"a model with a {type(part).__name__} cannot be saved, since it does not keep its argument "
            f"{missing[0]} as an attribute of that name, and has no method `arguments`"
        )
    return {name: getattr(part, name) for name in names}


def plain_argument(part: object, name: str, value: object) -> JsonValue:
    """Return an argument as JSON."""
    if isinstance(value, Stack | Backbone):
        return describe_part(value)
    if isinstance(value, list | tuple | torch.nn.ModuleList):
        items: Iterable[object] = value
        return [plain_argument(part, name, item) for item in items]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise NdstackError(
        f"a model with a {type(part).__name__} cannot be saved: its argument {name} is a "
        f"{type(value).__name__}, expected numbers, strings, stacks and networks"
    )


def restore_argument(value: object, place: str) -> object:
    """Return an argument from JSON."""
    if isinstance(value, Mapping):
        return make_part(value, place)
    if isinstance(value, list | tuple):
        return tuple(restore_argument(item, place) for item in value)
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise NdstackError(f"{place}: {value} given, expected less than {LARGEST:,}")
    return value


def check_argument(make: Callable[..., object], name: str, value: object, place: str) -> None:
    """Raise an error in one line unless a value is of the type that the class asks for."""
    adapter = _adapters(make).get(name)
    if adapter is None:
        return
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        raise NdstackError(f"{place}: {first_problem(error)}") from None


def _several(make: type[Part]) -> list[str]:
    """Return the name of the parameter that takes any number of arguments: `stacks` of `Several(*stacks)`."""
    parameters = inspect.signature(make).parameters.values()
    return [one.name for one in parameters if one.kind is one.VAR_POSITIONAL]


def _as_tuple(value: object, place: str) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise NdstackError(f"{place}: {value!r} given, expected a list of arguments")
    return value


@functools.cache
def _adapters(make: Callable[..., object]) -> dict[str, TypeAdapter[object]]:
    """Return what checks the arguments of a class, for those whose type is known."""
    found: dict[str, TypeAdapter[object]] = {}
    try:
        hints = typing.get_type_hints(inspect.getattr_static(make, "__init__"))
    except (NameError, TypeError):  # types that only a type checker imports
        return found
    for name, hint in hints.items():
        try:
            found[name] = TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
        except PydanticUserError:
            continue
    return found

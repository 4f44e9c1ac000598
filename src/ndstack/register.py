"""Registration of users' own parts by name: stacks, controllers, networks, languages and tasks.

    @ndstack.register.stack("counter")
    class Counter(Stack[CounterState]):
        def __init__(self, size: int) -> None: ...

Then `counter-5` is the name of a model that can be trained, saved, resumed, evaluated and swept. Another
process knows the name if it can find the module that registers it, in one of two ways:

- an installed package names the module in an entry point of the group `ndstack.plugins`;
- the environment variable `NDSTACK_PLUGINS` names it; several modules are separated by commas.

Processes that are started after a part was registered import its module if they can find it, because the
decorators record modules in the environment variable `NDSTACK_REGISTERED`.
"""

import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TypeVar

from ndstack.errors import NdstackError

__all__ = ["Registry", "controller", "language", "network", "stack", "task"]

GROUP = "ndstack.plugins"
VARIABLE = "NDSTACK_PLUGINS"
REGISTERED = "NDSTACK_REGISTERED"
_NAME = re.compile(r"[a-z][a-z0-9_]*(-[a-z][a-z0-9_]*)*")
_SCRIPT = "__main__"
_Part = TypeVar("_Part", bound=Callable[..., object])
_loaded: set[str] = set()


class Registry:
    """The registered parts of one kind; it is used as a decorator: `@ndstack.register.stack("counter")`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, Callable[..., object]] = {}
        self._reserved: frozenset[str] = frozenset()

    def __call__(self, name: str) -> Callable[[_Part], _Part]:
        """Return a decorator that registers a class or function under a name.

        Args:
            name: a name of lower-case letters, digits and underscores, with hyphens before letters.
        """
        if not _NAME.fullmatch(name):
            raise NdstackError(
                f"{name!r} is not a name for a {self.kind}; expected lower-case letters, digits and "
                "underscores, with hyphens before letters, such as 'my-stack'"
            )

        def add(part: _Part) -> _Part:
            known = self._parts.get(name)
            if name in self._reserved or (known is not None and _origin(known) != _origin(part)):
                raise NdstackError(f"there is a {self.kind} called {name!r} already; choose another name")
            self._parts[name] = part
            _remember(_origin(part)[0])
            return part

        return add

    def reserve(self, names: Iterable[str]) -> None:
        """Prevent the names of ndstack's own parts from being registered."""
        self._reserved |= frozenset(names)
        for name in self._reserved & self._parts.keys():
            raise NdstackError(f"there is a {self.kind} called {name!r} already; choose another name")

    def find(self, name: str) -> Callable[..., object] | None:
        """Return the part of this name, in this process or in a plugin; None if there is none."""
        if name not in self._parts:
            load_plugins()
        return self._parts.get(name)

    def name_of(self, part: Callable[..., object]) -> str | None:
        """Return the name of a registered class or function; None if it is not registered."""
        return next((name for name, known in self._parts.items() if known is part), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts, those of plugins included."""
        load_plugins()
        return tuple(self._parts)

    @property
    def hint(self) -> str:
        """The advice in errors about unknown names."""
        return (
            f"register your own {self.kind} with @ndstack.register.{self.kind}, in a module that an entry "
            f"point of the group {GROUP} or the variable {VARIABLE} names"
        )


stack = Registry("stack")
"""Subclasses of `ndstack.stacks.Stack`: `counter-5` is `Counter(5)` in a recurrent network, `tf+counter-5` in
a transformer."""
controller = Registry("controller")
"""Modules that are made and called like `torch.nn.GRU`, or like `torch.nn.LSTM` if they have a true attribute
`has_cells`."""
network = Registry("network")
"""Subclasses of `ndstack.nn.Backbone` whose first argument is `input_size`."""
language = Registry("language")
"""Functions that return an `ndstack.languages.Language`, without arguments or of a number `k` of symbols."""
task = Registry("task")
"""Functions or classes that make an `ndstack.training.Task` from a `RunConfig` and a `Share`."""


def load_plugins() -> None:
    """Import the modules that variables or entry points name, unless they have been imported already."""
    noted = [name for name in _named_by(REGISTERED) if _can_be_found(name)]
    for name in (*_named_by(VARIABLE), *noted):
        _load(name, functools.partial(importlib.import_module, name))
    if GROUP not in _loaded:
        _loaded.add(GROUP)
        for point in entry_points(group=GROUP):
            _load(point.value, point.load)


def _load(name: str, load: Callable[[], object]) -> None:
    if name in _loaded:
        return
    _loaded.add(name)  # before loading, because a plugin may search for names itself
    try:
        load()
    except Exception as error:
        _loaded.discard(name)
        if isinstance(error, NdstackError):
            raise
        raise NdstackError(f"the plugin {name} cannot be imported: {type(error).__name__}: {error}") from None


def _remember(module: str) -> None:
    """Record a module, so that processes that are started later import it."""
    names = _named_by(REGISTERED)
    if module not in (*names, _SCRIPT):
        os.environ[REGISTERED] = ",".join([*names, module])
    _loaded.add(module)


def _named_by(variable: str) -> list[str]:
    return [name for name in os.environ.get(variable, "").split(",") if name]


def _can_be_found(module: str) -> bool:
    """Return whether there is such a module, which a process started in another folder may not find."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its package is missing, or this is not a name
        return False


def _origin(part: Callable[..., object]) -> tuple[str, str]:
    """Return the module and the name of a part; a script has another name in the processes that it starts."""
    module = part.__module__ or _SCRIPT  # functions made by `exec` have no module
    return _SCRIPT if module == "__mp_main__" else module, getattr(part, "__qualname__", "")

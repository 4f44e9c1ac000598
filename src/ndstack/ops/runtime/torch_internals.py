"""Everything that ndstack uses of torch without torch's promise to keep it (see also `numba_internals`).

Each function falls back to something sound where a version of torch has changed what stands behind it, and
`tests/ops/test_internals.py` takes each of these things away in turn. `pyproject.toml` bounds the versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_current_task: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)
_transforms: Callable[[], bool] | None = getattr(torch._C, "_are_functorch_transforms_active", None)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


def backward_pass() -> int:
    """Return a number for the backward pass that is running in this thread, different for every pass.

    Fallback: always 0. A backward pass that follows one that an error has ended must then not reuse its
        graph.
    """
    return 0 if _current_task is None else _current_task()


def transforms_active() -> bool:
    """Return whether a transform of `torch.func`, or forward-mode differentiation, is active.

    Fallback: False. Such a transform then fails inside torch, with torch's own message.
    """
    level: int = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return level >= 0 or (_transforms is not None and _transforms())


def plain_apply(operation: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return a way to call an operation that does not look for what transforms of `torch.func` have wrapped.

    That takes a tenth of the time of a small operation. Such a wrapper, left behind by a transform that has
    ended, has no memory, and a RuntimeError says so. Fallback: the operation's own way.
    """
    found: Callable[..., Any] = getattr(super(torch.autograd.Function, operation), "apply", operation.apply)
    return found


def has_hooks(module: torch.nn.Module) -> bool:
    """Return whether hooks run when the module is called, its own or those of all modules, or compiled code.

    Fallback: True, so that the module is called and nothing that it does is left out.
    """
    own, everywhere = module.__dict__, torch.nn.modules.module.__dict__
    try:
        if module._compiled_call_impl is not None:  # by `module.compile()`
            return True
        return any(map(own.__getitem__, _HOOKS)) or any(map(everywhere.__getitem__, _GLOBAL_HOOKS))
    except (AttributeError, KeyError):
        return True


def first_parameter(module: torch.nn.Module) -> torch.nn.Parameter:
    """Return the first parameter of a module that has one.

    `next(module.parameters())` goes through all modules inside it first, which takes longer than a small
    operation. It is the fallback.
    """
    own: dict[str, torch.nn.Parameter | None] = getattr(module, "_parameters", {})
    for parameter in own.values():
        if parameter is not None:
            return parameter
    return next(module.parameters())


def traced_alone(module: torch.nn.Module) -> bool:
    """Return whether `torch.compile`, which is tracing, was given the module, and not a network around it.

    Fallback: False. Such a module is then a graph of its own, which takes longer than the module as it is.
    """
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        first = InstructionTranslator.current_tx().output.root_tx
        return bool(first.f_locals.get("self") is module)
    except (ImportError, AttributeError):
        return False

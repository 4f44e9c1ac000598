"""One differentiable operation over whole sequences, whatever the backend and the precision.

Log weights in; the probabilities p_t[b] of the configuration types and, if wanted, the attention
sum_a P_t[i, a | b] over the steps at which the top symbol may have been pushed. All readings of
chapters 4, 6 and 9 are simple functions of these two, since by induction over the equations of
zeta (section 9.1)

    zeta[i, a -> t, b] = gamma[i, a -> t, b] v_{i+1}:

the element that stands on (i, a) was pushed at time i + 1, and replacing keeps its vector.

Sequences for which a dtype is too narrow are computed again, as `precision_guard` says; so are gradients that
are not finite. Where no run survives a step, p and the attention are 0 from there on, with zero gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import memory
from ndstack.ops.nondeterministic.invalid_sequences import invalid_steps, mark, withhold
from ndstack.ops.nondeterministic.log_space import in_log_space
from ndstack.ops.nondeterministic.portable.scan import automaton_of
from ndstack.ops.nondeterministic.precision_guard import finite_sequences, next_format, redo
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime import devices
from ndstack.ops.runtime.autograd import Context, Gradients, Operation, refuse_second_derivatives
from ndstack.ops.runtime.lazy import LazyModule
from ndstack.ops.runtime.tracing import refuse_transforms

BACKENDS: dict[str, Any] = {
    name: LazyModule(f"ndstack.ops.nondeterministic.{name}.scan") for name in ("cpu", "portable", "triton")
}
"""The fast backends. Each has `run` and `gradient`."""


def scan(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """The probabilities [B, n, K] and the attention [B, n, K, n + 1] (empty if not wanted).

    Args:
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
    """
    refuse_transforms()
    if setting.backend == "reference" or 0 in actions.shape[:2]:
        return in_log_space(actions, setting)
    invalid = invalid_steps(actions)
    if invalid is None:
        return _guarded(actions, setting)
    reading, attention = _guarded(withhold(actions, invalid), setting)
    return mark(reading, invalid), mark(attention, invalid) if setting.attend else attention


def _guarded(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """By a fast backend, and in a wider format where that is not to be trusted."""
    trusted: list[Tensor] = []
    if setting.backend != "cpu":
        differentiable = actions.requires_grad and torch.is_grad_enabled()
        batch, steps = actions.shape[:2]
        memory.check_room(automaton_of(setting), batch, steps, actions.dtype, actions.device, differentiable)
    reading, attention = _Fast.apply(actions, setting, trusted)
    results = (reading, attention) if setting.attend else (reading,)

    def again(rows: Tensor) -> tuple[Tensor, ...]:
        return _in_wider_format(actions[rows], setting)[: len(results)]

    better = redo(results, ~trusted[0], again)
    return better[0], better[1] if setting.attend else attention


def _in_wider_format(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    if setting.backend == "cpu":
        return next_format(actions.dtype, scan, in_log_space)(actions.double(), setting)
    if devices.has_double(actions.device):
        return next_format(actions.dtype, scan, _compiled)(actions.double(), setting)
    return _compiled(actions, setting)


def _compiled(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """By compiled code, which normalises every step on its own and goes to log space if need be."""
    found = scan(actions.cpu().double(), setting._replace(backend="cpu"))
    return found[0].to(actions), found[1].to(actions)


class _Fast(Operation):
    """The probabilities and the attention by a fast backend.

    Says in `told` which sequences can be trusted; the others have zero gradients.
    """

    @staticmethod
    def forward(ctx: Context, actions: Tensor, setting: Setting, told: list[Tensor]) -> tuple[Tensor, Tensor]:
        actions, ctx.setting = actions.detach().contiguous(), setting
        ctx.chart, reading, attention, trusted = BACKENDS[setting.backend].run(actions, setting)
        told.append(trusted)
        ctx.trusted = trusted
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(actions, reading, attention)
        return reading, attention

    @staticmethod
    def backward(ctx: Context, *received: Tensor | None) -> Gradients:
        refuse_second_derivatives()
        setting: Setting = ctx.setting
        actions, *outputs = ctx.saved_tensors
        shown = torch.zeros_like(outputs[0]) if received[0] is None else received[0]
        grads = shown, received[1] if setting.attend else None
        known = finite_sequences(*grads)
        result: Tensor = BACKENDS[setting.backend].gradient(
            ctx.chart, setting, actions, outputs, grads, ctx.trusted & known
        )

        def again(rows: Tensor) -> list[Tensor]:
            weights = None if grads[1] is None else grads[1][rows]
            return [_gradient_again(setting, actions[rows], shown[rows], weights)]

        (result,) = redo([result], known & ~finite_sequences(result), again)
        if not devices.on_host(known) or not known.all():
            # nothing follows from derivatives that are not numbers
            result = result.masked_fill(~known[:, None, None], math.nan)
        return result, None, None


def _gradient_again(setting: Setting, actions: Tensor, shown: Tensor, weights: Tensor | None) -> Tensor:
    """The gradient of some sequences once more, in a wider format."""
    with torch.enable_grad():
        given = actions.detach().requires_grad_()
        reading, attention = _in_wider_format(given, setting)
        total = (reading * shown).sum()
        if weights is not None:
            total = total + (attention * weights).sum()
        return torch.autograd.grad(total, given)[0]

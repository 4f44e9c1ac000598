"""One differentiable operation over whole sequences, whatever the backend and the precision.

Log weights in; the probabilities p_t[b] of the configuration types and, if wanted, the attention
sum_a P_t[i, a | b] over the steps at which the top symbol may have been pushed. All readings of
chapters 4, 6 and 9 are simple functions of these two, since by induction over the equations of
zeta (section 9.1)

    zeta[i, a -> t, b] = gamma[i, a -> t, b] v_{i+1}:

the element that stands on (i, a) was pushed at time i + 1, and replacing keeps its vector.

The precision guard: a sequence whose float32 chart may have lost runs to underflow, or whose
gradient is not finite, is computed again in float64, and if that is not enough, in log space by
the reference. Where no run survives a step, p and the attention are 0 from there on, with zero
gradients. Sequences with weights that are nan or +inf are no business of the guard (see `guard`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ndstack.ops.nondeterministic import naive
from ndstack.ops.nondeterministic.invalid import invalid_steps, mark, withhold
from ndstack.ops.runtime.autograd import refuse_second_derivatives
from ndstack.ops.runtime.tracing import refuse_transforms


@dataclasses.dataclass(frozen=True)
class Setting:
    """Which automaton, and how to compute it.

    Attributes:
        states, symbols: |Q| and |Gamma|.
        window: chapter 7's D, or None.
        bottom_fix: chapter 8's treatment of the initial bottom symbol, else chapter 4's.
        backend: "cpu", "portable" or "reference".
        attend: whether the attention is wanted.
        strict: whether it has to be right even for configuration types whose probability is next
            to nothing.
    """

    states: int
    symbols: int
    window: int | None
    bottom_fix: bool
    backend: str
    attend: bool
    strict: bool = False


Compute = Callable[[Tensor, Setting], tuple[Tensor, Tensor]]


def action_sizes(states: int, symbols: int) -> list[int]:
    """How many weights of push, replace and pop a step has."""
    kinds = states * symbols
    return [kinds * kinds, kinds * kinds, kinds * states]


def scan(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """The probabilities [B, n, K] and the attention [B, n, K, n + 1] (empty if not wanted).

    Args:
        actions: [B, n, A], log weights of push [K * K], replace [K * K] and pop [K * Q].
    """
    refuse_transforms()
    if setting.backend == "reference" or 0 in actions.shape[:2]:
        return in_log_space(actions, setting)
    return _valid_steps(_guarded, actions, setting)


def in_log_space(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """`scan` by the reference, in float64 whatever is given: a logarithm takes digits from its number."""
    reading, attention = _valid_steps(_in_log_space, actions.double(), setting)
    return reading.to(actions.dtype), attention.to(actions.dtype)


def _valid_steps(compute: Compute, actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """What `compute` says of steps that have a meaning, nan elsewhere (see `guard`)."""
    invalid = invalid_steps(actions)
    if invalid is None:
        return compute(actions, setting)
    reading, attention = compute(withhold(actions, invalid), setting)
    return mark(reading, invalid), mark(attention, invalid) if setting.attend else attention


def _guarded(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """By a fast backend, and in a wider format where that is not to be trusted."""
    sure: list[Tensor] = []
    fast: Any = _Fast.apply
    reading, attention = fast(actions, setting, sure)
    rows = (~sure[0]).nonzero().squeeze(-1)
    if len(rows) == 0:
        return reading, attention
    redo = in_log_space if actions.dtype == torch.float64 else scan
    better = [part.to(actions.dtype) for part in redo(actions[rows].double(), setting)]
    reading = reading.index_copy(0, rows, better[0])
    return reading, attention.index_copy(0, rows, better[1]) if setting.attend else attention


def _in_log_space(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """By the reference."""
    kinds = (setting.states, setting.symbols)
    batch, steps = actions.shape[:2]
    if batch == 0 or steps == 0:
        shape = (batch, steps, math.prod(kinds))
        return actions.new_zeros(shape), actions.new_zeros(*shape, steps + 1)
    weights = naive.run(*shaped(actions, setting), window=setting.window, bottom_fix=setting.bottom_fix)
    alpha, places = weights.alpha.flatten(2), weights.places.flatten(2, 3)
    total = log_sum(alpha).unsqueeze(-1)
    attention = quotient(places, alpha.unsqueeze(-1)) if setting.attend else actions.new_zeros(0)
    return quotient(alpha, total), attention


def shaped(actions: Tensor, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """push and replace [B, n, Q, S, Q, S], and pop [B, n, Q, S, Q]."""
    kinds, leading = (setting.states, setting.symbols), actions.shape[:2]
    push, replace, pop = torch.split(actions, action_sizes(*kinds), -1)
    return (
        push.reshape(*leading, *kinds, *kinds),
        replace.reshape(*leading, *kinds, *kinds),
        pop.reshape(*leading, *kinds, setting.states),
    )


def log_sum(x: Tensor) -> Tensor:
    """logsumexp over the last dimension, with zero gradients where all is -inf."""
    dead = torch.isneginf(x).all(-1)
    return torch.logsumexp(x.masked_fill(dead[..., None], 0.0), -1).masked_fill(dead, -math.inf)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """e^{x - y} for x <= y, and 0 with zero gradients where y is -inf."""
    return (x - y.masked_fill(torch.isneginf(y), 0.0)).exp()


class _Fast(torch.autograd.Function):
    """The probabilities and the attention by a fast backend.

    Says in `sure` which sequences can be trusted; the others have zero gradients.
    """

    @staticmethod
    def forward(ctx: Any, actions: Tensor, setting: Setting, sure: list[Tensor]) -> tuple[Tensor, Tensor]:
        backend: Any
        if setting.backend == "cpu":
            from ndstack.ops.nondeterministic.cpu import scan as backend
        else:
            from ndstack.ops.nondeterministic.portable import scan as backend
        actions = actions.detach().contiguous()
        ctx.setting, ctx.backend = setting, backend
        ctx.chart, reading, attention, ctx.ok = backend.run(actions, setting)
        sure.append(ctx.ok)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(actions, reading, attention)
        return reading, attention

    @staticmethod
    def backward(ctx: Any, *received: Any) -> Any:
        refuse_second_derivatives()
        actions, reading, attention = ctx.saved_tensors
        shown = torch.zeros_like(reading) if received[0] is None else received[0]
        weights = received[1] if ctx.setting.attend else None
        outputs = (reading, attention)
        known = _finite(shown) if weights is None else _finite(shown) & _finite(weights)
        sure = ctx.ok & known
        result = ctx.backend.gradient(ctx.chart, ctx.setting, actions, outputs, (shown, weights), sure)
        rows = (known & ~_finite(result)).nonzero().squeeze(-1)
        if not known.all():  # nothing follows from derivatives that are not numbers
            result[~known] = math.nan
        if len(rows):
            result[rows] = _again(ctx.setting, rows, actions, shown, weights)
        return result, None, None


def _finite(tensor: Tensor) -> Tensor:
    """Which sequences of a batch have finite numbers only, [B]."""
    return tensor.isfinite().flatten(1).all(1)


def _again(setting: Setting, rows: Tensor, actions: Tensor, shown: Tensor, weights: Tensor | None) -> Tensor:
    """The gradient of some sequences once more, in a wider format."""
    with torch.enable_grad():
        given = actions[rows].double().requires_grad_()
        redo = in_log_space if actions.dtype == torch.float64 else scan
        reading, attention = redo(given, setting)
        total = (reading * shown[rows]).sum()
        if weights is not None:
            total = total + (attention * weights[rows]).sum()
        return torch.autograd.grad(total, given)[0].to(actions.dtype)

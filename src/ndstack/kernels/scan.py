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
gradients.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from ndstack.kernels import reference


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


def scan(push: Tensor, replace: Tensor, pop: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """The probabilities [B, n, K] and the attention [B, n, K, n + 1] (empty if not wanted).

    Args:
        push, replace, pop: [B, n, K * K], [B, n, K * K], [B, n, K * Q], log weights.
    """
    if setting.backend == "reference" or 0 in push.shape[:2]:
        return in_log_space(push, replace, pop, setting)
    sure: list[Tensor] = []
    fast: Any = _Fast.apply
    reading, attention = fast(push, replace, pop, setting, sure)
    rows = (~sure[0]).nonzero().squeeze(-1)
    if len(rows) == 0:
        return reading, attention
    again = [action[rows].double() for action in (push, replace, pop)]
    redo = in_log_space if push.dtype == torch.float64 else scan
    better = [part.to(push.dtype) for part in redo(again[0], again[1], again[2], setting)]
    reading = reading.index_copy(0, rows, better[0])
    return reading, attention.index_copy(0, rows, better[1]) if setting.attend else attention


def in_log_space(
    push: Tensor, replace: Tensor, pop: Tensor, setting: Setting
) -> tuple[Tensor, Tensor]:
    """`scan` by the reference."""
    kinds = (setting.states, setting.symbols)
    batch, steps = push.shape[:2]
    if batch == 0 or steps == 0:
        shape = (batch, steps, math.prod(kinds))
        return push.new_zeros(shape), push.new_zeros(*shape, steps + 1)
    weights = reference.run(
        push.reshape(batch, steps, *kinds, *kinds),
        replace.reshape(batch, steps, *kinds, *kinds),
        pop.reshape(batch, steps, *kinds, setting.states),
        window=setting.window,
        bottom_fix=setting.bottom_fix,
    )
    alpha, places = weights.alpha.flatten(2), weights.places.flatten(2, 3)
    total = log_sum(alpha).unsqueeze(-1)
    attention = quotient(places, alpha.unsqueeze(-1)) if setting.attend else push.new_zeros(0)
    return quotient(alpha, total), attention


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
    def forward(
        ctx: Any, push: Tensor, replace: Tensor, pop: Tensor, setting: Setting, sure: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        actions = tuple(action.detach().contiguous() for action in (push, replace, pop))
        ctx.setting = setting
        ctx.set_materialize_grads(False)
        backend: Any
        if setting.backend == "cpu":
            from ndstack.kernels import cpu_engine as backend
        else:
            from ndstack.kernels import portable_engine as backend
        ctx.backend = backend
        ctx.chart, reading, attention, ok = backend.run(actions, setting)
        sure.append(ok)
        ctx.ok = ok
        ctx.save_for_backward(*actions, reading, attention)
        return reading, attention

    @staticmethod
    def backward(ctx: Any, *received: Any) -> Any:
        *actions, reading, attention = ctx.saved_tensors
        if received[0] is None and received[1] is None:
            return None, None, None, None, None
        shown = torch.zeros_like(reading) if received[0] is None else received[0]
        weights = received[1] if ctx.setting.attend else None
        results = ctx.backend.gradient(
            ctx.chart, ctx.setting, tuple(actions), (reading, attention), (shown, weights), ctx.ok
        )
        good = torch.stack([result.isfinite().flatten(1).all(1) for result in results]).all(0)
        rows = (~good & ctx.ok.to(good.device)).nonzero().squeeze(-1)
        if len(rows):
            _repair(ctx.setting, rows, actions, (shown, weights), results)
        return *results, None, None


def _repair(
    setting: Setting,
    rows: Tensor,
    actions: list[Tensor],
    grads: tuple[Tensor, Tensor | None],
    results: tuple[Tensor, ...],
) -> None:
    """Compute the gradient of some sequences again, in a wider format, and write it to results."""
    with torch.enable_grad():
        again = [action[rows].double().requires_grad_() for action in actions]
        redo = in_log_space if actions[0].dtype == torch.float64 else scan
        outputs = redo(again[0], again[1], again[2], setting)
        pairs = [(outputs[0], grads[0])]
        if grads[1] is not None:
            pairs.append((outputs[1], grads[1]))
        found = torch.autograd.grad(
            [output for output, _ in pairs], again, [grad[rows].double() for _, grad in pairs]
        )
    for result, better in zip(results, found, strict=True):
        result[rows] = better.to(result.dtype)

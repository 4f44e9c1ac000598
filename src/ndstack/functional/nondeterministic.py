"""The nondeterministic stack over whole sequences (chapters 4, 6, 8 and 9).

A weighted pushdown automaton whose transition weights are inputs is run over all its runs at once
by Lang's algorithm; what comes out is the distribution over its state and top stack symbol, or the
expected top vector, at every step. Everything is differentiable.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_size
from ndstack.ops.nondeterministic import Setting, in_log_space, invalid_steps, mark, scan, withhold
from ndstack.ops.runtime import backends
from ndstack.ops.runtime.tracing import opaque, refuse_transforms

BACKENDS = backends.NAMES


@opaque
def nondeterministic(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    *,
    vectors: Tensor | None = None,
    bottom: Tensor | None = None,
    window: int | None = None,
    bottom_fix: bool = True,
    backend: str = "auto",
    return_attention: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Run a weighted pushdown automaton over whole sequences.

    Weights are logarithms and -inf means zero. They need not be normalised: readings are. Indices
    are [from state, from symbol, to state, to symbol]; state 0 is the start state and symbol 0 the
    bottom symbol, with which the stack begins.

    A run that pops the last symbol of its stack ends there and counts no more; readings are
    normalised over the runs that are left. (A superposition stack goes on with an empty stack,
    whose reading is zeros; where no run pops the bottom, it is the case of one state, one symbol,
    normalised weights and a zero bottom vector, section 9.2.)

    Where no run survives a step (all weights that it could use are zero), readings and attention
    are 0 from there on, and so are their gradients. No weights from -inf to 1e4 make a nan or lose
    a run silently: sequences for which the dtype is too narrow are computed again in float64, and
    in log space where that is not enough. A weight that is nan or +inf, or a vector that is not
    finite, makes readings and attention of its sequence nan from that step on, and its gradients
    nan; the steps before and the other sequences are as they would have been.

    Args:
        push: [B, n, Q, S, Q, S], log weights of pushing a symbol.
        replace: [B, n, Q, S, Q, S], log weights of replacing the top symbol.
        pop: [B, n, Q, S, Q], log weights of popping it.
        vectors: [B, n, m], pushed vectors (chapter 9); replacing a symbol keeps its vector.
        bottom: [m], the vector of the initial bottom symbol; zeros if not given.
        window: chapter 7's D: a symbol is forgotten when more than D steps have passed since the
            configuration that it was pushed on (the initial bottom symbol stands on time -1).
        bottom_fix: whether the initial bottom symbol can be replaced and uncovered (chapter 8) or
            not (chapter 4).
        backend: "cpu" (compiled), "triton" (CUDA), "portable" (torch operations, any device), "reference"
            (log space, in float64 whatever is given; slow), or "auto", the best one for the device (see
            `ndstack.backends`).
        return_attention: whether to return the attention too.

    Returns:
        The readings after steps 1..n: probabilities of (state, top symbol) [B, n, Q, S], or with
        vectors their products with the expected top vectors [B, n, Q, S, m]. With
        `return_attention` also the distribution over the steps at which the top symbol was pushed,
        given state and symbol, [B, n, Q, S, n + 1]; step 0 is the initial bottom symbol.
    """
    refuse_transforms()
    _check(push, replace, pop, vectors, bottom, window, backend)
    states, symbols = push.shape[2:4]
    backend = backends.choose(push.device, backend)
    attend = return_attention or vectors is not None
    setting = Setting(states, symbols, window, bottom_fix, backend, attend, return_attention)
    actions = torch.cat([push.flatten(2), replace.flatten(2), pop.flatten(2)], dim=-1)
    invalid = invalid_steps(actions, vectors)
    if invalid is not None:
        actions = withhold(actions, invalid)
        vectors = None if vectors is None else withhold(vectors, invalid)
    if backend == "reference" and push.numel():
        reading, attention = in_log_space(actions, setting, vectors, bottom)
    else:
        reading, attention = scan(actions, setting)
        if vectors is not None:
            reading = reading.unsqueeze(-1) * attended(attention, with_bottom(vectors, bottom))
    if invalid is not None:
        reading, attention = mark(reading, invalid), mark(attention, invalid) if attend else attention
    leading = (*push.shape[:2], states, symbols)
    reading = reading.reshape(*leading, *reading.shape[3:])
    if return_attention:
        return reading, attention.reshape(*leading, attention.shape[-1])
    return reading


def with_bottom(vectors: Tensor, bottom: Tensor | None) -> Tensor:
    """Return the vectors of steps 0..n, [B, n + 1, m]; step 0 is the initial bottom."""
    if bottom is None:
        bottom = vectors.new_zeros(vectors.shape[-1])
    return torch.cat([bottom.expand(vectors.shape[0], 1, -1), vectors], dim=1)


def attended(attention: Tensor, vectors: Tensor) -> Tensor:
    """sum_j attention[b, t, k, j] vectors[b, j]: [B, n, K, J] and [B, J, m] to [B, n, K, m]."""
    sums = attention.flatten(1, 2) @ vectors
    return sums.reshape(*attention.shape[:3], vectors.shape[-1])


def _check(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    vectors: Tensor | None,
    bottom: Tensor | None,
    window: int | None,
    backend: str,
) -> None:
    """Raise an error in one line unless everything fits."""
    shape = tuple(push.shape)
    if push.dim() != 6 or shape[2:4] != shape[4:6] or 0 in shape[2:]:
        raise NdstackError(f"push has shape {list(shape)}, expected [B, n, Q, S, Q, S]")
    wanted = {"replace": (replace, shape), "pop": (pop, shape[:5])}
    if vectors is not None:
        size = vectors.shape[-1] if vectors.dim() else 0
        wanted["vectors"] = (vectors, (*shape[:2], size))
        if bottom is not None:
            wanted["bottom"] = (bottom, (size,))
    elif bottom is not None:
        raise NdstackError("a bottom vector was given without vectors; give `vectors` too")
    for name, (tensor, expected) in wanted.items():
        if tuple(tensor.shape) != expected:
            raise NdstackError(
                f"{name} has shape {list(tensor.shape)}, expected {list(expected)} "
                f"to go with push of shape {list(shape)}"
            )
        if tensor.dtype != push.dtype or tensor.device != push.device:
            raise NdstackError(
                f"{name} is {tensor.dtype} on {tensor.device} but push is {push.dtype} on "
                f"{push.device}; convert one of them"
            )
    if push.dtype not in (torch.float32, torch.float64):
        raise NdstackError(f"weights are {push.dtype}, expected float32 or float64; use .float()")
    if window is not None:
        check_size("window", window)
    if backend not in BACKENDS:
        raise NdstackError(f"backend is {backend!r}, expected one of {', '.join(BACKENDS)}")
    if backend == "cpu" and push.device.type != "cpu":
        raise NdstackError(f"backend 'cpu' given tensors on {push.device}; use 'auto'")

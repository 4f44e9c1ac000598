"""The superposition stack over whole sequences (section 3.3.2)."""

import torch
from torch import Tensor

from ndstack.errors import check_size
from ndstack.functional.checks import check_sequences
from ndstack.ops import superposition as operation
from ndstack.ops.runtime.tracing import opaque


@opaque
def superposition(
    push: Tensor, pop: Tensor, noop: Tensor, vectors: Tensor, *, depth: int | None = None
) -> Tensor:
    """Return the readings of a superposition stack after each of n steps.

    The new stack is an interpolation of the old one with v_t pushed, unchanged, and popped:

        V_t[i] = push_t V_{t-1}[i-1] + noop_t V_{t-1}[i] + pop_t V_{t-1}[i+1],   V_{t-1}[0] = v_t

    and the reading is its top, V_t[1]. The stack is empty at first, and an empty stack is all zeros: popping
    it changes nothing. In the dissertation the three weights of a step sum to 1; here they need not.

    Args:
        push: [B, n].
        pop: [B, n].
        noop: [B, n].
        vectors: [B, n, m], pushed.
        depth: keep only that many elements; a push onto a full stack drops the bottom one.

    Returns:
        [B, n, m].
    """
    check_sequences({"push": push, "pop": pop, "noop": noop}, vectors)
    depth = None if depth is None else check_size("depth", depth)
    weights = torch.stack([push, noop, pop], dim=-1)
    empty = vectors.new_empty(vectors.shape[0], 0, vectors.shape[2])
    readings, _ = operation.scan(empty, weights, vectors, depth, only_readings=True)
    return readings

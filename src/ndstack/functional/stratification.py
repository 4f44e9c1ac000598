"""The stratification stack over whole sequences (section 3.3.1)."""

import torch
from torch import Tensor

from ndstack.functional.checks import check_sequences
from ndstack.ops import stratification as operation
from ndstack.ops.runtime.tracing import opaque


@opaque
def stratification(push: Tensor, pop: Tensor, vectors: Tensor) -> Tensor:
    """Return the readings of a stratification stack after each of n steps.

    At step t, first a thickness of pop_t is removed from the top, then v_t is laid on top with
    thickness push_t. The reading is the sum of the vectors within the top slice of thickness 1,
    each times its thickness there:

        s_t[i] = max(0, s_{t-1}[i] - max(0, pop_t - sum_{j=i+1}^{t-1} s_{t-1}[j])),  s_t[t] = push_t
        r_t    = sum_i min(s_t[i], max(0, 1 - sum_{j=i+1}^t s_t[j])) v_i.

    A stack thinner than 1 gives a reading that much smaller, an empty one gives 0; removing more than there
    is leaves it empty. At a tie the derivative is that of `torch.relu` and `torch.minimum`.

    Args:
        push: [B, n], not negative; at most 1 in the dissertation, which notes uses of more.
        pop: [B, n], likewise.
        vectors: [B, n, m], pushed.

    Returns:
        [B, n, m].
    """
    check_sequences({"push": push, "pop": pop}, vectors)
    actions = torch.stack([push, pop], dim=-1)
    readings, _ = operation.scan(push[:, :0], actions, vectors)
    return readings

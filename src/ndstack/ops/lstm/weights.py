"""An LSTM controller's weights, and what whole-sequence operations with one have in common."""

from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.ops.runtime.addresses import Array, array


class LSTMWeights(NamedTuple):
    """How an LSTM controller of H units reads and drives a stack (section 3.2).

    Gates are ordered (input, forget, cell, output), as in `torch.nn.LSTM`.
    """

    reading: Tensor
    """[4H, R], from the stack's reading to the gates."""

    hidden: Tensor
    """[4H, H], from the hidden state to the gates."""

    control: Tensor
    """[C, H], from the hidden state to the stack's controls: action logits, then vector to push."""

    control_bias: Tensor
    """[C]."""

    def arrays(self, dtype: torch.dtype, units: int, reading: int, controls: int) -> tuple[Array, ...]:
        """Return arrays for compiled code, matrices transposed, if they are of these sizes."""
        sizes = (reading, 4 * units), (units, 4 * units), (units, controls)
        turned = [array(matrix.t(), dtype, *size) for matrix, size in zip(self[:3], sizes, strict=True)]
        return *turned, array(self.control_bias, dtype, controls)


def weight_gradients(
    grad_gates: Tensor,
    grad_controls: Tensor,
    readings: tuple[Tensor, Tensor],
    hidden: tuple[Tensor, Tensor],
) -> LSTMWeights:
    """Return the derivatives with respect to the weights.

    Args:
        grad_gates: [B, n, 4H].
        grad_controls: [B, n, C].
        readings: the first, [B, R], and those after each step, [B, n, R].
        hidden: the first, [B, H], and those after each step, [B, n, H].
    """

    by_gates, by_controls = grad_gates.flatten(0, 1).t(), grad_controls.flatten(0, 1).t()
    after = torch.cat([readings[1], hidden[1]], dim=2)
    before = torch.cat([torch.cat([readings[0], hidden[0]], dim=1)[:, None], after[:, :-1]], dim=1)
    both = by_gates @ before.flatten(0, 1)
    size = readings[0].shape[1]
    return LSTMWeights(
        both[:, :size], both[:, size:], by_controls @ hidden[1].flatten(0, 1), by_controls.sum(1)
    )

"""An LSTM controller's weights, and what whole-sequence operations with one have in common."""

from collections.abc import Sequence
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
    """Return the derivatives with respect to the weights, of a whole sequence.

    Args:
        grad_gates: [B, n, 4H].
        grad_controls: [B, n, C].
        readings: the first, [B, R], and those after each step, [B, n, R].
        hidden: the first, [B, H], and those after each step, [B, n, H].
    """
    after = torch.cat([readings[1], hidden[1]], dim=2)
    before = torch.cat([torch.cat([readings[0], hidden[0]], dim=1)[:, None], after[:, :-1]], dim=1)
    by_gates, by_controls = grad_gates.flatten(0, 1), grad_controls.flatten(0, 1)
    return _products(
        by_gates, by_controls, before.flatten(0, 1), hidden[1].flatten(0, 1), readings[0].shape[1]
    )


def weight_gradients_of_steps(steps: Sequence[tuple[Tensor, ...]]) -> LSTMWeights:
    """Return the same from single steps.

    Args:
        steps: for each of them the derivatives with respect to gates and controls, [B, 4H] and [B, C], the
            reading and the hidden state before it, [B, R] and [B, H], and the hidden state after it.
    """
    parts = [torch.cat(part) if len(part) > 1 else part[0] for part in zip(*steps, strict=True)]
    grad_gates, grad_controls, reading, before, hidden = parts
    both = torch.cat([reading, before], dim=1)
    return _products(grad_gates, grad_controls, both, hidden, reading.shape[1])


def _products(
    grad_gates: Tensor, grad_controls: Tensor, before: Tensor, hidden: Tensor, reading_size: int
) -> LSTMWeights:
    """The sums over N steps: of shapes [N, 4H], [N, C], [N, R + H] and [N, H]."""
    by_controls, both = grad_controls.t(), grad_gates.t() @ before
    return LSTMWeights(
        both[:, :reading_size], both[:, reading_size:], by_controls @ hidden, by_controls.sum(1)
    )

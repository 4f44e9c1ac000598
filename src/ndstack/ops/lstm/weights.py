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

    def arrays(
        self, dtype: torch.dtype, units: int, reading: int, controls: int
    ) -> tuple[Array, Array, Array]:
        """Return arrays for compiled code, if the weights are of these sizes.

        They are the transposed matrices [R + H, 4H], from reading and hidden state to the gates, and [H, C],
        and the bias [C].
        """
        both = torch.cat([self.reading, self.hidden], 1)
        return (
            array(both.t(), dtype, reading + units, 4 * units),
            array(self.control.t(), dtype, units, controls),
            array(self.control_bias, dtype, controls),
        )


def weight_gradients(
    grad_gates: Tensor, grad_controls: Tensor, before: Tensor, hidden: Tensor
) -> LSTMWeights:
    """Return the derivatives with respect to the weights, of a whole sequence.

    Args:
        grad_gates: [B, n, 4H].
        grad_controls: [B, n, C].
        before: [B, n, R + H], the reading and the hidden state before each step.
        hidden: [B, n, H], those after each step.
    """
    by_gates, by_controls = grad_gates.flatten(0, 1), grad_controls.flatten(0, 1)
    reading_size = before.shape[2] - hidden.shape[2]
    return _products(by_gates, by_controls, before.flatten(0, 1), hidden.flatten(0, 1), reading_size)


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
    by_controls, both = grad_controls.t(), (before.t() @ grad_gates).t()  # a third faster than turned
    return LSTMWeights(
        both[:, :reading_size], both[:, reading_size:], by_controls @ hidden, by_controls.sum(1)
    )

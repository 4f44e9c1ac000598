"""Whole sequences of an LSTM that drives empty stacks, where `torch.compile` traces the call.

Each function gives what `run` of the module of the same name gives; see `ndstack.ops.runtime.in_graph`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.ops.lstm.weights import LSTMWeights
from ndstack.ops.runtime.in_graph import call
from ndstack.ops.runtime.stack_step import NO_LIMIT

Run = tuple[Tensor, Tensor, Tensor, Tensor]


def superposition(inputs: Tensor, weights: LSTMWeights, stacks: int, depth: int | None) -> Run:
    """Return the hidden states, the readings, the last memory and the last cells."""
    hidden, readings, memory, cells = call(
        "ndstack.ops.fused.superposition", (stacks, depth or NO_LIMIT), inputs, *weights
    )
    return hidden, readings, memory, cells


def stratification(inputs: Tensor, weights: LSTMWeights) -> Run:
    """Return the hidden states, the readings, the last memory and the last elements."""
    hidden, readings, memory, strengths, vectors = call(
        "ndstack.ops.fused.stratification", (), inputs, *weights
    )
    return hidden, readings, memory, torch.cat([strengths[:, :, None], vectors], dim=2)

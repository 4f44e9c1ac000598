# mypy: allow-untyped-defs, allow-untyped-calls
"""What one-hot vectors contribute to the gates of an LSTM: columns of its weights, compiled."""

import numpy as np

from ndstack.ops.runtime.products import copy
from ndstack.ops.runtime.simd import entry, kernel


@kernel
def add_to(values, sums):
    """sums += values, where the sums are of a wider format."""
    for j in range(sums.size):
        sums[j] += values[j]


@entry
def enter(symbols, known, weight, input_bias, hidden_bias, gates):
    """gates[b, t] = the column symbols[b, t] of a weight [4H, known + R], and both biases.

    Returns:
        Whether all symbols are below `known`; if not, gates are not complete.
    """
    table = np.empty((known, input_bias.size), gates.dtype)
    for j in range(input_bias.size):
        bias = input_bias[j] + hidden_bias[j]
        for symbol in range(known):
            table[symbol, j] = weight[j, symbol] + bias
    for b in range(symbols.shape[0]):
        for t in range(symbols.shape[1]):
            if symbols[b, t] < 0 or symbols[b, t] >= known:
                return False
            copy(table[symbols[b, t]], gates[b, t])
    return True


@entry
def leave(symbols, known, grad_gates, by_reading, by_weight, by_bias):
    """The adjoint of `enter`, which also puts the derivatives of all columns of the weight together.

    Args:
        symbols, known: as there.
        grad_gates: [B, n, 4H].
        by_reading: [4H, R or more], the derivatives with respect to the other columns.
        by_weight, by_bias: [4H, known + R] and [4H], to be written.
    """
    sums = np.zeros((known, by_bias.size), np.float64)
    for b in range(symbols.shape[0]):
        for t in range(symbols.shape[1]):
            add_to(grad_gates[b, t], sums[symbols[b, t]])
    for j in range(by_bias.size):
        total = 0.0
        for symbol in range(known):
            by_weight[j, symbol] = sums[symbol, j]
            total += sums[symbol, j]
        by_bias[j] = total
        copy(by_reading[j], by_weight[j, known:])

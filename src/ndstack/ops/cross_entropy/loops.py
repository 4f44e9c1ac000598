# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of a small affine layer, softmax and its logarithm over few symbols, used by `cpu`."""

import math

import numpy as np

from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import add_scaled, dot, fill
from ndstack.ops.runtime.simd import entry, kernel

ROWS = 256
"""How many positions are done together, so that they stay in the cache."""


@kernel
def affine(hidden, weight, bias, logits):
    """logits = hidden weight^T + bias, for the symbols that there are logits of."""
    for r in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            logits[r, j] = bias[j] + dot(weight[j], hidden[r])


@kernel
def shift(logits, targets, out):
    """Subtract the largest logit of each row; out = -log p without the logarithm of the sum."""
    for r in range(logits.shape[0]):
        row = logits[r]
        best = row[0]
        for j in range(1, row.size):
            best = row[j] if row[j] > best else best
        for j in range(row.size):
            row[j] -= best
        out[r] = -row[targets[r]] if targets[r] >= 0 else 0


@kernel
def divide(shares, targets, out):
    """Divide each row by its sum, whose logarithm is added to what has a target."""
    for r in range(shares.shape[0]):
        row = shares[r]
        total = row[0]
        for j in range(1, row.size):
            total += row[j]
        one = 1 / total
        for j in range(row.size):
            row[j] *= one
        if targets[r] >= 0:
            out[r] += math.log(total)


@entry
def forward(hidden, weight, bias, targets, count, shares, out):
    """-log p of the targets: out[r] of each; or out[0] = their sum divided by a count, if it is not negative.

    Args:
        hidden: [N, H].
        weight, bias: [V, H] and [V].
        targets: [N]; what is negative does not count.
        shares: [N, symbols], becomes p; the first symbols are possible.

    Returns:
        Whether all targets are possible; if not, nothing is written.
    """
    for r in range(targets.size):
        if targets[r] >= shares.shape[1]:
            return False
    total, found = 0.0, np.empty(min(ROWS, targets.size) if count >= 0 else 0, out.dtype)
    for begin in range(0, targets.size, ROWS):
        end = min(begin + ROWS, targets.size)
        logits, wanted = shares[begin:end], targets[begin:end]
        each = found[: end - begin] if count >= 0 else out[begin:end]
        affine(hidden[begin:end], weight, bias, logits)
        shift(logits, wanted, each)
        exp_each(logits.reshape(-1))
        divide(logits, wanted, each)
        if count >= 0:
            for r in range(each.size):
                total += each[r]
    if count >= 0:
        out[0] = total / count
    return True


@kernel
def add_position(factor, row, weight, by_hidden, sums, bias_sums, hidden):
    """What one position says: the derivatives with respect to its hidden state, weights and biases."""
    fill(by_hidden, 0, by_hidden.size, 0)
    for j in range(row.size):
        grad = factor * row[j]
        add_scaled(grad, weight[j], by_hidden)
        add_scaled(np.float64(grad), hidden, sums[j])
        bias_sums[j] += grad


@entry
def backward(hidden, weight, targets, count, shares, grad, by_hidden, by_weight, by_bias):
    """The adjoint of `forward`, whose arguments these are; `grad` is that of `out`.

    Args:
        by_hidden, by_weight, by_bias: to be written; [N, H], [V, H] and [V].
    """
    symbols = shares.shape[1]
    sums, bias_sums = np.zeros((by_weight.shape[0], by_weight.shape[1])), np.zeros(by_bias.size)
    row, one = np.empty(symbols, shares.dtype), shares.dtype.type(1)
    for r in range(targets.size):
        if targets[r] < 0:
            fill(by_hidden[r], 0, by_hidden.shape[1], 0)
            continue
        for j in range(symbols):
            row[j] = shares[r, j]
        row[targets[r]] -= one
        factor = shares.dtype.type(grad[0] / count) if count >= 0 else grad[r]
        add_position(factor, row, weight, by_hidden[r], sums, bias_sums, hidden[r])
    for j in range(by_bias.size):
        by_bias[j] = bias_sums[j]
        for k in range(by_weight.shape[1]):
            by_weight[j, k] = sums[j, k]

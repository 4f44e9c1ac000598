# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of softmax and its logarithm over few symbols, used by `cpu`."""

import math

from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.simd import entry, kernel

ROWS = 256
"""How many positions are one part of the work."""


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
def forward(first, last, logits, targets, out):
    """out = -log p of targets, and p in place of the logits, for the parts first..last-1 of rows."""
    for part in range(first, last):
        begin, end = part * ROWS, min((part + 1) * ROWS, targets.size)
        shift(logits[begin:end], targets[begin:end], out[begin:end])
        exp_each(logits[begin:end].reshape(-1))
        divide(logits[begin:end], targets[begin:end], out[begin:end])


@entry
def backward(first, last, shares, targets, grad, out):
    """out = grad (p - [target]), or zeros where there is no target, for the parts first..last-1 of rows."""
    for r in range(first * ROWS, min(last * ROWS, targets.size)):
        target = targets[r]
        for j in range(shares.shape[1]):
            out[r, j] = grad[r] * shares[r, j] if target >= 0 else 0
        if target >= 0:
            out[r, target] -= grad[r]

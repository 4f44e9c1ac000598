# mypy: allow-untyped-defs, allow-untyped-calls
"""The inside algorithm as compiled loops; see `ndstack.grammars.inside`."""

import numpy as np

from ndstack.ops.runtime.compiling import compiler

SMALLEST = 1e-280
"""A smaller product could lose digits, or underflow."""


@compiler()
def inside_kernel(word, start, first, parent, right, weight, up_first, up_parent, up_weight):
    """Return the log inside weight of the whole word, and whether no precision was lost."""
    n, size = len(word), len(first) - 1
    value = np.zeros((n, n + 1, size))  # [i, l, A]; the largest value of a span is 1
    exponent = np.full((n, n + 1), -np.inf)
    active = np.empty((n, n + 1, size), np.int32)  # the A with value > 0
    count = np.zeros((n, n + 1), np.int32)
    direct, total = np.zeros(size), np.zeros(size)
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            top = -np.inf
            for k in range(1, length):
                top = max(top, exponent[i, k] + exponent[i + k, length - k])
            if length == 1:
                top = 0.0
                direct[word[i]] = 1.0
            elif top == -np.inf:
                continue
            for k in range(1, length):
                scale = np.exp(exponent[i, k] + exponent[i + k, length - k] - top)
                for a in range(count[i, k]):
                    left = active[i, k, a]
                    factor = value[i, k, left] * scale
                    for r in range(first[left], first[left + 1]):
                        other = value[i + k, length - k, right[r]]
                        if other > 0:
                            product = factor * other * weight[r]
                            if product < SMALLEST:
                                return 0.0, False
                            direct[parent[r]] += product
            largest = 0.0
            for b in range(size):
                if direct[b] > 0:
                    for r in range(up_first[b], up_first[b + 1]):
                        product = direct[b] * up_weight[r]
                        if product < SMALLEST:
                            return 0.0, False
                        total[up_parent[r]] += product
                    direct[b] = 0.0
            for b in range(size):
                largest = max(largest, total[b])
            if largest == 0:
                continue
            exponent[i, length] = top + np.log(largest)
            for b in range(size):
                if total[b] > 0:
                    share = total[b] / largest
                    if share < SMALLEST:
                        return 0.0, False
                    value[i, length, b] = share
                    active[i, length, count[i, length]] = b
                    count[i, length] += 1
                    total[b] = 0.0
    if value[0, n, start] == 0:
        return -np.inf, True
    return exponent[0, n] + np.log(value[0, n, start]), True

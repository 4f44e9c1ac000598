# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of the stratification stack (section 3.3.1), used by `cpu`.

An element whose strength has reached 0 never counts again, and elements lose strength from the top down, so
those that still count form a true stack. A scan keeps it as a chain: `parent[i]` is the element on which i
was laid, which never changes. To undo a step on the way back it takes one number per step, the strength that
the partly removed element had before. So memory is linear in n, and so is time, except for the elements
within the top slice of thickness 1, which each reading sums over.

At a tie max(0, x) has derivative 0 and min(a, b) gives half to each, as `torch.relu` and `torch.minimum` do.

Elements that no longer count are skipped. According to the equations they count with weight 0, which matters
where a number is not finite, because 0 times nan is nan. So what the elements so far contribute in this way
is kept in `base`, and an action that is nan makes all of it, and all strengths, nan.
"""

import numpy as np

from ndstack.ops.runtime.compiling import compiler, internal
from ndstack.ops.runtime.exponentials import tanh_each
from ndstack.ops.runtime.products import add_scaled, copy, dot

_compiled = compiler(nogil=True)
_internal = internal(nogil=True, _nrt=False)


@_internal
def add_to_base(vector, base):
    """base += 0 v: nan where v is not finite."""
    for j in range(base.size):
        base[j] += 0 * vector[j]


@_internal
def finite(values):
    """Whether all numbers of an array of one dimension are finite."""
    found = True
    for j in range(values.size):
        found &= abs(values[j]) < np.inf
    return found


@_internal
def known(values):
    """Whether no number of an array of one dimension is nan."""
    found = True
    for j in range(values.size):
        found &= values[j] == values[j]
    return found


@_internal
def read(top, parent, strength, vectors, base, reading):
    """r = sum_i min(s[i], max(0, 1 - sum_{j>i} s[j])) v[i], from the top down."""
    one = strength.dtype.type(1)
    above = strength.dtype.type(0)
    copy(base, reading)
    i = top
    while i >= 0 and above < one:
        weight = min(strength[i], one - above)
        add_scaled(weight, vectors[i], reading)
        above += strength[i]
        i = parent[i]


@_internal
def read_backward(top, parent, strength, vectors, grad_reading, grad_strength, grad_vectors):
    """The adjoint of `read`, added to `grad_strength` and `grad_vectors`."""
    one = strength.dtype.type(1)
    above = strength.dtype.type(0)
    i = top
    while i >= 0 and above < one:
        room = one - above
        weight = min(strength[i], room)
        add_scaled(weight, grad_reading, grad_vectors[i])
        grad = dot(grad_reading, vectors[i])
        if strength[i] == room:
            grad /= 2
        if strength[i] <= room:
            grad_strength[i] += grad
        if strength[i] >= room:
            k = top
            while k != i:
                grad_strength[k] -= grad
                k = parent[k]
        above += strength[i]
        i = parent[i]


@_internal
def pop_thickness(amount, top, parent, strength):
    """s'[i] = max(0, s[i] - max(0, pop - sum_{j>i} s[j])), from the top down.

    Returns the new top, -1 if there is none, and its strength before. Elements above it keep the
    strength they had when they were removed.
    """
    zero = strength.dtype.type(0)
    above = zero
    i = top
    while i >= 0:
        eaten = max(zero, amount - above)
        if strength[i] > eaten:
            before = strength[i]
            strength[i] = before - eaten
            return i, before
        above += strength[i]
        i = parent[i]
    return -1, zero


@_internal
def pop_backward(amount, old_top, new_top, before, parent, strength, grad_strength):
    """Undo `pop_thickness`, update `grad_strength`, and return the derivative with respect to the amount."""
    above = strength.dtype.type(0)
    i = old_top
    while i != new_top:
        above += strength[i]
        i = parent[i]
    grad = strength.dtype.type(0)
    if new_top >= 0:
        strength[new_top] = before
        if amount > above:
            grad = grad_strength[new_top]
    i = old_top
    while i != new_top:
        grad_strength[i] = grad
        i = parent[i]
    return -grad


@_internal
def load(strengths, parent, strength):
    """Chain up the elements that count, and the last one in any case; returns the top."""
    top = -1
    for i in range(strengths.size):
        strength[i] = strengths[i]
        if strengths[i] > 0 or i == strengths.size - 1:
            parent[i] = top
            top = i
    return top


@_internal
def begin(strengths, vectors, base):
    """The base of the elements to start from; returns whether their strengths have a meaning."""
    base[:] = 0
    for i in range(strengths.size):
        add_to_base(vectors[i], base)
    clean = known(strengths)
    if not clean:
        base[:] = np.nan
    return clean


@_internal
def unload(top, parent, strength, clean, final):
    """The strengths of all elements, in the end."""
    final[:] = 0 if clean else np.nan
    while top >= 0 and clean:
        final[top] = strength[top]
        top = parent[top]


@_internal
def meaningful(weights, vectors, kept):
    """Whether all numbers of a row have a meaning, so that it has derivatives."""
    found = known(kept)
    for t in range(weights.shape[0]):
        found &= known(weights[t])
    for i in range(vectors.shape[0]):
        found &= finite(vectors[i])
    return found


@_internal
def advance(i, top, weights, parent, strength, vectors, base, reading):
    """One step with the weights (push, pop): pop from `top` on, lay element i there, and read.

    Returns the strength of the new top before, as `pop_thickness`, and whether the weights have a meaning.
    """
    parent[i], before = pop_thickness(weights[1], top, parent, strength)
    strength[i] = weights[0]
    add_to_base(vectors[i], base)
    meant = known(weights)
    if not meant:
        base[:] = np.nan
    read(i, parent, strength, vectors, base, reading)
    return before, meant


@_internal
def sigmoid(x):
    """1 / (1 + e^-x)."""
    one = type(x)(1)
    return one / (one + np.exp(-x))


@_compiled
def scan(
    first, last, strengths, actions, vectors, logits,
    weights, readings, final, parents, kept, befores,
):  # fmt: skip
    """All steps of the rows first..last-1; each row is a stack.

    Shapes: strengths [N, k], actions and weights (push, pop) [N, n, 2], vectors [N, k+n, m],
    readings [N, n, m], final, parents and kept [N, k+n], befores [N, n].
    """
    start, n = strengths.shape[1], actions.shape[1]
    base = np.empty(vectors.shape[2], vectors.dtype)
    for row in range(first, last):
        parent, strength = parents[row], kept[row]
        top = load(strengths[row], parent, strength)
        clean = begin(strengths[row], vectors[row], base)
        for t in range(n):
            for a in range(2):
                action = actions[row, t, a]
                weights[row, t, a] = sigmoid(action) if logits else action
            befores[row, t], meant = advance(
                start + t, top, weights[row, t], parent, strength, vectors[row], base, readings[row, t]
            )
            top, clean = start + t, clean and meant
        unload(top, parent, strength, clean, final[row])


@_compiled
def scan_backward(
    first, last, weights, vectors, logits, parents, kept, befores, grad_readings, grad_final,
    grad_strengths, grad_actions, grad_vectors,
):  # fmt: skip
    """The adjoint of `scan`, added to `grad_vectors`; the rest is overwritten."""
    n = weights.shape[1]
    start = vectors.shape[1] - n
    strength = np.empty(start + n, vectors.dtype)
    grad = np.empty(start + n, vectors.dtype)
    for row in range(first, last):
        if not meaningful(weights[row], vectors[row], kept[row]):
            grad_actions[row] = np.nan
            grad_vectors[row] = np.nan
            grad_strengths[row] = np.nan
            continue
        parent = parents[row]
        strength[:] = kept[row]
        grad[:] = grad_final[row]
        for t in range(n - 1, -1, -1):
            i = start + t
            read_backward(i, parent, strength, vectors[row], grad_readings[row, t], grad, grad_vectors[row])
            grad_actions[row, t, 0] = grad[i]
            grad_actions[row, t, 1] = pop_backward(
                weights[row, t, 1], i - 1, parent[i], befores[row, t], parent, strength, grad
            )
            if logits:
                for a in range(2):
                    grad_actions[row, t, a] *= weights[row, t, a] * (1 - weights[row, t, a])
        for i in range(start):
            gone = strength[i] == 0 and i < start - 1
            grad_strengths[row, i] = 0 if gone else grad[i]


@_internal
def squash_vector(values, squash, vector):
    """The vector to push, squashed or as given."""
    for j in range(vector.size):
        vector[j] = values[j]
    if squash:
        tanh_each(vector)

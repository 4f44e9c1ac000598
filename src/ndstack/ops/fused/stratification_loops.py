# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of an LSTM that drives a stratification stack over a whole sequence.

One call does what the controller-stack interface of section 3.2 does in n steps: gates from input,
reading and hidden state; action logits and the vector to push from the hidden state; the stack.
"""

import numpy as np

from ndstack.ops.lstm.loops import controller_step, controller_step_backward
from ndstack.ops.runtime.compiling import compiler
from ndstack.ops.stratification.loops import (
    advance,
    begin,
    load,
    meaningful,
    pop_backward,
    read_backward,
    sigmoid,
    squash_vector,
    unload,
)

_compiled = compiler(nogil=True)


@_compiled
def forward(
    first, last, inputs, read_weight, control_weight, control_bias,
    start_hidden, start_memory, start_reading, strengths,
    read, gates, memory, hidden, readings, weights, vectors, final, parents, kept, befores,
):  # fmt: skip
    """The rows first..last-1 of a batch.

    Shapes: inputs and gates [B, n, 4H], read_weight [m + H, 4H], control_weight [H, 2+m], control_bias
    [2+m], read [B, n, m + H], memory and hidden [B, n, H], readings [B, n, m], strengths [B, k], weights [B,
    n, 2], vectors [B, k+n, m] (the first k given), final, parents and kept [B, k+n], befores [B, n].
    """
    start, n = strengths.shape[1], inputs.shape[1]
    layers = read_weight, control_weight, control_bias
    controls = np.empty(control_bias.size, inputs.dtype)
    base = np.empty(vectors.shape[2], vectors.dtype)
    for row in range(first, last):
        before = start_hidden[row], start_memory[row], start_reading[row]
        parent, strength = parents[row], kept[row]
        top = load(strengths[row], parent, strength)
        clean = begin(strengths[row], vectors[row], base)
        for t in range(n):
            controller_step(
                t, layers, before, inputs[row], read[row], gates[row], memory[row], hidden[row],
                readings[row], controls,
            )  # fmt: skip
            squash_vector(controls[2:], True, vectors[row, start + t])
            for a in range(2):
                weights[row, t, a] = sigmoid(controls[a])
            befores[row, t], meant = advance(
                start + t, top, weights[row, t], parent, strength, vectors[row], base, readings[row, t]
            )
            top, clean = start + t, clean and meant
        unload(top, parent, strength, clean, final[row])


@_compiled
def backward(
    first, last, read_weight, control_weight, start_memory,
    gates, memory, weights, vectors, parents, kept, befores,
    grad_hidden, grad_readings, grad_last_memory, grad_final,
    grad_gates, grad_controls, grad_start_hidden, grad_start_memory, grad_start_reading,
    grad_strengths, grad_vectors,
):  # fmt: skip
    """The adjoint of `forward`; matrices are given as there.

    `grad_vectors` [B, k+n, m] holds the derivative with respect to the vectors returned, and is added to.
    """
    n, m = weights.shape[1], vectors.shape[2]
    start = vectors.shape[1] - n
    strength, grad = np.empty(start + n, gates.dtype), np.empty(start + n, gates.dtype)
    grad_reading = np.empty(m, gates.dtype)
    layers = read_weight, control_weight
    for row in range(first, last):
        if not meaningful(weights[row], vectors[row], kept[row]):
            for part in (grad_gates, grad_controls, grad_vectors):
                part[row] = np.nan
            for part in (grad_start_hidden, grad_start_memory, grad_start_reading, grad_strengths):
                part[row] = np.nan
            continue
        parent = parents[row]
        strength[:] = kept[row]
        grad[:] = grad_final[row]
        from_hidden, from_reading = grad_start_hidden[row], grad_start_reading[row]
        from_memory = grad_start_memory[row]
        from_hidden[:] = 0
        from_reading[:] = 0
        from_memory[:] = grad_last_memory[row]
        for t in range(n - 1, -1, -1):
            i = start + t
            for j in range(m):
                grad_reading[j] = grad_readings[row, t, j] + from_reading[j]
            read_backward(i, parent, strength, vectors[row], grad_reading, grad, grad_vectors[row])
            push, pop = weights[row, t, 0], weights[row, t, 1]
            grad_pop = pop_backward(pop, i - 1, parent[i], befores[row, t], parent, strength, grad)
            grad_controls[row, t, 0] = grad[i] * push * (1 - push)
            grad_controls[row, t, 1] = grad_pop * pop * (1 - pop)
            for j in range(m):
                slope = 1 - vectors[row, i, j] * vectors[row, i, j]
                grad_controls[row, t, 2 + j] = grad_vectors[row, i, j] * slope
            controller_step_backward(
                t, layers, start_memory[row], gates[row], memory[row], grad_hidden[row],
                grad_controls[row], grad_gates[row], (from_hidden, from_memory, from_reading),
            )  # fmt: skip
        for i in range(start):
            gone = strength[i] == 0 and i < start - 1
            grad_strengths[row, i] = 0 if gone else grad[i]

# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of an LSTM that drives superposition stacks over a whole sequence.

One call does what the controller-stack interface of section 3.2 does in n steps: gates from input,
reading and hidden state; action logits and the vector to push from the hidden state; the stacks.
"""

import numpy as np

from ndstack.ops.lstm.loops import controller_step, controller_step_backward
from ndstack.ops.runtime.compiling import compiler
from ndstack.ops.superposition.loops import (
    softmax,
    softmax_backward,
    squash_vector,
    update,
    update_backward,
)

_compiled = compiler(nogil=True)


@_compiled
def forward(
    first, last, inputs, read_weight, control_weight, control_bias,
    start_hidden, start_memory, start_reading, cells, depth, stride,
    befores, gates, memory, hidden, readings, weights, vectors, final, saved,
):  # fmt: skip
    """The rows first..last-1 of a batch.

    Shapes: inputs and gates [B, n, 4H], read_weight [R + H, 4H], control_weight [H, C],
    control_bias [C], befores [B, n, R + H], memory and hidden [B, n, H], readings and vectors
    [B, n, G*m], weights [B, n, G, 3], cells [B, G, start*m], final [B, G, end*m], saved
    [B, ceil(n/stride), G, end*m] or with 0 in the second place.
    """
    n, stacks = inputs.shape[1], cells.shape[1]
    m = readings.shape[2] // stacks
    start = cells.shape[2] // m
    old = np.empty((stacks, final.shape[2] + m), inputs.dtype)
    new = np.empty((stacks, final.shape[2] + m), inputs.dtype)
    layers = read_weight, control_weight, control_bias
    controls = np.empty(control_bias.size, inputs.dtype)
    for row in range(first, last):
        before = start_hidden[row], start_memory[row], start_reading[row]
        old[:, : start * m] = cells[row]
        for t in range(n):
            height, new_height = min(start + t, depth), min(start + t + 1, depth)
            if t % stride == 0 and saved.shape[1] > 0:
                saved[row, t // stride, :, : height * m] = old[:, : height * m]
            controller_step(
                t, layers, before, inputs[row], befores[row], gates[row], memory[row], hidden[row],
                readings[row], controls,
            )  # fmt: skip
            squash_vector(controls[3 * stacks :], True, vectors[row, t])
            for g in range(stacks):
                softmax(controls[3 * g :], weights[row, t, g])
                vector = vectors[row, t, g * m : (g + 1) * m]
                update(old[g], height, vector, weights[row, t, g], new[g], new_height)
                readings[row, t, g * m : (g + 1) * m] = new[g, :m]
            old, new = new, old
        final[row] = old[:, : final.shape[2]]


@_compiled
def backward(
    first, last, read_weight, control_weight, start_memory, start, depth, stride,
    gates, memory, weights, vectors, saved,
    grad_hidden, grad_readings, grad_last_memory, grad_final,
    grad_gates, grad_controls, grad_start_hidden, grad_start_memory, grad_start_reading, grad_cells,
):  # fmt: skip
    """The adjoint of `forward`; matrices are given as there."""
    n, stacks = weights.shape[1:3]
    m = vectors.shape[2] // stacks
    most = saved.shape[3]
    pile = np.empty((stride + 1, stacks, most + m), gates.dtype)
    grad_old = np.empty((stacks, most + m), gates.dtype)
    grad_new = np.empty((stacks, most + m), gates.dtype)
    layers = read_weight, control_weight
    for row in range(first, last):
        grad_new[:, :most] = grad_final[row]
        from_hidden, from_reading = grad_start_hidden[row], grad_start_reading[row]
        from_memory = grad_start_memory[row]
        from_hidden[:] = 0
        from_reading[:] = 0
        from_memory[:] = grad_last_memory[row]
        for part in range(saved.shape[1] - 1, -1, -1):
            begin, end = part * stride, min((part + 1) * stride, n)
            pile[0, :, :most] = saved[row, part]
            for t in range(begin, end - 1):
                height, new_height = min(start + t, depth), min(start + t + 1, depth)
                for g in range(stacks):
                    vector = vectors[row, t, g * m : (g + 1) * m]
                    stack, next_stack = pile[t - begin, g], pile[t - begin + 1, g]
                    update(stack, height, vector, weights[row, t, g], next_stack, new_height)
            for t in range(end - 1, begin - 1, -1):
                height, new_height = min(start + t, depth), min(start + t + 1, depth)
                grad_pushed = grad_controls[row, t, 3 * stacks :]
                for g in range(stacks):
                    for j in range(m):
                        grad_new[g, j] += grad_readings[row, t, g * m + j] + from_reading[g * m + j]
                    grad_weights = grad_controls[row, t, 3 * g :]
                    update_backward(
                        pile[t - begin, g], height, vectors[row, t, g * m : (g + 1) * m],
                        weights[row, t, g], grad_new[g], new_height,
                        grad_old[g], grad_pushed[g * m :], grad_weights,
                    )  # fmt: skip
                    softmax_backward(weights[row, t, g], grad_weights)
                for j in range(grad_pushed.size):
                    grad_pushed[j] *= vectors[row, t, j] * (1 - vectors[row, t, j])
                controller_step_backward(
                    t, layers, start_memory[row], gates[row], memory[row], grad_hidden[row],
                    grad_controls[row], grad_gates[row], (from_hidden, from_memory, from_reading),
                )  # fmt: skip
                grad_old, grad_new = grad_new, grad_old
        grad_cells[row] = grad_new[:, : start * m]

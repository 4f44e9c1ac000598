"""Compiled pieces of an LSTM controller, for one sequence at one step (section 3.2).

Gates are ordered (input, forget, cell, output), as in `torch.nn.LSTM`.
"""

import numpy as np

from ndstack.compiling import compiler

_compiled = compiler(nogil=True)


@_compiled
def _sigmoid(x):  # type: ignore[no-untyped-def]
    one = type(x)(1)
    return one / (one + np.exp(-x))


@_compiled
def cell(gates, old_memory, memory, hidden):  # type: ignore[no-untyped-def]
    """Activate the gates [4H] in place; c_t = f c_{t-1} + i g, h_t = o tanh(c_t)."""
    size = hidden.size
    for k in range(2 * size):
        gates[k] = _sigmoid(gates[k])
    for k in range(2 * size, 3 * size):
        gates[k] = np.tanh(gates[k])
    for k in range(3 * size, 4 * size):
        gates[k] = _sigmoid(gates[k])
    for k in range(size):
        memory[k] = gates[size + k] * old_memory[k] + gates[k] * gates[2 * size + k]
        hidden[k] = gates[3 * size + k] * np.tanh(memory[k])


@_compiled
def cell_backward(  # type: ignore[no-untyped-def]
    gates, old_memory, memory, grad_hidden, grad_memory, grad_gates
):
    """The adjoint of `cell`; `grad_memory` becomes the derivative by the old memory."""
    size = memory.size
    for k in range(size):
        i, f, g, o = gates[k], gates[size + k], gates[2 * size + k], gates[3 * size + k]
        shown = np.tanh(memory[k])
        grad = grad_memory[k] + grad_hidden[k] * o * (1 - shown * shown)
        grad_gates[k] = grad * g * i * (1 - i)
        grad_gates[size + k] = grad * old_memory[k] * f * (1 - f)
        grad_gates[2 * size + k] = grad * i * (1 - g * g)
        grad_gates[3 * size + k] = grad_hidden[k] * shown * o * (1 - o)
        grad_memory[k] = grad * f

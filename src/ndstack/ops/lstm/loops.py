# mypy: allow-untyped-defs, allow-untyped-calls
"""A compiled LSTM controller, for one sequence at one step (section 3.2).

Gates are ordered (input, forget, cell, output), as in `torch.nn.LSTM`.
"""

from ndstack.ops.runtime.compiling import internal
from ndstack.ops.runtime.exponentials import sigmoid_each, tanh_each
from ndstack.ops.runtime.products import add_dots, add_product, copy

_compiled = internal(nogil=True, _nrt=False, fastmath={"contract"})


@_compiled
def cell(gates, old_memory, memory, hidden):
    """Activate the gates [4H] in place; c_t = f c_{t-1} + i g, h_t = o tanh(c_t)."""
    size = hidden.size
    sigmoid_each(gates[: 2 * size])
    tanh_each(gates[2 * size : 3 * size])
    sigmoid_each(gates[3 * size :])
    for k in range(size):
        memory[k] = gates[size + k] * old_memory[k] + gates[k] * gates[2 * size + k]
        hidden[k] = memory[k]
    tanh_each(hidden)
    for k in range(size):
        hidden[k] *= gates[3 * size + k]


@_compiled
def cell_backward(gates, old_memory, memory, grad_hidden, grad_memory, grad_gates):
    """The adjoint of `cell`; `grad_memory` becomes the derivative with respect to the old memory."""
    size = memory.size
    squashed = grad_gates[3 * size :]
    copy(memory, squashed)
    tanh_each(squashed)
    for k in range(size):
        i, f, g, o = gates[k], gates[size + k], gates[2 * size + k], gates[3 * size + k]
        shown = squashed[k]
        grad = grad_memory[k] + grad_hidden[k] * o * (1 - shown * shown)
        grad_gates[k] = grad * g * i * (1 - i)
        grad_gates[size + k] = grad * old_memory[k] * f * (1 - f)
        grad_gates[2 * size + k] = grad * i * (1 - g * g)
        grad_gates[3 * size + k] = grad_hidden[k] * shown * o * (1 - o)
        grad_memory[k] = grad * f


@_compiled
def controller_step(t, layers, start, inputs, before, gates, memory, hidden, readings, controls):
    """Step t: gates from input, reading and hidden state; then what drives the stack.

    Args:
        layers: read_weight [R + H, 4H], control_weight [H, C], control_bias [C].
        start: what there was before the first step: hidden state, memory and reading.
        inputs, gates: [n, 4H].
        before: [n, R + H], whose row t becomes the reading and the hidden state before the step.
        memory, hidden, readings: [n, H], [n, H] and [n, R].
        controls: [C], to be written.
    """
    read_weight, control_weight, control_bias = layers
    old_hidden, old_memory, reading = start
    if t > 0:
        old_hidden, old_memory, reading = hidden[t - 1], memory[t - 1], readings[t - 1]
    copy(reading, before[t][: reading.size])
    copy(old_hidden, before[t][reading.size :])
    copy(inputs[t], gates[t])
    add_product(before[t], read_weight, gates[t])
    cell(gates[t], old_memory, memory[t], hidden[t])
    copy(control_bias, controls)
    add_product(hidden[t], control_weight, controls)


@_compiled
def controller_step_backward(
    t, layers, start_memory, gates, memory, grad_hidden, grad_controls, grad_gates, backward
):
    """The adjoint of `controller_step`.

    Args:
        layers: read_weight and control_weight, as there.
        start_memory: [H].
        grad_hidden, grad_controls, grad_gates: [n, H], [n, C] and, to be written, [n, 4H].
        backward: the derivatives with respect to hidden state, memory and reading after step t, as far as
            they come from step t + 1; they become those with respect to the ones before step t.
    """
    read_weight, control_weight = layers
    from_hidden, from_memory, from_reading = backward
    for k in range(from_hidden.size):
        from_hidden[k] += grad_hidden[t, k]
    add_dots(control_weight, grad_controls[t], from_hidden)
    old_memory = memory[t - 1] if t > 0 else start_memory
    cell_backward(gates[t], old_memory, memory[t], from_hidden, from_memory, grad_gates[t])
    for k in range(from_hidden.size):
        from_hidden[k] = 0
    for k in range(from_reading.size):
        from_reading[k] = 0
    add_dots(read_weight[from_reading.size :], grad_gates[t], from_hidden)
    add_dots(read_weight, grad_gates[t], from_reading)

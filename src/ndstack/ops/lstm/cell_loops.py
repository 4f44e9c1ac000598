# mypy: allow-untyped-defs, allow-untyped-calls
"""The activations of an LSTM cell for a batch at one step, compiled, on tensors given by their addresses."""

import numpy as np

from ndstack.ops.lstm.loops import cell, cell_backward
from ndstack.ops.runtime.compiling import compiler
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.products import copy

_compiled = compiler(nogil=True)


@_compiled
def activate(kind, batch, units, gates_at, before_at, memory_at, hidden_at):
    """Gates [batch, 4 * units], activated in place, and c_{t-1}, to c_t and h_t, [batch, units] each."""
    size = batch * units
    gates, before = numbers(gates_at, 4 * size, kind), numbers(before_at, size, kind)
    memory, hidden = numbers(memory_at, size, kind), numbers(hidden_at, size, kind)
    for b in range(batch):
        own = slice(b * units, (b + 1) * units)
        cell(gates[4 * b * units : 4 * (b + 1) * units], before[own], memory[own], hidden[own])


@_compiled
def activate_backward(
    kind, batch, units, gates_at, before_at, memory_at, grad_hidden_at, grad_memory_at,
    grad_gates_at, grad_before_at,
):  # fmt: skip
    """The adjoint of `activate`; an address of 0 in place of a derivative means zeros."""
    size = batch * units
    gates, before = numbers(gates_at, 4 * size, kind), numbers(before_at, size, kind)
    memory = numbers(memory_at, size, kind)
    grad_gates, grad_before = numbers(grad_gates_at, 4 * size, kind), numbers(grad_before_at, size, kind)
    grad_before[:] = 0
    if grad_memory_at != 0:
        copy(numbers(grad_memory_at, size, kind), grad_before)
    none = np.zeros(units, memory.dtype)
    for b in range(batch):
        own, four = slice(b * units, (b + 1) * units), slice(4 * b * units, 4 * (b + 1) * units)
        given = numbers(grad_hidden_at, size, kind)[own] if grad_hidden_at != 0 else none
        cell_backward(gates[four], before[own], memory[own], given, grad_before[own], grad_gates[four])

"""The table through which compiled single steps find their controller."""

from __future__ import annotations

from typing import NamedTuple


class ControllerTable(NamedTuple):
    """One step of an LSTM of H units that drives stacks by C controls and reads R numbers, for a batch.

    The first three slots are sizes, the next four numbers between the rows of what is given. All others are
    addresses. Rows of results follow one another without gaps; 0 stands for a derivative of zeros.
    """

    units: int  # H
    reading_size: int  # R
    control_size: int  # C
    by_reading_stride: int
    by_hidden_stride: int
    by_control_stride: int
    added_stride: int
    reading: int  # [B, R], before the step
    hidden: int  # [B, H], before the step
    memory: int  # [B, H], before the step
    by_reading: int  # [4H, R]
    by_hidden: int  # [4H, H]
    by_control: int  # [C, H]
    new_memory: int  # [B, H]
    new_hidden: int  # [B, H]
    gates: int  # [B, 4H], activated
    control_bias: int  # [C]; only forward, as what follows
    added: int  # [B, 4H], what the input contributes to the gates
    grad_new_hidden: int  # given
    grad_new_memory: int  # given
    grad_given_controls: int  # given, to be added to what the stacks say
    grad_gates: int  # to be written, like those below
    grad_reading: int
    grad_hidden: int
    grad_memory: int


CONTROLLER = ControllerTable(*range(len(ControllerTable._fields)))
"""The number of each slot of a `ControllerTable`."""

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
    added_stride: int
    by_reading_stride: int
    by_hidden_stride: int
    by_control_stride: int
    reading: int  # [B, R], before the step
    hidden: int  # [B, H], before the step
    memory: int  # [B, H], before the step
    by_reading: int  # [4H, R]
    by_hidden: int  # [4H, H]
    by_control: int  # [C, H]
    new_memory: int  # [B, H]
    gates: int  # [B, 4H], activated
    control_bias: int  # [C]; this and the next two slots are for the step itself
    added: int  # [B, 4H], what the input contributes to the gates
    new_hidden: int  # [B, H]
    grad_new_hidden: int = 0  # given; this and all that follow are for the gradient
    grad_new_memory: int = 0  # given
    grad_given_controls: int = 0  # given, to be added to what the stacks say
    grad_gates: int = 0  # to be written, like those below
    grad_reading: int = 0
    grad_hidden: int = 0
    grad_memory: int = 0


CONTROLLER = ControllerTable(*range(len(ControllerTable._fields)))
"""The number of each slot of a `ControllerTable`."""

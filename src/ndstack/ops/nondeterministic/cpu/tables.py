"""The tables of numbers and addresses through which compiled steps find their charts.

A table is one array of int64. Each kind of table is declared once, as a `NamedTuple` of its slots: the side
that fills a table gives every slot by name, and compiled code takes the number of a slot from the same
declaration (`table[CHART.columns]`). So both sides always mean the same slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class ChartTable(NamedTuple):
    """The charts of a batch (see `forward.Shape` and `forward.Past`)."""

    states: int
    symbols: int
    band: int
    bottom_fix: int
    times: int
    size: int  # numbers per chart
    start: int  # from here on, addresses
    stride: int
    columns: int
    log_alpha: int
    log_total: int
    mass: int
    floor: int


class AdjointTable(NamedTuple):
    """What later steps have left for earlier ones (see `backward.Adjoint` and `backward.Later`)."""

    begin: int
    end: int
    older: int
    columns_size: int  # numbers per sequence at `columns`, `alpha`, `back` and `used`
    alpha_size: int
    back_size: int
    used_size: int
    columns: int  # from here on, addresses
    alpha: int
    wreplace: int
    wpop: int
    back: int
    used: int
    invalid: int


class StepTable(NamedTuple):
    """Some steps of the charts of a batch; all but the first three slots are addresses.

    0 stands for no controller, no attention, and derivatives of zeros.
    """

    start: int  # the time before the steps
    steps: int
    untrusted: int  # set to 1 if a sequence is in need of a wider format
    chart: int  # a `ChartTable`
    lost: int  # [B, K + 1]
    flags: int  # [B], what is said of each sequence, to be written
    limit: int  # how much mass may be lost, as a logarithm
    controller: int  # a `ControllerTable`, whose controls are the log weights of one step
    actions: int  # [B, n, A], log weights; to be written if there is a controller
    reading: int  # [B, n, K], to be written
    attention: int  # [B, n, K, start + n + 1], zeros, to be written
    adjoint: int = 0  # an `AdjointTable`
    grad_reading: int = 0
    grad_attention: int = 0
    grads: int = 0  # [B, n, A], to be written


UNTRUSTED, TRUSTED, INVALID = 0, 1, 2
"""What a call says of a sequence: its chart may be wrong, or is right, or the sequence is invalid."""

CHART = ChartTable(*range(len(ChartTable._fields)))
"""The number of each slot of a `ChartTable`."""

STEP = StepTable(*range(len(StepTable._fields)))
"""The number of each slot of a `StepTable`."""

ADJOINT = AdjointTable(*range(len(AdjointTable._fields)))
"""The number of each slot of an `AdjointTable`."""


def as_array(table: ChartTable | AdjointTable) -> npt.NDArray[np.int64]:
    """A filled table as compiled code reads it."""
    return np.array(table, np.int64)

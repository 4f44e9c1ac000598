# mypy: allow-untyped-defs, allow-untyped-calls
"""Share short calls of compiled code between torch's threads, without Python in between.

`threads.share` has every thread call Python, which takes the interpreter's lock from the other threads; in a
call of a tenth of a millisecond they would do little else than wait for it. Here the OpenMP library calls
compiled code, and compiled code calls the function whose work is shared.

On a busy machine a thread may have to wait for its core for longer than all the work takes, at every call. So
whenever a shared call has taken far too long, those of the next second are not shared.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from ndstack.ops.runtime import numba_internals, threads
from ndstack.ops.runtime.addresses import of_numbers
from ndstack.ops.runtime.compiling import Compiled
from ndstack.ops.runtime.pointers import numbers
from ndstack.ops.runtime.simd import Typed, entry, intrinsic

WORTH_A_WAITING_THREAD = 100_000
"""About how many multiply-adds take longer than to share them with a thread that waits for work."""

PAUSE = 1.0
"""For how many seconds calls are not shared after one that took far too long."""

_FUNCTION, _WIDE, _AT, _BATCH, _PARTS, _NUMBER, _COUNT = range(7)
SLOTS = _COUNT + 1
"""How many numbers the table of a call has: address of the function, whether it is for float64, what it is
given, the batch, the parts, and the addresses of OpenMP's functions for the number of a thread and of all."""


@intrinsic
def _ask(typing_context: object, function: types.Integer) -> Typed:
    """Call a C function without arguments that returns an int."""

    def emit(context, builder, _, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        found = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return builder.sext(found, ir.IntType(64))

    return types.int64(types.int64), emit


@intrinsic
def _call(
    typing_context: object,
    function: types.Integer,
    wide: types.Boolean,
    at: types.Integer,
    first: types.Integer,
    last: types.Integer,
) -> Typed:
    """Call the C function of a compiled function of (kind, at, first, last), which returns nothing."""

    def emit(context, builder, _, arguments):
        whole = ir.IntType(64)
        for is_wide, kind in ((False, ir.FloatType()), (True, ir.DoubleType())):
            chosen = arguments[1] if is_wide else builder.not_(arguments[1])
            with builder.if_then(chosen):
                signature = ir.FunctionType(ir.IntType(8).as_pointer(), [kind, whole, whole, whole])
                target = builder.inttoptr(arguments[0], signature.as_pointer())
                builder.call(target, [ir.Constant(kind, 0.0), *arguments[2:]])
        return context.get_dummy_value()

    whole = types.int64
    return types.void(whole, types.boolean, whole, whole, whole), emit


@entry
def _region(table_at):
    """What every thread does."""
    table = numbers(table_at, SLOTS, np.int64(0))
    batch, parts = table[_BATCH], table[_PARTS]
    for part in range(_ask(table[_NUMBER]), parts, _ask(table[_COUNT])):
        first, last = batch * part // parts, batch * (part + 1) // parts
        _call(table[_FUNCTION], table[_WIDE] != 0, table[_AT], first, last)


_WHOLE = (types.int64,)
_KINDS: dict[type, tuple[object, ...]] = {
    np.float32: (types.float32, types.int64, types.int64, types.int64),
    np.float64: (types.float64, types.int64, types.int64, types.int64),
}
_places: dict[tuple[object, type], int | None] = {}
"""The addresses of compiled functions, by function and type of the kind; None if they cannot be had."""
_alone_until = 0.0
"""Until when calls are not shared."""


def call(function: Compiled, kind: Any, at: int, batch: int, cost: float) -> None:
    """Call function(kind, at, first, last) on parts of range(batch), on several threads if that is worth it.

    Args:
        function: an `entry` that returns nothing.
        kind: a number of the type that it is for.
        at: what else it is given, as an address.
        batch: how many sequences there are.
        cost: multiply-adds of the whole call.
    """
    global _alone_until
    parts = min(threads.get_num_threads(), batch, 1 + int(cost / WORTH_A_WAITING_THREAD))
    if parts <= 1 or (time.perf_counter() < _alone_until and cost < threads.WORTH_A_THREAD):
        function(kind, at, 0, batch)
        return
    openmp = threads.openmp()
    place = None if openmp is None else _place(function, type(kind))
    if place is None or openmp is None:
        threads.share(batch, lambda first, last: function(kind, at, first, last), cost)
        return
    region = _place(_region, int)
    assert region is not None
    _kept, table = of_numbers((place, kind.itemsize == 8, at, batch, parts, *openmp.questions))
    began = time.perf_counter()
    openmp.run_compiled(parts, region, table)
    ended = time.perf_counter()
    if ended - began > _far_too_long(cost):
        _alone_until = ended + PAUSE


def _far_too_long(cost: float) -> float:
    """Return the seconds that so many multiply-adds do not take on a free core, not even on a slow one."""
    return 2e-4 + cost / 5e9


def _place(function: Compiled, kind: type) -> int | None:
    """The address of a function for this kind; for the kind int, of `_region`."""
    key = function, kind
    if key not in _places:
        region = numba_internals.c_address(_region, _WHOLE)
        own = region if kind is int else numba_internals.c_address(function, _KINDS[kind])
        _places[key] = None if region is None else own
    return _places[key]

# mypy: allow-untyped-defs, allow-untyped-calls
"""Share a call of compiled code between torch's threads, without Python in between.

`threads.share` has every thread call Python, which takes the interpreter's lock from the other threads. A
second thread that sleeps until it gets the lock begins a tenth of a millisecond late. Here one thread takes
the arguments apart, and compiled code starts the others.

A compiled function is called at its address, which knows nothing of types. So the types of the arguments are
compared first, as a number that the compiler makes of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.cpu import CPUContext

from ndstack.ops.runtime import numba_internals
from ndstack.ops.runtime.compiling import Compiled
from ndstack.ops.runtime.simd import Typed, entry, intrinsic
from ndstack.ops.runtime.threads import OpenMP

_FAILED = 5  # where a thread notes that the function has failed
_WHOLE = ir.IntType(64)
_ANY = ir.IntType(8).as_pointer()


def _checksum(kinds: Iterable[types.Type]) -> int:
    """A number for the types of arguments."""
    return zlib.crc32(str(tuple(kinds)).encode())


def _region(
    context: CPUContext, module: ir.Module, room_type: ir.LiteralStructType, kinds: Sequence[types.Type]
) -> ir.Function:
    """Write what every thread does: it calls the function on its parts of the batch."""
    name = module.get_unique_name("ndstack_region")
    region = ir.Function(module, ir.FunctionType(ir.VoidType(), [_ANY]), name)
    region.linkage = "internal"
    builder = ir.IRBuilder(region.append_basic_block())
    room = builder.bitcast(region.args[0], room_type.as_pointer())
    held = [builder.load(cgutils.gep_inbounds(builder, room, 0, i)) for i in range(len(room_type.elements))]
    place, number, count, batch, parts, _, *given = held
    arguments = (types.int64, types.int64, *kinds)
    kind = context.call_conv.get_function_type(types.none, arguments)
    target = builder.inttoptr(place, kind.as_pointer())
    result, error = (cgutils.alloca_once(builder, kind.args[i].pointee) for i in (0, 1))
    question = ir.FunctionType(ir.IntType(32), []).as_pointer()
    first, step = (
        builder.sext(builder.call(builder.inttoptr(one, question), []), _WHOLE) for one in (number, count)
    )
    with cgutils.for_range_slice(builder, first, parts, step, _WHOLE) as (part, _):
        after = builder.add(part, ir.Constant(_WHOLE, 1))
        bounds = [builder.sdiv(builder.mul(batch, one), parts) for one in (part, after)]
        flat = context.get_arg_packer(arguments).as_arguments(builder, [*bounds, *given])
        status = builder.call(target, [result, error, *flat])
        with cgutils.if_unlikely(builder, cgutils.is_not_null(builder, status)):
            builder.store(ir.Constant(_WHOLE, 1), cgutils.gep_inbounds(builder, room, 0, _FAILED))
    builder.ret_void()
    return region


@intrinsic
def _fork(
    typing_context: object,
    parallel: types.Integer,
    place: types.Integer,
    number: types.Integer,
    count: types.Integer,
    batch: types.Integer,
    parts: types.Integer,
    given: types.Tuple,
) -> Typed:
    """Call the function at a place as f(first, last, *given) on parts of a batch, on as many threads.

    It is a function of numba that returns nothing. The result is 1 if it failed, otherwise 0.
    """

    def emit(context, builder, _, arguments):
        parallel, *own, packed = arguments
        kept = [*own, ir.Constant(_WHOLE, 0), *cgutils.unpack_tuple(builder, packed)]
        room_type = ir.LiteralStructType([value.type for value in kept])
        room = cgutils.alloca_once(builder, room_type)
        for i, value in enumerate(kept):
            builder.store(value, cgutils.gep_inbounds(builder, room, 0, i))
        region = _region(context, builder.module, room_type, given.types)
        small = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [region.type, _ANY, small, small])
        builder.call(
            builder.inttoptr(parallel, kind.as_pointer()),
            [region, builder.bitcast(room, _ANY), builder.trunc(own[-1], small), small(0)],
        )
        return builder.load(cgutils.gep_inbounds(builder, room, 0, _FAILED))

    whole = types.int64
    return whole(*[whole] * 6, given), emit


@intrinsic
def _kinds(typing_context: object, given: types.Tuple) -> Typed:
    """The checksum of the types of a tuple."""
    found = _checksum(given.types)
    return types.int64(given), lambda context, *_: context.get_constant(types.int64, found)


@entry
def _call(parallel, place, kinds, number, count, batch, parts, *given):
    """Call the function: 1 if it failed, otherwise 0; or -1 if it is for arguments of other types."""
    if kinds != _kinds(given):
        return -1
    return _fork(parallel, place, number, count, batch, parts, given)


_places: dict[Compiled, list[tuple[int, int]]] = {}
"""For each function the addresses of its code, with the types of arguments as numbers."""


def call(openmp: OpenMP, function: Compiled, batch: int, parts: int, given: Sequence[object]) -> bool:
    """Call function(first, last, *given) on so many parts of range(batch).

    Args:
        openmp: whose threads work.
        function: an `entry` that returns nothing.
        batch, parts: see `threads.share`.
        given: what else the function is given.

    Returns:
        Whether it was called; if not, only Python can call it.
    """
    for place in _known_places(function, given):
        done = _call(openmp.parallel, *place, *openmp.questions, batch, parts, *given)
        if done > 0:
            raise MemoryError("a compiled function failed, probably for want of memory")
        if done == 0:
            return True
    return False


def _known_places(function: Compiled, given: Sequence[object]) -> Iterator[tuple[int, int]]:
    """The code of a function that is known already and, if none of it is for these arguments, what is."""
    known = _places.setdefault(function, [])
    yield from known
    kinds = tuple(numba.typeof(value) for value in given)
    place = numba_internals.address(function, (types.int64, types.int64, *kinds))
    if place is not None:
        known.append((place, _checksum(kinds)))
        yield known[-1]

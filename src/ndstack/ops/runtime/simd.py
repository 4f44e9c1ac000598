# mypy: allow-untyped-calls
"""Vectors as values in numba code: load, spread, multiply-add, store, sum up.

The cubic part of Lang's algorithm is limited by multiply-adds only if sums stay in registers, which loops
over arrays do not guarantee. With these operations a kernel says what is in a register. LLVM splits a vector
into as many registers as the machine needs, so the code runs on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import extending
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature

from ndstack.ops.runtime.compiling import Compiled, Flags, compiler, internal, loop

Emit = Callable[[BaseContext, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]
"""A function that writes the LLVM code of an intrinsic, given the values of its arguments."""

Typed = tuple[Signature, Emit]
"""What numba wants to know of an intrinsic for given types of its arguments."""


def has_wide_registers() -> bool:
    """Return whether the code is for a machine that has AVX-512: registers of 64 bytes, and 32 of them."""
    chosen = getattr(numba.config, "CPU_FEATURES", None)
    if chosen is not None:
        return "+avx512f" in chosen
    return bool(get_host_cpu_features().get("avx512f", False))


BYTES = 64
"""The size of a vector: a cache line; one register of the widest kind, or several smaller ones.

With AVX2, whose registers have 32 bytes, the loops of charts take about a tenth less time than with 32.
"""

_FLAGS: Flags = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
# Infinities keep their meaning: no "ninf", no "nnan".


def entry(function: Compiled) -> Compiled:
    """Compile a function when it is first called, and keep the code on disk."""
    return compiler(**_FLAGS)(function)


def kernel(function: Compiled) -> Compiled:
    """Compile a function that only compiled code calls, and that makes no arrays, only views of them.

    It does not count who uses an array, which would take longer than many a small loop. So a function that
    does count, an entry or a maker, must not get an array from it.
    """
    function.__dict__["llvm_attribute"] = "optsize"
    return internal(_nrt=False, **_FLAGS)(function)


def kernel_loop(function: Compiled) -> Compiled:
    """Compile a kernel that is a loop worth full optimisation (see `linking`)."""
    return loop(**_FLAGS)(function)


def maker(function: Compiled) -> Compiled:
    """Compile a function that only compiled code calls, and that makes arrays; kernels must not call it."""
    return internal(**_FLAGS)(function)


def intrinsic(function: Callable[..., Typed]) -> Compiled:
    """Make a function of numba code that writes LLVM code itself."""
    made: Compiled = extending.intrinsic(function)
    return made


class Vector(types.Type):
    """The numba type of a vector of float32 or float64: of BYTES bytes, half, two or four times as many."""

    def __init__(self, dtype: types.Type, count: float = 1) -> None:
        assert isinstance(dtype, types.Float)
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Vector({dtype}, {count})")

    @property
    def lanes(self) -> int:
        """How many numbers it holds."""
        return int(self.count * BYTES * 8 // self.dtype.bitwidth)


@extending.register_model(Vector)
class _VectorModel(extending.models.PrimitiveModel):
    def __init__(self, dmm: object, fe_type: Vector) -> None:
        element = ir.FloatType() if fe_type.dtype.bitwidth == 32 else ir.DoubleType()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.lanes))


def _address(
    context: BaseContext, builder: ir.IRBuilder, array_type: types.Array, array: ir.Value, place: ir.Value
) -> ir.Value:
    """Return the address of array[place]."""
    struct = cgutils.create_struct_proxy(array_type)(context, builder, value=array)
    return builder.gep(struct.data, [place])


def _declare(
    builder: ir.IRBuilder, name: str, vector: ir.VectorType, signature: ir.FunctionType
) -> ir.Function:
    """One of LLVM's own functions on vectors."""
    bits = 32 if vector.element == ir.FloatType() else 64
    full = f"{name}.v{vector.count}f{bits}"
    known = builder.module.globals.get(full)
    return known if known is not None else ir.Function(builder.module, signature, full)


def _load(array: types.Array, count: float) -> Typed:
    kind = Vector(array.dtype, count)

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        address = _address(context, builder, signature.args[0], *args)
        value = builder.load(builder.bitcast(address, context.get_value_type(kind).as_pointer()))
        value.align = signature.args[0].dtype.bitwidth // 8
        return value

    return kind(array, types.intp), emit


@intrinsic
def load(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return the vector that starts at array[place]; the array is one-dimensional and contiguous."""

    return _load(array, 1)


@intrinsic
def load_half(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return half a vector, which is one register with AVX2."""

    return _load(array, 0.5)


@intrinsic
def load2(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return two vectors in one."""

    return _load(array, 2)


@intrinsic
def load4(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return four vectors in one."""

    return _load(array, 4)


@intrinsic
def store(typingctx: object, array: types.Array, place: types.Integer, vector: Vector) -> Typed:
    """Write the vector, of any length, to array[place:]."""

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        instruction = builder.store(args[2], builder.bitcast(address, args[2].type.as_pointer()))
        instruction.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), emit


def _spread(array: types.Array, count: float) -> Typed:
    kind = Vector(array.dtype, count)

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        number = builder.load(_address(context, builder, signature.args[0], *args))
        vector = context.get_value_type(kind)
        first = builder.insert_element(
            ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
        )
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), lanes)

    return kind(array, types.intp), emit


@intrinsic
def spread(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return the number array[place] in every lane of a vector."""

    return _spread(array, 1)


@intrinsic
def spread_half(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return the number array[place] in every lane of half a vector."""

    return _spread(array, 0.5)


@intrinsic
def spread2(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return the number array[place] in every lane of two vectors."""

    return _spread(array, 2)


@intrinsic
def spread4(typingctx: object, array: types.Array, place: types.Integer) -> Typed:
    """Return the number array[place] in every lane of four vectors."""

    return _spread(array, 4)


@intrinsic
def fma(typingctx: object, left: Vector, right: Vector, total: Vector) -> Typed:
    """left * right + total, rounded once."""

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        kind = args[0].type
        function = _declare(builder, "llvm.fma", kind, ir.FunctionType(kind, [kind] * 3))
        return builder.call(function, args)

    return left(left, right, total), emit


@intrinsic
def plus(typingctx: object, left: Vector, right: Vector) -> Typed:
    """left + right."""

    return left(left, right), lambda _, builder, signature, args: builder.fadd(*args)


def _fold(builder: ir.IRBuilder, left: ir.Value, right: ir.Value, parts: int) -> ir.Value:
    """Two vectors of `parts` sums each in the making, to one of twice as many, half as long."""
    count = left.type.count
    length = count // parts
    starts = [base + part * length for base in (0, count) for part in range(parts)]
    halves = []
    for half in (0, length // 2):
        lanes = [start + half + j for start in starts for j in range(length // 2)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), count), lanes)
        halves.append(builder.shuffle_vector(left, right, mask))
    return builder.fadd(*halves)


@intrinsic
def store_sums(
    typingctx: object, array: types.Array, place: types.Integer, a: Vector, b: Vector, c: Vector, d: Vector
) -> Typed:
    """array[place : place + 4] = the sums of the lanes of four vectors."""

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        return _store_sums(context, builder, signature, args)

    return types.void(array, types.intp, a, b, c, d), emit


@intrinsic
def store_eight_sums(
    typingctx: object,
    array: types.Array,
    place: types.Integer,
    a: Vector,
    b: Vector,
    c: Vector,
    d: Vector,
    e: Vector,
    f: Vector,
    g: Vector,
    h: Vector,
) -> Typed:
    """array[place : place + 8] = the sums of the lanes of eight vectors, of eight lanes or more."""

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        return _store_sums(context, builder, signature, args)

    return types.void(array, types.intp, a, b, c, d, e, f, g, h), emit


def _store_sums(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> ir.Value:
    """Add up the lanes of as many vectors as there are, a power of two, and store the sums side by side."""
    vectors, parts = list(args[2:]), 1
    many = len(vectors)
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors, parts = [_fold(builder, left, right, parts) for left, right in pairs], 2 * parts
    sums = vectors[0]
    count = sums.type.count
    while count > many:
        length, count = count // many, count // 2
        halves = []
        for half in (0, length // 2):
            lanes = [part * length + half + j for part in range(many) for j in range(length // 2)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), count), lanes)
            halves.append(builder.shuffle_vector(sums, sums, mask))
        sums = builder.fadd(*halves)
    address = _address(context, builder, signature.args[0], args[0], args[1])
    instruction = builder.store(sums, builder.bitcast(address, sums.type.as_pointer()))
    instruction.align = signature.args[0].dtype.bitwidth // 8
    return context.get_dummy_value()


@intrinsic
def least_positive(typingctx: object, left: Vector, right: Vector) -> Typed:
    """In each lane the smaller of two numbers, where `right` counts only if it is positive."""

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        positive = builder.fcmp_ordered(">", args[1], ir.Constant(args[1].type, None))
        smaller = builder.fcmp_ordered("<", args[1], args[0])
        return builder.select(builder.and_(positive, smaller), args[1], args[0])

    return left(left, right), emit


@intrinsic
def larger(typingctx: object, left: Vector, right: Vector) -> Typed:
    """In each lane the larger of two numbers."""

    def emit(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        return builder.select(builder.fcmp_ordered(">", args[1], args[0]), args[1], args[0])

    return left(left, right), emit


@intrinsic
def zeros(typingctx: object, array: types.Array) -> Typed:
    """Return a vector of zeros, of the array's dtype."""

    kind = Vector(array.dtype)
    return kind(array), lambda context, *_: ir.Constant(context.get_value_type(kind), None)


@intrinsic
def zeros_half(typingctx: object, array: types.Array) -> Typed:
    """Return half a vector of zeros, of the array's dtype."""

    kind = Vector(array.dtype, 0.5)
    return kind(array), lambda context, *_: ir.Constant(context.get_value_type(kind), None)


@intrinsic
def lanes(typingctx: object, array: types.Array) -> Typed:
    """Return how many numbers a vector of the array's dtype holds."""

    count = Vector(array.dtype).lanes
    return types.intp(array), lambda context, *_: context.get_constant(types.intp, count)

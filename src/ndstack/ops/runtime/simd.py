# mypy: allow-untyped-calls
"""Vectors as values in numba code: load, spread, multiply-add, store, sum up.

The cubic part of Lang's algorithm is bound by multiply-adds only if sums stay in registers, which
loops over arrays do not promise. With these operations a kernel says what is in a register. LLVM
splits a vector into as many registers as the machine needs, so the code runs anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import extending
from numba.core import cgutils, types

from ndstack.ops.runtime.compiling import compiler, internal, loop

struct_proxy: Any = cgutils.create_struct_proxy

BYTES = 64 if "avx512f" in get_host_cpu_features() else 32
"""The size of a vector: one register of the widest kind, or two on machines with small ones."""

_FLAGS: dict[str, Any] = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
# Infinities keep their meaning: no "ninf", no "nnan".


def entry(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, and keep the code on disk."""
    return compiler(**_FLAGS)(function)


def kernel(function: Callable[..., Any]) -> Any:
    """The same for a function that only compiled code calls, and that makes no arrays, only views of them.

    It does not count who uses an array, which would take longer than many a small loop. So a function that
    does count, an entry or a maker, must not get an array from it.
    """
    function.__dict__["llvm_attribute"] = "optsize"
    return internal(_nrt=False, **_FLAGS)(function)


def kernel_loop(function: Callable[..., Any]) -> Any:
    """A kernel that is a loop worth all that a compiler can do (see `linking`)."""
    return loop(**_FLAGS)(function)


def maker(function: Callable[..., Any]) -> Any:
    """The same for a function that makes arrays; not to be called by kernels."""
    return internal(**_FLAGS)(function)


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function of numba code that writes LLVM code itself."""
    return extending.intrinsic(function)


class Vector(types.Type):
    """The numba type of a vector of float32 or float64."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")

    @property
    def lanes(self) -> int:
        """How many numbers it holds."""
        return int(BYTES * 8 // self.dtype.bitwidth)


@extending.register_model(Vector)
class _VectorModel(extending.models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        element = ir.FloatType() if fe_type.dtype.bitwidth == 32 else ir.DoubleType()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.lanes))


def _address(context: Any, builder: Any, array_type: Any, array: Any, place: Any) -> Any:
    """The address of array[place]."""
    struct = struct_proxy(array_type)(context, builder, value=array)
    return builder.gep(struct.data, [place])


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, place: Any) -> Any:
    """The address of array[place], as an address of vectors."""
    address = _address(context, builder, array_type, array, place)
    vector = context.get_value_type(Vector(array_type.dtype))
    return builder.bitcast(address, vector.as_pointer())


def _declare(builder: Any, name: str, vector: Any, signature: Any) -> Any:
    """One of LLVM's own functions on vectors."""
    bits = 32 if vector.element == ir.FloatType() else 64
    full = f"{name}.v{vector.count}f{bits}"
    known = builder.module.globals.get(full)
    return known if known is not None else ir.Function(builder.module, signature, full)


@intrinsic
def load(typingctx: Any, array: Any, place: Any) -> Any:
    """The vector that starts at array[place]; the array is one-dimensional and contiguous."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args)
        value = builder.load(pointer)
        value.align = signature.args[0].dtype.bitwidth // 8
        return value

    return Vector(array.dtype)(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write the vector to array[place:]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        instruction = builder.store(args[2], pointer)
        instruction.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def spread(typingctx: Any, array: Any, place: Any) -> Any:
    """The number array[place] in every lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        number = builder.load(_address(context, builder, array_type, *args))
        vector = context.get_value_type(Vector(array_type.dtype))
        first = builder.insert_element(
            ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
        )
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), lanes)

    return Vector(array.dtype)(array, types.intp), codegen


@intrinsic
def fma(typingctx: Any, left: Any, right: Any, total: Any) -> Any:
    """left * right + total, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        function = _declare(builder, "llvm.fma", kind, ir.FunctionType(kind, [kind] * 3))
        return builder.call(function, args)

    return left(left, right, total), codegen


@intrinsic
def plus(typingctx: Any, left: Any, right: Any) -> Any:
    """left + right."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return left(left, right), codegen


def _fold(builder: Any, left: Any, right: Any, parts: int) -> Any:
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
def store_sums(typingctx: Any, array: Any, place: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """array[place : place + 4] = the sums of the lanes of four vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one, two, three, four = args[2:]
        sums = _fold(builder, _fold(builder, one, two, 1), _fold(builder, three, four, 1), 2)
        count = sums.type.count
        while count > 4:
            length, count = count // 4, count // 2
            halves = []
            for half in (0, length // 2):
                lanes = [part * length + half + j for part in range(4) for j in range(length // 2)]
                mask = ir.Constant(ir.VectorType(ir.IntType(32), count), lanes)
                halves.append(builder.shuffle_vector(sums, sums, mask))
            sums = builder.fadd(*halves)
        address = _address(context, builder, signature.args[0], args[0], args[1])
        instruction = builder.store(sums, builder.bitcast(address, sums.type.as_pointer()))
        instruction.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, a, b, c, d), codegen


@intrinsic
def least_positive(typingctx: Any, left: Any, right: Any) -> Any:
    """In each lane the smaller of two numbers, where `right` counts only if it is positive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        positive = builder.fcmp_ordered(">", args[1], ir.Constant(args[1].type, None))
        smaller = builder.fcmp_ordered("<", args[1], args[0])
        return builder.select(builder.and_(positive, smaller), args[1], args[0])

    return left(left, right), codegen


@intrinsic
def zeros(typingctx: Any, array: Any) -> Any:
    """A vector of zeros, of the array's dtype."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = context.get_value_type(Vector(signature.args[0].dtype))
        return ir.Constant(vector, None)

    return Vector(array.dtype)(array), codegen


@intrinsic
def lanes(typingctx: Any, array: Any) -> Any:
    """How many numbers a vector of the array's dtype holds."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, Vector(signature.args[0].dtype).lanes)

    return types.intp(array), codegen

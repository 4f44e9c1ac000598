"""Compiles every Triton kernel for a GPU that need not be there: `python -m benchmarks.gpu_compile`.

Triton brings NVIDIA's assembler along, so that everything short of running a kernel can be done anywhere.
What the interpreter does not see, such as a variable that changes its type in a loop, is an error here.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from typing import Any, NamedTuple

os.environ.pop("TRITON_INTERPRET", None)  # before triton is imported

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ndstack.ops.nondeterministic.triton import fused, fused_back, strips
from ndstack.ops.runtime.triton_launch import power_of_two
from ndstack.ops.stratification import gpu as stratification
from ndstack.ops.superposition import gpu as superposition

FLOATS = {
    "inner": "push leave rows uses",
    "strip": "leave rows known popped uses newer",
    "strip back": "rows uses uncovered older known carry uncover",
    "run": "inputs by_reading by_hidden by_control control_bias trace hidden cells actions vectors readings "
    "chart mass uses",
    "run back": "by_reading by_hidden by_control trace cells actions vectors readings chart mass adjoint "
    "alpha by_place uses back grad_hidden grad_readings grad_memory given_actions grad_gates grad_controls "
    "grad_first",
    "superposition": "cells weights vectors readings saved",
    "superposition back": "weights vectors saved history grad_readings grads grad_weights grad_vectors",
    "stratification": "actions history weights",
    "stratification back": "actions history grad_weights grad_last grad_actions grad_first",
}
"""The tensors of every kernel whose numbers have the dtype of the chart; logarithms are in float64."""

KERNELS = {
    "inner": strips.inner_kernel,
    "strip": strips.strip_kernel,
    "strip back": strips.strip_back_kernel,
    "run": fused.run_kernel,
    "run back": fused_back.back_kernel,
    "superposition": superposition.scan_kernel,
    "superposition back": superposition.back_kernel,
    "stratification": stratification.scan_kernel,
    "stratification back": stratification.back_kernel,
}


class Variant(NamedTuple):
    """|Q|, |Gamma|, the dtype of the numbers, and, for kernels that know it, what kind of stack it is."""

    states: int
    symbols: int
    dtype: str
    stack: str = "rns"


STACKS = {
    "rns": {"M": 0, "NORMALIZED": False, "BY_STATE": True, "FIX": True, "WINDOW": False},
    "vrns": {"M": 5, "NORMALIZED": False, "BY_STATE": True, "FIX": True, "WINDOW": False},
    "ns": {"M": 0, "NORMALIZED": True, "BY_STATE": False, "FIX": False, "WINDOW": False},
    "all of it": {"M": 5, "NORMALIZED": True, "BY_STATE": False, "FIX": False, "WINDOW": True},
}
"""What kinds of stacks are to kernels that run them with a controller."""


def constants(names: list[str], variant: Variant, configuration: dict[str, Any]) -> dict[str, int]:
    """The sizes that a kernel is compiled for."""
    states, kinds, stack = variant.states, variant.states * variant.symbols, STACKS[variant.stack]
    shown = kinds if stack["BY_STATE"] else variant.symbols
    padded = {"QP": power_of_two(states), "KP": power_of_two(kinds), "HP": 32, "LENGTH": 128}
    padded |= {"MP": power_of_two(stack["M"]), "NP": power_of_two(shown)}
    known = {"Q": states, "S": variant.symbols, **stack, **padded, **configuration}
    return {name: size for name, size in known.items() if name in names}


def compile_kernel(name: str, variant: Variant, capability: int) -> str:
    """Compile a kernel with its first configuration; a line of the table."""
    tuned = KERNELS[name].tuned
    configuration, function = tuned.configs[0], tuned.fn
    names = list(function.arg_names)
    fixed = constants(names, variant, configuration.kwargs)
    kinds = {
        argument: "constexpr"
        if argument in fixed
        else f"*{variant.dtype}"
        if argument in FLOATS[name].split()
        else "*fp64"
        if argument in ("log_alpha", "log_total")
        else "i32"
        for argument in names
    }
    begin = time.perf_counter()
    source = ASTSource(fn=function, signature=kinds, constexprs=fixed)
    done = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": configuration.num_warps}
    )
    seconds = time.perf_counter() - begin
    size = len(done.asm["cubin"]) / 1000
    shape = f"{variant.states}-{variant.symbols}" if "Q" in fixed else ""
    shape = f"{variant.stack} {shape}" if "M" in fixed else shape
    return (
        f"| {name} | {shape} | {variant.dtype} | {done.metadata.shared} | {size:.0f} kB | {seconds:.1f} s |"
    )


def innermost(error: BaseException) -> str:
    """What is wrong, without the calls that led there."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small variant of every kernel")
    parser.add_argument("--capability", type=int, default=80, help="80 is an A100, 90 an H100")
    options = parser.parse_args()
    variants = [Variant(1, 1, "fp32"), Variant(1, 1, "fp64", "all of it")]
    if not options.quick:
        variants += [Variant(1, 2, "fp32"), Variant(2, 3, "fp32"), Variant(3, 3, "fp32", "vrns")]
        variants += [Variant(3, 3, "fp32"), Variant(3, 3, "fp64"), Variant(2, 3, "fp32", "ns")]
        variants += [Variant(3, 3, "fp64", "all of it")]
    warnings.simplefilter("ignore")
    print("| kernel | sizes | numbers | bytes of shared memory | machine code | compiled in |")
    print("|---|---|---|---|---|---|")
    failed = 0
    for name in KERNELS:
        knows = "M" in KERNELS[name].tuned.fn.arg_names  # the others would only be compiled twice
        for variant in (one for one in variants if knows or one.stack == "rns"):
            try:
                print(compile_kernel(name, variant, options.capability), flush=True)
            except triton.CompilationError as error:
                failed += 1
                print(f"| {name} | {variant} | FAILED: {innermost(error)} |", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""How functions are compiled: by numba, once, the machine code being kept on disk if there is a place for it.

numba looks for such a place beside the source file, then in the user's cache folder; the environment
variable NUMBA_CACHE_DIR names another one. Where none can be written to, it would refuse to compile.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numba


def compiler(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a function when it is first called, with these flags of numba."""

    def compile_later(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **flags)(function)
        except RuntimeError:  # no place to keep it
            warnings.warn(
                "compiled kernels cannot be kept, so every process compiles them again: neither the "
                "installed package nor the user's cache folder can be written to; set NUMBA_CACHE_DIR",
                RuntimeWarning,
                stacklevel=1,
            )
            return numba.njit(**flags)(function)

    return compile_later

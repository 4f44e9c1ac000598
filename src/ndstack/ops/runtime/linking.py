# mypy: allow-untyped-calls
"""Compile a tree of functions as one program: LLVM sees each function once, where it is used.

numba optimises every compiled function together with all that it calls, and makes machine code of it, before
it does the same with the caller: in a tree of functions five levels deep, most code is optimised five times.
Here a function that only compiled code calls (a part) is left as numba has written it. The function that
Python calls (the whole) is linked with all its parts, and the result is optimised once.

Most of LLVM's time would go into loops that do not matter, each of them unrolled, and copied for vectors and
for arrays that overlap. So kernels (`kernel` of `simd`) are optimised for size, except the loops that take
most of the time (`loop` of `compiling`): these stay functions of their own and are optimised fully.
"""

from __future__ import annotations

from collections.abc import Iterable

from llvmlite.binding import ModuleRef, parse_assembly
from numba.core import codegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder


class _Nowhere:
    """The code generator of a part after lowering, which has nothing to do, since no part runs by itself."""

    @staticmethod
    def set_env(name: str, environment: object) -> None:
        """numba's environment is for functions that Python calls."""


class _Part(codegen.JITCodeLibrary):
    """Code that is neither optimised nor made executable before it is part of a whole."""

    codegen = _Nowhere()
    attribute = ""

    def _optimize_functions(self, module: ModuleRef) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    def _get_module_for_linking(self) -> ModuleRef:
        """For a caller that numba compiles in its own way: everything that this part is made of."""
        if self._shared_module is None:
            self._shared_module = parse_assembly(str(self._codegen._create_empty_module(self.name)))
            for name in _link(self._shared_module, [self]):
                self._shared_module.get_function(name).linkage = "linkonce_odr"
        return self._shared_module


class _Whole(codegen.JITCodeLibrary):
    """Code that Python calls, with all its parts."""

    def _optimize_functions(self, module: ModuleRef) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._codegen._check_llvm_bugs()
        for name, attribute in _link(self._final_module, self._linking_libraries).items():
            function = self._final_module.get_function(name)
            function.linkage = "internal"
            if attribute:
                function.add_function_attribute(attribute)
        for library in _tree(self._linking_libraries):
            self._reload_init.update(library._reload_init)
        passes, builder = self._codegen._module_pass_manager()
        with self._recorded_timings.record("Module passes", builder):
            passes.run(self._final_module, builder)
        self._final_module.verify()
        self._finalize_final_module()


def _tree(libraries: Iterable[codegen.JITCodeLibrary]) -> list[codegen.JITCodeLibrary]:
    """Return these libraries and all that their parts are made of, each once, the parts first."""
    found = dict.fromkeys(libraries)
    left = list(found)
    while left:
        library = left.pop()
        if isinstance(library, _Part):
            new = [other for other in library._linking_libraries if other not in found]
            found.update(dict.fromkeys(new))
            left += new
    return sorted(found, key=lambda library: not isinstance(library, _Part))


def _link(module: ModuleRef, libraries: Iterable[codegen.JITCodeLibrary]) -> dict[str, str]:
    """Link these and all that their parts are made of into a module.

    Returns:
        The names of the parts' functions, each with an attribute for LLVM, or none.
    """
    names: dict[str, str] = {}
    for library in _tree(libraries):
        if isinstance(library, _Part):
            own = library._final_module
            defined = [function.name for function in own.functions if not function.is_declaration]
            names.update(dict.fromkeys(defined, library.attribute))
        else:
            own = library._get_module_for_linking()
        module.link_in(own, preserve=True)
    return names


class Compiler(CompilerBase):
    """numba's own compiler but for what becomes of the code."""

    def define_pipelines(self) -> list[object]:
        """Return the one pipeline that compiles a function."""
        if self.state.library is None:
            kind = _Part if self.state.flags.no_cpython_wrapper else _Whole
            self.state.library = kind(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            self.state.library.enable_object_caching()
            self.state.library.attribute = getattr(self.state.func_id.func, "llvm_attribute", "")
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]

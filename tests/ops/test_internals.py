"""What ndstack uses of the insides of torch and numba: each thing works here, and may be missing."""

from __future__ import annotations

import ctypes
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
import torch

from ndstack.ops.runtime import numba_internals, torch_internals


def test_every_backward_pass_has_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, requires_grad=True)
    seen: list[int] = []
    y = x * 2
    y.register_hook(lambda grad: seen.append(torch_internals.backward_pass()))
    for _ in range(2):
        torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert len(set(seen)) == 2
    monkeypatch.setattr(torch_internals, "_current_task", None)
    assert torch_internals.backward_pass() == 0


def test_transforms_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch_internals.transforms_active())
        return x.sum()

    torch.func.vmap(look)(torch.ones(2, 3))
    with torch.autograd.forward_ad.dual_level():
        look(torch.ones(2))
    look(torch.ones(2))
    assert seen == [True, True, False]
    monkeypatch.setattr(torch_internals, "_transforms", None)
    monkeypatch.delattr(torch.autograd.forward_ad, "_current_level")
    assert not torch_internals.transforms_active()


def test_an_operation_without_a_look_at_transforms() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return 2 * grad

    x = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(torch_internals.plain_apply(Double)(x).sum(), x)[0].tolist() == [2.0, 2.0]


def test_hooks_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Linear(1, 1)
    assert not torch_internals.has_hooks(layer)
    with layer.register_forward_hook(lambda *_: None):
        assert torch_internals.has_hooks(layer)
    with torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: None):
        assert torch_internals.has_hooks(layer)
    assert not torch_internals.has_hooks(layer)
    monkeypatch.setattr(layer, "_compiled_call_impl", layer.forward)  # what `layer.compile()` sets
    assert torch_internals.has_hooks(layer)
    monkeypatch.undo()
    monkeypatch.delattr(torch.nn.modules.module, "_global_backward_hooks")
    assert torch_internals.has_hooks(layer)  # not known, so the module is called


def test_the_first_parameter() -> None:
    inner = torch.nn.Linear(1, 1)
    network = torch.nn.Sequential(torch.nn.Tanh(), inner)
    for module in (inner, network, torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(1, 1))):
        assert torch_internals.first_parameter(module) is next(module.parameters())
    unknown: Any = SimpleNamespace(parameters=lambda: iter([inner.bias]))
    assert torch_internals.first_parameter(unknown) is inner.bias


def test_a_module_that_is_traced_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import symbolic_convert

    from ndstack.ops.runtime import dynamo

    seen: list[bool] = []

    def look(module: torch.nn.Module) -> None:
        seen.append(torch_internals.traced_alone(module))

    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_dynamo_compiling():
                dynamo.constant(look, self)
            return x + 1

    inner, x = Inner(), torch.ones(2)
    torch.compile(inner, backend="eager")(x)
    torch.compile(torch.nn.Sequential(inner), backend="eager")(x)
    assert seen == [True, False]
    monkeypatch.delattr(symbolic_convert, "InstructionTranslator")
    assert not torch_internals.traced_alone(inner)


@pytest.mark.compiled
def test_the_address_of_a_compiled_function() -> None:
    double = numba.njit(lambda x: 2 * x)
    place = numba_internals.c_address(double, (numba.int64,))
    assert place is not None
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(place)(21) == 42
    assert numba_internals.c_address(SimpleNamespace(), (numba.int64,)) is None
    without_library = SimpleNamespace(overloads={(): SimpleNamespace()})
    assert numba_internals.c_address(without_library, ()) is None
    assert numba_internals.address(without_library, ()) is None
    assert numba_internals.address(double, (numba.int64,)) is None  # it returns something
    assert numba_internals.address(numba.njit(lambda x: None), (numba.int64,)) is not None


def test_numba_without_events_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(dispatcher: object) -> None:
        raise AssertionError

    monkeypatch.setattr(numba_internals, "_part", lambda name: None)
    assert not numba_internals.listen_to_compiler(unwanted, unwanted)


def test_numba_with_another_cache_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def stamp(path: Path) -> bytes:
        raise AssertionError

    for caching in (None, SimpleNamespace(), SimpleNamespace(CacheImpl=SimpleNamespace(_locator_classes=[]))):
        monkeypatch.setattr(numba_internals, "_part", lambda name, caching=caching: caching)
        assert not numba_internals.stamp_cache(Path("/nowhere"), stamp)
    monkeypatch.undo()
    assert numba_internals._part("no such module") is None


@pytest.mark.compiled
def test_indices_are_trusted_in_one_package_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.np import arrayobj

    monkeypatch.setattr(arrayobj, "fix_integer_index", arrayobj.fix_integer_index)

    def last(numbers: Any, place: int) -> Any:
        return numbers[place]

    def compiled() -> Any:
        return numba.njit(types.FunctionType(last.__code__, {"__name__": last.__module__}, "last"))

    numbers = np.arange(5)
    assert compiled()(numbers, -1) == 4
    assert numba_internals.trust_indices(last.__module__)
    assert compiled()(numbers[2:], -1) == 1  # what lies before the array
    assert compiled()(numbers[2:], 1) == 3
    monkeypatch.delattr(arrayobj, "fix_integer_index")
    assert not numba_internals.trust_indices(last.__module__)


def test_the_folder_of_compiled_code_may_be_unknown() -> None:
    assert numba_internals.cache_folder(object()) is None
    assert numba_internals.cache_folder(SimpleNamespace(_cache=SimpleNamespace(cache_path="here"))) == "here"


@pytest.mark.compiled
def test_numba_that_links_in_another_way_compiles_by_its_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert numba_internals.compile_as_whole().keys() == {"pipeline_class"}
    monkeypatch.setattr(numba_internals, "_part", lambda name: SimpleNamespace())
    assert numba_internals.compile_as_whole() == {}

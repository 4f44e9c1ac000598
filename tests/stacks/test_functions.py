"""What the stratification and the superposition stack promise as functions, whatever they compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.functional import stratification, superposition
from ndstack.ops.runtime import threads
from tests.stacks.functions import gradients, stratification_inputs, superposition_inputs

Function = Callable[..., Tensor]
Inputs = Callable[[int, int, int], tuple[Tensor, ...]]

both = pytest.mark.parametrize(
    ("stack", "inputs"),
    [(stratification, stratification_inputs), (superposition, superposition_inputs)],
    ids=["stratification", "superposition"],
)


@both
def test_float32_is_close_to_float64(stack: Function, inputs: Inputs, path: str) -> None:
    leaves = inputs(3, 60, 5)
    single = stack(*(leaf.float() for leaf in leaves))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), stack(*leaves), atol=1e-5, rtol=1e-5)


@both
def test_inputs_need_not_be_contiguous(stack: Function, inputs: Inputs) -> None:
    leaves = inputs(3, 7, 4)
    strange = tuple(
        leaf.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for leaf in leaves
    )
    ours, plain = stack(*strange), stack(*leaves)
    assert torch.equal(ours, plain)
    for a, b in zip(gradients(ours, strange), gradients(plain, leaves), strict=True):
        torch.testing.assert_close(a, b)


@both
def test_threads_change_nothing(stack: Function, inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = inputs(5, 20, 3)
    alone = stack(*leaves)
    expected = gradients(alone, leaves)
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    together = stack(*leaves)
    assert torch.equal(together, alone)
    for a, b in zip(gradients(together, leaves), expected, strict=True):
        assert torch.equal(a, b)


@both
def test_second_derivatives_are_refused_not_wrong(stack: Function, inputs: Inputs) -> None:
    leaves = inputs(1, 3, 2)
    total = stack(*leaves).sum()
    with pytest.raises(NdstackError, match="second derivatives"):
        torch.autograd.grad(total, leaves, create_graph=True)

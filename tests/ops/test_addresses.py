"""The one door to compiled code: what passes, what does not, and that there is no other."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import ndstack
from ndstack.errors import NdstackError
from ndstack.ops.runtime import addresses

SOURCES = Path(ndstack.__file__).parent
TAKES_AN_ADDRESS = re.compile(r"data_ptr|\.ctypes\b|__array_interface__|as_strided")


def test_nobody_else_takes_an_address():
    others = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if TAKES_AN_ADDRESS.search(path.read_text())
    }
    assert others == {"ops/runtime/addresses.py"}


def test_the_memory_of_a_view():
    whole = torch.arange(24.0).view(2, 3, 4)
    view = whole[1:, 1:, 2:]
    numbers = addresses.memory_of(view, torch.float32)
    assert numbers.tolist() == whole.flatten().tolist()
    assert numbers[view.storage_offset() + view.stride(1) + 1] == view[0, 1, 1]
    numbers[view.storage_offset()] = -1  # no copy
    assert view[0, 0, 0] == -1
    with pytest.raises(NdstackError, match=r"expected torch\.float64"):
        addresses.memory_of(view, torch.float64)


def test_no_kernel_turns_a_tensor_into_an_array_by_itself():
    found = {path.name for path in (SOURCES / "ops").rglob("*.py") if ".numpy()" in path.read_text()}
    assert found == {"addresses.py"}


def test_the_address_of_what_fits():
    tensor = torch.zeros(2, 3)
    assert addresses.address(tensor, torch.float32, 2, 3) == tensor.data_ptr()
    assert addresses.rows(tensor[:, :2], torch.float32, 2, 2) == (tensor.data_ptr(), 3)
    assert addresses.optional(None, torch.float32, 2) == 0
    assert addresses.optional_rows(None, torch.float32, 2, 3) == (0, 0)
    addresses.written(tensor, torch.float32, 2, 3)[1, 2] = 7
    assert tensor[1, 2] == 7


UNFIT = {
    "dtype": torch.zeros(2, 3, dtype=torch.bfloat16),
    "shape": torch.zeros(3, 2),
    "device": torch.zeros(2, 3, device="meta"),
    "contiguous": torch.zeros(3, 2).t(),
    "expanded": torch.zeros(3).expand(2, 3),
    "negative": torch._neg_view(torch.zeros(2, 3)),
}


@pytest.mark.parametrize("tensor", UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_is_refused_in_one_line(tensor):
    with pytest.raises(NdstackError, match=r"compiled code, expected torch\.float32") as caught:
        addresses.address(tensor, torch.float32, 2, 3)
    assert "\n" not in str(caught.value)


def test_rows_may_be_apart_but_not_in_pieces():
    with pytest.raises(NdstackError, match="compiled code"):
        addresses.rows(torch.zeros(3, 2).t(), torch.float32, 2, 3)
    with pytest.raises(NdstackError, match="compiled code"):
        addresses.array(torch.zeros(2, 3), torch.float64, 2, 3)


def test_released_memory_is_refused():
    tensor = torch.zeros(2, 3)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(NdstackError, match="released"):
        addresses.address(tensor, torch.float32, 2, 3)


def test_a_default_device_does_not_move_buffers():
    with torch.device("meta"):
        assert addresses.empty(torch.float32, 2).is_cpu
        assert addresses.zeros(torch.float64, 2, 3).tolist() == [[0.0] * 3] * 2


def test_a_table_that_is_not_contiguous_is_refused():
    with pytest.raises(NdstackError, match="not contiguous"):
        addresses.of_table(np.zeros((4, 4))[:, 1])


def test_guard_bytes_notice(monkeypatch):
    monkeypatch.setattr(addresses, "GUARD", True)
    monkeypatch.setattr(addresses, "_alive", {})
    inside = addresses.empty(torch.float32, 3)
    assert inside.isnan().all()
    inside[:] = 1.0
    addresses.inspect()
    flat = next(iter(addresses._alive.values()))[0]()
    flat[-1] = 0
    with pytest.raises(SystemError, match="outside a buffer of shape"):
        addresses.zeros(torch.float32, 1)


def test_which_tensors_share_memory():
    tensor = torch.zeros(4, 3)
    assert addresses.same_memory(tensor, tensor.detach())
    assert addresses.same_memory(tensor, tensor[2:])
    assert not addresses.same_memory(tensor, tensor.clone())
    assert not addresses.same_memory(tensor.to("meta"), tensor.to("meta"))

"""What `functional.nondeterministic` promises, and the equalities that the text states."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from tests.ops.random_automata import random_weights
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.functional import superposition
from ndstack.functional.nondeterministic import nondeterministic
from ndstack.ops.runtime import threads

BACKENDS = pytest.mark.parametrize("backend", ["auto", "cpu", "portable", "reference"])


def read(*args: Tensor, **options: object) -> Tensor:
    result = nondeterministic(*args, **options)
    assert isinstance(result, Tensor)
    return result


@BACKENDS
def test_vectors_of_one_one_give_back_the_symbols(backend: str) -> None:
    actions = random_weights(2, 9, 2, 3, zeros=0.2)
    ones = torch.ones(2, 9, 1, dtype=torch.float64)
    with_vectors = read(*actions, vectors=ones, bottom=ones[0, 0], backend=backend)
    assert torch.allclose(with_vectors.squeeze(-1), read(*actions), atol=1e-12)


@BACKENDS
@pytest.mark.parametrize("bottom_fix", [True, False])
def test_a_window_that_holds_everything_changes_nothing(backend: str, bottom_fix: bool) -> None:
    actions = random_weights(2, 8, 2, 2, zeros=0.2)
    free = read(*actions, bottom_fix=bottom_fix)
    enough = 9 if bottom_fix else 8  # the initial bottom stands on time -1
    for window in (enough, enough + 5):
        kept = read(*actions, window=window, bottom_fix=bottom_fix, backend=backend)
        assert torch.allclose(kept, free, atol=1e-12)
    assert not torch.allclose(read(*actions, window=3, backend=backend), free, atol=1e-3)


@BACKENDS
def test_one_state_and_symbol_make_a_superposition_stack(backend: str) -> None:
    """Section 9.2, with v_0 = 0, wherever no run pops the bottom."""
    n, certain = 9, 4  # four pushes for sure, then at most as many pops as leave the bottom
    weights = torch.randn(2, n, 3, dtype=torch.float64).softmax(-1)
    weights[:, :certain] = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    weights[:, 2 * certain :] = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    vectors = torch.randn(2, n, 4, dtype=torch.float64)
    expected = superposition(weights[..., 0], weights[..., 1], weights[..., 2], vectors)
    shape = (2, n, 1, 1, 1, 1)
    logs = weights.log()
    actual = read(
        logs[..., 0].view(shape), logs[..., 2].view(shape), logs[..., 1].view(shape[:5]),
        vectors=vectors, backend=backend,
    )  # fmt: skip
    assert torch.allclose(actual.flatten(2), expected, atol=1e-12)


@BACKENDS
def test_attention_is_a_distribution_over_what_was_pushed(backend: str) -> None:
    actions = random_weights(2, 7, 2, 2)
    _, attention = nondeterministic(*actions, backend=backend, return_attention=True)
    assert attention.shape == (2, 7, 2, 2, 8)
    assert torch.allclose(attention.sum(-1), torch.ones(2, 7, 2, 2, dtype=torch.float64))
    for t in range(7):
        assert (attention[:, t, :, :, t + 2 :] == 0).all()
    _, unfixed = nondeterministic(*actions, backend=backend, return_attention=True, bottom_fix=False)
    assert (unfixed[..., 0] == 0).all()


@BACKENDS
@pytest.mark.parametrize("batch, n", [(0, 3), (2, 0)])
def test_empty_batches_and_sequences_are_fine(backend: str, batch: int, n: int) -> None:
    actions = random_weights(batch, n, 2, 3)
    vectors = torch.zeros(batch, n, 4, dtype=torch.float64)
    assert read(*actions, backend=backend).shape == (batch, n, 2, 3)
    assert read(*actions, vectors=vectors, backend=backend).shape == (batch, n, 2, 3, 4)


def test_errors_say_in_one_line_what_was_given_and_expected() -> None:
    push, replace, pop = random_weights(2, 3, 2, 2)
    vectors = torch.zeros(2, 3, 4, dtype=torch.float64)
    wrong: list[tuple[str, tuple[Tensor, ...], dict[str, object]]] = [
        (r"push has shape \[2, 3, 4, 2, 2\]", (push.flatten(2, 3), replace, pop), {}),
        (r"replace has shape \[2, 2, .*expected \[2, 3,", (push, replace[:, :2], pop), {}),
        (r"pop has shape .*expected \[2, 3, 2, 2, 2\]", (push, replace, pop[..., :1]), {}),
        (r"vectors has shape \[2, 2, 4\]", (push, replace, pop), {"vectors": vectors[:, :2]}),
        (r"bottom has shape \[3\], expected \[4\]", (push, replace, pop),
         {"vectors": vectors, "bottom": vectors[0, 0, :3]}),
        ("without vectors", (push, replace, pop), {"bottom": vectors[0, 0]}),
        ("pop is torch.float32", (push, replace, pop.float()), {}),
        ("use .float()", tuple(a.half() for a in (push, replace, pop)), {}),
        ("window is 0", (push, replace, pop), {"window": 0}),
        ("backend is 'gpu', expected one of auto, cpu", (push, replace, pop), {"backend": "gpu"}),
    ]  # fmt: skip
    for message, actions, options in wrong:
        with pytest.raises(NdstackError, match=message) as caught:
            nondeterministic(*actions, **options)
        assert "\n" not in str(caught.value)


@BACKENDS
def test_second_derivatives_are_refused_rather_than_wrong(backend: str) -> None:
    actions = random_weights(1, 3, 2, 2)
    with pytest.raises(NdstackError, match="second derivatives"):
        torch.autograd.grad(read(*actions, backend=backend).square().sum(), actions, create_graph=True)


@pytest.mark.compiled
def test_the_number_of_threads_changes_nothing() -> None:
    actions = random_weights(5, 60, 2, 2)
    results = []
    for count in (1, 3):
        threads.set_num_threads(count)
        assert threads.get_num_threads() == count
        reading = read(*actions)
        results.append([reading, *torch.autograd.grad(reading.square().sum(), actions)])
    threads.set_num_threads(None)
    assert threads.get_num_threads() == torch.get_num_threads()
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    with pytest.raises(NdstackError, match="0 threads given"):
        threads.set_num_threads(0)


@pytest.mark.compiled
def test_importing_compiles_nothing() -> None:
    code = (
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    import ndstack.functional.nondeterministic, ndstack.stacks.nondeterministic\n"
        "    import ndstack.ops.nondeterministic.cpu.scan\n"
        "assert not recorder.buffer, recorder.buffer\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""The fast backends against the log-space reference in float64: readings, attention, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ops.random_automata import assert_near, gradients, random_weights
from tests.ops.test_precision import assert_late_winner_read, late_winner
from torch import Tensor

from ndstack.functional.nondeterministic import nondeterministic
from ndstack.ops.nondeterministic.cpu import streams
from ndstack.ops.nondeterministic.portable import forward, scan
from ndstack.ops.nondeterministic.settings import Setting

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


@st.composite
def automata(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes, scale and share of zeros of a random automaton, and how to run it."""
    states, symbols = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    most = 40 if states * symbols <= 2 else 20 if states * symbols <= 6 else 9
    n = draw(st.integers(1, most))
    return {
        "sizes": (draw(st.integers(1, 2)), n, states, symbols),
        "scale": draw(st.sampled_from([0.1, 1.0, 5.0, 30.0])),
        "zeros": draw(st.sampled_from([0.0, 0.3, 0.6])),
        "window": draw(st.none() | st.integers(1, n + 2)),
        "bottom_fix": draw(st.booleans()),
        "vectors": draw(st.sampled_from([0, 0, 1, 3])),
        "attention": draw(st.booleans()),
        "seed": draw(st.integers(0, 10**6)),
    }


def run(case: dict[str, Any], backend: str, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs, and the derivatives by every input."""
    actions = random_weights(*case["sizes"], scale=case["scale"], zeros=case["zeros"], seed=case["seed"])
    inputs = [action.detach().to(dtype).requires_grad_() for action in actions]
    options: dict[str, Any] = {name: case[name] for name in ("window", "bottom_fix")}
    if case["vectors"]:
        generator = torch.Generator().manual_seed(case["seed"])
        vectors = torch.randn(*case["sizes"][:2], case["vectors"], generator=generator)
        bottom = torch.randn(case["vectors"], generator=generator)
        inputs += [vectors.to(dtype).requires_grad_(), bottom.to(dtype).requires_grad_()]
        options |= {"vectors": inputs[3], "bottom": inputs[4]}
    outputs = nondeterministic(*inputs[:3], **options, backend=backend, return_attention=case["attention"])
    shown = list(outputs) if isinstance(outputs, tuple) else [outputs]
    return shown, gradients(shown, inputs)


def compare(case: dict[str, Any], backends: list[str]) -> None:
    expected = run(case, "reference", torch.float64)
    assert all(tensor.isfinite().all() for part in expected for tensor in part)
    for backend in backends:
        for dtype, tolerance in TOLERANCE.items():
            actual = run(case, backend, dtype)
            assert actual[0][0].dtype == dtype
            for ours, theirs in zip(actual, expected, strict=True):
                assert_near(ours, theirs, tolerance)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(automata())
def test_compiled_and_portable_agree_with_the_reference(case: dict[str, Any]) -> None:
    compare(case, ["cpu", "portable"])


@pytest.mark.parametrize(
    "sizes, scale, zeros",
    [((1, 40, 2, 3), 1.0, 0.0), ((1, 40, 2, 2), 30.0, 0.6), ((2, 12, 4, 4), 3.0, 0.3)],
    ids=["long", "long and extreme", "large"],
)
@pytest.mark.parametrize("bottom_fix", [True, False], ids=["fixed", "unfixed"])
def test_backends_agree_on_larger_automata(
    sizes: tuple[int, int, int, int], scale: float, zeros: float, bottom_fix: bool
) -> None:
    case = {"sizes": sizes, "scale": scale, "zeros": zeros, "window": None, "vectors": 2}
    compare(case | {"bottom_fix": bottom_fix, "attention": True, "seed": 11}, ["cpu", "portable"])


@pytest.mark.parametrize("window", [1, 2, 7, 33])
def test_backends_agree_on_windows_of_long_sequences(window: int) -> None:
    case = {"sizes": (1, 40, 2, 2), "scale": 2.0, "zeros": 0.1, "window": window, "vectors": 1}
    compare(case | {"bottom_fix": True, "attention": True, "seed": 3}, ["cpu", "portable"])


@pytest.mark.parametrize("states", [1, 2, 3, 4, 5, 7])
def test_every_number_of_states_takes_its_own_path_through_the_blocks(states: int) -> None:
    case = {"sizes": (1, 7, states, 2), "scale": 1.0, "zeros": 0.1, "window": None, "vectors": 0}
    compare(case | {"bottom_fix": True, "attention": False, "seed": states}, ["cpu"])


@pytest.mark.parametrize("sizes", [(1, 50, 2, 3), (1, 35, 3, 3)], ids=str)
@pytest.mark.parametrize("window", [None, 47], ids=str)
def test_columns_long_enough_to_be_streamed(sizes: tuple[int, int, int, int], window: int | None) -> None:
    length = (sizes[1] - 1) * sizes[2] * sizes[3]
    assert length >= streams.LONG
    case = {"sizes": sizes, "scale": 2.0, "zeros": 0.1, "window": window, "vectors": 0}
    compare(case | {"bottom_fix": True, "attention": False, "seed": 5}, ["cpu"])


@pytest.mark.parametrize("size, strip", [(1, 3), (5, 4), (16, 20)])
@pytest.mark.parametrize("window", [None, 3, 30], ids=str)
def test_portable_blocks_and_strips_of_any_size_agree(
    size: int, strip: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {"sizes": (2, 41, 2, 2), "scale": 2.0, "zeros": 0.2, "window": window, "seed": size}
    case |= {"bottom_fix": size > 1, "vectors": 2, "attention": True}
    expected = run(case, "cpu", torch.float64)
    monkeypatch.setattr(forward, "BLOCK", size)
    monkeypatch.setattr(forward, "STRIP", strip)
    for dtype, tolerance in TOLERANCE.items():
        for ours, theirs in zip(run(case, "portable", dtype), expected, strict=True):
            assert_near(ours, theirs, tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("rest", [3, 20])
@pytest.mark.parametrize("nats", [50.0, 90.0, 120.0, 800.0])
def test_portable_blocks_keep_a_branch_that_wins_late(
    nats: float, rest: int, size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "BLOCK", size)
    actions = late_winner(nats, rest, dtype)
    readings = nondeterministic(*actions, backend="portable")
    assert isinstance(readings, Tensor)
    assert_late_winner_read(readings, actions, nats)


@pytest.mark.parametrize("shift", [-7.0, 0.0])
def test_portable_float32_is_not_left_without_need(shift: float) -> None:
    """Pops are rare, so that old rows of the chart leave the range of float32; no result depends on them."""
    push, replace, pop = (part.detach().float() for part in random_weights(1, 150, 2, 2, scale=0.3, seed=2))
    actions = torch.cat([part.flatten(2) for part in (push, replace, pop + shift)], -1)
    setting = Setting(2, 2, None, True, "portable", False)
    _, reading, _, trusted = scan.run(actions, setting)
    assert trusted.all()
    _, exact, _, _ = scan.run(actions.double(), setting)
    assert_near([reading], [exact], 1e-6)

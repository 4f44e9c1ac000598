"""The planned memory against what torch allocates, and the error before it runs out."""

from __future__ import annotations

import pytest
import torch
from benchmarks.peak import peak_of

from ndstack.errors import NdstackError
from ndstack.ops.nondeterministic import memory
from ndstack.ops.nondeterministic.memory import plan
from ndstack.ops.nondeterministic.portable import scan
from ndstack.ops.nondeterministic.settings import Setting
from ndstack.ops.runtime import backends
from ndstack.stacks import Nondeterministic


@pytest.mark.parametrize(
    "states, symbols, batch, n, window, attend",
    [
        (2, 3, 4, 40, None, False),
        (3, 3, 2, 60, None, True),
        (1, 2, 8, 100, None, False),
        (2, 2, 2, 60, 20, False),
    ],
)
def test_the_plan_is_a_bound_and_not_far_off(
    states: int, symbols: int, batch: int, n: int, window: int | None, attend: bool
) -> None:
    setting = Setting(states, symbols, window, True, "portable", attend)
    actions = torch.randn(batch, n, Nondeterministic(states, symbols).action_size)
    done = []
    forward = peak_of(lambda: done.append(scan.run(actions, setting)), actions.device)
    chart, reading, attention, trusted = done[0]
    grads = torch.randn_like(reading), torch.randn_like(attention) if attend else None

    def gradient() -> None:
        scan.gradient(chart, setting, actions, (reading, attention), grads, trusted)

    backward = peak_of(gradient, actions.device)
    found = plan(scan.automaton_of(setting), batch, n, attend=attend)
    given = actions.numel() * 4
    held = found.chart + found.logs + found.attention // 2 + given  # by the forward pass
    assert 0.6 * (found.forward - given) <= forward <= 1.02 * (found.forward - given)
    assert 0.5 * (found.backward - held) <= backward <= 1.02 * (found.backward - held)


def test_memory_grows_with_the_square_of_the_length() -> None:
    automaton = scan.automaton_of(Setting(3, 3, None, True, "portable", False))
    short, long = plan(automaton, 2, 1000), plan(automaton, 2, 2000)
    assert 3.8 < long.chart / short.chart < 4.1
    assert long.adjoint == long.chart


@pytest.mark.parametrize("steps", [1, 4])
def test_an_error_says_what_to_reduce_before_memory_runs_out(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LARGE", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    stack = Nondeterministic(2, 2)
    with (
        backends.using("portable"),
        pytest.raises(NdstackError, match=r"reduce the batch.* give the stack a"),
    ):
        stack.scan(torch.randn(3, steps, stack.action_size))


def test_somebody_knows_what_is_free_on_the_cpu() -> None:
    free = memory.free_bytes(torch.device("cpu"))
    assert free is None or free > 2**20
    assert memory.free_bytes(torch.device("meta")) is None

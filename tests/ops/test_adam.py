"""Compiled clipping and Adam, against the equations and against torch."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ndstack.errors import NdstackError
from ndstack.ops.adam import AdamSettings, cpu, make_moments, reference, updatable
from ndstack.training.optimizers import Adam, update

SHAPES = [(3, 5), (1,), (), (7, 2, 2), (0, 4)]


def random_tensors(shapes, dtype, scale=1.0):
    return [scale * torch.randn(shape, dtype=dtype) for shape in shapes]


def zero_moments(parameters):
    means, squares = ([torch.zeros_like(one) for one in parameters] for _ in range(2))
    return make_moments(parameters, means, squares, [torch.zeros(()) for _ in parameters])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    seed=st.integers(0, 10**6),
    limit=st.sampled_from([0.01, 1.0, 5.0, math.inf]),
    scale=st.sampled_from([1e-4, 1.0, 100.0]),
    rate=st.sampled_from([1e-4, 0.01, 1.0]),
)
def test_equations(dtype, seed, limit, scale, rate):
    torch.manual_seed(seed)
    ours, settings = random_tensors(SHAPES, dtype), AdamSettings(rate)
    theirs, moments = copy.deepcopy(ours), zero_moments(ours)
    means, squares = ([torch.zeros_like(one) for one in ours] for _ in range(2))
    for step in range(1, 4):
        gradients = random_tensors(SHAPES, dtype, scale)
        kept = copy.deepcopy(gradients)
        norm = moments.clip_and_update(gradients, limit, settings)
        assert norm == pytest.approx(reference.norm(kept), rel=1e-12)
        factor = reference.clipping_factor(norm, limit)
        for place, gradient in enumerate(kept):
            assert torch.equal(gradients[place], gradient)
            reference.update(theirs[place], factor * gradient, means[place], squares[place], step, settings)
            torch.testing.assert_close(
                ours[place], theirs[place], rtol=2e-6 if dtype == torch.float32 else 1e-13, atol=rate * 2e-6
            )


def test_parameters_of_several_parts(monkeypatch):
    monkeypatch.setattr(cpu, "PART", 8)
    sizes = [(5, 5), (8,), (1,), (17,)]
    ours = random_tensors(sizes, torch.float32)
    theirs, gradients = copy.deepcopy(ours), random_tensors(sizes, torch.float32)
    zero_moments(ours).clip_and_update(gradients, 1.0, AdamSettings(0.1))
    factor = reference.clipping_factor(reference.norm(gradients), 1.0)
    for mine, other, gradient in zip(ours, theirs, gradients, strict=True):
        moments = torch.zeros_like(other), torch.zeros_like(other)
        reference.update(other, factor * gradient, *moments, 1, AdamSettings(0.1))
        torch.testing.assert_close(mine, other)


def with_gradients(parameters, seed):
    torch.manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def make_parameters():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(4, 6)), torch.nn.Parameter(torch.randn(3))]


def torchs_step(parameters, optimizer, clip):
    torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()


@pytest.mark.parametrize("other_first", [False, True])
def test_steps_and_states_are_those_of_torch_whoever_makes_them(other_first):
    """States are exchanged between torch and us after some steps, in both directions."""
    both = make_parameters(), make_parameters()
    ours, theirs = Adam(both[0], 0.01), torch.optim.Adam(both[1], 0.01, fused=True)
    for seed in range(6):
        if seed == 3:
            states = copy.deepcopy((ours.state_dict(), theirs.state_dict()))
            ours.load_state_dict(states[other_first])
            theirs.load_state_dict(states[not other_first])
        if not other_first and seed == 4:  # a step by torch in between
            torchs_step(with_gradients(both[0], seed), ours, 1.0)
        else:
            assert math.isfinite(update(ours, with_gradients(both[0], seed), 1.0, 0.01))
        torchs_step(with_gradients(both[1], seed), theirs, 1.0)
    for mine, other in zip(*both, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)
        one, two = ours.state[mine], theirs.state[other]
        assert set(one) == set(two)
        for name in one:
            torch.testing.assert_close(one[name], two[name], rtol=1e-6, atol=1e-8)


def test_the_learning_rate_of_each_step_counts():
    one, other = make_parameters(), make_parameters()
    ours, theirs = Adam(one, 1.0), torch.optim.Adam(other, 1.0)
    for seed, rate in enumerate((0.1, 0.001)):
        update(ours, with_gradients(one, seed), None, rate)
        theirs.param_groups[0]["lr"] = rate
        torchs_step(with_gradients(other, seed), theirs, math.inf)
    for mine, wanted in zip(one, other, strict=True):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_gradients_that_are_not_finite_change_nothing(wrong):
    parameters = make_parameters()
    optimizer = Adam(parameters, 0.1)
    update(optimizer, with_gradients(parameters, 0), 1.0, 0.1)
    before = copy.deepcopy((parameters, optimizer.state_dict()["state"]))
    with_gradients(parameters, 1)[0].grad[2, 3] = wrong
    norm = update(optimizer, parameters, 1.0, 0.1)
    assert not math.isfinite(norm)
    for mine, kept in zip(parameters, before[0], strict=True):
        assert torch.equal(mine, kept)
    for place, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(state[name], before[1][place][name]) for name in state)


def test_torch_does_what_compiled_code_cannot():
    """A parameter without a gradient is left alone, then and later; half precision is torch's."""
    one, other = make_parameters(), make_parameters()
    ours, theirs = Adam(one, 0.01), torch.optim.Adam(other, 0.01, fused=True)
    for seed in range(4):
        for parameters in (one, other):
            with_gradients(parameters, seed)
            if seed == 1:
                parameters[1].grad = None
        update(ours, one, 1.0, 0.01)
        torchs_step(other, theirs, 1.0)
    for mine, wanted in zip(one, other, strict=True):
        torch.testing.assert_close(mine, wanted)
    assert [int(ours.state[mine]["step"]) for mine in one] == [4, 3]
    assert not updatable(torch.zeros(2, dtype=torch.bfloat16))
    assert not updatable(torch.zeros(2, device="meta"))
    assert not updatable(torch.zeros(2, 3).t())


def test_parameters_that_move_are_found_again():
    one, other = make_parameters(), make_parameters()
    ours, theirs = Adam(one, 0.01), torch.optim.Adam(other, 0.01)
    for seed in range(3):
        update(ours, with_gradients(one, seed), 1.0, 0.01)
        torchs_step(with_gradients(other, seed), theirs, 1.0)
        one[0].data = one[0].data.clone()
    for mine, wanted in zip(one, other, strict=True):
        torch.testing.assert_close(mine, wanted)


def test_gradients_of_another_shape_are_refused():
    parameters = make_parameters()
    moments = zero_moments([one.data for one in parameters])
    with pytest.raises(NdstackError, match="given to compiled code"):
        moments.clip_and_update([torch.zeros(4, 6), torch.zeros(4)], 1.0, AdamSettings(0.1))


def test_gradients_that_are_not_contiguous():
    one, other = make_parameters(), make_parameters()
    with_gradients(one, 0)[0].grad = with_gradients(other, 0)[0].grad.t().contiguous().t()
    for parameters in (one, other):
        update(Adam(parameters, 0.01), parameters, 1.0, 0.01)
    assert not one[0].grad.is_contiguous()
    assert torch.equal(one[0], other[0])

"""Both attention sublayer functions against their formulas, and what they promise a layer."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.networks.attention import DotProductAttention, StackAttention
from ndstack.stacks import Several, Stack, Stratification, Superposition
from ndstack.stacks.nondeterministic import Nondeterministic

D = 6

STACKS: dict[str, Stack[Any]] = {
    "superposition of the same size": Superposition(D),
    "superposition of another size": Superposition(4),
    "superposition of depth 3": Superposition(D, depth=3),
    "superpositions 2-3": Superposition((2, 3)),
    "nondeterministic with vectors": Nondeterministic(2, 3, 4),
    "nondeterministic with vectors, reading of the same size": Nondeterministic(1, 2, 3),
    "nondeterministic with a window": Nondeterministic(2, 2, 3, window=4),
    "nondeterministic": Nondeterministic(2, 3),
    "normalized nondeterministic": Nondeterministic(2, 3, normalized=True, read_states=False),
    "stratification": Stratification(5),
    "several": Several(Superposition(2), Nondeterministic(1, 2, 2)),
}

every_stack = pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS.keys())


def stack_attention(stack: Stack[Any], **options: Any) -> StackAttention:
    torch.manual_seed(0)
    return StackAttention(D, copy.deepcopy(stack), **options).double()


def inputs(batch: int = 3, n: int = 9, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, n, D, dtype=torch.float64, generator=generator).requires_grad_()


def step_by_step(attention: StackAttention, x: Tensor) -> Tensor:
    """Section 10.2, with the projections written out and one step of the stack at a time."""
    weights = dict(attention.named_parameters())
    state = attention.stack.start(x.shape[0], dtype=x.dtype)
    outputs = []
    for x_t in x.unbind(1):
        pushed = None
        if attention.stack.push_size:
            pushed = x_t @ weights["pushed.weight"].T if "pushed.weight" in weights else x_t
        state = attention.stack.step(state, x_t @ weights["actions.weight"].T, pushed)
        r_t = state.reading
        outputs.append(r_t @ weights["output.weight"].T if "output.weight" in weights else r_t)
    return torch.stack(outputs, dim=1)


@every_stack
@pytest.mark.parametrize("always_project", [False, True])
def test_stack_attention_is_the_stack_driven_step_by_step(stack: Stack[Any], always_project: bool) -> None:
    attention, x = stack_attention(stack, always_project=always_project), inputs()
    y, state = attention(x)
    expected = step_by_step(attention, x)
    assert y.shape == (3, 9, D)
    torch.testing.assert_close(y, expected, rtol=1e-11, atol=1e-11)
    assert state.batch_size == 3
    variables = [x, *attention.parameters()]
    direction = torch.randn_like(y)
    for one, other in zip(
        torch.autograd.grad(y, variables, direction, allow_unused=True),
        torch.autograd.grad(expected, variables, direction, allow_unused=True),
        strict=True,
    ):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_superposition_attention_is_the_equation() -> None:
    attention, x = stack_attention(Superposition(D)), inputs(batch=1, n=6).detach()
    cells = [torch.zeros(D, dtype=torch.float64)] * 8
    y, _ = attention(x)
    for t in range(6):
        push, noop, pop = torch.softmax(attention.actions.weight @ x[0, t], 0)
        above = [x[0, t], *cells]
        cells = [push * above[i] + noop * cells[i] + pop * cells[i + 1] for i in range(7)]
        cells.append(torch.zeros(D, dtype=torch.float64))
        torch.testing.assert_close(y[0, t], cells[0], rtol=1e-12, atol=1e-12)


def test_vector_stack_that_only_pushes_shows_its_input_at_once() -> None:
    attention = stack_attention(Nondeterministic(1, 1, D))
    x = inputs().abs().detach()
    with torch.no_grad():
        attention.actions.weight.zero_()
        attention.actions.weight[0] = 1000.0
    y, _ = attention(x)
    torch.testing.assert_close(y, x, rtol=1e-12, atol=1e-12)


def test_vector_stack_that_only_replaces_shows_its_learned_bottom() -> None:
    attention = stack_attention(Nondeterministic(1, 1, D))
    x = inputs().abs().detach()
    with torch.no_grad():
        attention.actions.weight.zero_()
        attention.actions.weight[1] = 1000.0
        attention.stack.bottom.copy_(torch.linspace(-2, 2, D))
    y, _ = attention(x)
    bottom = torch.sigmoid(torch.linspace(-2, 2, D, dtype=torch.float64))
    torch.testing.assert_close(y, bottom.expand_as(y), rtol=1e-6, atol=1e-6)


def test_projections_are_there_where_sizes_differ_and_have_no_bias() -> None:
    def shapes(stack: Stack[Any], **options: Any) -> dict[str, tuple[int, ...]]:
        module = StackAttention(32, stack, **options)
        return {name: tuple(p.shape) for name, p in module.named_parameters()}

    assert shapes(Superposition(32)) == {"actions.weight": (3, 32)}
    assert shapes(Superposition(32), always_project=True) == {
        "actions.weight": (3, 32),
        "pushed.weight": (32, 32),
        "output.weight": (32, 32),
    }
    assert shapes(Nondeterministic(3, 3, 5)) == {
        "stack.bottom": (5,),
        "actions.weight": (189, 32),
        "pushed.weight": (5, 32),
        "output.weight": (32, 45),
    }
    assert shapes(Nondeterministic(2, 3)) == {"actions.weight": (84, 32), "output.weight": (32, 6)}
    assert shapes(Nondeterministic(1, 1, 32)) == {"stack.bottom": (32,), "actions.weight": (3, 32)}


def dot_product_attention(heads: int = 2, **options: Any) -> DotProductAttention:
    torch.manual_seed(0)
    return DotProductAttention(D, heads, **options).double()


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_dot_product_attention_is_the_formula(heads: int) -> None:
    attention, x = dot_product_attention(heads), inputs()
    y, state = attention(x)
    size = D // heads
    projected = x @ attention.query_key_value.weight.T + attention.query_key_value.bias
    queries, keys, values = projected.split(D, dim=-1)
    expected = torch.zeros_like(y)
    for b in range(3):
        for t in range(9):
            parts = []
            for head in range(heads):
                own = slice(head * size, (head + 1) * size)
                scores = keys[b, : t + 1, own] @ queries[b, t, own] / math.sqrt(size)
                parts.append(torch.softmax(scores, 0) @ values[b, : t + 1, own])
            expected[b, t] = attention.output(torch.cat(parts))
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    assert state.keys.shape == state.values.shape == (3, heads, 9, size)
    assert state.time == 9


def test_dot_product_attention_agrees_with_that_of_torch() -> None:
    attention, x = dot_product_attention(3), inputs()
    theirs = torch.nn.MultiheadAttention(D, 3, batch_first=True, dtype=torch.float64)
    names = {"query_key_value.": "in_proj_", "output.": "out_proj."}
    weights = attention.state_dict()
    for ours, name in names.items():
        weights = {key.replace(ours, name): value for key, value in weights.items()}
    theirs.load_state_dict(weights)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    expected, _ = theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    torch.testing.assert_close(attention(x)[0], expected, rtol=1e-12, atol=1e-12)


def every_attention() -> list[Any]:
    kinds = {name: (stack_attention, stack) for name, stack in STACKS.items()}
    kinds["dot product"] = (dot_product_attention, 2)
    return [pytest.param(make, given, id=name) for name, (make, given) in kinds.items()]


@pytest.mark.parametrize("make, given", every_attention())
def test_chunks_give_the_same_as_the_whole(make: Any, given: Any) -> None:
    attention, x = make(given), inputs()
    whole, _ = attention(x)
    for sizes in ([1] * 9, [4, 5], [1, 6, 2]):
        state, parts = None, []
        for chunk in x.split(sizes, dim=1):
            part, state = attention(chunk, state)
            parts.append(part)
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "make, given",
    [
        (dot_product_attention, 2),
        (stack_attention, Superposition(D)),
        (stack_attention, Nondeterministic(2, 3, 4)),
    ],
)
def test_empty_chunks_and_empty_batches_change_nothing(make: Any, given: Any) -> None:
    attention, x = make(given), inputs()
    whole, _ = attention(x)
    state, parts = None, []
    for chunk in x.split([0, 3, 0, 6], dim=1):
        part, state = attention(chunk, state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-11, atol=1e-11)
    assert attention(x[:0])[0].shape == (0, 9, D)


@pytest.mark.parametrize("make, given", every_attention())
def test_the_past_does_not_depend_on_the_future(make: Any, given: Any) -> None:
    attention, x = make(given), inputs()
    y, state = attention(x[:, :3])
    y, _ = attention(x[:, 3:], state)
    (gradient,) = torch.autograd.grad(y[:, :2].sum(), x)
    assert not gradient[:, 5:].any()
    assert gradient[:, :5].any()
    changed = x.detach().clone()
    changed[:, 5:] += 1
    torch.testing.assert_close(attention(changed)[0][:, :5], attention(x)[0][:, :5], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make, given", every_attention())
def test_a_started_state_is_the_default(make: Any, given: Any) -> None:
    attention, x = make(given), inputs()
    state = attention.start(3)
    assert state.batch_size == 3
    assert torch.equal(attention(x, state)[0], attention(x)[0])


@every_stack
def test_low_precision_inputs_leave_the_stack_in_float32(stack: Stack[Any]) -> None:
    attention, x = stack_attention(stack).bfloat16(), inputs().bfloat16()
    y, state = attention(x)
    assert y.dtype == torch.bfloat16
    assert state.reading.dtype == attention.start(3).reading.dtype == torch.float32
    exact, _ = attention.double()(x.double())
    torch.testing.assert_close(y.double(), exact, rtol=0.1, atol=0.1)


def test_dropout_of_attention_weights_is_for_training() -> None:
    attention, x = dot_product_attention(dropout=0.5), inputs()
    plain, _ = dot_product_attention()(x)
    assert not torch.allclose(attention(x)[0], plain)
    torch.testing.assert_close(attention.eval()(x)[0], plain)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: StackAttention(0, Superposition(3)), "d_model is 0, expected 1 or more"),
        (lambda: StackAttention(3, "sup"), "'sup' given as the stack, expected a Stack"),
        (lambda: DotProductAttention(6, 4), "d_model is 6, expected a positive multiple of heads, 4"),
        (lambda: DotProductAttention(6, 0), "heads is 0, expected 1 or more"),
        (
            lambda: DotProductAttention(6, 2, dropout=1.0),
            "dropout is 1.0, expected at least 0 and less than 1",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(NdstackError) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make, given", every_attention())
def test_inputs_of_wrong_shape_are_refused_in_one_line(make: Any, given: Any) -> None:
    attention = make(given)
    _, state = attention(inputs())
    for x, message in (
        (torch.zeros(3, D), r"input of shape \[3, 6\] given, expected \[batch, length, 6\]"),
        (torch.zeros(3, 2, 5), r"input of shape \[3, 2, 5\] given, expected \[batch, length, 6\]"),
    ):
        with pytest.raises(NdstackError, match=message):
            attention(x.double())
    with pytest.raises(NdstackError, match=r"\[2, 1, 6\] given, expected \[3, length, 6\]; the batch is"):
        attention(torch.zeros(2, 1, D).double(), state)

"""The transformer: causal, the same in chunks as in one piece, and built as chapter 10 says."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ndstack.errors import NdstackError
from ndstack.nn.networks.positions import sinusoidal_positions
from ndstack.nn.networks.state import NetworkState
from ndstack.nn.networks.transformer import LayerKind, Transformer, TransformerLayer, TransformerState
from ndstack.stacks import State, Superposition
from ndstack.stacks.nondeterministic import Nondeterministic

D = 8

KINDS: dict[str, list[LayerKind]] = {
    "attention": ["attention"] * 3,
    "superposition": ["attention", Superposition(D), "attention"],
    "superposition of another size": [Superposition(3, depth=4), "attention"],
    "vector nondeterministic": ["attention", Nondeterministic(2, 3, 5), "attention"],
    "nondeterministic": ["attention", Nondeterministic(2, 2)],
    "windowed nondeterministic": ["attention", Nondeterministic(2, 2, 3, window=4)],
    "stacks only": [Superposition(D), Nondeterministic(1, 2, 4)],
}

every_kind = pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS.keys())


def transformer(kinds: list[LayerKind], dropout: float = 0.1, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(D, copy.deepcopy(kinds), heads=2, feedforward=12, dropout=dropout).double()


def inputs(batch: int = 3, n: int = 10, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, n, D, dtype=torch.float64, generator=generator).requires_grad_()


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def loss_of(y: Tensor) -> Tensor:
    """A number that depends on y; a plain sum, or that of squares, is the same for all normalised y."""
    generator = torch.Generator().manual_seed(4)
    return (y * torch.randn(y.shape[1:], dtype=y.dtype, generator=generator)).sum()


def tensors(value: Any) -> list[Tensor]:
    """All tensors that a state holds."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, NetworkState | State):
        value = tuple(vars(value).values())
    return [tensor for part in value for tensor in tensors(part)] if isinstance(value, tuple) else []


@every_kind
def test_chunks_and_single_steps_give_the_same_as_the_whole(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    whole, last = model(x)
    assert whole.shape == (3, 10, D)
    assert last.time == 10
    for sizes in ([1] * 10, [4, 6], [1, 7, 2], [0, 3, 0, 7]):
        state, parts = None, []
        for chunk in x.split(sizes, dim=1):
            part, state = model(chunk, state)
            parts.append(part)
        assert_close(torch.cat(parts, dim=1), whole)
        assert state is not None
        assert state.time == 10


@every_kind
def test_chunks_give_the_same_gradients_as_the_whole(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    variables = [x, *model.parameters()]
    whole, _ = model(x)
    first, state = model(x[:, :4])
    chunked = torch.cat([first, model(x[:, 4:], state)[0]], dim=1)
    direction = torch.randn_like(whole)
    for one, other in zip(
        torch.autograd.grad(chunked, variables, direction),
        torch.autograd.grad(whole, variables, direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@every_kind
def test_single_precision_agrees_too(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval().float(), inputs().float()
    whole, _ = model(x)
    state, parts = None, []
    for chunk in x.split(1, dim=1):
        part, state = model(chunk, state)
        parts.append(part)
    assert whole.dtype == torch.float32
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-5)
    exact, _ = model.double()(x.double())
    torch.testing.assert_close(whole.double(), exact, rtol=1e-4, atol=1e-5)


@every_kind
def test_the_past_does_not_depend_on_the_future(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    y, _ = model(x)
    (gradient,) = torch.autograd.grad(loss_of(y[:, :6]), x)
    assert not gradient[:, 6:].any()
    assert gradient[:, :6].abs().amax(dim=(0, 2)).min() > 1e-3
    changed = x.detach().clone()
    changed[:, 6:] *= -1
    assert_close(model(changed)[0][:, :6], y[:, :6])
    assert not torch.allclose(model(changed)[0][:, 6:], y[:, 6:])


@every_kind
def test_every_parameter_gets_a_gradient(kinds: list[LayerKind]) -> None:
    model = transformer(kinds)
    y, _ = model(inputs())
    loss_of(y).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-6, name
        assert parameter.grad.isfinite().all(), name


@every_kind
def test_a_gradient_step_decreases_the_loss(kinds: list[LayerKind]) -> None:
    model, x, target = transformer(kinds, dropout=0.0), inputs(), inputs(seed=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = (model(x)[0] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


@every_kind
def test_rows_of_a_state_can_be_selected_as_in_beam_search(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    whole, _ = model(x)
    _, state = model(x[:, :6])
    for rows in ([2, 0, 0, 1], torch.tensor([1, 1]), slice(1, 3), torch.tensor([True, False, True])):
        index = rows if isinstance(rows, Tensor | slice) else list(rows)
        picked = state.select(rows)
        assert picked.batch_size == x[index].shape[0]
        assert picked.time == 6
        assert_close(model(x[index][:, 6:], picked)[0], whole[index][:, 6:])
    assert_close(model(x[:, 6:], state)[0], whole[:, 6:])


@every_kind
def test_branches_of_a_state_do_not_disturb_each_other(kinds: list[LayerKind]) -> None:
    model, x, other = transformer(kinds).eval(), inputs(), inputs(seed=3)
    _, state = model(x[:, :4])
    model(other[:, 4:], state)
    assert_close(model(x[:, 4:], state)[0], model(x)[0][:, 4:])


@every_kind
def test_a_detached_state_cuts_the_gradient(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    _, state = model(x[:, :4])
    cut = state.detach()
    assert not any(tensor.requires_grad for tensor in tensors(cut))
    y, _ = model(x[:, 4:], cut)
    (gradient,) = torch.autograd.grad(loss_of(y), x)
    assert gradient[:, 4:].abs().max() > 1e-3
    assert not gradient[:, :4].any()
    assert_close(y, model(x)[0][:, 4:])


@every_kind
def test_a_state_moves_to_another_precision(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    whole, _ = model(x)
    single = copy.deepcopy(model).float()
    _, state = single(x[:, :4].float())
    moved = state.to("cpu", torch.float64)
    y, _ = model(x[:, 4:], moved)
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, whole[:, 4:], rtol=1e-4, atol=1e-5)


@every_kind
def test_a_started_state_is_the_default(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    state = model.start(3)
    assert isinstance(state, TransformerState)
    assert (state.batch_size, state.time, len(state.layers)) == (3, 0, len(kinds))
    assert all(t.dtype == torch.float64 for t in tensors(state) if t.is_floating_point())
    assert torch.equal(model(x, state)[0], model(x)[0])
    assert model(x[:0])[0].shape == (0, 10, D)


@every_kind
def test_copies_and_saved_weights_compute_the_same(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    expected, _ = model(x)
    twin = copy.deepcopy(model)
    fresh = transformer(kinds, seed=5).eval()
    assert not torch.allclose(fresh(x)[0], expected)
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(twin(x)[0], expected)
    assert torch.equal(fresh(x)[0], expected)


@every_kind
def test_gradient_checkpointing_changes_nothing(kinds: list[LayerKind]) -> None:
    model, x = transformer(kinds).eval(), inputs()
    loss = loss_of(model(x)[0])
    again = checkpoint(lambda x: loss_of(model(x)[0]), x, use_reentrant=False)
    variables = [x, *model.parameters()]
    for one, other in zip(
        torch.autograd.grad(again, variables), torch.autograd.grad(loss, variables), strict=True
    ):
        assert_close(one, other)


def test_the_layers_are_those_of_torch_with_pre_norm() -> None:
    model, x = transformer(KINDS["attention"]).eval(), inputs()
    layer = model.layers[0]
    assert isinstance(layer, TransformerLayer)
    theirs = torch.nn.TransformerEncoderLayer(
        D, 2, 12, batch_first=True, norm_first=True, dtype=torch.float64
    )
    theirs.eval()
    names = {
        "attention_norm.": "norm1.",
        "feedforward_norm.": "norm2.",
        "attention.query_key_value.": "self_attn.in_proj_",
        "attention.output.": "self_attn.out_proj.",
        "feedforward.0.": "linear1.",
        "feedforward.3.": "linear2.",
    }
    weights = layer.state_dict()
    for ours, name in names.items():
        weights = {key.replace(ours, name): value for key, value in weights.items()}
    theirs.load_state_dict(weights)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(10, dtype=torch.float64)
    assert_close(layer(x)[0], theirs(x, src_mask=mask, is_causal=True))


def test_embeddings_are_scaled_given_positions_and_normalised_at_the_end() -> None:
    model, x = transformer(KINDS["attention"]).eval(), inputs()
    with torch.no_grad():
        for layer in model.layers:
            assert isinstance(layer, TransformerLayer)
            for last in (layer.attention.output, layer.feedforward[3]):
                assert isinstance(last, torch.nn.Linear)
                last.weight.zero_()
                last.bias.zero_()
    positions = sinusoidal_positions(0, 10, D, dtype=torch.float64)
    expected = torch.nn.functional.layer_norm(math.sqrt(D) * x + positions, (D,))
    assert_close(model(x)[0], expected)


def test_dropout_is_for_training() -> None:
    model, x = transformer(KINDS["vector nondeterministic"], dropout=0.3), inputs()
    plain, _ = transformer(KINDS["vector nondeterministic"], dropout=0.0)(x)
    assert not torch.allclose(model(x)[0], model(x)[0])
    assert_close(model.eval()(x)[0], plain)


def test_wrong_inputs_and_states_are_refused_in_one_line() -> None:
    model = transformer(KINDS["superposition"])
    _, state = model(inputs())
    with pytest.raises(NdstackError, match=r"\[3, 8\] given, expected \[batch, length, 8\]$"):
        model(torch.zeros(3, D))
    with pytest.raises(NdstackError, match=r"\[3, 2, 5\] given, expected \[batch, length, 8\]$"):
        model(torch.zeros(3, 2, 5))
    with pytest.raises(NdstackError, match=r"\[2, 1, 8\] given, expected \[3, length, 8\]; the batch is"):
        model(torch.zeros(2, 1, D), state)
    for foreign in (state.layers[0], transformer(KINDS["nondeterministic"]).start(3)):
        with pytest.raises(NdstackError, match=r"state of another network given, .* of 3 layers$"):
            model(inputs(), foreign)

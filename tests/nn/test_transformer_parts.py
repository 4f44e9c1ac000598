"""What a transformer is made of: positions, sizes, dropout; and what cannot be made."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ndstack.errors import NdstackError
from ndstack.nn.networks.positions import sinusoidal_positions
from ndstack.nn.networks.transformer import LayerKind, Transformer
from ndstack.stacks import Superposition
from ndstack.stacks.nondeterministic import Nondeterministic


@pytest.mark.parametrize("size", [1, 2, 7, 32])
def test_positions_are_the_formula(size: int) -> None:
    table = sinusoidal_positions(0, 50, size, dtype=torch.float64)
    assert table.shape == (50, size)
    for t in range(50):
        for j in range(size):
            angle = t / 10000 ** (2 * (j // 2) / size)
            assert table[t, j].item() == pytest.approx(
                math.cos(angle) if j % 2 else math.sin(angle), abs=1e-13
            )


def test_positions_go_on_and_are_rounded_once() -> None:
    table = sinusoidal_positions(0, 100_000, 32, dtype=torch.float64)
    assert torch.equal(sinusoidal_positions(99_000, 5, 32, dtype=torch.float64), table[99_000:99_005])
    assert torch.equal(sinusoidal_positions(99_990, 10, 32), table[-10:].float())
    assert sinusoidal_positions(3, 0, 32).shape == (0, 32)


def test_the_sizes_are_those_of_chapter_10() -> None:
    def count(middle: LayerKind) -> int:
        model = Transformer(32, ["attention", "attention", middle, "attention", "attention"])
        return sum(parameter.numel() for parameter in model.parameters())

    norm, attention, feedforward = 2 * 32, 4 * (32 * 32 + 32), 32 * 64 + 64 + 64 * 32 + 32
    others = 5 * (2 * norm + feedforward) + 4 * attention + norm
    assert sum(parameter.numel() for parameter in Transformer().parameters()) == others + attention
    assert count("attention") == others + attention
    assert count(Superposition(32)) == others + 3 * 32
    assert count(Nondeterministic(3, 3, 5)) == others + 189 * 32 + 5 * 32 + 45 * 32 + 5
    assert Transformer.needs_bos
    assert (Transformer().input_size, Transformer().output_size) == (32, 32)


def test_dropout_is_where_the_recipe_says() -> None:
    model = Transformer(8, ["attention", Superposition(8), "attention"], dropout=0.25)
    places = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)}
    expected = {"dropout"}
    for layer in range(3):
        expected |= {f"layers.{layer}.dropout", f"layers.{layer}.feedforward.2"}
    assert places == expected
    assert [getattr(layer.attention, "dropout", None) for layer in model.layers] == [0.25, None, 0.25]


def test_a_transformer_has_no_output_before_bos() -> None:
    model = Transformer()
    with pytest.raises(NdstackError, match="BOS"):
        model.initial_output(model.start(1))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layers": []}, "layers [] given, expected a list of at least one kind of layer"),
        ({"layers": "attention"}, "layers 'attention' given, expected a list"),
        ({"layers": ["attention", "stack"]}, "layer 2 is 'stack', expected \"attention\" or a Stack"),
        ({"layers": [Superposition(4)] * 2}, "the stack of layer 2 is in an earlier layer too"),
        ({"heads": 5}, "d_model is 32, expected a positive multiple of heads, 5"),
        ({"d_model": 0, "layers": [Superposition(4)]}, "d_model is 0, expected 1 or more"),
        ({"feedforward": 0}, "feedforward is 0, expected 1 or more"),
        ({"dropout": -0.1}, "dropout is -0.1, expected at least 0 and less than 1"),
        ({"dropout": 1.5, "layers": [Superposition(4)]}, "dropout is 1.5, expected at least 0"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(NdstackError) as error:
        Transformer(**options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)

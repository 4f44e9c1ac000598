"""Wrong arguments of the public networks and stacks are refused in one line: what was given and expected."""

from __future__ import annotations

from typing import Any

import pytest

from ndstack.errors import NdstackError
from ndstack.nn import DotProductAttention, LanguageModel, StackAttention, StackRNN, Transformer, models
from ndstack.stacks import Nondeterministic, Several, Stack, Stratification, Superposition

SIZES = ("x", 0, -1, 1.5, True, None, [3])
"""None of these is a size."""
OPTIONAL_SIZES = ("x", 0, 1.5, True)
FLAGS = ("yes", 1, None, [True])
NO_STACKS = ("sup-3", 3, Superposition)

CASES: list[tuple[type, dict[str, Any], dict[str, tuple[Any, ...]]]] = [
    (Superposition, {"sizes": 3}, {"depth": OPTIONAL_SIZES, "synchronized": FLAGS}),
    (Superposition, {}, {"sizes": ("x", 0, 1.5, True, None, [], (3, 0), (3, "x"))}),
    (Stratification, {}, {"size": SIZES}),
    (
        Nondeterministic,
        {"states": 2, "symbols": 2},
        {
            "states": SIZES,
            "symbols": SIZES,
            "vector_size": OPTIONAL_SIZES,
            "window": OPTIONAL_SIZES,
            "normalized": FLAGS,
            "read_states": FLAGS,
            "bottom_fix": FLAGS,
        },
    ),
    (
        StackRNN,
        {"input_size": 2, "hidden_size": 3, "stack": Superposition(3)},
        {
            "input_size": ("x", -1, 1.5, True, None),
            "hidden_size": SIZES,
            "stack": NO_STACKS,
            "num_layers": SIZES,
            "controller": ("lstn", 3, None, ["lstm"]),
            "push_hidden": FLAGS,
            "reading_layers": ("x", -1, 1.5, True, None),
            "output_reading": FLAGS,
            "normalize_reading": FLAGS,
        },
    ),
    (
        StackAttention,
        {"d_model": 4, "stack": Superposition(4)},
        {"d_model": SIZES, "stack": (*NO_STACKS, None), "always_project": FLAGS, "exp_pushes": FLAGS},
    ),
    (
        DotProductAttention,
        {"d_model": 4, "heads": 2},
        {"d_model": (*SIZES, 3), "heads": (*SIZES, 3), "dropout": ("x", 1, -0.1, float("nan"), None, True)},
    ),
    (
        Transformer,
        {"d_model": 4, "layers": ["attention"], "heads": 2, "feedforward": 3},
        {
            "d_model": (*SIZES, 3),
            "layers": ("attention", 3, None, [], ["attentive"], [None], [3]),
            "heads": (*SIZES, 3),
            "feedforward": SIZES,
            "dropout": ("x", 1, -0.1, float("nan"), None, True),
            "exp_pushes": FLAGS,
        },
    ),
    (
        LanguageModel,
        {"backbone": StackRNN(2, 3, None), "alphabet": "ab"},
        {
            "backbone": ("lstm", None, Superposition(3)),
            "alphabet": (3, None, "", [], [1, 2], "aa", "abc"),
            "input": ("hot", 3, None),
            "bos": ("yes", 1),
            "output": ("half", 3, None),
        },
    ),
]
TABLE = [
    pytest.param(make, base | {name: value}, name, id=f"{make.__name__}({name}={value!r})"[:70])
    for make, base, wrong in CASES
    for name, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("make", "arguments", "name"), TABLE)
def test_wrong_arguments_are_refused_in_one_line(make: type, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(NdstackError) as found:
        make(**arguments)
    message = str(found.value)
    assert "\n" not in message
    assert any(word in message for word in ("expected", "there are", "need"))
    shown = name.rstrip("s"), repr(arguments[name]), "network reads vectors of size"
    assert any(word in message for word in shown), message


@pytest.mark.parametrize(
    ("make", "base"), [(make, base) for make, base, _ in CASES if make is not Stratification]
)
def test_the_other_arguments_of_the_table_are_right(make: type, base: dict[str, Any]) -> None:
    make(**(base or {"sizes": 3}))


@pytest.mark.parametrize(
    "stacks", [(), (3,), (Superposition(2), "sup-2"), (Superposition(2), Stratification(2))]
)
def test_several_stacks_are_stacks_with_one_activation(stacks: tuple[Any, ...]) -> None:
    with pytest.raises(NdstackError, match="expected"):
        Several(*stacks)


def test_every_public_stack_is_in_the_table() -> None:
    known = {make for make, _, _ in CASES} | {Several}
    assert {kind for kind in Stack.__subclasses__() if kind.__module__.startswith("ndstack.stacks")} <= known


@pytest.mark.parametrize(
    "options", [{"hidden": "x"}, {"dropout": 2.0}, {"depth": 0}, {"controller": 3}, {"bottom": 1}]
)
def test_options_of_models_by_name_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(NdstackError, match="cannot be built"):
        models.build("sup-3", "ab", **options)

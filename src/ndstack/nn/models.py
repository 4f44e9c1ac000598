"""Models by name: `lstm`, `sup-10`, `rns-2-3`, `tf+vrns-3-3-5`, ... (chapters 5 to 10).

| name | model | where |
|---|---|---|
| `lstm` | the controller alone | 5.7 |
| `strat-m` | stratification stack of vectors of size m | 3.3.1 |
| `sup-m`, `sup-m-m-...` | superposition stack, or several, of vectors of size m | 3.3.2, 8.4 |
| `sup-h` | superposition stack of hidden states | 8.4 |
| `ns-Q-S` | nondeterministic stack of Q states and S symbols | 4 |
| `ns+s-Q-S`, `ns+u-Q-S` | NS that reads states; NS with unnormalised weights | 6.2 |
| `rns-Q-S` | renormalising nondeterministic stack | 6 |
| `vrns-Q-S-m` | the same with vectors of size m | 9 |
| `tf`, `tf+sup-m`, `tf+vrns-Q-S-m` | transformer; with stack attention in the middle layer | 10 |
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable
from typing import Literal, cast

from pydantic import ValidationError

from ndstack import languages
from ndstack.errors import NdstackError, first_problem
from ndstack.languages.language import Language
from ndstack.model_names import NAMES
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.controllers import ControllerKind
from ndstack.nn.networks.initialization import initialize
from ndstack.nn.storage.description import (
    ModelConfig,
    NondeterministicConfig,
    RNNConfig,
    StackConfig,
    StratificationConfig,
    SuperpositionConfig,
    TransformerConfig,
)
from ndstack.settings.model import InputKind, LayerInit, OutputKind

__all__ = ["NAMES", "ModelName", "build", "parse"]

_StackKind = Literal["", "strat", "sup", "sup-h", "ns", "ns+s", "ns+u", "rns", "vrns"]

_SIZES: dict[str, tuple[str, int]] = {
    "strat": ("a vector size", 1),
    "sup": ("one or more vector sizes", 0),
    "ns": ("numbers of states and symbols", 2),
    "ns+s": ("numbers of states and symbols", 2),
    "ns+u": ("numbers of states and symbols", 2),
    "rns": ("numbers of states and symbols", 2),
    "vrns": ("numbers of states and symbols and a vector size", 3),
}
"""What follows the name of a stack, and how many numbers that is; 0 for any number of them."""


@dataclasses.dataclass(frozen=True)
class ModelName:
    """A model name, taken apart: `tf+vrns-3-3-5` is a transformer with "vrns" and (3, 3, 5)."""

    transformer: bool
    stack: _StackKind
    sizes: tuple[int, ...]


def parse(name: str) -> ModelName:
    """Take a model name apart."""
    if name in ("lstm", "tf"):
        return ModelName(name == "tf", "", ())
    if name == "sup-h":
        return ModelName(False, "sup-h", ())
    transformer = name.startswith("tf+")
    kind, *numbers = name.removeprefix("tf+").split("-")
    if kind not in _SIZES:
        near = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "models are " + ", ".join(NAMES)
        raise NdstackError(f"there is no model called {name!r}; {hint}")
    wanted, count = _SIZES[kind]
    valid = all(re.fullmatch(r"0*[1-9][0-9]{0,8}", number) for number in numbers)
    if not valid or not numbers or len(numbers) != (count or len(numbers)):
        start = "tf+" + kind if transformer else kind
        example = next((known for known in NAMES if known.startswith(start + "-")), None)
        hint = f", as in {example}" if example else ""
        raise NdstackError(f"there is no model called {name!r}; expected {wanted} after {start!r}{hint}")
    return ModelName(transformer, cast(_StackKind, kind), tuple(int(number) for number in numbers))


def build(
    name: str,
    language: Language | str | Iterable[str],
    *,
    seed: int = 0,
    hidden: int = 20,
    num_layers: int | None = None,
    controller: ControllerKind = "lstm",
    embedding: int | None = None,
    window: int | None = None,
    depth: int | None = None,
    bottom_fix: bool | None = None,
    reading_layers: int = 0,
    output_reading: bool = False,
    normalize_reading: bool = True,
    d_model: int = 32,
    heads: int = 4,
    feedforward: int = 64,
    dropout: float = 0.1,
    output: OutputKind = "full",
    layers_init: LayerInit = "xavier",
    actions_init: LayerInit = "uniform",
    attention_actions_init: LayerInit = "xavier",
    pushes_init: LayerInit | None = None,
    tanh_gain: float = 1.0,
    stacks_apart: bool = False,
    exp_pushes: bool = False,
    init_bound: float = 0.1,
) -> LanguageModel:
    """The language model of this name, with its parameters initialised.

    Args:
        name: as in the table above.
        language: a language, the name of one, or the symbols of an alphabet.
        seed: of the parameters; torch's own random numbers are not touched.
        hidden: units of a recurrent controller.
        num_layers: of the controller, 1 if not given; of the transformer, 5.
        controller: the kind of recurrent controller.
        embedding: the size of learned vectors for the symbols that a recurrent network reads; if not given,
            they are one-hot.
        window: D of a nondeterministic stack (chapter 7).
        depth: the greatest number of elements on a superposition stack (chapter 7).
        bottom_fix: whether the bottom of a nondeterministic stack can be replaced and uncovered; if not
            given, as where the model was introduced: in RNS and VRNS, not in NS, NS+S, NS+U.
        reading_layers: between reading and controller (section 11.2.2).
        output_reading: whether the output depends on the newest reading directly (section 11.2.2).
        normalize_reading: whether nondeterministic stacks read probabilities (section 11.2.2).
        d_model: the size of a transformer's vectors.
        heads: of a transformer's attention.
        feedforward: hidden units of a transformer's feedforward sublayers.
        dropout: in a transformer.
        output: "adaptive" for an adaptive softmax over many symbols, the common ones first in the alphabet.
        layers_init: how fully connected layers begin (`ndstack.nn.networks.initialization`).
        actions_init: how those that compute the actions of nondeterministic stacks begin in recurrent
            networks.
        attention_actions_init: how those that compute the actions of stacks begin in stack attention.
        pushes_init: how those that compute what recurrent networks push onto a nondeterministic stack begin;
            if not given, as all layers.
        tanh_gain: of Xavier weights in the layer that computes what is pushed onto a stratification stack.
        stacks_apart: whether several superposition stacks have a layer each as far as Xavier's bound goes.
        exp_pushes: whether stack attention pushes the exponential of what its layer computes.
        init_bound: of what begins with uniform numbers.
    """
    parsed, alphabet = parse(name), _alphabet(language)
    backbone: RNNConfig | TransformerConfig
    try:
        stack = _stack(name, parsed, hidden, window, depth, bottom_fix)
        if parsed.transformer:
            _refuse(
                name,
                "a recurrent network",
                hidden=(hidden, 20),
                controller=(controller, "lstm"),
                embedding=(embedding, None),
                reading_layers=(reading_layers, 0),
                output_reading=(output_reading, False),
                normalize_reading=(normalize_reading, True),
            )
            backbone = TransformerConfig(
                d_model=d_model,
                layers=_layers(5 if num_layers is None else num_layers, stack),
                heads=heads,
                feedforward=feedforward,
                dropout=dropout,
                exp_pushes=exp_pushes,
            )
        else:
            _refuse(
                name,
                "a transformer",
                d_model=(d_model, 32),
                heads=(heads, 4),
                feedforward=(feedforward, 64),
                dropout=(dropout, 0.1),
            )
            backbone = RNNConfig(
                input_size=len(alphabet) if embedding is None else embedding,
                hidden_size=hidden,
                stack=stack,
                num_layers=1 if num_layers is None else num_layers,
                controller=controller,
                push_hidden=parsed.stack == "sup-h",
                reading_layers=reading_layers,
                output_reading=output_reading,
                normalize_reading=normalize_reading,
            )
    except ValidationError as error:
        raise NdstackError(f"{name} cannot be built: {first_problem(error)}") from None
    embedded = parsed.transformer or embedding is not None
    input_kind: InputKind = "embedding" if embedded else "one-hot"
    model = ModelConfig(
        alphabet=alphabet, input=input_kind, bos=embedded, output=output, backbone=backbone
    ).make()
    initialize(
        model,
        seed,
        layers=layers_init,
        nondeterministic_actions=actions_init,
        attention_actions=attention_actions_init,
        nondeterministic_pushes=pushes_init,
        tanh_gain=tanh_gain,
        stacks_apart=stacks_apart,
        bound=init_bound,
    )
    return model


def _layers(count: int, stack: StackConfig | None) -> tuple[Literal["attention"] | StackConfig, ...]:
    """The layers of a transformer, with a stack in the middle one."""
    layers: list[Literal["attention"] | StackConfig] = ["attention"] * count
    if stack is not None and layers:
        layers[count // 2] = stack
    return tuple(layers)


def _stack(
    name: str, parsed: ModelName, hidden: int, window: int | None, depth: int | None, fix: bool | None
) -> StackConfig | None:
    """The stack that a model name asks for."""
    kind, sizes = parsed.stack, parsed.sizes
    if kind not in ("sup", "sup-h"):
        _refuse(name, "a superposition stack", depth=(depth, None))
    if kind in ("", "strat", "sup", "sup-h"):
        _refuse(name, "a nondeterministic stack", window=(window, None), bottom_fix=(fix, None))
    if kind == "":
        return None
    if kind == "strat":
        return StratificationConfig(size=sizes[0])
    if kind in ("sup", "sup-h"):
        return SuperpositionConfig(sizes=sizes or (hidden,), depth=depth)
    return NondeterministicConfig(
        states=sizes[0],
        symbols=sizes[1],
        vector_size=sizes[2] if kind == "vrns" else None,
        normalized=kind in ("ns", "ns+s"),
        read_states=kind not in ("ns", "ns+u"),
        window=window,
        bottom_fix=kind in ("rns", "vrns") if fix is None else fix,
    )


def _refuse(name: str, owner: str, **options: tuple[object, object]) -> None:
    """Raise an error in one line if an option differs from its default that this model does not have."""
    for option, (value, default) in options.items():
        if value != default:
            raise NdstackError(f"{option}={value} given for {name}, but it is for models with {owner} only")


def _alphabet(language: Language | str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(language, str):
        language = languages.get(language)
    return language.alphabet if isinstance(language, Language) else tuple(language)

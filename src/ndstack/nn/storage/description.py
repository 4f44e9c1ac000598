"""What a model is made of, as plain data: of any model, written to JSON, checked when read, made again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from ndstack.errors import NdstackError
from ndstack.nn.language_models.adaptive import AdaptiveOutput
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.attention import DotProductAttention, StackAttention
from ndstack.nn.networks.backbone import Backbone
from ndstack.nn.networks.controllers import ControllerKind
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.networks.transformer import Transformer, TransformerLayer
from ndstack.settings.base import Layers, Size
from ndstack.settings.model import InputKind, OutputKind
from ndstack.stacks import Several, Stack, Stratification, Superposition


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SuperpositionConfig(_Config):
    """One superposition stack or several."""

    kind: Literal["superposition"] = "superposition"
    sizes: Annotated[tuple[Size, ...], Field(min_length=1, strict=False)]
    depth: Size | None = None
    synchronized: bool = False

    def make(self) -> Stack[Any]:
        """The stack."""
        return Superposition(self.sizes, self.depth, synchronized=self.synchronized)


class StratificationConfig(_Config):
    """A stratification stack."""

    kind: Literal["stratification"] = "stratification"
    size: Size

    def make(self) -> Stack[Any]:
        """The stack."""
        return Stratification(self.size)


class NondeterministicConfig(_Config):
    """A nondeterministic stack."""

    kind: Literal["nondeterministic"] = "nondeterministic"
    states: Size
    symbols: Size
    vector_size: Size | None = None
    normalized: bool = False
    read_states: bool = True
    window: Size | None = None
    bottom_fix: bool = True

    def make(self) -> Stack[Any]:
        """The stack."""
        from ndstack.stacks import Nondeterministic

        return Nondeterministic(**self.model_dump(exclude={"kind"}))


class SeveralConfig(_Config):
    """Several stacks of any kinds."""

    kind: Literal["several"] = "several"
    stacks: Annotated[tuple[StackConfig, ...], Field(min_length=1, strict=False)]

    def make(self) -> Stack[Any]:
        """The stacks, as one."""
        return Several(*(stack.make() for stack in self.stacks))


StackConfig = Annotated[
    SuperpositionConfig | StratificationConfig | NondeterministicConfig | SeveralConfig,
    Field(discriminator="kind"),
]


class RNNConfig(_Config):
    """A `StackRNN`."""

    kind: Literal["rnn"] = "rnn"
    input_size: Size
    hidden_size: Size
    stack: StackConfig | None
    num_layers: Size = 1
    controller: ControllerKind = "lstm"
    push_hidden: bool = False
    reading_layers: Layers = 0
    output_reading: bool = False
    normalize_reading: bool = True

    def make(self) -> StackRNN:
        """The network, its parameters not yet set."""
        return StackRNN(
            self.input_size,
            self.hidden_size,
            None if self.stack is None else self.stack.make(),
            self.num_layers,
            self.controller,
            push_hidden=self.push_hidden,
            reading_layers=self.reading_layers,
            output_reading=self.output_reading,
            normalize_reading=self.normalize_reading,
        )


class TransformerConfig(_Config):
    """A `Transformer`."""

    kind: Literal["transformer"] = "transformer"
    d_model: Size
    layers: Annotated[tuple[Literal["attention"] | StackConfig, ...], Field(min_length=1, strict=False)]
    heads: Size = 4
    feedforward: Size = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    exp_pushes: bool = False

    def make(self) -> Transformer:
        """The network, its parameters not yet set."""
        layers = [layer if isinstance(layer, str) else layer.make() for layer in self.layers]
        return Transformer(
            self.d_model, layers, self.heads, self.feedforward, self.dropout, exp_pushes=self.exp_pushes
        )


class ModelConfig(_Config):
    """A `LanguageModel`."""

    format: Literal["ndstack model 1"] = "ndstack model 1"
    alphabet: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    input: InputKind
    bos: bool
    output: OutputKind = "full"
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    backbone: Annotated[RNNConfig | TransformerConfig, Field(discriminator="kind")]

    def make(self) -> LanguageModel:
        """The model, its parameters not yet set; torch's own random numbers are not touched."""
        with torch.random.fork_rng(devices=[]):
            model = LanguageModel(self.backbone.make(), self.alphabet, self.input, self.bos, self.output)
        return model.to(getattr(torch, self.dtype))


def describe(model: LanguageModel) -> ModelConfig:
    """What this model is made of."""
    return ModelConfig(
        alphabet=model.alphabet,
        input=model.input,
        bos=model.bos,
        output="adaptive" if isinstance(model.output, AdaptiveOutput) else "full",
        dtype=str(model.dtype).removeprefix("torch."),  # type: ignore[arg-type]
        backbone=_describe_backbone(model.backbone),
    )


def _describe_backbone(network: Backbone) -> RNNConfig | TransformerConfig:
    if type(network) is StackRNN:
        return RNNConfig(
            input_size=network.input_size,
            hidden_size=network.hidden_size,
            stack=None if network.stack is None else _describe_stack(network.stack),
            num_layers=network.num_layers,
            controller=network.controller_kind,
            push_hidden=network.push_hidden,
            reading_layers=network.reading_layers,
            output_reading=network.output_reading,
            normalize_reading=network.normalize_reading,
        )
    if type(network) is Transformer:
        layers = [layer for layer in network.layers if isinstance(layer, TransformerLayer)]
        kinds = [layer.attention for layer in layers]
        heads = [kind.heads for kind in kinds if isinstance(kind, DotProductAttention)]
        first = layers[0].feedforward[0]
        assert isinstance(first, torch.nn.Linear)
        return TransformerConfig(
            d_model=network.d_model,
            layers=tuple(
                _describe_stack(kind.stack) if isinstance(kind, StackAttention) else "attention"
                for kind in kinds
            ),
            heads=heads[0] if heads else 1,
            feedforward=first.out_features,
            dropout=network.dropout.p,
            exp_pushes=network.exp_pushes,
        )
    raise NdstackError(
        f"a model around a {type(network).__name__} cannot be described, only around the "
        "StackRNN and Transformer of ndstack.nn"
    )


def _describe_stack(stack: Stack[Any]) -> StackConfig:
    stack = getattr(stack, "original", stack)
    if type(stack) is Superposition:
        return SuperpositionConfig(sizes=stack.sizes, depth=stack.depth, synchronized=stack.synchronized)
    if type(stack) is Stratification:
        return StratificationConfig(size=stack.push_size)
    if type(stack) is Several:
        parts = [part for part in stack.stacks if isinstance(part, Stack)]
        return SeveralConfig(stacks=tuple(_describe_stack(part) for part in parts))
    from ndstack.stacks import Nondeterministic

    if type(stack) is Nondeterministic:
        names = [name for name in NondeterministicConfig.model_fields if name != "kind"]
        return NondeterministicConfig(**{name: getattr(stack, name) for name in names})
    raise NdstackError(f"a {type(stack).__name__} cannot be described, only the stacks of ndstack.stacks")

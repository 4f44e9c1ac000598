"""Transducers by the names of `ndstack.nn.models`.

`lstm`, `sup-10`, `rns-2-3` and the like are a recurrent encoder and decoder, each with such a stack. `tf` is
a transformer with as many layers in the encoder as in the decoder; `tf+sup-32` has stack attention in the
middle layer of both.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import ValidationError

from ndstack.errors import NdstackError, first_problem
from ndstack.nn.models import ModelName, initialize_from, make_stack, parse, refuse_options
from ndstack.nn.networks.encoder_decoder import EncoderDecoder
from ndstack.nn.networks.recurrent_encoder_decoder import RecurrentEncoderDecoder
from ndstack.nn.networks.transformer import LAYERS, LayerKind
from ndstack.nn.transducers.transducer import Transducer
from ndstack.settings.document import takes
from ndstack.settings.model import ATTENTIVE, TWO_WAY, For, ModelOptions

__all__ = ["build_transducer", "build_transducer_from"]


@takes(ModelOptions)
def build_transducer(
    name: str, source: Iterable[str], target: Iterable[str], *, seed: int = 0, **options: object
) -> Transducer:
    """Return the transducer of this name, with its parameters initialised.

    Args:
        name: a name of `ndstack.nn.models`.
        source: the symbols of inputs.
        target: the symbols of outputs.
        seed: the seed of the parameters; torch's own random numbers are not touched.
        options: the fields of `ndstack.settings.ModelOptions`, by name.
    """
    try:
        checked = ModelOptions.model_validate(options, strict=True)
    except ValidationError as error:
        raise NdstackError(f"{name} cannot be built: {first_problem(error)}") from None
    return build_transducer_from(checked, name, source, target, seed=seed)


def build_transducer_from(
    options: ModelOptions, name: str, source: Iterable[str], target: Iterable[str], *, seed: int = 0
) -> Transducer:
    """Build as `build_transducer` does, with options that have been checked."""
    parsed, source, target = parse(name), tuple(source), tuple(target)
    if parsed.network:
        raise NdstackError(f"{name} is a registered network, but a transducer needs an encoder and a decoder")
    if options.output != "full":
        raise NdstackError(f"output={options.output!r} given for a transducer, expected 'full'")
    refuse_options(name, parsed, options, _extra(parsed))
    with torch.random.fork_rng(devices=[]):
        if parsed.transformer:
            model = Transducer(_transformer(name, parsed, options), source, target, "embedding")
        else:
            one_hot = options.embedding is None
            network = _recurrent(name, parsed, options, len(source) + 1, len(target) + 1)
            model = Transducer(network, source, target, "one-hot" if one_hot else "embedding")
    initialize_from(options, model, seed)
    return model


def _extra(parsed: ModelName) -> tuple[For, ...]:
    """Return the parts that a transducer has and a language model has not."""
    if not parsed.transformer:
        return (ATTENTIVE,)
    return (TWO_WAY,) if parsed.stack else ()


def _recurrent(
    name: str, parsed: ModelName, options: ModelOptions, sources: int, targets: int
) -> RecurrentEncoderDecoder:
    same = {"controller", "attention", "reading_layers", "output_reading", "normalize_reading"}
    return RecurrentEncoderDecoder(
        sources if options.embedding is None else options.embedding,
        targets if options.embedding is None else options.embedding,
        options.hidden,
        make_stack(name, parsed, options),
        1 if options.num_layers is None else options.num_layers,
        push_hidden=parsed.stack == "sup-h",
        **options.model_dump(include=same),
    )


def _transformer(name: str, parsed: ModelName, options: ModelOptions) -> EncoderDecoder:
    count = len(LAYERS) if options.num_layers is None else options.num_layers
    encoder: list[LayerKind] = ["attention"] * count
    decoder: list[LayerKind] = ["attention"] * count
    for layers in (encoder, decoder):
        stack = make_stack(name, parsed, options)
        if stack is not None:
            layers[count // 2] = stack
    same = {"d_model", "heads", "feedforward", "dropout", "exp_pushes", "both_ways"}
    return EncoderDecoder(encoder=encoder, decoder=decoder, **options.model_dump(include=same))

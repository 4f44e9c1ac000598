"""What a transducer is made of, as plain data: written to JSON, checked when read, and made again."""

from __future__ import annotations

import inspect
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ndstack.errors import NdstackError
from ndstack.nn.networks.encoder_decoder import EncoderDecoder
from ndstack.nn.networks.recurrent_encoder_decoder import RecurrentEncoderDecoder
from ndstack.nn.networks.sequence_to_sequence import SequenceToSequence
from ndstack.nn.storage.description import Description, check_argument, plain_argument, restore_argument
from ndstack.nn.transducers.transducer import Transducer
from ndstack.settings.model import InputKind

KINDS: dict[str, type[SequenceToSequence]] = {
    "recurrent": RecurrentEncoderDecoder,
    "transformer": EncoderDecoder,
}
Symbols = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class TransducerDescription(BaseModel):
    """What a `Transducer` is made of: the content of `model.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["ndstack transducer 1"] = "ndstack transducer 1"
    source: Symbols
    target: Symbols
    input: InputKind
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    network: Description

    def make(self) -> Transducer:
        """Return the model, whose parameters are not set yet; torch's own random numbers are not touched."""
        arguments = {name: restore_argument(value, f"network.{name}") for name, value in self.network.items()}
        kind = arguments.pop("kind", None)
        make = KINDS.get(kind) if isinstance(kind, str) else None
        if make is None:
            raise NdstackError(f"network: there is no kind {kind!r}; there are {', '.join(KINDS)}")
        for name, value in arguments.items():
            check_argument(make, name, value, f"network.{name}")
        try:
            bound = inspect.signature(make).bind(**arguments)
        except TypeError as error:
            raise NdstackError(f"network: {error}") from None
        with torch.random.fork_rng(devices=[]):
            model = Transducer(make(*bound.args, **bound.kwargs), self.source, self.target, self.input)
        return model.to(getattr(torch, self.dtype))


def describe_transducer(model: Transducer) -> TransducerDescription:
    """Return what this transducer is made of; an error says in one line what cannot be described."""
    network = model.network
    kind = next((name for name, kind in KINDS.items() if type(network) is kind), None)
    if kind is None:
        raise NdstackError(f"a transducer with a {type(network).__name__} cannot be saved")
    described: dict[str, JsonValue] = {"kind": kind}
    for name, value in network.arguments().items():
        described[name] = plain_argument(network, name, value)
    values = {
        "source": model.source,
        "target": model.target,
        "input": model.input,
        "dtype": str(model.dtype).removeprefix("torch."),
        "network": described,
    }
    return TransducerDescription.model_validate(values)

"""Transducers: symbols of inputs and outputs around an encoder and a decoder.

The encoder reads the input and an end mark. The decoder reads the string boundary, and then the output symbol
by symbol; it predicts each symbol, and the string boundary at the end. The boundary has the index after the
last symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.grammars.grammar import Word
from ndstack.nn.language_models.language_model import IGNORED, check_alphabet
from ndstack.nn.networks.sequence_to_sequence import SequenceToSequence
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.runtime.tracing import Recordable
from ndstack.settings.model import InputKind


class Transducer(Recordable, torch.nn.Module):
    """A distribution over output strings for every input string.

    Args:
        network: the encoder and the decoder.
        source: the symbols of inputs.
        target: the symbols of outputs.
        input: "one-hot"; or "embedding", a learned vector for each symbol.
    """

    def __init__(
        self,
        network: SequenceToSequence,
        source: Iterable[str],
        target: Iterable[str],
        input: InputKind = "one-hot",
    ) -> None:
        super().__init__()
        if not isinstance(network, SequenceToSequence):
            raise NdstackError(
                f"{network!r} given as the network, expected an encoder and decoder of ndstack.nn"
            )
        if input not in ("one-hot", "embedding"):
            raise NdstackError(f"input is {input!r}, expected 'one-hot' or 'embedding'")
        self.network = network
        self.input: InputKind = input
        self.source, self.target = check_alphabet(source), check_alphabet(target)
        self._places = tuple({one: i for i, one in enumerate(some)} for some in (self.source, self.target))
        self.boundary = len(self.target)
        self.embedding = _embedding("encoder", input, len(self.source) + 1, network.source_size)
        self.target_embedding = _embedding("decoder", input, len(self.target) + 1, network.target_size)
        self.output = torch.nn.Linear(network.output_size, self.boundary + 1)

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return self.output.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.output.weight.device

    def read(self, sources: Sequence[Word]) -> NetworkState:
        """Return decoders that have read nothing yet, after the encoder has read these inputs."""
        end = len(self.source)
        rows = [[*indices_of(word, self._places[0]), end] for word in sources]
        symbols, lengths = _padded(rows, self.device)
        return self.network.encode(self._vectors(symbols, self.embedding, end + 1), lengths)

    def forward(self, symbols: Tensor, state: NetworkState) -> tuple[Tensor, NetworkState]:
        """Continue outputs.

        Args:
            symbols: [B, m], indices of output symbols; the boundary first if the state is that of `read`.
            state: the state to continue from.

        Returns:
            The logits after each symbol, [B, m, V+1], and the state afterwards.
        """
        hidden, state = self.network.decode(
            self._vectors(symbols, self.target_embedding, self.boundary + 1), state
        )
        return self.output(hidden), state

    def log_probability(self, sources: Sequence[Word], targets: Sequence[Word]) -> Tensor:
        """Return the log probability of each output and its end, given the input, [B], in nats."""
        losses, _ = self.surprisals(sources, targets)
        return -losses.sum(dim=1)

    def cross_entropy(
        self, sources: Sequence[Word], targets: Sequence[Word], per: Literal["string", "symbol"] = "string"
    ) -> Tensor:
        """Return the mean of -log p in nats, per output or per symbol, ends included."""
        if per not in ("string", "symbol"):
            raise NdstackError(f"per is {per!r}, expected 'string' or 'symbol'")
        losses, expected = self.surprisals(sources, targets)
        count = len(sources) if per == "string" else int((expected != IGNORED).sum())
        return losses.sum() / count

    def surprisals(self, sources: Sequence[Word], targets: Sequence[Word]) -> tuple[Tensor, Tensor]:
        """Return -log p of each symbol of outputs and of their ends, [B, m+1], and their indices.

        Where an output has ended before, there are zeros, and the index is -100.
        """
        logits, expected = self.predict(sources, targets)
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), expected.flatten(), reduction="none", ignore_index=IGNORED
        )
        return losses.view(expected.shape), expected

    def predict(self, sources: Sequence[Word], targets: Sequence[Word]) -> tuple[Tensor, Tensor]:
        """Return the logits of each symbol given those before, [B, m+1, V+1], and the correct indices."""
        if len(sources) != len(targets):
            raise NdstackError(f"{len(sources)} inputs and {len(targets)} outputs given, expected as many")
        rows = [indices_of(word, self._places[1]) for word in targets]
        symbols, _ = _padded([[self.boundary, *row] for row in rows], self.device)
        expected = torch.full_like(symbols, IGNORED)
        for place, row in enumerate(rows):
            expected[place, : len(row) + 1] = torch.tensor([*row, self.boundary], device=self.device)
        return self(symbols, self.read(sources))[0], expected

    def given(self, sources: Sequence[Word]) -> Conditional:
        """Return the model of outputs given these inputs, for `greedy`, `sample` and `beam_search`."""
        return Conditional(self, sources)

    def decode(self, indices: Iterable[int]) -> Word:
        """Return the output with these symbols: joined if all symbols are characters, a tuple otherwise."""
        symbols = [self.target[index] for index in indices]
        return "".join(symbols) if all(len(symbol) == 1 for symbol in self.target) else tuple(symbols)

    def _vectors(self, symbols: Tensor, embedding: torch.nn.Embedding | None, count: int) -> Tensor:
        """Return vectors for indices [B, n]: learned ones, or one-hot vectors of this size."""
        if embedding is None:
            return torch.nn.functional.one_hot(symbols, count).to(self.dtype)
        vectors: Tensor = embedding(symbols)
        return vectors

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `model.json`; `ndstack.nn.load_transducer` reads them."""
        from ndstack.nn.storage import files

        files.save_model(self, folder)


class Conditional(torch.nn.Module):
    """The distribution over outputs for each of some inputs, which generates like a language model."""

    def __init__(self, model: Transducer, sources: Sequence[Word]) -> None:
        super().__init__()
        self.model, self.sources, self.training = model, sources, model.training
        self.boundary, self.decode = model.boundary, model.decode

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.model.device

    def encode(self, words: Sequence[Word]) -> tuple[Tensor, Tensor | None]:
        """Return beginnings of outputs, one for each input, as indices [B, m], and their lengths."""
        if len(words) != len(self.sources):
            raise NdstackError(
                f"{len(words)} prefixes given for {len(self.sources)} inputs, expected as many"
            )
        symbols, lengths = _padded([indices_of(word, self.model._places[1]) for word in words], self.device)
        return symbols, None if lengths is None else torch.tensor(lengths)

    def forward(self, symbols: Tensor, state: NetworkState | None = None) -> tuple[Tensor, NetworkState]:
        """Read outputs from their beginning, or continue them; see `LanguageModel.forward`."""
        if state is None:
            symbols = torch.nn.functional.pad(symbols, (1, 0), value=self.boundary)
            state = self.model.read(self.sources)
        logits, state = self.model(symbols, state)
        return logits, state


def _embedding(what: str, kind: InputKind, symbols: int, size: int) -> torch.nn.Embedding | None:
    if kind == "embedding":
        return torch.nn.Embedding(symbols, size)
    if size != symbols:
        raise NdstackError(
            f"the {what} reads vectors of size {size}, expected {symbols}: one-hot vectors of its symbols "
            "and of the string boundary"
        )
    return None


def indices_of(word: Word, places: Mapping[str, int]) -> list[int]:
    """Return the indices of symbols."""
    try:
        return [places[symbol] for symbol in word]
    except KeyError as error:
        shown = " ".join(list(places)[:10]) + (" ..." if len(places) > 10 else "")
        raise NdstackError(f"the symbol {error.args[0]!r} is not in the alphabet {shown}") from None


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, list[int] | None]:
    """Return indices [B, n], filled up with 0, and the lengths, or None if all are equal."""
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    filled = [[*row, *[0] * (longest - len(row))] for row in rows]
    symbols = torch.tensor(filled, dtype=torch.long, device=device).view(len(rows), longest)
    return symbols, None if min(lengths, default=longest) == longest else lengths

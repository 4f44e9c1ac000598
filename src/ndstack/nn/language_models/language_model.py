"""Language models: symbols in, logits out (section 5.6; chapter 6 on for EOS; section 10.3 for BOS).

A recurrent network over a formal language reads one-hot vectors and predicts the first symbol from its
initial output, so it needs no BOS. A transformer, or a network over natural language, reads learned vectors.
The string boundary has one index, the last: as an input it is BOS, as an output EOS. EOS is predicted, never
read, unless a stream of strings is read on purpose: there the EOS of one string is the BOS of the next.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ndstack.errors import NdstackError, check_flag
from ndstack.grammars.grammar import Word
from ndstack.nn.language_models.adaptive import AdaptiveOutput
from ndstack.nn.networks import one_hot, unmodified
from ndstack.nn.networks.backbone import Backbone
from ndstack.nn.networks.padding import Lengths, check_lengths
from ndstack.nn.networks.ragged import RaggedState
from ndstack.nn.networks.state import NetworkState
from ndstack.ops import cross_entropy
from ndstack.ops.runtime.torch_internals import first_parameter
from ndstack.ops.runtime.tracing import Recordable, traceable, untraced
from ndstack.settings.model import InputKind, OutputKind
from ndstack.stacks.base import Stack

Words = Sequence[Word] | Tensor
"""Strings; or, if all have one length, the indices of their symbols, [B, n]."""

IGNORED = -100
"""The target of places that are not scored; torch has the same number."""


class LanguageModel(Recordable, torch.nn.Module):
    """A distribution over strings, symbol by symbol.

    Symbols have the indices of `alphabet`; `boundary`, the index after the last, is EOS and BOS.

    Args:
        backbone: the network in the middle.
        alphabet: the symbols, without EOS and BOS.
        input: "one-hot"; or "embedding", a learned vector for each symbol.
        bos: whether the string boundary can be read, and is read first. If not given: only if the symbols are
            embedded.
        output: "full", a linear layer; or "adaptive" (`ndstack.nn.language_models.adaptive`), for many
            symbols, of which the common ones come first in the alphabet.
    """

    def __init__(
        self,
        backbone: Backbone,
        alphabet: Iterable[str],
        input: InputKind = "one-hot",
        bos: bool | None = None,
        output: OutputKind = "full",
    ) -> None:
        super().__init__()
        if not isinstance(backbone, Backbone):
            raise NdstackError(f"{backbone!r} given as the backbone, expected a Backbone of ndstack.nn")
        self.alphabet = check_alphabet(alphabet)
        self.input: InputKind = input
        self.bos = input != "one-hot" if bos is None else check_flag("bos", bos)
        self._indices = {symbol: index for index, symbol in enumerate(self.alphabet)}
        if input not in ("one-hot", "embedding"):
            raise NdstackError(f"input is {input!r}, expected 'one-hot' or 'embedding'")
        if getattr(backbone, "bidirectional", False) or not getattr(backbone, "batch_first", True):
            raise NdstackError(
                "a language model predicts from left to right, batch first, but the network has "
                "bidirectional=True or batch_first=False"
            )
        if backbone.needs_bos and not self.bos:
            raise NdstackError(f"a {type(backbone).__name__} has to read BOS first, but bos is False")
        self.boundary = len(self.alphabet)
        read = self.boundary + self.bos
        self.embedding: torch.nn.Embedding | None = None
        if input != "one-hot":
            self.embedding = torch.nn.Embedding(read, backbone.input_size)
        elif backbone.input_size != read:
            raise NdstackError(
                f"the network reads vectors of size {backbone.input_size}, expected {read}: one-hot vectors "
                f"of {len(self.alphabet)} symbols{' and BOS' if self.bos else ''}"
            )
        self.register_buffer("_one_hot", torch.eye(read if input == "one-hot" else 0), persistent=False)
        self.backbone = backbone
        self._has_stack = any(isinstance(part, Stack) for part in backbone.modules())
        if output not in ("full", "adaptive"):
            raise NdstackError(f"output is {output!r}, expected 'full' or 'adaptive'")
        layer = torch.nn.Linear if output == "full" else AdaptiveOutput
        self.output: torch.nn.Linear | AdaptiveOutput = layer(backbone.output_size, self.boundary + 1)

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return first_parameter(self.output).dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return first_parameter(self.output).device

    def start(self, batch_size: int) -> NetworkState:
        """Return networks that have read nothing, not even BOS."""
        return self.backbone.start(batch_size, self.dtype, self.device)

    def forward(
        self, symbols: Tensor, state: NetworkState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, NetworkState]:
        """Read strings, or continue them.

        From the beginning there is one prediction more than there are symbols, the one for the first symbol:
        the logits of all chunks of a string, put together, are those of the whole. A stream, whose first
        symbol is the boundary, is read from `start`.

        Args:
            symbols: [B, n], indices; n may be 0.
            state: the state to continue from; if not given, strings begin here.
            lengths: how many symbols of each string count, if they are filled up on the right; the state is
                then that at the end of each string, and logits after the ends mean nothing.

        Returns:
            The logits, [B, n, V+1], or [B, n+1, V+1] from the beginning, and the last state.
        """
        if torch.compiler.is_dynamo_compiling() and (
            symbols.device.type == "cpu" and self._has_stack and not traceable(state)
        ):
            # At once, since on a CPU the graphs around the stack take longer than the layers as they are.
            return untraced()(self.forward, symbols, state, lengths)
        hidden, state = self.hidden(symbols, state, lengths)
        return self.output(hidden), state

    def hidden(
        self, symbols: Tensor, state: NetworkState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, NetworkState]:
        """Return what the logits are computed from, [B, n, backbone.output_size]; otherwise as `forward`."""
        x, entered, first = self._enter(symbols, state)
        if lengths is None and not isinstance(entered, RaggedState):
            output, entered = self.backbone(x, entered)
            return _after(first, output), entered
        if lengths is not None:
            read = state is None and self.bos
            lengths = [size + read for size in check_lengths(lengths, *symbols.shape)]
        takes = "lengths" in inspect.signature(self.backbone.forward).parameters
        output, entered = (self.backbone if takes else self.backbone.read_padded)(x, entered, lengths)
        return _after(first, output), entered

    def _enter(
        self, symbols: Tensor, state: NetworkState | None
    ) -> tuple[Tensor, NetworkState | None, Tensor | None]:
        """Return what the backbone reads, from which state, and its output before that, if any."""
        self._check(symbols)
        if state is not None:
            return self._embed(symbols), state, None
        if self.bos:
            symbols = torch.nn.functional.pad(symbols, (1, 0), value=self.boundary)
            return self._embed(symbols), None, None
        state = self.start(symbols.shape[0])
        return self._embed(symbols), state, self.backbone.initial_output(state)

    def logits(self, words: Words) -> Tensor:
        """Return the logits [B, n+1, V+1] from the first symbol to EOS; n is the greatest length.

        After the end of a shorter string the logits mean nothing.
        """
        logits: Tensor = self(self.encode(words)[0])[0]
        return logits

    def log_probability(self, words: Words, eos: bool = True) -> Tensor:
        """Return the log probability of each string, [B], in nats.

        Args:
            words: of any lengths.
            eos: whether its end is predicted too; if not, EOS is left out of every prediction, as if the
                model did not know it (chapter 5).
        """
        symbols, lengths = self.encode(words)
        return -self._surprisals(symbols, self._targets(symbols, lengths, eos), eos).sum(dim=1)

    def cross_entropy(
        self, words: Words, eos: bool = True, per: Literal["string", "symbol"] = "string"
    ) -> Tensor:
        """Return the mean of -log p(w) in nats, the loss; or per symbol predicted, EOS included, a metric."""
        if per not in ("string", "symbol"):
            raise NdstackError(f"per is {per!r}, expected 'string' or 'symbol'")
        symbols, lengths = self.encode(words)
        targets = self._targets(symbols, lengths, eos)
        count = targets.shape[0]
        if per == "symbol":
            count = targets.numel() if lengths is None else int((targets != IGNORED).sum())
        return self._surprisals(symbols, targets, eos, count)

    def encode(self, words: Words) -> tuple[Tensor, Tensor | None]:
        """Return indices [B, n], and the lengths [B], or None if all strings are equally long.

        Shorter strings are filled up with symbol 0.
        """
        device = self.device
        if isinstance(words, Tensor):
            return words.to(device), None
        if isinstance(words, str):
            raise NdstackError(f"the string {words!r} given, expected a list of strings")
        rows = [self._encode(word) for word in words]
        lengths = [len(row) for row in rows]
        longest = max(lengths, default=0)
        padded = [row + [0] * (longest - len(row)) for row in rows]
        symbols = torch.tensor(padded, dtype=torch.long, device=device).view(len(rows), longest)
        equal = all(length == longest for length in lengths)
        return symbols, None if equal else torch.tensor(lengths, device=device)

    def decode(self, indices: Iterable[int]) -> Word:
        """Return the string with these symbols: joined if all symbols are characters, a tuple otherwise."""
        symbols = [self.alphabet[index] for index in indices]
        return "".join(symbols) if all(len(symbol) == 1 for symbol in self.alphabet) else tuple(symbols)

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `model.json`; `ndstack.nn.load` reads them."""
        from ndstack.nn.storage import files

        files.save_model(self, folder)

    def _encode(self, word: Word) -> list[int]:
        try:
            return [self._indices[symbol] for symbol in word]
        except KeyError as error:
            shown = " ".join(self.alphabet[:10]) + (" ..." if len(self.alphabet) > 10 else "")
            raise NdstackError(f"the symbol {error.args[0]!r} is not in the alphabet {shown}") from None

    def _check_shape(self, symbols: Tensor) -> None:
        """Raise an error in one line unless these are indices, [B, n]."""
        if symbols.dim() != 2 or symbols.dtype != torch.long:
            raise NdstackError(
                f"symbols of shape {list(symbols.shape)} and {symbols.dtype} given, expected "
                "[batch, length] and torch.int64"
            )

    def _check(self, symbols: Tensor) -> None:
        """Raise an error in one line unless these are indices [B, n] of what can be read."""
        self._check_shape(symbols)
        known = self.boundary + self.bos
        if symbols.device.type == "cpu" and symbols.numel() and not torch.compiler.is_compiling():
            low, high = (int(bound) for bound in symbols.aminmax())
            if low < 0 or high >= known:
                wrong = low if low < 0 else high
                raise NdstackError(f"symbol index {wrong} given, expected indices from 0 to {known - 1}")

    def _embed(self, symbols: Tensor) -> Tensor:
        """Return vectors [B, n, input_size] for indices [B, n]."""
        if self.embedding is None:
            one_hot = self._one_hot
            assert isinstance(one_hot, Tensor)
            return torch.nn.functional.embedding(symbols, one_hot)
        vectors: Tensor = self.embedding(symbols)
        return vectors

    def _targets(self, symbols: Tensor, lengths: Tensor | None, eos: bool) -> Tensor:
        """Return the symbols to be predicted, [B, n+1] or, without EOS, [B, n]."""
        self._check_shape(symbols)
        targets = torch.constant_pad_nd(symbols, (0, 1), self.boundary) if eos else symbols
        if lengths is not None:
            place = torch.arange(targets.shape[1], device=targets.device) - lengths[:, None]
            last = self.boundary if eos else IGNORED
            targets = targets.masked_fill(place == 0, last).masked_fill(place > 0, IGNORED)
        return targets

    def _surprisals(self, symbols: Tensor, targets: Tensor, eos: bool, count: int | None = None) -> Tensor:
        """Return -log p of every target, [B, n+1] or [B, n]; or the sum of all, divided by a count."""
        layer, known, steps = self.output, self.boundary + eos, targets.shape[1]
        if (
            unmodified.is_linear(layer)
            and not unmodified.hooked(self)
            and cross_entropy.in_one_operation(layer.weight, targets.numel())
        ):
            plain = self.embedding is None and not self.bos and type(self).hidden is LanguageModel.hidden
            hidden = one_hot.read(self.backbone, symbols) if plain else None
            hidden = self.hidden(symbols)[0] if hidden is None else hidden
            hidden = hidden if hidden.shape[1] == steps else hidden[:, :steps]
            return cross_entropy.surprisals(hidden, layer.weight, layer.bias, targets, known, count)
        logits = self(symbols)[0][:, :steps, :known]
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.reshape(-1), reduction="none", ignore_index=IGNORED
        )
        return loss.view(targets.shape) if count is None else loss.sum() / count


def _after(first: Tensor | None, outputs: Tensor) -> Tensor:
    """Return outputs [B, n, ...], behind the first one [B, ...] if there is one."""
    return outputs if first is None else torch.cat([first[:, None], outputs], dim=1)


def check_alphabet(alphabet: object) -> tuple[str, ...]:
    """Return the symbols; raise an error in one line unless they are distinct strings, at least one."""
    symbols = tuple(alphabet) if isinstance(alphabet, Iterable) else ()
    if not symbols or not all(isinstance(symbol, str) for symbol in symbols):
        raise NdstackError(f"alphabet is {alphabet!r}, expected symbols, which are strings, at least one")
    if len(set(symbols)) < len(symbols):
        raise NdstackError("an alphabet that repeats symbols given, expected distinct symbols")
    return symbols

"""Training steps as they are and by `torch.compile`: `python -m benchmarks.torch_compile`, on one core.

Both versions of a network share their weights and take turns, step by step, so that whatever else the machine
does happens to both alike; times are those of the processor. A training step is a forward pass, a loss, a
backward pass and a step of SGD; the network is compiled, and the rest is not. Around the layers are networks
of a user's own: a tagger, a classifier, and a layer of torch's transformer. With a layer that does nothing,
as part of the graph or between two graphs, or with `torch.nn.LSTM`, they show what torch takes by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ndstack.nn import StackAttention, StackRNN, Transformer, models
from ndstack.nn.networks.transformer import LayerKind
from ndstack.ops.runtime.tracing import untraced
from ndstack.stacks import Nondeterministic, Stratification, Superposition

BATCH, LENGTH, SYMBOLS, UNITS, CLASSES = 10, 40, 8, 20, 3


class Nothing(torch.nn.Module):
    """A layer that does almost nothing, as a break in the graph or as a part of it."""

    _qkv_same_embed_dim, in_proj_bias, num_heads, batch_first = False, None, 1, True
    """What a layer of torch's transformer looks at."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.breaks = breaks

    def forward(self, x: Tensor, *_: Tensor, **masks: object) -> tuple[Tensor, None]:
        """Return 2x, so that there is something to differentiate, and no state."""
        if self.breaks and torch.compiler.is_dynamo_compiling():
            return untraced()(self.forward, x)
        return 2 * x, None


class Around(torch.nn.Module):
    """A network of a user's own around a layer."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS + 1, UNITS)
        self.layer = layer
        self.output = torch.nn.Linear(UNITS, SYMBOLS + 1)

    def forward(self, symbols: Tensor) -> tuple[Tensor, None]:
        """Return logits [B, n, V+1]."""
        hidden, _ = self.layer(self.embedding(symbols))
        return self.output(torch.nn.functional.gelu(hidden)), None


class Classifier(torch.nn.Module):
    """A network that tells classes of strings apart by the mean of what a layer gives."""

    def __init__(self, layer: torch.nn.Module, padded: bool = False) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS + 1, UNITS)
        self.layer = layer
        self.output = torch.nn.Linear(UNITS, CLASSES)
        self.padded = padded

    def forward(self, symbols: Tensor) -> tuple[Tensor, None]:
        """Return logits [B, 1, classes]; strings of two lengths if they are padded."""
        given = self.embedding(symbols)
        if self.padded:
            lengths = [symbols.shape[1] - row % 2 for row in range(symbols.shape[0])]
            hidden, _ = self.layer(given, lengths=lengths)
        else:
            hidden, _ = self.layer(given)
        return self.output(hidden.mean(dim=1, keepdim=True)), None


class Encoder(torch.nn.Module):
    """A layer of torch's transformer, between an embedding and logits."""

    def __init__(self, attention: torch.nn.Module | None, d_model: int = 32) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS + 1, d_model)
        self.layer = torch.nn.TransformerEncoderLayer(d_model, 4, 4 * d_model, dropout=0.0, batch_first=True)
        if attention is not None:
            self.layer.self_attn = attention  # type: ignore[assignment]
        self.output = torch.nn.Linear(d_model, SYMBOLS + 1)

    def forward(self, symbols: Tensor) -> tuple[Tensor, None]:
        """Return logits [B, n, V+1]."""
        return self.output(self.layer(self.embedding(symbols))), None


class Disabled(torch.nn.Module):
    """A network that `torch.compile` is told to leave alone."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        disable: Any = torch.compiler.disable
        self.network, self.called = network, disable(network.forward)

    def forward(self, symbols: Tensor) -> object:
        """Return what the network returns."""
        return self.called(symbols)


def transformer(stack: Nondeterministic | Superposition, d_model: int) -> Transformer:
    """Return a transformer with stack attention in the middle."""
    kinds: list[LayerKind] = ["attention", stack, "attention"]
    return Transformer(d_model, kinds, heads=4, feedforward=4 * d_model, dropout=0.1)


NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "`StackRNN`, RNS 2-3": lambda: StackRNN(UNITS, UNITS, Nondeterministic(2, 3)),
    "`StackRNN`, Sup. 10": lambda: StackRNN(UNITS, UNITS, Superposition(10)),
    "`StackRNN`, Strat. 10": lambda: StackRNN(UNITS, UNITS, Stratification(10)),
    "`LanguageModel`, RNS 2-3": lambda: models.build("rns-2-3", tuple("abcdefgh"), hidden=UNITS),
    "`LanguageModel`, Sup. 10": lambda: models.build("sup-10", tuple("abcdefgh"), hidden=UNITS),
    "`LanguageModel`, Sup. 10, behind `torch.compiler.disable`": lambda: Disabled(
        models.build("sup-10", tuple("abcdefgh"), hidden=UNITS)
    ),
    "`Transformer` of size 32, Sup. 32": lambda: transformer(Superposition(32), 32),
    "`Transformer` of size 32, VRNS 2-2-5": lambda: transformer(Nondeterministic(2, 2, 5), 32),
    "`Transformer` of size 128, Sup. 64": lambda: transformer(Superposition(64), 128),
    "around `StackRNN`, RNS 2-3": lambda: Around(StackRNN(UNITS, UNITS, Nondeterministic(2, 3))),
    "around `StackRNN`, Sup. 10": lambda: Around(StackRNN(UNITS, UNITS, Superposition(10))),
    "around `StackAttention`, Sup. 10": lambda: Around(StackAttention(UNITS, Superposition(10))),
    "around `torch.nn.LSTM`": lambda: Around(torch.nn.LSTM(UNITS, UNITS, batch_first=True)),
    "around a layer that does nothing": lambda: Around(Nothing(breaks=False)),
    "around a break that does nothing": lambda: Around(Nothing(breaks=True)),
    "classifier, `StackRNN`, RNS 2-3": lambda: Classifier(StackRNN(UNITS, UNITS, Nondeterministic(2, 3))),
    "classifier, `StackRNN`, Sup. 10": lambda: Classifier(StackRNN(UNITS, UNITS, Superposition(10))),
    "classifier with lengths, RNS 2-3": lambda: Classifier(
        StackRNN(UNITS, UNITS, Nondeterministic(2, 3)), padded=True
    ),
    "classifier with lengths, Sup. 10": lambda: Classifier(
        StackRNN(UNITS, UNITS, Superposition(10)), padded=True
    ),
    "`TransformerEncoderLayer`, Sup. 32": lambda: Encoder(StackAttention(32, Superposition(32))),
    "`TransformerEncoderLayer`, VRNS 2-2-5": lambda: Encoder(StackAttention(32, Nondeterministic(2, 2, 5))),
    "`TransformerEncoderLayer`, torch's attention": lambda: Encoder(None),
    "`TransformerEncoderLayer`, attention that does nothing": lambda: Encoder(Nothing(breaks=False)),
}


class Steps:
    """Training steps of a network, as it is or compiled."""

    def __init__(self, network: torch.nn.Module, called: Callable[[Tensor], tuple[Tensor, object]]) -> None:
        self.called = called
        self.optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)

    def step(self, given: Tensor) -> float:
        """Make a training step, and return its milliseconds of the processor."""
        began = time.process_time()
        self.optimizer.zero_grad()
        self.called(given)[0].log_softmax(dim=2).sum().backward()
        self.optimizer.step()
        return 1000 * (time.process_time() - began)


def measure(name: str, repetitions: int) -> tuple[float, float, float]:
    """Return the medians of both, and the median of the ratios of pairs of steps."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    size = getattr(network, "input_size", None)
    symbols = torch.randint(SYMBOLS, (BATCH, LENGTH))
    given = symbols if size is None else torch.randn(BATCH, LENGTH, size)
    torch.compiler.reset()
    plain, compiled = Steps(network, network), Steps(network, torch.compile(network))
    for _ in range(5):
        plain.step(given)
        compiled.step(given)
    pairs = []
    for number in range(repetitions):
        both = {one: one.step(given) for one in ((plain, compiled) if number % 2 else (compiled, plain))}
        pairs.append((both[plain], both[compiled]))
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    return first, second, statistics.median(b / a for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=300, help="pairs of steps (default: %(default)s)")
    parser.add_argument("--only", default="", help="networks whose names contain this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | as it is | compiled | compiled / as it is |\n|---|---|---|---|")
    for name in NETWORKS:
        if options.only in name:
            plain, compiled, ratio = measure(name, options.repetitions)
            print(f"| {name} | {plain:.2f} ms | {compiled:.2f} ms | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

"""Training steps as they are and by `torch.compile`: `python -m benchmarks.torch_compile`.

Both versions of a network share their weights and take turns, step by step, so that whatever else the machine
does happens to both alike; times are those of the processor on one core, and elapsed ones with `--threads`. A
training step is a forward pass, a loss, a backward pass and a step of SGD; the network is compiled, and the
rest is not. Around the layers are networks of a user's own: a tagger, a classifier, and a layer of torch's
transformer. With a layer that does nothing, as part of the graph or between two graphs, or with
`torch.nn.LSTM`, they show what torch takes by itself. That is the same for networks of all sizes, so it is
much of the time of small ones (the default: the dissertation's), and little of that of `--ordinary` ones.

What `torch.compile` keeps of a ReLU for the backward pass, whether numbers are positive, it writes slowly on
CPUs without AVX-512. `--recompute-views` has it computed again instead, which is a setting of torch.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch._functorch.config as functorch
from torch import Tensor

from ndstack.nn import StackAttention, StackRNN, Transformer, models
from ndstack.nn.networks.transformer import LayerKind
from ndstack.ops.runtime.tracing import untraced
from ndstack.stacks import Nondeterministic, Stratification, Superposition
from ndstack.stacks.base import AnyStack

SYMBOLS, CLASSES = 8, 3


class Size(NamedTuple):
    """How large everything is."""

    batch: int
    length: int
    units: int
    d_model: int


SMALL, ORDINARY = Size(10, 40, 20, 32), Size(32, 80, 64, 64)


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


class Feedforward(torch.nn.Module):
    """Two affine layers of torch's with a ReLU between them."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(units, 4 * units), torch.nn.ReLU(), torch.nn.Linear(4 * units, units)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return what the last layer gives, and no state."""
        return self.layers(x), None


class Around(torch.nn.Module):
    """A network of a user's own around a layer."""

    def __init__(self, layer: torch.nn.Module, units: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS + 1, units)
        self.layer = layer
        self.output = torch.nn.Linear(units, SYMBOLS + 1)

    def forward(self, symbols: Tensor) -> tuple[Tensor, None]:
        """Return logits [B, n, V+1]."""
        hidden, _ = self.layer(self.embedding(symbols))
        return self.output(torch.nn.functional.gelu(hidden)), None


class Classifier(torch.nn.Module):
    """A network that tells classes of strings apart by the mean of what a layer gives."""

    def __init__(self, layer: torch.nn.Module, units: int, padded: str = "") -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS + 1, units)
        self.layer = layer
        self.output = torch.nn.Linear(units, CLASSES)
        self.padded = padded

    def forward(self, symbols: Tensor) -> tuple[Tensor, None]:
        """Return logits [B, 1, classes]; strings of two lengths if they are padded."""
        given, (batch, n) = self.embedding(symbols), symbols.shape
        if self.padded == "list":
            hidden, _ = self.layer(given, lengths=[n - row % 2 for row in range(batch)])
        elif self.padded == "tensor":
            hidden, _ = self.layer(given, lengths=n - torch.arange(batch) % 2)
        else:
            hidden, _ = self.layer(given)
        return self.output(hidden.mean(dim=1, keepdim=True)), None


class Encoder(torch.nn.Module):
    """A layer of torch's transformer, between an embedding and logits."""

    def __init__(
        self,
        attention: torch.nn.Module | None,
        d_model: int,
        padded: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS + 1, d_model)
        self.layer = torch.nn.TransformerEncoderLayer(
            d_model, 4, 4 * d_model, dropout=0.0, activation=activation, batch_first=True
        )
        if attention is not None:
            self.layer.self_attn = attention  # type: ignore[assignment]
        self.output = torch.nn.Linear(d_model, SYMBOLS + 1)
        self.padded = padded

    def forward(self, symbols: Tensor) -> tuple[Tensor, None]:
        """Return logits [B, n, V+1]; if strings are padded, the first symbol stands for padding."""
        padding = symbols == 0 if self.padded else None
        return self.output(self.layer(self.embedding(symbols), src_key_padding_mask=padding)), None


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


def networks(size: Size) -> dict[str, Callable[[], torch.nn.Module]]:
    """Return what is measured."""
    units, d_model = size.units, size.d_model
    stacks: dict[str, Callable[[], AnyStack]] = {
        "RNS 2-3": lambda: Nondeterministic(2, 3),
        "Sup. 10": lambda: Superposition(10),
        "Strat. 10": lambda: Stratification(10),
        "VRNS 2-2-5": lambda: Nondeterministic(2, 2, 5),
    }

    def rnn(stack: str) -> StackRNN:
        return StackRNN(units, units, stacks[stack]())

    def tagger(stack: str) -> Around:
        return Around(rnn(stack), units)

    def classifier(stack: str, padded: str = "") -> Classifier:
        return Classifier(rnn(stack), units, padded)

    def model() -> torch.nn.Module:
        return models.build("sup-10", tuple("abcdefgh"), hidden=units)

    found: dict[str, Callable[[], torch.nn.Module]] = {}
    for stack in ("RNS 2-3", "Sup. 10"):
        found |= {
            f"tagger, `StackRNN`, {stack}": functools.partial(tagger, stack),
            f"classifier, `StackRNN`, {stack}": functools.partial(classifier, stack),
            f"with `lengths` in a tensor, {stack}": functools.partial(classifier, stack, "tensor"),
            f"with `lengths` in a list, {stack}": functools.partial(classifier, stack, "list"),
        }
    layer = "`TransformerEncoderLayer`"
    found |= {
        "tagger, `StackAttention`, Sup. 10": lambda: Around(StackAttention(units, Superposition(10)), units),
        "tagger, `StackRNN`, VRNS 2-2-5": functools.partial(tagger, "VRNS 2-2-5"),
        "tagger, `torch.nn.LSTM`": lambda: Around(torch.nn.LSTM(units, units, batch_first=True), units),
        "tagger, a layer that does nothing": lambda: Around(Nothing(breaks=False), units),
        "tagger, a break that does nothing": lambda: Around(Nothing(breaks=True), units),
        "tagger, `Linear`, `ReLU`, `Linear`": lambda: Around(Feedforward(units), units),
        f"{layer}, Sup. 32": lambda: Encoder(StackAttention(d_model, Superposition(32)), d_model),
        f"{layer}, Sup. 32, padding": lambda: Encoder(
            StackAttention(d_model, Superposition(32)), d_model, padded=True
        ),
        f"{layer}, Sup. 32, GELU": lambda: Encoder(
            StackAttention(d_model, Superposition(32)), d_model, activation="gelu"
        ),
        f"{layer}, VRNS 2-2-5": lambda: Encoder(StackAttention(d_model, Nondeterministic(2, 2, 5)), d_model),
        f"{layer}, torch's attention": lambda: Encoder(None, d_model),
        f"{layer}, attention that does nothing": lambda: Encoder(Nothing(breaks=False), d_model),
    }
    found |= {f"`StackRNN`, {stack}": functools.partial(rnn, stack) for stack in stacks}
    return found | {
        "`LanguageModel`, RNS 2-3": lambda: models.build("rns-2-3", tuple("abcdefgh"), hidden=units),
        "`LanguageModel`, Sup. 10": model,
        "`LanguageModel`, Sup. 10, behind `torch.compiler.disable`": lambda: Disabled(model()),
        "`Transformer` of size 128, Sup. 64": lambda: transformer(Superposition(64), 128),
    }


class Steps:
    """Training steps of a network, as it is or compiled."""

    def __init__(self, network: torch.nn.Module, called: Callable[[Tensor], tuple[Tensor, object]]) -> None:
        self.called = called
        self.clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        self.optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)

    def step(self, given: Tensor) -> float:
        """Make a training step, and return its milliseconds."""
        began = self.clock()
        self.optimizer.zero_grad()
        self.called(given)[0].log_softmax(dim=2).sum().backward()
        self.optimizer.step()
        return 1000 * (self.clock() - began)


def measure(make: Callable[[], torch.nn.Module], size: Size, repetitions: int) -> tuple[float, float, float]:
    """Return the medians of both, and the median of the ratios of pairs of steps."""
    torch.manual_seed(0)
    network = make()
    numbers, shape = getattr(network, "input_size", None), (size.batch, size.length)
    given = torch.randint(SYMBOLS, shape) if numbers is None else torch.randn(*shape, numbers)
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
    parser.add_argument("--ordinary", action="store_true", help=f"{ORDINARY} in place of {SMALL}")
    parser.add_argument("--recompute-views", action="store_true", help="set torch's recompute_views")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    options = parser.parse_args()
    size = ORDINARY if options.ordinary else SMALL
    torch.set_num_threads(options.threads)
    functorch.recompute_views = options.recompute_views
    print("| network | as it is | compiled | compiled / as it is |\n|---|---|---|---|")
    for name, make in networks(size).items():
        if options.only in name:
            plain, compiled, ratio = measure(make, size, options.repetitions)
            print(f"| {name} | {plain:.2f} ms | {compiled:.2f} ms | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

"""Parts of a user's own, as a package outside of ndstack would have them."""

import dataclasses
import math

import numpy as np
import torch

import ndstack
from ndstack.languages import Language
from ndstack.nn import Backbone, NetworkState
from ndstack.stacks import Stack, State
from ndstack.training import Loss, Nats


@dataclasses.dataclass(frozen=True, eq=False)
class CounterState(State):
    total: torch.Tensor


@ndstack.register.stack("tally")
class Counter(Stack[CounterState]):
    """Counters that actions add to."""

    def __init__(self, size: int, scale: float = 1.0) -> None:
        super().__init__()
        self.size, self.scale = size, scale
        self.action_size, self.push_size, self.reading_size = size, 0, size

    def start(self, batch_size, *, dtype=None, device=None):
        zeros = torch.zeros(batch_size, self.size, dtype=dtype, device=device)
        return CounterState(zeros, zeros)

    def _step(self, state, actions, pushed):
        total = state.total + self.scale * actions.tanh()
        return CounterState(total, total)


@ndstack.register.controller("leaky")
class Leaky(torch.nn.Module):
    """h_t = (h_{t-1} + tanh(W x_t)) / 2, called like `torch.nn.GRU` with one layer."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        assert num_layers == 1
        self.layer = torch.nn.Linear(input_size, hidden_size)

    def forward(self, x, hidden):
        outputs, h = [], hidden[0]
        for x_t in x.unbind(1):
            h = (h + self.layer(x_t).tanh()) / 2
            outputs.append(h)
        return torch.stack(outputs, dim=1), h[None]


@dataclasses.dataclass(frozen=True, eq=False)
class SumState(NetworkState):
    total: torch.Tensor


@ndstack.register.network("summing")
class Summing(Backbone):
    """Sums up its inputs, and runs a stack on them if it has one."""

    def __init__(self, input_size: int, output_size: int = 3, stack: Stack | None = None) -> None:
        super().__init__()
        self.input_size, self.output_size, self.stack = input_size, output_size, stack
        self.layer = torch.nn.Linear(input_size, output_size)

    def start(self, batch_size, dtype=None, device=None):
        return SumState(torch.zeros(batch_size, self.output_size, dtype=dtype, device=device))

    def initial_output(self, state):
        return state.total

    def forward(self, x, state=None):
        state = state or self.start(x.shape[0], x.dtype, x.device)
        totals = state.total[:, None] + self.layer(x).cumsum(1)
        return totals, SumState(totals[:, -1] if x.shape[1] else state.total)


class Coins(Language):
    """All strings of k symbols, those of one length equally likely."""

    def __init__(self, k: int) -> None:
        super().__init__("coins", "abcdefg"[:k])

    def _has_length(self, length):
        return True

    def _sample(self, length, rng):
        return tuple(self.alphabet[int(rng.random() * len(self.alphabet))] for _ in range(length))

    def _log_probability(self, symbols):
        return -len(symbols) * math.log(len(self.alphabet))

    def _log_next(self, symbols, lengths):
        return np.zeros((len(symbols) + 1, len(self.alphabet) + 1))


@ndstack.register.language("coins")
def coins(k: int = 2) -> Language:
    return Coins(k)


@ndstack.register.task("oddness")
class Parity:
    """Predict whether the number of ones in a string is odd."""

    alphabet = ("0", "1", "even", "odd")

    def __init__(self, config, share):
        rng = np.random.default_rng(config.seed)
        length = config.data.lengths[1]
        bits = torch.from_numpy(rng.integers(0, 2, (config.data.train, length)))
        self.words = torch.cat([bits, 2 + bits.sum(1, keepdim=True) % 2], dim=1)
        self.size = config.data.batch_size

    def steps(self, epoch):
        return len(self.words) // self.size

    def loss(self, model, epoch, step):
        words = self.words[step * self.size : (step + 1) * self.size]
        value = model.cross_entropy(words)
        return Loss(value, value.item() * len(words), words.numel() + len(words))

    def validate(self, model):
        with torch.no_grad():
            nats = -model.log_probability(self.words).sum().item()
        return Nats(nats, self.words.numel() + len(self.words))

    def metrics(self, total):
        return {"cross_entropy": total.cross_entropy}

    def carried(self):
        return {}

    def carry(self, tensors):
        pass

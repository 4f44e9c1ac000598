"""Tasks, which provide losses and validate models; and the task of learning a formal language."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ndstack.errors import TrainingError
from ndstack.grammars.grammar import Word
from ndstack.grammars.graphs import grouped
from ndstack.languages import Dataset
from ndstack.nn import LanguageModel, Transducer
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.settings.data import Lengths

SHUFFLING = 2
"""The number of the random stream that orders batches; 0 and 1 sample the strings of a data set."""


Model = LanguageModel | Transducer
"""What can be trained."""


class Share(NamedTuple):
    """The number of a process among several."""

    rank: int = 0
    processes: int = 1

    def of(self, count: int) -> slice:
        """Return the part of `count` things that belongs to this process."""
        return slice(count * self.rank // self.processes, count * (self.rank + 1) // self.processes)


class Nats(NamedTuple):
    """A sum of -log p, the number of symbols and, for tasks that count them, of those predicted correctly.

    For tasks with one decision per string, symbols are decisions.
    """

    nats: float
    symbols: int
    correct: int = 0

    @property
    def cross_entropy(self) -> float:
        """The mean of -log p per symbol, in nats."""
        return self.nats / self.symbols


class Loss(NamedTuple):
    """The loss of one step, or of one process's share of it."""

    value: Tensor
    """The number to be minimised; the loss of the step is the sum over all processes."""
    nats: float
    """The sum of -log p over the symbols predicted by this process."""
    symbols: int
    """The number of these symbols."""


@runtime_checkable
class Task(Protocol):
    """Something to be learned in epochs of steps."""

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch; epochs count from 0."""

    def loss(self, model: Any, epoch: int, step: int) -> Loss:
        """Return the loss of this process's share of one step; the model is of the kind that it needs."""

    def validate(self, model: Any) -> Nats:
        """Return the total over this process's share of the validation data."""

    def metrics(self, total: Nats) -> dict[str, float]:
        """Return the metrics for the total of all processes; the lowest `cross_entropy` is the best."""

    def carried(self) -> dict[str, Tensor]:
        """Return what is carried from one step to the next, besides the parameters."""

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume with what `carried` returned."""


@runtime_checkable
class Resampled(Protocol):
    """A task that can be made again with strings of other lengths, for the stages of a run."""

    def with_lengths(self, lengths: Lengths) -> Task:
        """Return the same task with strings of other lengths."""


class Order:
    """The order of `count` batches, which is shuffled again in every epoch."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._epoch, self._places = -1, list[int]()

    def __call__(self, epoch: int, step: int) -> int:
        """Return the number of the batch at a step of an epoch."""
        if self._epoch != epoch:
            rng = np.random.default_rng([self.seed, SHUFFLING, epoch])
            self._epoch, self._places = epoch, rng.permutation(self.count).tolist()
        return self._places[step]


class FormalTask:
    """Language modelling on a data set of a formal language (section 5.6).

    A step is one batch of strings of one length; batches are shuffled in each epoch. The loss is summed over
    time and averaged over the batch.
    """

    def __init__(
        self,
        data: Dataset,
        model: LanguageModel,
        *,
        eos: bool = True,
        seed: int = 0,
        share: Share | None = None,
    ) -> None:
        if not data.train or not data.validation:
            raise TrainingError("a data set without training or validation strings given, expected both")
        self.eos, self.share = eos, share or Share()
        self.batches = [model.encode(batch)[0] for batch in data.batches("train")]
        self.validation = encode_by_length(data.validation, model)
        self.lower_bound = data.language.lower_bound(data.validation, lengths=data.plan.lengths, eos=eos)
        self.order = Order(len(self.batches), seed)

    def steps(self, epoch: int) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def loss(self, model: LanguageModel, epoch: int, step: int) -> Loss:
        """Return the loss of this process's strings in one batch."""
        batch = self.batches[self.order(epoch, step)]
        mine = batch if self.share.processes == 1 else batch[self.share.of(len(batch))]
        if not len(mine):
            return Loss(torch.zeros((), device=batch.device), 0.0, 0)
        value = model.cross_entropy(mine, eos=self.eos)
        if len(mine) < len(batch):
            value = value * (len(mine) / len(batch))
        return Loss(value, value.item() * len(batch), mine.numel() + self.eos * len(mine))

    def validate(self, model: LanguageModel) -> Nats:
        """Return the total over this process's share of the validation strings."""
        mine = self.validation[self.share.rank :: self.share.processes]
        return total_nats(model, mine, self.eos)

    def metrics(self, total: Nats) -> dict[str, float]:
        """Return the cross-entropy, the lower bound and their difference, in nats per symbol."""
        value, bound = total.cross_entropy, self.lower_bound
        return {"cross_entropy": value, "lower_bound": bound, "difference": value - bound}

    def carried(self) -> dict[str, Tensor]:
        """Return nothing, because batches are independent of each other."""
        return {}

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing."""


def encode_by_length(words: Sequence[Word], model: LanguageModel, most: int = 50) -> list[Tensor]:
    """Return all strings in batches of one length each, shorter strings first."""
    return [
        model.encode(group[first : first + most])[0]
        for _, group in sorted(grouped(words, len).items())
        for first in range(0, len(group), most)
    ]


def total_nats(model: LanguageModel, batches: Sequence[Tensor], eos: bool) -> Nats:
    """Return the total of -log p over strings, without dropout."""
    nats, symbols = 0.0, 0
    with evaluation_mode(model):
        for batch in batches:
            nats -= model.log_probability(batch, eos=eos).double().sum().item()
            symbols += batch.numel() + eos * len(batch)
    return Nats(nats, symbols)

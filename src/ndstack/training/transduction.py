"""The task of transduction: an input is read, and its output is to be written."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ndstack.errors import TrainingError
from ndstack.grammars.graphs import grouped
from ndstack.nn import Transducer, greedy
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.progress import Advance, no_progress
from ndstack.settings.data import Lengths
from ndstack.training.evaluation import Split
from ndstack.training.measured import Cells, Json
from ndstack.training.task import Loss, Nats, Order, Share
from ndstack.transductions import Agreement, EnglishTransduction, Pair, PairData, agree, by_length, score

VALIDATION_BATCH = 50


class TransductionTask:
    """Transduction of the pairs of a data set.

    A step is one batch of pairs whose inputs have one length; batches are shuffled in each epoch. The loss is
    summed over time and averaged over the batch.

    Args:
        data: the pairs.
        model: the model to be trained.
        batch_size: the greatest number of pairs in a batch.
        seed: the seed of the order of batches.
        share: the number of this process among several.
        resample: a function that returns pairs whose inputs have other lengths, for stages.
    """

    def __init__(
        self,
        data: PairData,
        model: Transducer,
        *,
        batch_size: int = 10,
        seed: int = 0,
        share: Share | None = None,
        resample: Callable[[Lengths], PairData] | None = None,
    ) -> None:
        if not data.train or not data.validation:
            raise TrainingError("a data set without training or validation pairs given, expected both")
        self.model, self.resample = model, resample
        self.batch_size, self.seed, self.share = batch_size, seed, share or Share()
        self.batches = list(in_batches(data.train, batch_size))
        self.validation = list(in_batches(data.validation, VALIDATION_BATCH))
        self.order = Order(len(self.batches), seed)

    def with_lengths(self, lengths: Lengths) -> "TransductionTask":
        """Return the same task with inputs of other lengths, sampled from the same seed."""
        if self.resample is None:
            raise TrainingError("stages given, but pairs from files cannot be sampled at other lengths")
        return TransductionTask(
            self.resample(lengths), self.model, batch_size=self.batch_size, seed=self.seed, share=self.share
        )

    def steps(self, epoch: int) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def loss(self, model: Transducer, epoch: int, step: int) -> Loss:
        """Return the loss of this process's pairs in one batch."""
        batch = self.batches[self.order(epoch, step)]
        mine = batch[self.share.of(len(batch))]
        if not mine:
            return Loss(torch.zeros((), device=model.device), 0.0, 0)
        losses, expected = model.surprisals(*_sides(mine))
        nats = losses.sum()
        return Loss(nats / len(batch), nats.item(), int((expected != IGNORED).sum()))

    def validate(self, model: Transducer) -> Nats:
        """Return the total over this process's share of the validation pairs, given the correct prefixes."""
        nats, symbols, correct = 0.0, 0, 0
        with evaluation_mode(model):
            for batch in self.validation[self.share.rank :: self.share.processes]:
                logits, expected = model.predict(*_sides(batch))
                known = expected != IGNORED
                flat, indices = logits[known], expected[known]
                nats += torch.nn.functional.cross_entropy(flat.double(), indices, reduction="sum").item()
                symbols += len(indices)
                correct += int((flat.argmax(dim=1) == indices).sum())
        return Nats(nats, symbols, correct)

    def metrics(self, total: Nats) -> dict[str, float]:
        """Return the cross-entropy, in nats per symbol, and the share of symbols predicted correctly."""
        return {"cross_entropy": total.cross_entropy, "accuracy": total.correct / total.symbols}

    def carried(self) -> dict[str, Tensor]:
        """Return nothing, because batches are independent of each other."""
        return {}

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing."""


def in_batches(pairs: Sequence[Pair], most: int) -> Iterator[Sequence[Pair]]:
    """Yield pairs in batches whose inputs have one length, shorter inputs first."""
    for _, group in sorted(grouped(pairs, lambda pair: len(pair.source)).items()):
        for first in range(0, len(group), most):
            yield group[first : first + most]


def _sides(pairs: Sequence[Pair]) -> tuple[list[str | tuple[str, ...]], list[str | tuple[str, ...]]]:
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


@dataclasses.dataclass(frozen=True)
class Translated:
    """The results of a transducer on a set of pairs: greedy outputs, compared symbol by symbol."""

    split: str
    by_length: dict[int, Agreement]
    """The results by the length of inputs."""
    generalization: dict[str, float] = dataclasses.field(default_factory=dict)
    """The shares of outputs for inputs that tell rules apart: those of each rule, and correct ones."""

    shown = "accuracy"

    @property
    def overall(self) -> Agreement:
        """The results on all pairs."""
        total = Agreement(0, 0, 0, 0)
        for one in self.by_length.values():
            total += one
        return total

    @property
    def score(self) -> float:
        """The accuracy per symbol, averaged over the lengths of inputs."""
        return score(self.by_length)

    @property
    def note(self) -> str:
        """What the numbers of the table mean."""
        text = f"The mean of the accuracy per symbol over lengths is {self.score:.4f}."
        if self.generalization:
            shares = ", ".join(f"{name} {share:.4f}" for name, share in self.generalization.items())
            text += f" On inputs that tell rules apart: {shares}."
        return text

    def values_by_length(self) -> dict[int, float]:
        """Return the accuracy by length."""
        return {length: one.accuracy for length, one in self.by_length.items()}

    def as_json(self) -> Json:
        """Return the results as plain data."""
        return {
            "split": self.split,
            "overall": {**_plain(self.overall), "score": self.score},
            "by_length": [{"length": n, **_plain(one)} for n, one in self.by_length.items()],
            "generalization": self.generalization,
        }

    def table(self) -> Cells:
        """Return a table of the results."""
        parts: list[tuple[object, Agreement]] = [*self.by_length.items(), ("all", self.overall)]
        return [
            ["length", "outputs", "accuracy per symbol", "entirely correct"],
            *([name, one.outputs, one.accuracy, one.whole_accuracy] for name, one in parts),
        ]


def _plain(one: Agreement) -> dict[str, float]:
    return {"outputs": one.outputs, "accuracy": one.accuracy, "whole": one.whole_accuracy}


def evaluate_transduction(
    model: Transducer,
    data: PairData,
    split: Split = "test",
    rules: EnglishTransduction | None = None,
    *,
    progress: Advance = no_progress,
) -> Translated:
    """Measure the greedy outputs of a transducer on a split of a data set.

    Args:
        model: a transducer over the alphabets of the data.
        data: the pairs.
        split: the split of the data set; with the test set, the generalization set is measured, too.
        rules: the English task of the data, which says what rule an output follows.
        progress: a function that is called with the number of pairs read since the last call.
    """
    pairs: Sequence[Pair] = getattr(data, split)
    if not pairs:
        raise TrainingError(f"the data set has no {split} pairs to evaluate on")
    ordered, agreements, _ = _compare(model, pairs, data.scores_end, progress)
    general: dict[str, float] = {}
    if split == "test" and data.generalization:
        others, found, outputs = _compare(model, data.generalization, data.scores_end, progress)
        if rules is not None:
            verdicts = [rules.judge(pair.source, one) for pair, one in zip(others, outputs, strict=True)]
            general = {
                kind: verdicts.count(kind) / len(verdicts) for kind in ("hierarchical", "linear", "other")
            }
        general["entirely correct"] = sum(one.whole for one in found) / len(found)
    return Translated(split, by_length(ordered, agreements), general)


def _compare(
    model: Transducer, pairs: Sequence[Pair], end: bool, progress: Advance
) -> tuple[list[Pair], list[Agreement], list[str | tuple[str, ...]]]:
    """Return pairs in the order in which they were read, how well outputs agree, and the outputs."""
    ordered: list[Pair] = []
    found: list[Agreement] = []
    outputs: list[str | tuple[str, ...]] = []
    for batch in in_batches(pairs, VALIDATION_BATCH):
        longest = max(len(pair.target) for pair in batch) + 1
        made = greedy(model.given([pair.source for pair in batch]), [()] * len(batch), longest)
        for pair, one in zip(batch, made, strict=True):
            ordered.append(pair)
            outputs.append(one.word)
            found.append(agree(pair.target, one.word, ended=one.complete, end=end))
        progress(len(batch))
    return ordered, found, outputs

"""The task of recognition: is a string in the language?

A recognizer is a language model whose logits are read in another way. After a prefix, the logistic function
of the logit of EOS is the probability that the prefix is in the language; that of another symbol's logit is
the probability that the symbol may come next. The decision about a string is that of EOS after its last
symbol. The auxiliary loss, if it has a weight, is about all logits after all prefixes.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as binary_cross_entropy

from ndstack.errors import TrainingError
from ndstack.grammars.grammar import Word
from ndstack.grammars.graphs import grouped
from ndstack.languages import Dataset, Language, make_dataset
from ndstack.languages.datasets import test_seed
from ndstack.languages.negatives import Example, make_examples
from ndstack.nn import LanguageModel
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.progress import Advance, no_progress
from ndstack.settings.data import Lengths, RecognitionConfig
from ndstack.training.evaluation import Split
from ndstack.training.measured import Cells, Json
from ndstack.training.task import Loss, Nats, Order, Share

NEGATIVES = 4
"""The number of the random stream for strings outside of the language."""
_SPLITS = ("train", "validation", "test")


def acceptance_logits(model: LanguageModel, words: Sequence[Word]) -> Tensor:
    """Return the logits of "in the language" for strings of any lengths, [B]."""
    return _decisions(model, *_read(model, words))


def accepts(model: LanguageModel, words: Sequence[Word]) -> list[bool]:
    """Return whether a recognizer accepts each of some strings."""
    with evaluation_mode(model):
        return (acceptance_logits(model, words) > 0).tolist()


class RecognitionTask:
    """Recognition of a formal language.

    A step is one batch of strings: strings of one length that the language has, some of them replaced by
    strings outside of it. The loss is averaged over the batch.

    Args:
        data: strings of the language.
        model: the model to be trained.
        config: the strings outside of the language, and the weight of the auxiliary loss.
        seed: the seed of the order of batches.
        share: the number of this process among several.
    """

    def __init__(
        self,
        data: Dataset,
        model: LanguageModel,
        config: RecognitionConfig | None = None,
        *,
        seed: int = 0,
        share: Share | None = None,
    ) -> None:
        if not data.train or not data.validation:
            raise TrainingError("a data set without training or validation strings given, expected both")
        if not isinstance(model.output, torch.nn.Linear):
            raise TrainingError("output='adaptive' given for a recognizer, expected 'full'")
        self.data, self.model, self.config = data, model, config or RecognitionConfig()
        self.seed, self.share = seed, share or Share()
        train, size = examples(data, "train", self.config), data.plan.batch_size
        self.batches = [train[first : first + size] for first in range(0, len(train), size)]
        self.validation = list(in_batches(examples(data, "validation", self.config)))
        self.order = Order(len(self.batches), seed)
        self._sets: dict[Word, Tensor] = {}

    def with_lengths(self, lengths: Lengths) -> "RecognitionTask":
        """Return the same task with strings of other lengths, sampled from the same seed."""
        plan = self.data.plan.model_copy(update={"lengths": lengths, "test_per_length": 0})
        data = make_dataset(self.data.language, self.data.seed, plan)
        return RecognitionTask(data, self.model, self.config, seed=self.seed, share=self.share)

    def steps(self, epoch: int) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def loss(self, model: LanguageModel, epoch: int, step: int) -> Loss:
        """Return the loss of this process's strings in one batch."""
        batch = self.batches[self.order(epoch, step)]
        mine = batch[self.share.of(len(batch))]
        if not mine:
            return Loss(torch.zeros((), device=model.device), 0.0, 0)
        words = [one.word for one in mine]
        logits, ends = _read(model, words)
        nats = binary_cross_entropy(_decisions(model, logits, ends), _labels(mine, logits), reduction="sum")
        value = nats
        if self.config.auxiliary:
            value = nats + self.config.auxiliary * self._auxiliary(words, logits, ends)
        return Loss(value / len(batch), nats.item(), len(mine))

    def validate(self, model: LanguageModel) -> Nats:
        """Return the total over this process's share of the validation strings."""
        mine = self.validation[self.share.rank :: self.share.processes]
        nats, strings, correct = 0.0, 0, 0
        for _, loss, right in judge(model, mine):
            nats, strings, correct = nats + loss, strings + 1, correct + right
        return Nats(nats, strings, correct)

    def metrics(self, total: Nats) -> dict[str, float]:
        """Return the cross-entropy, in nats per string, and the share of correct decisions."""
        return {"cross_entropy": total.cross_entropy, "accuracy": total.correct / total.symbols}

    def carried(self) -> dict[str, Tensor]:
        """Return nothing, because batches are independent of each other."""
        return {}

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing."""

    def _auxiliary(self, words: Sequence[Word], logits: Tensor, ends: Tensor) -> Tensor:
        """Return the sum over strings of the loss about next symbols, averaged over the string's prefixes."""
        targets = torch.zeros_like(logits)
        for row, word in enumerate(words):
            if word not in self._sets:
                self._sets[word] = torch.from_numpy(self.data.language.next_symbol_sets(word))
            targets[row, : len(word) + 1] = self._sets[word].to(targets)
        losses = binary_cross_entropy(logits, targets, reduction="none").sum(dim=2)
        places = torch.arange(logits.shape[1], device=logits.device)
        return (losses * (places <= ends[:, None])).sum(dim=1).div(ends + 1).sum()


def examples(data: Dataset, split: Split, config: RecognitionConfig) -> tuple[Example, ...]:
    """Return a split of a data set with strings outside of the language; the test set has one seed."""
    seed = test_seed(data.language) if split == "test" else [data.seed]
    rng = np.random.default_rng([*seed, NEGATIVES, _SPLITS.index(split)])
    return make_examples(data.language, getattr(data, split), config, rng)


def in_batches(some: Sequence[Example], most: int = 50) -> Iterator[Sequence[Example]]:
    """Yield strings in batches of similar lengths, shorter strings first."""
    ordered = sorted(some, key=lambda one: len(one.word))
    for first in range(0, len(ordered), most):
        yield ordered[first : first + most]


def judge(
    model: LanguageModel, batches: Sequence[Sequence[Example]], progress: Advance = no_progress
) -> Iterator[tuple[Example, float, bool]]:
    """Yield each string, the loss of the decision about it, and whether the decision is correct."""
    with evaluation_mode(model):
        for batch in batches:
            logits = acceptance_logits(model, [one.word for one in batch])
            labels = _labels(batch, logits)
            losses = binary_cross_entropy(logits, labels, reduction="none").tolist()
            right = ((logits > 0) == (labels > 0)).tolist()
            yield from zip(batch, losses, right, strict=True)
            progress(len(batch))


@dataclasses.dataclass(frozen=True)
class RecognitionRow:
    """The result on some strings."""

    strings: int
    accuracy: float
    """The share of correct decisions."""
    cross_entropy: float
    """In nats per string."""


@dataclasses.dataclass(frozen=True)
class Recognition:
    """The results of a recognizer on a set of strings."""

    split: str
    overall: RecognitionRow
    by_length: dict[int, RecognitionRow]
    by_kind: dict[str, RecognitionRow]
    """Strings of the language, those made by some number of edits, and those of random symbols."""

    note = "The accuracy is the share of correct decisions; the cross-entropy is in nats per string."
    shown = "accuracy"

    def values_by_length(self) -> dict[int, float]:
        """Return the accuracy by length."""
        return {length: row.accuracy for length, row in self.by_length.items()}

    def as_json(self) -> Json:
        """Return the results as plain data."""
        return {
            "split": self.split,
            "overall": dataclasses.asdict(self.overall),
            "by_length": [{"length": n, **dataclasses.asdict(row)} for n, row in self.by_length.items()],
            "by_kind": [{"kind": kind, **dataclasses.asdict(row)} for kind, row in self.by_kind.items()],
        }

    def table(self) -> Cells:
        """Return a table of the results."""
        parts = {**{str(n): row for n, row in self.by_length.items()}, **self.by_kind, "all": self.overall}
        return [
            ["length or kind", "strings", "accuracy", "cross-entropy"],
            *([name, row.strings, row.accuracy, row.cross_entropy] for name, row in parts.items()),
        ]


def evaluate_recognition(
    model: LanguageModel,
    data: Dataset,
    split: Split = "test",
    config: RecognitionConfig | None = None,
    *,
    progress: Advance = no_progress,
) -> Recognition:
    """Measure a recognizer on a split of a data set, in which some strings are replaced by others.

    Args:
        model: a recognizer over the alphabet of the language.
        data: strings of the language.
        split: the split of the data set.
        config: the strings outside of the language.
        progress: a function that is called with the number of strings read since the last call.
    """
    found = examples(data, split, config or RecognitionConfig())
    if not found:
        raise TrainingError(f"the data set has no {split} strings to evaluate on")
    judged = list(judge(model, list(in_batches(found)), progress))
    lengths = grouped(judged, lambda one: len(one[0].word))
    kinds = grouped(judged, lambda one: _kind(one[0]))
    return Recognition(
        split,
        _row(judged),
        {length: _row(some) for length, some in sorted(lengths.items())},
        {kind: _row(some) for kind, some in sorted(kinds.items(), key=lambda item: _order(item[0]))},
    )


def _kind(example: Example) -> str:
    if example.inside:
        return "inside"
    if example.edits is None:
        return "uniform"
    return f"{example.edits} edit{'s' if example.edits > 1 else ''}"


def _order(kind: str) -> tuple[int, int]:
    """Return the place of a kind of strings in tables."""
    number = kind.split()[0]
    return (1, int(number)) if number.isdecimal() else (0 if kind == "inside" else 2, 0)


def _row(judged: Sequence[tuple[Example, float, bool]]) -> RecognitionRow:
    count = len(judged)
    return RecognitionRow(
        count, sum(right for _, _, right in judged) / count, sum(loss for _, loss, _ in judged) / count
    )


def _read(model: LanguageModel, words: Sequence[Word]) -> tuple[Tensor, Tensor]:
    """Return the logits after each prefix, [B, n + 1, V + 1], and the lengths, [B]."""
    symbols, lengths = model.encode(words)
    logits: Tensor = model(symbols)[0]
    if lengths is None:
        lengths = torch.full((len(symbols),), symbols.shape[1], device=symbols.device)
    return logits, lengths


def _decisions(model: LanguageModel, logits: Tensor, ends: Tensor) -> Tensor:
    return logits[torch.arange(len(ends), device=ends.device), ends, model.boundary]


def _labels(some: Sequence[Example], like: Tensor) -> Tensor:
    return torch.tensor([float(one.inside) for one in some], dtype=like.dtype, device=like.device)


def check_sets(language: Language, config: RecognitionConfig) -> None:
    """Raise an error if the auxiliary loss is asked for and the language cannot say what may come next."""
    if config.auxiliary:
        language.next_symbol_sets(())

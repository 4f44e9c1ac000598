"""Cross-entropy on a set of strings, overall and by length, beside the lower bound (sections 5.6, 6.2.1)."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from ndstack.errors import TrainingError
from ndstack.grammars.grammar import Word
from ndstack.grammars.graphs import grouped
from ndstack.html_tables import table
from ndstack.languages import Dataset
from ndstack.nn import LanguageModel
from ndstack.progress import Advance, no_progress
from ndstack.training.measured import Cells, Json
from ndstack.training.task import Task, encode_by_length, total_nats

Split = Literal["train", "validation", "test"]


@dataclasses.dataclass(frozen=True)
class Row:
    """The result on the strings of one length, or of all lengths."""

    length: int | None
    strings: int
    symbols: int
    cross_entropy: float
    """The cross-entropy of the model, in nats per symbol."""
    lower_bound: float
    """The cross-entropy of the true distribution; for strings of one length, given the length."""

    @property
    def difference(self) -> float:
        """The cross-entropy difference."""
        return self.cross_entropy - self.lower_bound

    def as_json(self) -> dict[str, float | None]:
        """Return the row as plain data."""
        return {**dataclasses.asdict(self), "difference": self.difference}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The results of a model on a set of strings."""

    split: str
    overall: Row
    by_length: tuple[Row, ...]

    note = "In nats per symbol; the rows of single lengths are given the length."
    shown = "cross-entropy difference (nats)"

    def values_by_length(self) -> dict[int, float]:
        """Return the cross-entropy difference by length."""
        return {row.length: row.difference for row in self.by_length if row.length is not None}

    def table(self) -> Cells:
        """Return a table of the results."""
        return [
            ["length", "strings", "cross-entropy", "lower bound", "difference"],
            *(
                [row.length or "all", row.strings, row.cross_entropy, row.lower_bound, row.difference]
                for row in (*self.by_length, self.overall)
            ),
        ]

    def _repr_html_(self) -> str:
        rows = [
            ("all" if row.length is None else row.length, row.strings, row.cross_entropy, row.difference)
            for row in (self.overall, *self.by_length)
        ]
        head = ("length", "strings", "cross-entropy", "above the lower bound")
        return table(rows, head, f"{self.split} set, nats per symbol")

    def as_json(self) -> Json:
        """Return the results as plain data."""
        return {
            "split": self.split,
            "overall": self.overall.as_json(),
            "by_length": [row.as_json() for row in self.by_length],
        }


def evaluate_task(model: LanguageModel, task: Task, split: Split = "test") -> dict[str, str | float]:
    """Return the split, and the metrics of a model on that split of a registered task.

    Args:
        model: a language model over the task's alphabet.
        task: the task. For its test data, it needs a method `test`, which is called like `validate`.
        split: "validation" or "test".
    """
    measure = task.validate if split == "validation" else getattr(task, split, None)
    if measure is None:
        raise TrainingError(
            f"the task {type(task).__name__} has no {split} data; use --split validation, or give it a "
            f"method `{split}` like `validate`"
        )
    return {"split": split, **task.metrics(measure(model))}


def evaluate(
    model: LanguageModel,
    data: Dataset,
    split: Split = "test",
    *,
    eos: bool = True,
    progress: Advance = no_progress,
) -> Evaluation:
    """Measure a model on a split of a data set.

    Args:
        model: any language model over the same alphabet.
        data: the strings and their language.
        split: the split of the data set.
        eos: whether the model predicts the end of strings.
        progress: a function that is called with the number of strings read since the last call.
    """
    words: Sequence[Word] = getattr(data, split)
    if not words:
        raise TrainingError(f"the data set has no {split} strings to evaluate on")
    lengths = data.plan.test_lengths if split == "test" else data.plan.lengths
    rows = []
    for length, group in sorted(grouped(words, len).items()):
        total = total_nats(model, encode_by_length(group, model), eos)
        bound = data.language.lower_bound(group, lengths=None, eos=eos)
        rows.append(Row(length, len(group), total.symbols, total.cross_entropy, bound))
        progress(len(group))
    symbols = sum(row.symbols for row in rows)
    mean = sum(row.cross_entropy * row.symbols for row in rows) / symbols
    overall = Row(None, len(words), symbols, mean, data.language.lower_bound(words, lengths=lengths, eos=eos))
    return Evaluation(split, overall, tuple(rows))

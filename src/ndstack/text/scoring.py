"""Surprisals, -log2 p, of the words of sentences, from a language model or from any function.

A scorer is a function from sentences, which are lists of words, to the surprisal of each word in bits. Each
sentence is scored by itself, after `<eos>`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.text.batches import batch_bounds
from ndstack.text.cross_entropy import surprisals
from ndstack.text.vocabulary import Vocabulary

Sentence = Sequence[str]
Scorer = Callable[[Sequence[Sentence]], Sequence[Sequence[float]]]
"""A function from sentences to the surprisals of their words, in bits."""


class ModelScorer:
    """A scorer that uses a language model over words.

    A word is looked up as written, then in lower case; if the model knows neither, it is scored as `<unk>`
    and counted in `unknown`.

    Args:
        model: a language model with `<unk>` in its alphabet.
        places: the largest size of a batch, sentences times words.
    """

    def __init__(self, model: LanguageModel, places: int = 4096) -> None:
        self.model, self.places = model, places
        self.vocabulary = Vocabulary(model.alphabet)
        self.unknown: Counter[str] = Counter()
        """The words that were scored as `<unk>`, with their numbers of occurrences."""
        self.words = 0
        """The number of words that were scored."""

    def __call__(self, sentences: Sequence[Sentence]) -> list[list[float]]:
        """Return the surprisals of the words of each sentence; `<eos>` is not among them."""
        return [row[:-1] for row in self.with_end(sentences)]

    def with_end(self, sentences: Sequence[Sentence]) -> list[list[float]]:
        """Return the surprisals of the words of each sentence, and of `<eos>` at its end."""
        results: list[list[float]] = [[] for _ in sentences]
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        bounds = batch_bounds([len(sentences[index]) + 1 for index in order], self.places)
        for group in (order[first:last] for first, last in pairwise(bounds)):
            rows = [self._encode(sentences[index]) for index in group]
            values = self._score(rows).tolist()
            for index, row, own in zip(group, rows, values, strict=True):
                results[index] = own[: len(row)]
        return results

    def _encode(self, sentence: Sentence) -> list[int]:
        if isinstance(sentence, str):
            raise NdstackError(f"the sentence {sentence!r} given, expected a list of words")
        self.unknown.update(self.vocabulary.unknown_words(sentence))
        self.words += len(sentence)
        return [*self.vocabulary.encode(sentence), self.vocabulary.end]

    def _score(self, rows: list[list[int]]) -> Tensor:
        """Return surprisals in bits, [B, n], of rows of indices that end with `<eos>`."""
        model, device = self.model, self.model.device
        targets = torch.full((len(rows), max(map(len, rows))), IGNORED)
        for place, row in enumerate(rows):
            targets[place, : len(row)] = torch.tensor(row)
        inputs = targets.roll(1, 1).clamp_min(0)
        inputs[:, 0] = model.boundary
        with evaluation_mode(model):
            hidden, _ = model.hidden(inputs.to(device), model.start(len(rows)))
            return surprisals(hidden, model.output, targets.to(device)).cpu() / math.log(2)


class ScoredWord(NamedTuple):
    """A word of a sentence, its surprisal in bits, and whether the model knows it."""

    text: str
    bits: float
    known: bool


def score_words(model: LanguageModel, sentences: Iterable[Sentence]) -> list[list[ScoredWord]]:
    """Return the scored words of each sentence, and `<eos>` at its end."""
    scorer, listed = ModelScorer(model), list(sentences)
    missing = scorer.vocabulary.unknown_words
    return [
        [
            ScoredWord(text, value, not missing([text]))
            for text, value in zip((*words, "<eos>"), row, strict=True)
        ]
        for words, row in zip(listed, scorer.with_end(listed), strict=True)
    ]


def checked(scorer: Scorer, sentences: Sequence[Sentence]) -> list[list[float]]:
    """Return the result of a scorer, which must be one number, finite or infinite, for each word."""
    rows = [[float(value) for value in row] for row in scorer(sentences)]
    if len(rows) != len(sentences):
        raise NdstackError(
            f"the scorer gave {len(rows)} rows for {len(sentences)} sentences, expected as many"
        )
    for row, sentence in zip(rows, sentences, strict=True):
        if len(row) != len(sentence) or any(math.isnan(value) for value in row):
            raise NdstackError(
                f"the scorer gave {len(row)} surprisals, or nan, for the {len(sentence)} words of "
                f"{' '.join(sentence)!r}; expected a number for each"
            )
    return rows

"""Strings from a language model: sampled, greedy or by beam search, in batches, with carried states.

Every string may begin with a given prefix, of any length; log probabilities are of the whole string, prefix
and EOS included, under the model itself, at temperature 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.grammars.grammar import Word
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.nn.language_models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class Generated:
    """A string that a model made."""

    word: Word
    log_probability: float
    """Of the word and, if it is complete, of EOS after it."""

    complete: bool
    """Whether EOS came; if not, the word was cut off at the greatest length."""


def sample(
    model: LanguageModel,
    prefixes: Sequence[Word],
    max_length: int,
    *,
    temperature: float = 1.0,
    seed: int | torch.Generator = 0,
) -> list[Generated]:
    """A random string for each prefix.

    Args:
        model: any language model.
        prefixes: what the strings begin with; `[""] * 10` for ten strings from nothing.
        max_length: the greatest number of symbols, EOS not counted.
        temperature: logits are divided by it; below 1 the likely becomes likelier.
        seed: a number, or a generator on the model's device.
    """
    if not temperature > 0 or math.isinf(temperature):
        raise NdstackError(
            f"temperature is {temperature}, expected a positive number; `greedy` is its limit 0"
        )
    generator = seed
    if isinstance(generator, int):
        generator = torch.Generator(model.device).manual_seed(generator)

    def choose(log_p: Tensor) -> Tensor:
        below = log_p - log_p.amax(dim=1, keepdim=True)
        weights = (below / max(temperature, torch.finfo(below.dtype).tiny)).softmax(dim=1)
        return torch.multinomial(weights, 1, generator=generator).squeeze(1)

    return _one_by_one(model, prefixes, max_length, choose)


def greedy(model: LanguageModel, prefixes: Sequence[Word], max_length: int) -> list[Generated]:
    """For each prefix the string that takes the likeliest symbol at every step.

    Args:
        model: any language model.
        prefixes: what the strings begin with; `[""]` for one string from nothing.
        max_length: the greatest number of symbols, EOS not counted.
    """
    return _one_by_one(model, prefixes, max_length, lambda log_p: log_p.argmax(dim=1))


def beam_search(
    model: LanguageModel, prefixes: Sequence[Word], max_length: int, width: int = 10
) -> list[list[Generated]]:
    """For each prefix up to `width` likely strings: complete ones first, then by log probability.

    At every step the `width` likeliest beginnings are kept. A search ends when no beginning is likelier than
    the `width` complete strings found.

    Args:
        model: any language model.
        prefixes: what the strings begin with; `[""]` for one search from nothing.
        max_length: the greatest number of symbols, EOS not counted.
        width: of the beam.
    """
    if width < 1:
        raise NdstackError(f"width is {width}, expected 1 or more")
    searches = [_Search(model, prefix, max_length, width) for prefix in _checked(model, prefixes, max_length)]
    alive = searches
    device = model.device
    with evaluation_mode(model):
        logits, state = model(torch.empty(len(searches), 0, dtype=torch.long, device=device))
        while alive:
            log_p = logits[:, -1].double().log_softmax(dim=1).cpu()
            parts = log_p.split([len(search.beam) for search in alive])
            first, rows, symbols, going = 0, [], [], []
            for search, part in zip(alive, parts, strict=True):
                parents, chosen = search.extend(part)
                rows += [first + parent for parent in parents]
                symbols += chosen
                going += [search] if parents else []
                first += len(part)
            alive = going
            if alive:
                logits, state = model(torch.tensor(symbols, device=device)[:, None], state.select(rows))
    return [search.results() for search in searches]


class _Search:
    """The beam search for one prefix: the beginnings in the beam, their scores, and what is complete."""

    def __init__(self, model: LanguageModel, prefix: list[int], max_length: int, width: int) -> None:
        self.model, self.prefix, self.max_length, self.width = model, prefix, max_length, width
        self.beam: list[list[int]] = [[]]
        self.scores = torch.zeros(1, dtype=torch.float64)
        self.complete: list[Generated] = []

    def extend(self, log_p: Tensor) -> tuple[list[int], list[int]]:
        """Parents and last symbols of the next beam; empty if the search is over.

        Args:
            log_p: [beam, V+1], what may come next.
        """
        time, eos = len(self.beam[0]), self.model.boundary
        if time < len(self.prefix):
            return self._keep(self.scores + log_p[:, self.prefix[time]], [0], [self.prefix[time]])
        ends = zip(self.beam, (self.scores + log_p[:, eos]).tolist(), strict=True)
        self.complete += [Generated(self.model.decode(word), score, True) for word, score in ends]
        self.complete = sorted(self.complete, key=lambda one: -one.log_probability)[: self.width]
        settled = len(self.complete) == self.width
        if time == self.max_length or (settled and self.scores.max() <= self.complete[-1].log_probability):
            return [], []
        ranked = (self.scores[:, None] + log_p[:, :eos]).flatten()
        scores, places = ranked.topk(min(self.width, len(ranked)))
        return self._keep(scores, (places // eos).tolist(), (places % eos).tolist())

    def results(self) -> list[Generated]:
        """Complete strings, then beginnings, the likeliest of each first."""
        cut = [
            Generated(self.model.decode(word), score, False)
            for word, score in zip(self.beam, self.scores.tolist(), strict=True)
        ]
        return (self.complete + cut)[: self.width]

    def _keep(self, scores: Tensor, parents: list[int], symbols: list[int]) -> tuple[list[int], list[int]]:
        self.scores = scores
        self.beam = [[*self.beam[row], symbol] for row, symbol in zip(parents, symbols, strict=True)]
        return parents, symbols


def _one_by_one(
    model: LanguageModel,
    prefixes: Sequence[Word],
    max_length: int,
    choose: Callable[[Tensor], Tensor],
) -> list[Generated]:
    """A string for each prefix; `choose` takes log probabilities [B, V+1] to symbols [B].

    A row follows its prefix, then the choices. Rows that are complete leave the batch.
    """
    words = _checked(model, prefixes, max_length)
    lengths = [len(word) for word in words]
    scores, complete = [0.0] * len(words), [False] * len(words)
    device = model.device
    alive = list(range(len(words)))
    with evaluation_mode(model):
        logits, state = model(torch.empty(len(words), 0, dtype=torch.long, device=device))
        for time in range(max_length + 1):
            log_p = logits[:, -1].double().log_softmax(dim=1)
            chosen = choose(log_p).tolist()
            for place, row in enumerate(alive):
                if time < lengths[row]:
                    chosen[place] = words[row][time]
                elif time < max_length and chosen[place] != model.boundary:
                    words[row].append(chosen[place])
            taken = log_p.gather(1, torch.tensor(chosen, device=device)[:, None])[:, 0].tolist()
            for place, row in enumerate(alive):
                complete[row] = chosen[place] == model.boundary
                if complete[row] or time < max_length:
                    scores[row] += taken[place]
            kept = [place for place, row in enumerate(alive) if not complete[row]]
            if not kept or time == max_length:
                break
            if len(kept) < len(alive):
                alive, state = [alive[place] for place in kept], state.select(kept)
            symbols = torch.tensor([chosen[place] for place in kept], device=device)
            logits, state = model(symbols[:, None], state)
    made = zip(words, scores, complete, strict=True)
    return [Generated(model.decode(word), score, whole) for word, score, whole in made]


def _checked(model: LanguageModel, prefixes: Sequence[Word], max_length: int) -> list[list[int]]:
    """The prefixes as indices."""
    symbols, lengths = model.encode(prefixes)
    sizes = [symbols.shape[1]] * len(symbols) if lengths is None else lengths.tolist()
    if max(sizes, default=0) > max_length or max_length < 0:
        raise NdstackError(
            f"max_length is {max_length}, expected at least {max(sizes, default=0)}, the length of a prefix"
        )
    return [row[:size] for row, size in zip(symbols.tolist(), sizes, strict=True)]

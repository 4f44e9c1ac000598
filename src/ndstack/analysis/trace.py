"""A trace of a network and its stacks while it reads a string, step by step.

`trace(model, word)` works for every language model and recogniser, recurrent or with stack attention. The
model runs unchanged; hooks record the inputs of its stacks, from which everything else is computed in
float64.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ndstack.analysis.stack_run import Names
from ndstack.analysis.stack_trace import CaughtStack, StackTrace, stack_traces, to_numpy
from ndstack.analysis.transition_weights import Floats
from ndstack.errors import NdstackError
from ndstack.grammars.grammar import Word
from ndstack.html_tables import table
from ndstack.languages.language import Language
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.attention import StackAttention
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.proofs.recognition import Recognizer, distinct
from ndstack.settings.data import Lengths

Model = LanguageModel | Recognizer

BOS, EOS = "BOS", "EOS"


@dataclass(frozen=True, eq=False)
class Trace:
    """A model and its stacks while it reads a string.

    Attributes:
        word: the string.
        stacks: the traces of the stacks in the order of layers.
        outputs: the symbols that are predicted, EOS last; empty for a recogniser.
        predictions: the distribution of the model after each prefix, [n + 1, V + 1]; None for a recogniser.
        truth: the true distribution after each prefix, [n + 1, V + 1]; None if no language is given.
        accepted: whether a recogniser accepts the string; None for a language model.
    """

    word: tuple[str, ...]
    stacks: tuple[StackTrace, ...]
    outputs: tuple[str, ...] = ()
    predictions: Floats | None = None
    truth: Floats | None = None
    accepted: bool | None = None

    def _repr_html_(self) -> str:
        verdict = {None: "", True: ", accepted", False: ", rejected"}[self.accepted]
        rows = [(one.where, one.kind, len(one.reading_names)) for one in self.stacks]
        head = ("where", "kind of stack", "numbers in a reading")
        return table(rows, head if rows else (), f"read: {' '.join(self.word)}{verdict}")

    def stack(self, number: int = 0) -> StackTrace:
        """Return the stack of this number, from 0; an unknown number is an error."""
        if not 0 <= number < len(self.stacks):
            raise NdstackError(
                f"there is no stack number {number + 1}; the model has {len(self.stacks) or 'no'} "
                f"stack{'s' * (len(self.stacks) != 1)}"
            )
        return self.stacks[number]


@torch.no_grad()
def trace(model: Model, word: Word, language: Language | None = None, lengths: Lengths = (40, 80)) -> Trace:
    """Let a model read a string, and return a trace of it and of its stacks.

    Args:
        model: a language model or recogniser.
        word: a string over its alphabet.
        language: the language whose distribution of the next symbol is the true one.
        lengths: the range from which lengths are drawn uniformly, for that distribution.
    """
    symbols = tuple(word)
    if isinstance(model, Recognizer):
        with _caught(model) as caught:
            accepted = model.accepts(symbols)
        n = len(symbols)  # without EOS, which the network reads, too
        caught = [
            (where, stack, logits[:n], None if vectors is None else vectors[:n])
            for where, stack, logits, vectors in caught
        ]
        accept = frozenset(
            (model.layout.states.index(q), 0) for part in model.layout.union.parts for q in part
        )
        names = Names(symbols, model.layout.states, model.layout.tops)
        return Trace(symbols, tuple(stack_traces(caught, symbols, names, accept)), accepted=accepted)
    with _caught(model) as caught, evaluation_mode(model):
        logits = model.logits([symbols])[0]
    inputs = (distinct(BOS, model.alphabet), *symbols) if model.bos else symbols
    outputs = (*model.alphabet, distinct(EOS, model.alphabet))
    truth = None if language is None else _truth(language, symbols, lengths, model.alphabet)
    predictions = to_numpy(torch.softmax(logits.double(), dim=-1))
    return Trace(symbols, tuple(stack_traces(caught, inputs)), outputs, predictions, truth)


def _truth(language: Language, word: tuple[str, ...], lengths: Lengths, alphabet: tuple[str, ...]) -> Floats:
    """Return the true distribution, with columns in the order of the model's alphabet."""
    rows = language.next_symbols(word, lengths)
    place = {symbol: column for column, symbol in enumerate(language.alphabet)}
    found = np.zeros((len(rows), len(alphabet) + 1))
    for column, symbol in enumerate(alphabet):
        if symbol in place:
            found[:, column] = rows[:, place[symbol]]
    found[:, -1] = rows[:, -1]
    return found


@contextmanager
def _caught(model: Model) -> Iterator[list[CaughtStack]]:
    """Record the inputs of the stacks of a model while it runs on a batch of one string."""
    caught: list[CaughtStack] = []
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, StackRNN) and module.stack is not None:
            handles.append(module.register_forward_hook(_of_rnn(caught)))
        elif isinstance(module, StackAttention):
            where = next((f"layer {int(part) + 1}" for part in name.split(".") if part.isdecimal()), name)
            handles.append(module.register_forward_pre_hook(_of_attention(caught, where)))
    try:
        yield caught
    finally:
        for handle in handles:
            handle.remove()


def _of_rnn(caught: list[CaughtStack]) -> Callable[..., None]:
    def catch(rnn: StackRNN, _: object, output: tuple[Tensor, object]) -> None:
        assert rnn.stack is not None
        assert rnn.actions is not None
        hidden = output[0][0, :, : rnn.hidden_size]
        pushed = None
        if rnn.push_hidden:
            pushed = hidden
        elif rnn.pushed is not None:
            pushed = rnn.pushed(hidden)
            if rnn.stack.push_activation != "identity":
                pushed = getattr(torch, rnn.stack.push_activation)(pushed)
        caught.append(("RNN", rnn.stack, rnn.actions(hidden), pushed))

    return catch


def _of_attention(caught: list[CaughtStack], where: str) -> Callable[..., None]:
    def catch(layer: StackAttention, given: tuple[Tensor, ...]) -> None:
        actions, pushed = layer.controls(given[0])
        caught.append((where, layer.stack, actions[0], None if pushed is None else pushed[0]))

    return catch

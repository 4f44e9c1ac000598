"""A trace of a network and its stacks while it reads a string, step by step.

`trace(model, word)` works for every language model, recogniser and transducer, recurrent or with stack
attention. The model runs unchanged; hooks record the inputs of its stacks, from which everything else is
computed in float64.

A recurrent transducer has one stack, which the decoder takes over from the encoder: its steps are those of
the input, of an end mark, of BOS and of the output. In a transformer, a stack of the encoder reads the input
and the end mark, from right to left if it is the second one of its layer; a stack of the decoder reads BOS
and the output.
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
from ndstack.nn.language_models.generation import greedy
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.networks.attention import StackAttention
from ndstack.nn.networks.rnn import StackRNN
from ndstack.nn.proofs.recognition import Recognizer, distinct
from ndstack.nn.transducers.transducer import Transducer
from ndstack.settings.data import Lengths, RecognitionConfig

Model = LanguageModel | Recognizer | Transducer

BOS, EOS = "BOS", "EOS"
ENCODER, DECODER, BACKWARDS = "encoder", "decoder", "right to left"


@dataclass(frozen=True, eq=False)
class Trace:
    """A model and its stacks while it reads a string.

    Attributes:
        word: the string.
        stacks: the traces of the stacks in the order of layers.
        outputs: the symbols that are predicted, EOS last; empty for a compiled recogniser.
        predictions: the distribution of the model after each prefix, [n + 1, V + 1], or that of a transducer
            after each prefix of its output; the decisions of a trained recogniser, each a probability of its
            own; None for a compiled one.
        truth: the true distribution, or the correct decisions, in the same shape; None if no language is
            given.
        accepted: whether a recogniser accepts the string; None for other models.
        written: what a transducer writes, the likeliest symbol at each step; None for other models.
    """

    word: tuple[str, ...]
    stacks: tuple[StackTrace, ...]
    outputs: tuple[str, ...] = ()
    predictions: Floats | None = None
    truth: Floats | None = None
    accepted: bool | None = None
    written: tuple[str, ...] | None = None

    @property
    def decides(self) -> bool:
        """Whether the predictions are decisions of a trained recogniser."""
        return self.accepted is not None and self.predictions is not None

    def _repr_html_(self) -> str:
        verdict = {None: "", True: ", accepted", False: ", rejected"}[self.accepted]
        rows = [(one.where, one.kind, len(one.reading_names)) for one in self.stacks]
        head = ("where", "kind of stack", "numbers in a reading")
        wrote = "" if self.written is None else f", written: {' '.join(self.written)}"
        return table(rows, head if rows else (), f"read: {' '.join(self.word)}{verdict}{wrote}")

    def stack(self, number: int = 0) -> StackTrace:
        """Return the stack of this number, from 0; an unknown number is an error."""
        if not 0 <= number < len(self.stacks):
            raise NdstackError(
                f"there is no stack number {number + 1}; the model has {len(self.stacks) or 'no'} "
                f"stack{'s' * (len(self.stacks) != 1)}"
            )
        return self.stacks[number]


@torch.no_grad()
def trace(
    model: Model,
    word: Word,
    language: Language | None = None,
    lengths: Lengths = (40, 80),
    recognition: RecognitionConfig | None = None,
) -> Trace:
    """Let a model read a string, and return a trace of it and of its stacks.

    Args:
        model: a language model, recogniser or transducer.
        word: a string over its alphabet.
        language: the language whose distribution of the next symbol is the true one.
        lengths: the range from which lengths are drawn uniformly, for that distribution.
        recognition: the settings with which a language model was trained as a recogniser, if it was.
    """
    symbols = tuple(word)
    if isinstance(model, Transducer):
        return _trace_transducer(model, symbols)
    if isinstance(model, Recognizer):
        return _trace_compiled(model, symbols)
    with _caught(model) as caught, evaluation_mode(model):
        logits = model.logits([symbols])[0].double()
    inputs = (distinct(BOS, model.alphabet), *symbols) if model.bos else symbols
    outputs = (*model.alphabet, distinct(EOS, model.alphabet))
    stacks = tuple(stack_traces(caught, inputs))
    if recognition is None:
        truth = None
        if language is not None:
            truth = _in_order(language.next_symbols(symbols, lengths), language, model.alphabet)
        return Trace(symbols, stacks, outputs, to_numpy(torch.softmax(logits, dim=-1)), truth)
    shown = slice(None) if recognition.auxiliary else slice(-1, None)  # otherwise, only EOS has been learned
    decisions = to_numpy(torch.sigmoid(logits))
    correct = None if language is None else _correct(language, symbols, recognition, model.alphabet)
    return Trace(
        symbols, stacks, outputs[shown], decisions[:, shown], correct, accepted=bool(decisions[-1, -1] > 0.5)
    )


def _trace_compiled(model: Recognizer, symbols: tuple[str, ...]) -> Trace:
    with _caught(model) as caught:
        accepted = model.accepts(symbols)
    n = len(symbols)  # without EOS, which the network reads, too
    caught = [
        (where, stack, logits[:n], None if vectors is None else vectors[:n])
        for where, stack, logits, vectors in caught
    ]
    accept = frozenset((model.layout.states.index(q), 0) for part in model.layout.union.parts for q in part)
    names = Names(symbols, model.layout.states, model.layout.tops)
    return Trace(symbols, tuple(stack_traces(caught, symbols, names, accept)), accepted=accepted)


def _trace_transducer(model: Transducer, symbols: tuple[str, ...]) -> Trace:
    with evaluation_mode(model):
        written = tuple(greedy(model.given([symbols]), [()], longest_output(len(symbols)))[0].word)
        with _caught(model) as caught:
            logits = model.predict([symbols], [written])[0][0]
    source = (*symbols, distinct(EOS, model.source))
    target = (distinct(BOS, model.target), *written)
    reads = {ENCODER: source, DECODER: target}
    stacks: list[StackTrace] = []
    if caught and caught[0][0] == "RNN":
        (_, stack, actions, pushed), (_, _, more, others) = caught
        joined = None if pushed is None or others is None else torch.cat([pushed, others])
        whole = ("RNN", stack, torch.cat([actions, more]), joined)
        stacks += stack_traces([whole], source + target)
    else:
        for one in caught:
            own = reads[one[0].partition(",")[0]]
            stacks += stack_traces([one], own[::-1] if one[0].endswith(BACKWARDS) else own)
    outputs = (*model.target, distinct(EOS, model.target))
    predictions = to_numpy(torch.softmax(logits.double(), dim=-1))
    return Trace(symbols, tuple(stacks), outputs, predictions, written=written)


def longest_output(length: int) -> int:
    """Return the greatest number of symbols that a transducer writes for an input of a length."""
    return 2 * length + 10


def _correct(
    language: Language, word: tuple[str, ...], recognition: RecognitionConfig, alphabet: tuple[str, ...]
) -> Floats:
    """Return the correct decisions after each prefix: 1 for yes, 0 for no."""
    if recognition.auxiliary:
        return _in_order(language.next_symbol_sets(word).astype(np.float64), language, alphabet)
    return np.array([[float(word[:end] in language)] for end in range(len(word) + 1)])


def _in_order(rows: Floats, language: Language, alphabet: tuple[str, ...]) -> Floats:
    """Return what a language says, with columns in the order of the model's alphabet."""
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
            handles.append(module.register_forward_pre_hook(_of_attention(caught, _where(name))))
    try:
        yield caught
    finally:
        for handle in handles:
            handle.remove()


def _where(name: str) -> str:
    """Return which layer the name of a module is about, and on which side of an encoder and decoder."""
    parts = name.split(".")
    side = [part for part in parts if part in (ENCODER, DECODER)]
    layer = next((f"layer {int(part) + 1}" for part in parts if part.isdecimal()), name)
    return ", ".join([*side, layer, *([BACKWARDS] if parts[-1] == "backwards" else [])])


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

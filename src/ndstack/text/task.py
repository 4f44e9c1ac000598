"""Language modelling on a corpus as a task for `ndstack.training.fit`, and its perplexity.

Recurrent networks learn by truncated BPTT over a stream (section 7.1): the state of controller and stacks
goes over from chunk to chunk, detached, and is that of `start` at the beginning of an epoch; the order never
changes. Transformers, whose memory of the past grows, learn from whole sentences in batches of similar
lengths, shuffled in each epoch. The loss is the mean over the tokens of a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel
from ndstack.nn.language_models.evaluation_mode import evaluation_mode
from ndstack.nn.networks.state import NetworkState
from ndstack.nn.storage import states
from ndstack.progress import Advance, no_progress
from ndstack.text.batches import Batch, Sentences, Stream
from ndstack.text.corpus import Corpus, Tokens
from ndstack.text.cross_entropy import total_loss
from ndstack.training.task import Loss, Nats, Order, Share


class TextTask:
    """Truncated BPTT, or sentence batches for a network that has to read `<eos>` first.

    Args:
        corpus: with a training and a validation part.
        model: the model to be trained, whose alphabet is the corpus's vocabulary.
        rows: B, into which the stream is folded.
        length: steps in a chunk. Batches of sentences have `rows * length` places.
        seed: of the order of sentence batches.
        share: which of several processes this is; each does its share of the rows.
    """

    def __init__(
        self,
        corpus: Corpus,
        model: LanguageModel,
        *,
        rows: int = 32,
        length: int = 35,
        seed: int = 0,
        share: Share | None = None,
    ) -> None:
        check_fit(corpus, model)
        self.share = share or Share()
        self.training = batches(model, corpus["train"], rows, length)
        self.validation = batches(model, corpus["valid"], rows, length)
        self.state: NetworkState | None = None
        self.order = Order(len(self.training), seed)

    def steps(self, epoch: int) -> int:
        """One for each chunk, or each batch of sentences."""
        return len(self.training)

    def loss(self, model: LanguageModel, epoch: int, step: int) -> Loss:
        """Of this process's rows of one chunk, or of its sentences of one batch."""
        if isinstance(self.training, Sentences):
            batch = self.training.batch(self.order(epoch, step), *self.share)
            total, _ = read_batch(model, batch, None)
        else:
            batch = self.training.chunk(step, *self.share)
            total, state = read_batch(model, batch, None if step == 0 else self.state)
            self.state = state.detach() if step + 1 < len(self.training) else None
        symbols = int((batch.targets >= 0).sum())
        return Loss(total / batch.tokens, total.item(), symbols)

    def validate(self, model: LanguageModel) -> Nats:
        """Over this process's share of the validation part."""
        return corpus_nats(model, self.validation, self.share)

    def metrics(self, total: Nats) -> dict[str, float]:
        """Cross-entropy in nats a token, `<eos>` included, and its exponential."""
        return {"cross_entropy": total.cross_entropy, "perplexity": perplexity(total)}

    def carried(self) -> dict[str, Tensor]:
        """The state of the networks in the middle of an epoch."""
        return {} if self.state is None else states.pack_state(self.state)

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with what `carried` gave."""
        self.state = states.unpack_state(tensors) if tensors else None


def batches(model: LanguageModel, tokens: Tokens, rows: int = 32, length: int = 35) -> Stream | Sentences:
    """A part of a corpus as this model reads it: a stream, or sentences."""
    if model.backbone.needs_bos:
        return Sentences(tokens, model.boundary, rows * length)
    return Stream(tokens, model.boundary, rows, length)


def read_batch(model: LanguageModel, batch: Batch, state: NetworkState | None) -> tuple[Tensor, NetworkState]:
    """The sum of -log p over the targets of a batch, and the last state; `state` None is a fresh start."""
    device = model.device
    if state is None:
        state = model.start(batch.inputs.shape[0])
    elif state.batch_size != batch.inputs.shape[0]:
        raise NdstackError(
            f"a state for {state.batch_size} rows carried to a chunk of {batch.inputs.shape[0]}; a run goes "
            "on with as many rows and processes as it began with"
        )
    hidden, state = model.hidden(batch.inputs.to(device), state)
    return total_loss(hidden, model.output, batch.targets.to(device)), state


def corpus_nats(
    model: LanguageModel,
    part: Stream | Sentences,
    share: Share | None = None,
    progress: Advance = no_progress,
) -> Nats:
    """The total of -log p, without dropout, over this process's share.

    Args:
        model: any language model.
        part: from `batches`.
        share: which of several processes this is.
        progress: called with 1 after each chunk or batch.
    """
    share = share or Share()
    nats, symbols = 0.0, 0
    state: NetworkState | None = None
    with evaluation_mode(model):
        for number in range(len(part)):
            if isinstance(part, Sentences):
                batch = part.batch(number, *share)
                total, _ = read_batch(model, batch, None)
            else:
                batch = part.chunk(number, *share)
                total, state = read_batch(model, batch, state)
            nats += total.item()
            symbols += int((batch.targets >= 0).sum())
            progress(1)
    return Nats(nats, symbols)


def perplexity(total: Nats) -> float:
    """exp of the mean of -log p; infinite if that is too much for a number."""
    return math.exp(total.cross_entropy) if total.cross_entropy < 700 else math.inf


def check_fit(corpus: Corpus, model: LanguageModel) -> None:
    """Raise an error in one line unless the model knows the words of the corpus, in its order."""
    if model.alphabet != corpus.vocabulary.words:
        raise NdstackError(
            f"the model knows {len(model.alphabet):,} words, expected the {len(corpus.vocabulary.words):,} "
            f"of {corpus.folder} in their order; prepare the text with --vocabulary of the model's corpus"
        )
    if not model.bos:
        raise NdstackError("a model that cannot read <eos> given, expected one with embedding=...")

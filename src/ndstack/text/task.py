"""Language modelling on a corpus as a task for `ndstack.training.fit`, and its perplexity.

Recurrent networks are trained by truncated BPTT over a stream (section 7.1): the state of controller and
stacks is carried from chunk to chunk, detached, and is reset at the beginning of an epoch; the order of
chunks never changes. Transformers, whose state grows with the input, are trained on whole sentences in
batches of similar lengths, which are shuffled in each epoch. The loss is the mean over the tokens of a step.
"""

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
    """Truncated BPTT, or batches of sentences for a network that has to read `<eos>` first.

    Args:
        corpus: a corpus with a training and a validation part.
        model: the model to be trained, whose alphabet is the vocabulary of the corpus.
        rows: the number of rows B into which the stream is folded.
        length: the number of steps per chunk. Batches of sentences have `rows * length` places.
        seed: the seed of the order of sentence batches.
        share: the number of this process among several; each process has its share of the rows.
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
        """Return the number of chunks, or of batches of sentences."""
        return len(self.training)

    def loss(self, model: LanguageModel, epoch: int, step: int) -> Loss:
        """Return the loss of this process's rows of one chunk, or of its sentences of one batch."""
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
        """Return the total of -log p over this process's share of the validation part."""
        return corpus_nats(model, self.validation, self.share)

    def metrics(self, total: Nats) -> dict[str, float]:
        """Return the cross-entropy in nats per token, `<eos>` included, and its exponential."""
        return {"cross_entropy": total.cross_entropy, "perplexity": perplexity(total)}

    def carried(self) -> dict[str, Tensor]:
        """Return the state of the networks in the middle of an epoch."""
        return {} if self.state is None else states.pack_state(self.state)

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume with the state that `carried` returned."""
        self.state = states.unpack_state(tensors) if tensors else None


def batches(model: LanguageModel, tokens: Tokens, rows: int = 32, length: int = 35) -> Stream | Sentences:
    """Return a part of a corpus in the form in which the model reads it: a stream, or sentences."""
    if model.backbone.needs_bos:
        return Sentences(tokens, model.boundary, rows * length)
    return Stream(tokens, model.boundary, rows, length)


def read_batch(model: LanguageModel, batch: Batch, state: NetworkState | None) -> tuple[Tensor, NetworkState]:
    """Return the sum of -log p over the targets of a batch, and the last state; None is the initial state."""
    device = model.device
    if state is None:
        state = model.start(batch.inputs.shape[0])
    elif state.batch_size != batch.inputs.shape[0]:
        raise NdstackError(
            f"a state for {state.batch_size} rows carried to a chunk of {batch.inputs.shape[0]}; resume a "
            "run with the number of rows and processes with which it began"
        )
    hidden, state = model.hidden(batch.inputs.to(device), state)
    return total_loss(hidden, model.output, batch.targets.to(device)), state


def corpus_nats(
    model: LanguageModel,
    part: Stream | Sentences,
    share: Share | None = None,
    progress: Advance = no_progress,
) -> Nats:
    """Return the total of -log p, without dropout, over this process's share of a part of a corpus.

    Args:
        model: any language model.
        part: a part of a corpus, from `batches`.
        share: the number of this process among several.
        progress: a function that is called with 1 after each chunk or batch.
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
    """Return the exponential of the mean of -log p; infinity if it is too large for a float."""
    return math.exp(total.cross_entropy) if total.cross_entropy < 700 else math.inf


def check_fit(corpus: Corpus, model: LanguageModel) -> None:
    """Raise an error unless the alphabet of the model is the vocabulary of the corpus."""
    if model.alphabet != corpus.vocabulary.words:
        raise NdstackError(
            f"the model knows {len(model.alphabet):,} words, expected the {len(corpus.vocabulary.words):,} "
            f"of {corpus.folder} in their order; prepare the text with --vocabulary of the model's corpus"
        )
    if not model.bos:
        raise NdstackError("a model that cannot read <eos> given, expected one with embedding=...")

"""Natural language (chapters 7, 9): corpora, truncated BPTT, perplexity, surprisals, generalization."""

from ndstack.text.batches import Batch, Sentences, Stream
from ndstack.text.corpus import Corpus, read_corpus
from ndstack.text.generalization import Generalization, SuiteResult, evaluate
from ndstack.text.launch import configure, train
from ndstack.text.loss import total_loss
from ndstack.text.pairs import Pair, PairResults, evaluate_pairs, read_pairs
from ndstack.text.preparation import prepare
from ndstack.text.scoring import ModelScorer, Scorer, Word, score_words
from ndstack.text.suites import Suite, read_suite
from ndstack.text.task import TextTask, batches, perplexity, total_nats
from ndstack.text.vocabulary import Vocabulary, read_vocabulary

__all__ = [
    "Batch",
    "Corpus",
    "Generalization",
    "ModelScorer",
    "Pair",
    "PairResults",
    "Scorer",
    "Sentences",
    "Stream",
    "Suite",
    "SuiteResult",
    "TextTask",
    "Vocabulary",
    "Word",
    "batches",
    "configure",
    "evaluate",
    "evaluate_pairs",
    "perplexity",
    "prepare",
    "read_corpus",
    "read_pairs",
    "read_suite",
    "read_vocabulary",
    "score_words",
    "total_loss",
    "total_nats",
    "train",
]

"""Natural language (chapters 7 and 9): corpora, truncated BPTT, perplexity, surprisals, generalization."""

from ndstack.text.batches import Batch, Sentences, Stream
from ndstack.text.corpus import Corpus, read_corpus
from ndstack.text.cross_entropy import total_loss
from ndstack.text.generalization import Generalization, SuiteResult, evaluate_suites
from ndstack.text.launch import configure, train_on_text
from ndstack.text.minimal_pairs import Pair, PairResults, evaluate_pairs, read_pairs
from ndstack.text.preparation import prepare
from ndstack.text.scoring import ModelScorer, ScoredWord, Scorer, score_words
from ndstack.text.suites import Suite, read_suite
from ndstack.text.task import TextTask, batches, corpus_nats, perplexity
from ndstack.text.vocabulary import Vocabulary, read_vocabulary

__all__ = [
    "Batch",
    "Corpus",
    "Generalization",
    "ModelScorer",
    "Pair",
    "PairResults",
    "ScoredWord",
    "Scorer",
    "Sentences",
    "Stream",
    "Suite",
    "SuiteResult",
    "TextTask",
    "Vocabulary",
    "batches",
    "configure",
    "corpus_nats",
    "evaluate_pairs",
    "evaluate_suites",
    "perplexity",
    "prepare",
    "read_corpus",
    "read_pairs",
    "read_suite",
    "read_vocabulary",
    "score_words",
    "total_loss",
    "train_on_text",
]

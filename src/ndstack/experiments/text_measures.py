"""What experiments need of `ndstack.text`: corpora, runs, perplexity, SG scores (chapters 7 and 9)."""

from __future__ import annotations

from pathlib import Path

from ndstack.errors import NdstackError
from ndstack.experiments.experiment import Values
from ndstack.text import launch, task
from ndstack.text.example import write_example
from ndstack.text.generalization import SHORT, evaluate_suites
from ndstack.text.preparation import prepare
from ndstack.text.scoring import ModelScorer
from ndstack.text.suites import find_suites, read_suite
from ndstack.training import Run

SENTENCES = 60
"""Of the text that is made for a smoke run."""


def make_example(folder: Path) -> tuple[Path, Path]:
    """A tiny corpus and suites that fit it, for a smoke run; made once."""
    text, corpus = folder / "text", folder / "corpus"
    if not corpus.exists():
        if not text.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_example(text, SENTENCES)
        prepare(text, corpus)
    return corpus, text / "suites"


def measure_text(run: Run, suites: str | None) -> Values:
    """Perplexity on the test part and, if there are suites, SG scores, the dissertation's average."""
    settings, model = launch.corpus_of(run.config), run.load()
    corpus = launch.open_corpus(settings)
    if "test" not in corpus.header.splits:
        raise NdstackError(f"{settings.folder} has no test part")
    part = task.batches(model, corpus["test"], settings.rows, settings.length)
    found: Values = {"test_perplexity": task.perplexity(task.corpus_nats(model, part))}
    if suites is None:
        return found
    scores = evaluate_suites([read_suite(path) for path in find_suites([Path(suites)])], ModelScorer(model))
    by_circuit = scores.by_circuit("dissertation")
    return found | {
        "sg_score": scores.score("dissertation"),
        "circuits": {SHORT.get(name, name): value for name, value in by_circuit.items()},
    }

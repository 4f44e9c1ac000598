"""Runs on text: the recipe of section 7.3, and from a configuration to a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ndstack import training
from ndstack.errors import TrainingError
from ndstack.files import real
from ndstack.nn import LanguageModel, models
from ndstack.settings.reading import merge
from ndstack.settings.recipes import TEXT, TEXT_TRANSFORMER
from ndstack.text.corpus import Corpus, Header, read_corpus
from ndstack.text.task import TextTask
from ndstack.training import CorpusConfig, Result, Run, RunConfig, Share, Task
from ndstack.training.material import Show, make_model


def options(name: str, hidden: int = 256, window: int | None = 35, depth: int | None = 10) -> dict[str, Any]:
    """The options of a model of this name on text: sizes and, for recurrent networks, uniform parameters.

    Args:
        name: as in `ndstack.nn.models`.
        hidden: units; embeddings have the same size.
        window: D of nondeterministic stacks.
        depth: of superposition stacks.
    """
    parsed = models.parse(name)
    if parsed.stack == "strat":
        raise TrainingError(
            f"{name} keeps every element for ever, so it cannot read a stream; choose a stack with a limit, "
            "such as sup-22 or vrns-3-3-5"
        )
    nondeterministic = parsed.stack not in ("", "strat", "sup", "sup-h")
    own: dict[str, Any] = {
        "window": window if nondeterministic else None,
        "depth": depth if parsed.stack in ("sup", "sup-h") else None,
    }
    if parsed.transformer:
        return own | {"d_model": hidden, "feedforward": 4 * hidden}
    uniform = {"layers_init": "uniform", "actions_init": "uniform", "init_bound": 0.05}
    return own | uniform | {"hidden": hidden, "embedding": hidden}


def configure(
    corpus: str | Path,
    model: str,
    *,
    hidden: int = 256,
    window: int | None = 35,
    depth: int | None = 10,
    settings: dict[str, Any] | None = None,
) -> RunConfig:
    """The configuration of a run on text.

    Args:
        corpus: a folder that `prepare` made.
        model: a name of `ndstack.nn.models`.
        hidden, window, depth: see `options`.
        settings: whatever is to be different, as in `config.json`.
    """
    folder = real(corpus)
    values = {
        "language": folder.name,
        "model": model,
        "corpus": corpus_settings(folder),
        "options": options(model, hidden, window, depth),
    }
    recipe = TEXT_TRANSFORMER if models.parse(model).transformer else TEXT
    return RunConfig.of(merge(merge(values, recipe), settings or {}), "the settings")


def train(
    folder: str | Path, config: RunConfig | None = None, *, show: Show = "nothing", tensorboard: bool = False
) -> Result:
    """Begin a run on text in a new folder or, without a configuration, go on with the one that is there."""
    corpus_of(Run.open(folder).config if config is None else config)
    return training.train(folder, config, show=show, tensorboard=tensorboard, make=make)


def make(config: RunConfig, share: Share, show: Show) -> tuple[LanguageModel, Task]:
    """The model of a run and what it learns."""
    settings = corpus_of(config)
    corpus = open_corpus(settings)
    model = make_model(config, corpus.vocabulary.words)
    seed = config.training.seed
    task = TextTask(corpus, model, rows=settings.rows, length=settings.length, seed=seed, share=share)
    return model, task


def corpus_of(config: RunConfig) -> CorpusConfig:
    """What a run says of its text."""
    if config.corpus is None or config.model is None:
        raise TrainingError(f"the run is on the formal language {config.language}; use ndstack train")
    return config.corpus


def open_corpus(settings: CorpusConfig) -> Corpus:
    """The text of a run, if it is still the one that the run began with."""
    corpus = read_corpus(settings.folder)
    if settings.sha256 is not None and checksums(corpus.header) != settings.sha256:
        raise TrainingError(
            f"{settings.folder} is another corpus than when the run began; put the old one back, or begin a "
            "new run in another folder"
        )
    return corpus


def corpus_settings(folder: str | Path) -> dict[str, Any]:
    """The `corpus` table of a run on a corpus that `ndstack text prepare` made."""
    folder = real(folder)
    header = read_corpus(folder).header
    for part in ("train", "valid"):
        if part not in header.splits:
            raise TrainingError(f"{folder} has no {part} part; training needs train and valid")
    return {"folder": str(folder), "sha256": checksums(header)}


def checksums(header: Header) -> dict[str, str]:
    """Those of the vocabulary and of each part."""
    return {"vocabulary": header.vocabulary_sha256} | {
        str(name): split.sha256 for name, split in header.splits.items()
    }

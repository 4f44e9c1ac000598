"""Training runs on text: the recipe of section 7.3, configurations, and training."""

from pathlib import Path

from ndstack import training
from ndstack.errors import TrainingError
from ndstack.files import real_path
from ndstack.nn import LanguageModel, models
from ndstack.settings.reading import merge
from ndstack.settings.recipes import TEXT, TEXT_TRANSFORMER
from ndstack.text.corpus import Corpus, CorpusHeader, read_corpus
from ndstack.text.task import TextTask
from ndstack.training import CorpusConfig, Result, Run, RunConfig, Share, Task
from ndstack.training.material import Show, make_model


def model_options(
    name: str, hidden: int = 256, window: int | None = 35, depth: int | None = 10
) -> dict[str, object]:
    """Return the options of a model on text: its sizes and, for recurrent networks, uniform initialization.

    Args:
        name: a name of `ndstack.nn.models`.
        hidden: the number of hidden units, and the size of embeddings.
        window: the window D of nondeterministic stacks.
        depth: the depth limit of superposition stacks.
    """
    parsed = models.parse(name)
    if parsed.stack == "strat":
        raise TrainingError(
            f"{name} never discards an element, so it cannot read a stream; choose a stack with a limit, "
            "such as sup-22 or vrns-3-3-5"
        )
    nondeterministic = parsed.nondeterministic
    own: dict[str, object] = {
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
    settings: dict[str, object] | None = None,
) -> RunConfig:
    """Return the configuration of a training run on text.

    Args:
        corpus: a folder that `prepare` made.
        model: a name of `ndstack.nn.models`.
        hidden: see `model_options`.
        window: see `model_options`.
        depth: see `model_options`.
        settings: settings that differ from the recipe, in the form of `config.json`.
    """
    folder = real_path(corpus)
    values = {
        "language": folder.name,
        "model": model,
        "corpus": corpus_settings(folder),
        "options": model_options(model, hidden, window, depth),
    }
    recipe = TEXT_TRANSFORMER if models.parse(model).transformer else TEXT
    return RunConfig.of(merge(merge(values, recipe), settings or {}), "the settings")


def train_on_text(
    folder: str | Path, config: RunConfig | None = None, *, show: Show = "nothing", tensorboard: bool = False
) -> Result:
    """Start a training run on text in a new folder or, without a configuration, resume the one there."""
    corpus_of(Run.open(folder).config if config is None else config)
    return training.train(folder, config, show=show, tensorboard=tensorboard, make=make_model_and_task)


def make_model_and_task(config: RunConfig, share: Share, show: Show) -> tuple[LanguageModel, Task]:
    """Return the model of a training run and its task."""
    settings = corpus_of(config)
    corpus = open_corpus(settings)
    model = make_model(config, corpus.vocabulary.words)
    seed = config.training.seed
    task = TextTask(corpus, model, rows=settings.rows, length=settings.length, seed=seed, share=share)
    return model, task


def corpus_of(config: RunConfig) -> CorpusConfig:
    """Return the corpus settings of a training run; an error if it is on a formal language."""
    if config.corpus is None or config.model is None:
        raise TrainingError(f"the run is on the formal language {config.language}; use ndstack train")
    return config.corpus


def open_corpus(settings: CorpusConfig) -> Corpus:
    """Return the corpus of a training run, which must be the one with which the run began."""
    corpus = read_corpus(settings.folder)
    if settings.sha256 is not None and corpus_checksums(corpus.header) != settings.sha256:
        raise TrainingError(
            f"{settings.folder} is another corpus than when the run began; restore the old one, or start a "
            "new run in another folder"
        )
    return corpus


def corpus_settings(folder: str | Path) -> dict[str, object]:
    """Return the `corpus` table of the configuration of a run on this corpus."""
    folder = real_path(folder)
    header = read_corpus(folder).header
    for part in ("train", "valid"):
        if part not in header.splits:
            raise TrainingError(f"{folder} has no {part} part; training needs train and valid")
    return {"folder": str(folder), "sha256": corpus_checksums(header)}


def corpus_checksums(header: CorpusHeader) -> dict[str, str]:
    """Return the checksums of the vocabulary and of each part."""
    return {"vocabulary": header.vocabulary_sha256} | {
        str(name): split.sha256 for name, split in header.splits.items()
    }

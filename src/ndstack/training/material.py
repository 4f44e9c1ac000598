"""What a configuration describes: a language, its strings, a model. Nothing is trained or written here."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from ndstack import files, register
from ndstack.errors import TrainingError
from ndstack.languages import NAMES, Dataset, Language, from_grammar, get, make_dataset, read_dataset
from ndstack.languages.datasets import SPLITS, own_grammar
from ndstack.nn import LanguageModel, Transducer, models
from ndstack.nn.storage.files import read_tensors
from ndstack.nn.transducers.models import build_transducer_from
from ndstack.progress import Advance, no_progress, progress_bar
from ndstack.settings.data import Lengths
from ndstack.settings.reading import Table, Values
from ndstack.settings.run import RunConfig
from ndstack.training.evaluation import Split, evaluate
from ndstack.training.measured import Measured
from ndstack.training.recognition import RecognitionTask, check_sets, evaluate_recognition
from ndstack.training.run import BEST, Run
from ndstack.training.task import Model, Share, Task
from ndstack.training.transduction import TransductionTask, evaluate_transduction
from ndstack.transductions import EnglishTransduction, PairData, make_pairs, read_pairs
from ndstack.transductions import get as get_transduction
from ndstack.transductions.pairs import pair_checksums

Show = Literal["terminal", "json", "nothing"]
"""Progress bars, a line of JSON per epoch, or nothing."""


def make_formal(config: RunConfig, share: Share, show: Show) -> tuple[Model, Dataset | Task]:
    """Return a model and what it learns: the strings of a formal language, or a registered task.

    The language and the model are checked before strings are sampled.
    """
    if config.task == "transduce":
        return _make_transduction(config, share, show)
    task = make_task(config, share)
    if task is not None:
        return make_model(config, _alphabet_of(task, config.language)), task
    model, language = make_checked(config)
    data = make_data(config, show, language)
    if config.task == "model":
        return model, data
    return model, RecognitionTask(data, model, config.recognition, seed=config.training.seed, share=share)


def _make_transduction(config: RunConfig, share: Share, show: Show) -> tuple[Transducer, TransductionTask]:
    if config.model is None:
        raise TrainingError("the model of this run was made in Python, so it cannot be made again by name")
    data = make_pair_data(config, test=False, show=show)
    model = build_transducer_from(config.options, config.model, data.source, data.target, seed=config.seed)
    model = model.double() if config.training.precision == "64" else model

    def resample(lengths: Lengths) -> PairData:
        changes = {"data": config.data.model_copy(update={"lengths": lengths})}
        return make_pair_data(config.model_copy(update=changes), test=False)

    task = TransductionTask(
        data,
        model,
        batch_size=config.data.batch_size,
        seed=config.training.seed,
        share=share,
        resample=resample if config.pairs is None else None,
    )
    return model, task


def make_pair_data(config: RunConfig, *, test: bool, show: Show = "nothing") -> PairData:
    """Return the pairs of a run that transduces, either sampled from its seed, or read from its folder.

    Args:
        config: the configuration of the run.
        test: whether the pairs for tests are sampled, or those for training and validation.
        show: how progress is shown: with a progress bar if this is "terminal".
    """
    if config.pairs is not None:
        folder = Path(config.pairs.folder)
        if config.pairs.sha256 not in (None, pair_checksums(folder)):
            raise TrainingError(
                f"{folder} has changed since the run started; start a new run in another folder"
            )
        return read_pairs(folder, config.pairs.units)
    changes = {"train": 0, "validation": 0} if test else {"test_per_length": 0}
    plan, source = config.data.model_copy(update=changes), get_transduction(config.language)
    if show != "terminal":
        return make_pairs(source, config.seed, plan)
    with progress_bar(f"sampling {source.name}", plan.train + plan.validation) as advance:
        return make_pairs(source, config.seed, plan, progress=advance)


def measure(run: Run, split: Split = "test", *, progress: Advance = no_progress) -> Measured:
    """Measure the best model of a run on a split of its data.

    Args:
        run: a run on a formal language.
        split: the split of its data.
        progress: a function that is called with the number of strings read since the last call.
    """
    config = run.config
    if config.task == "transduce":
        pairs = make_pair_data(config, test=split == "test")
        rules = None if config.pairs is not None else get_transduction(config.language)
        english = rules if isinstance(rules, EnglishTransduction) else None
        return evaluate_transduction(run.load_transducer(), pairs, split, english, progress=progress)
    model = run.load()
    data = make_test_data(config) if split == "test" else make_data(config)
    if config.task == "recognize":
        return evaluate_recognition(model, data, split, config.recognition, progress=progress)
    return evaluate(model, data, split, eos=config.training.eos, progress=progress)


def count_strings(config: RunConfig, split: Split) -> int:
    """Return the number of strings that `measure` reads."""
    if config.task == "transduce":
        pairs = make_pair_data(config, test=split == "test")
        return len(getattr(pairs, split)) + len(pairs.generalization) * (split == "test")
    data, language = config.data, language_of(config)
    if data.folder is not None:
        return len(getattr(read_dataset(Path(data.folder)), split))
    if split == "test":
        return data.test_per_length * len(language.lengths(*data.test_lengths)[:: data.test_step])
    return data.train if split == "train" else data.validation


def with_lengths(config: RunConfig, lengths: Lengths) -> RunConfig:
    """Return the configuration of a run with strings of other lengths, to measure its model on them."""
    if config.data.folder is not None or config.pairs is not None or config.corpus is not None:
        raise TrainingError(
            "lengths given to a run whose data are in a folder, expected one that samples them"
        )
    if is_task(config.language):
        raise TrainingError(
            f"lengths given to a run on the task {config.language}, which has data of its own"
        )
    source = get_transduction(config.language) if config.task == "transduce" else language_of(config)
    if not source.lengths(*lengths):
        low, high = lengths
        raise TrainingError(f"{source.name} has no strings of lengths {low}..{high}")
    data = config.data.model_copy(update={"lengths": lengths, "test_lengths": lengths, "test_step": 1})
    return config.model_copy(update={"data": data})


def make_checked(config: RunConfig) -> tuple[LanguageModel, Language]:
    """Return the model and the language of a run; it is an error if there are no strings as it needs them."""
    language = language_of(config)
    _check_data(config, language)
    if config.task == "recognize":
        check_sets(language, config.recognition)
    return make_model(config, language), language


def is_task(name: str) -> bool:
    """Return whether this is the name of a registered task, and not of a formal language."""
    base = name.partition("(")[0]
    return base not in NAMES and register.language.find(base) is None and register.task.find(base) is not None


def check_language(name: str, task: object = "model") -> None:
    """Raise an error unless this is a name that a task can be about."""
    if task == "transduce":
        get_transduction(name)
    elif not is_task(name):
        get(name)


def make_task(config: RunConfig, share: Share | None = None) -> Task | None:
    """Return the registered task that a run learns; None if it learns a formal language or text."""
    own = config.grammar is not None or config.corpus is not None or config.data.folder is not None
    if own or not is_task(config.language):
        return None
    make = register.task.find(config.language.partition("(")[0])
    assert make is not None
    task = make(config, share or Share())
    if not isinstance(task, Task):
        raise TrainingError(
            f"{config.language} was registered as a task, but {task!r} does not have all methods of "
            "ndstack.training.Task"
        )
    return task


def _alphabet_of(task: Task, name: str) -> tuple[str, ...]:
    alphabet = getattr(task, "alphabet", None)
    if not alphabet:
        raise TrainingError(
            f"the task {name} has no `alphabet`, the symbols that models of it read and write"
        )
    return tuple(alphabet)


def _check_data(config: RunConfig, language: Language) -> None:
    """Raise an error if the language has no strings as the run needs them."""
    data = config.data
    if not data.train or not data.validation:
        raise TrainingError(
            f"{data.train} training and {data.validation} validation strings given, expected some of each"
        )
    sampled = [] if data.folder is not None else [data.lengths]
    for low, high in [*(stage.lengths for stage in config.training.stages), *sampled]:
        if not language.lengths(low, high):
            raise TrainingError(f"{language.name} has no strings of lengths {low}..{high}")


def language_of(config: RunConfig) -> Language:
    """Return the formal language of a run; it is an error if the run has none."""
    if config.corpus is not None:
        raise TrainingError("this run is on text, not on a formal language; use the commands of ndstack text")
    if config.task == "transduce":
        raise TrainingError(f"{config.language} is a transduction; this needs a formal language")
    if config.grammar is not None:
        return from_grammar(config.grammar, name=config.language)
    if is_task(config.language):
        raise TrainingError(f"{config.language} is a task, not a formal language; this needs a language")
    return get(config.language)


def make_model(config: RunConfig, language: Language | Iterable[str]) -> LanguageModel:
    """Return the model of a run with its initial parameters, for a language or an alphabet."""
    if config.model is None:
        raise TrainingError("the model of this run was made in Python, so it cannot be made again by name")
    model = models.build_from(config.options, config.model, language, seed=config.seed)
    return model.double() if config.training.precision == "64" else model


def take_start(config: RunConfig, model: Model) -> None:
    """Give the model the best parameters of the run that its run starts from, if any."""
    if config.start_from is None:
        return
    source = Path(config.start_from)
    if config.start_sha256 not in (None, start_checksum(source)):
        raise TrainingError(
            f"{source / BEST} has changed since the run started; start a new run in another folder"
        )
    tensors, _ = read_tensors(source / BEST)
    found, needed = (
        {name: tensor.shape for name, tensor in some.items()} for some in (tensors, model.state_dict())
    )
    if found != needed:
        raise TrainingError(
            f"{source} has parameters of other names or sizes than {config.model} needs here; start from "
            "a run of the same model, with the same options and the same number of symbols"
        )
    model.load_state_dict(tensors)


def start_checksum(source: Path) -> str:
    """Return the checksum of the best parameters of a run."""
    Run.open(source)
    return hashlib.sha256(files.read_bytes(source / BEST, TrainingError)).hexdigest()


def make_data(config: RunConfig, show: Show = "nothing", language: Language | None = None) -> Dataset:
    """Return the strings of a run, either sampled from its seed, or read from its folder and checked.

    Args:
        config: the configuration of the run.
        show: how progress is shown: with a progress bar if this is "terminal".
        language: the language of the run, if it has been made already.
    """
    data = config.data
    if data.folder is None:
        language = language_of(config) if language is None else language
        plan = data.model_copy(update={"test_per_length": 0})
        if show != "terminal":
            return make_dataset(language, config.seed, plan)
        with progress_bar(f"sampling {language.name}", data.train + data.validation) as advance:
            return make_dataset(language, config.seed, plan, progress=advance)
    if data.sha256 is not None and data_checksums(Path(data.folder)) != data.sha256:
        raise TrainingError(
            f"{data.folder} has changed since the run started; start a new run in another folder"
        )
    return read_dataset(Path(data.folder))


def make_test_data(config: RunConfig) -> Dataset:
    """Return the test strings of a run's language; they do not depend on the run's seed."""
    if config.data.folder is not None:
        return make_data(config)
    plan = config.data.model_copy(update={"train": 0, "validation": 0})
    return make_dataset(language_of(config), config.seed, plan)


def use_folder(folder: Path, values: Values) -> Table:
    """Return settings with those that a data folder determines: language, grammar and plan."""
    dataset = read_dataset(folder)
    own = {
        "language": dataset.language.name,
        "grammar": own_grammar(dataset.language),
        "data": dataset.plan.model_dump() | {"folder": str(files.real_path(folder))},
    }
    return {**values, **own}


def data_checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each split in a data folder."""
    try:
        return {split: hashlib.sha256((folder / f"{split}.txt").read_bytes()).hexdigest() for split in SPLITS}
    except OSError as error:
        raise TrainingError(f"{folder} is not a data set: {error.filename}: {error.strerror}") from None

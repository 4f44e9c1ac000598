"""Run folders as folders of `transformers`, and back.

A model that comes from a run carries the run's files, and is saved with them, in a folder `ndstack/`, so that
nothing but the training state is lost on the way. If its parameters are others when it comes back, the
results of the run are not theirs, and are left out.
"""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from ndstack import files
from ndstack.errors import NdstackError
from ndstack.hf.modeling import CHECKSUM, NdstackForCausalLM, checksum, run_files
from ndstack.hf.tokenization import make_tokenizer
from ndstack.nn import LanguageModel, load
from ndstack.nn.storage.description import describe_model
from ndstack.nn.storage.files import CONFIGURATION, pack_tensors, save_model
from ndstack.training.run import BEST, CONFIG, METRICS, TIMES, Run, is_of_transformers, is_run
from ndstack.zoo import PREFIX, names, resolve


def from_run(run: str | Path) -> tuple[NdstackForCausalLM, PreTrainedTokenizerFast]:
    """Return the best model of a run, and its tokenizer.

    Args:
        run: a run folder, the name of a network of the zoo, or a folder that `LanguageModel.save` made.
    """
    network, source = _load(run), resolve(run)
    model = NdstackForCausalLM.wrap(network)
    if is_run(source):
        model.run = run_files(source) | {CHECKSUM: checksum(network)}
    return model, make_tokenizer(network)


def export_run(run: str | Path, folder: str | Path) -> None:
    """Write the best model of a run, and its tokenizer, as a new folder of `transformers`."""
    model, tokenizer = from_run(run)
    with files.new_folder(Path(folder), "the model") as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)


def import_run(folder: str | Path, run: str | Path) -> None:
    """Write a model of `transformers` as a new run folder.

    A model that did not come from a run (`from_run`, `export_run`) has none to return to: it becomes a model
    folder, for `ndstack.nn.load`. One that was tuned has no results until it is measured.
    """
    folder = Path(folder)
    if is_run(folder) and (folder / CONFIGURATION).exists():
        raise NdstackError(f"{folder} is a run already; expected what save_pretrained() made")
    if not (folder / "config.json").exists():
        raise NdstackError(f"{folder} has no config.json; expected what save_pretrained() made")
    try:
        model = NdstackForCausalLM.from_pretrained(folder, dtype="auto")
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        if isinstance(error, NdstackError):
            raise
        raise NdstackError(f"{folder} is not a model of ndstack: {' '.join(str(error).split())}") from None
    network: LanguageModel = model.network
    with files.new_folder(Path(run), "the run") as draft:
        if CONFIG not in model.run:
            save_model(network, draft)
            return
        same = model.run.pop(CHECKSUM, b"") == checksum(network)
        results = {} if same else {METRICS: b"", TIMES: b""}
        for name, content in (model.run | results).items():
            files.replace(draft / name, content)
        described = describe_model(network).model_dump_json(indent=2) + "\n"
        files.replace(draft / CONFIGURATION, described.encode())
        files.replace(draft / BEST, pack_tensors(network.state_dict()))


def _load(run: str | Path) -> LanguageModel:
    if f"{PREFIX}{run}" in names():
        raise NdstackError(f"{run} given, which is no folder; did you mean {PREFIX}{run}?")
    source = resolve(run)
    if is_of_transformers(source):
        raise NdstackError(
            f"{run} is a folder of transformers: use NdstackForCausalLM.from_pretrained, or make a run of it "
            "with import_run or `ndstack hf import`"
        )
    if not source.exists():
        raise NdstackError(
            f"there is no folder {run}; expected a run, a name that `ndstack zoo` lists, such as "
            f"{names()[0]}, or a folder that LanguageModel.save made"
        )
    return Run.open(run).load() if is_run(source) else load(source)

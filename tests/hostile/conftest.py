from pathlib import Path

import pytest

from ndstack.experiments import Experiment, SweepFolder
from ndstack.experiments.gathering import gather
from ndstack.hf.conversion import export_run
from ndstack.text import configure, prepare, train_on_text
from ndstack.text.example import write_example
from tests.hostile.bad import FILES, GRAMMAR
from tests.training.small import small_run

EXPERIMENT = """
name = "mine"
languages = ["text"]
text = true
models = [{ label = "LSTM", names = ["lstm"] }]
settings = { options = { hidden = 4, embedding = 4 }, training = { max_epochs = 1 } }
"""


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> dict[str, Path]:
    """What commands take in place of the names in braces in `bad`: everything that is as it should be."""
    folder = tmp_path_factory.mktemp("good")
    names = (
        "run",
        "text",
        "corpus",
        "text_run",
        "sweep",
        "grammar",
        "experiment",
        "tables",
        "lines",
        "exported",
    )
    paths = {name: folder / name for name in names}
    small_run(paths["run"], "lstm")
    gather([paths["run"]], paths["tables"])
    write_example(paths["text"], 20)
    prepare(paths["text"], paths["corpus"])
    settings = {"training": {"max_epochs": 1, "threads": 1, "device": "cpu"}}
    train_on_text(paths["text_run"], configure(paths["corpus"], "lstm", hidden=4, settings=settings))
    paths["grammar"].write_text(GRAMMAR)
    paths["lines"].write_text("a b\nb a\n" * 10)
    export_run(paths["run"], paths["exported"])
    paths["experiment"].write_text(EXPERIMENT)
    SweepFolder(paths["sweep"]).begin(Experiment.read(paths["experiment"]), "paper", None)
    paths["pairs"] = paths["text"] / "pairs.jsonl"
    paths["suites"] = paths["text"] / "suites"
    return paths


@pytest.fixture(scope="session")
def odd(tmp_path_factory) -> Path:
    """A folder of files that nothing can be made of."""
    folder = tmp_path_factory.mktemp("odd")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "kept").write_text("kept")
    (folder / "folder.svg").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    for name in ("loop", "loop.svg"):
        (folder / name).symlink_to(name)
    return folder

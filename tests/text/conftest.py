import random

import pytest
import torch

from ndstack.nn import models
from ndstack.text import prepare

WORDS = list("abcdefg")
MODELS = ("lstm", "sup-3", "sup-h", "sup-2-2", "ns-2-2", "rns-2-2", "vrns-2-2-3")
"""A model of every kind that can read a stream."""


def small(name, words=("a", "b", "c", "<unk>"), double=True, seed=0):
    """A small model of this name over words."""
    kind = name.removeprefix("tf+").split("-")[0]
    sizes = {"d_model": 8, "feedforward": 16, "heads": 2, "num_layers": 3} if name.startswith("tf") else {}
    if not name.startswith("tf"):
        sizes = {"hidden": 6, "embedding": 5, "layers_init": "uniform", "init_bound": 0.8}
    if kind in ("ns", "rns", "vrns"):
        sizes["window"] = 4
    if kind == "sup":
        sizes["depth"] = 4
    model = models.build(name, words, seed=seed, **sizes)
    return model.double() if double else model


def write_text(folder, seed=0, lines=40):
    rng = random.Random(seed)
    folder.mkdir()
    for part in ("train", "valid", "test"):
        made = [" ".join(rng.choices(WORDS, k=rng.randint(0, 9))) for _ in range(lines)]
        (folder / f"{part}.txt").write_text("\n".join(made) + "\n")
    return folder


@pytest.fixture
def corpus(tmp_path):
    return prepare(write_text(tmp_path / "text"), tmp_path / "corpus")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

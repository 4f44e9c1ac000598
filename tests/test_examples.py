"""The examples do what they say."""

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def threads():
    """Examples ask for one thread; what was before comes back."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_a_stack_in_a_classifier(capsys):
    results = load("stack_in_a_classifier").main()
    stack, without = results["with a stack"], results["without"]
    assert stack["symbols"] > 0.95
    assert stack["strings"] > 0.8
    assert stack["symbols"] > without["symbols"] + 0.1
    assert stack["strings"] > without["strings"] + 0.2
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.usefixtures("threads")
def test_a_language_from_a_grammar_file(tmp_path, capsys):
    example = load("language_from_a_grammar_file")
    results = example.main(tmp_path / "markup.svg")
    language = example.from_grammar(example.GRAMMAR)
    assert all(text in language and len(text) == 12 for text in results["samples"])
    assert language.log_probability(results["wrong"]) == -math.inf
    rows = {name: one.overall for name, one in results["evaluations"].items()}
    assert all(row.lower_bound == pytest.approx(results["bound"]) for row in rows.values())
    assert all(0 < row.difference < 0.2 for row in rows.values())
    assert {row.length for row in results["evaluations"]["lstm"].by_length} == set(range(5, 31))
    assert (tmp_path / "markup.svg").read_text(encoding="utf-8").count("RNS 2-3") == 1
    assert "above the bound" in capsys.readouterr().out


def test_watching_langs_algorithm(tmp_path, capsys):
    results = load("watching_langs_algorithm").main(tmp_path / "stacks.svg", range(1, 4))
    assert results["runs"] == 2
    assert [row["lang"] for row in results["rows"]] == [math.comb(2 * n, n) for n in (1, 2, 3)]
    assert all(row["lang"] == row["brute"] for row in results["rows"])
    assert (tmp_path / "stacks.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "After iixex: 3 runs" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers
def test_training_with_lightning(tmp_path, capsys):
    pytest.importorskip("lightning")
    example = load("training_with_lightning")
    first, resumed = example.main(tmp_path / "interrupted", 2)
    assert resumed < first
    assert "after 2 epochs" in capsys.readouterr().out
    rows = (tmp_path / "interrupted/lightning_logs/version_1/metrics.csv").read_text().splitlines()
    assert rows[0].startswith("cross_entropy,epoch")
    assert len(rows) == 2
    assert example.main(tmp_path / "other", 4)[0] == resumed  # two epochs without interruption


PLUGIN = """
import sys
import torch
from ndstack import languages
from ndstack.cli import main
from ndstack.nn import load, models

assert languages.get("twins").alphabet == ("a", "b")
for name in ("balance-2", "tf+balance-2", "shortcut-4", "shortcut+balance-2", "shortcut+sup-2"):
    model = models.build(name, "twins")
    assert model.cross_entropy(["ab", "aabb"]).isfinite()
    model.save(name)
    torch.testing.assert_close(load(name).logits(["ab"]), model.eval().logits(["ab"]))
sys.argv = "ndstack train twins --model balance-2 --lengths 2:6 --train 20 --max-epochs 1 --out run".split()
main()
"""


def test_a_package_with_parts_of_ones_own(tmp_path):
    """Installed as pip does it, and found by its entry point."""
    pytest.importorskip("hatchling")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--quiet")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options]
    subprocess.run([*pip, "--target", tmp_path / "there", EXAMPLES / "plugin"], check=True, timeout=120)
    path = os.pathsep.join([str(tmp_path / "there"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "best.safetensors").exists()

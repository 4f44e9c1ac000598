"""The networks that ship: each is as good as it says, and is accepted wherever a run folder is."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from ndstack import nn, zoo
from ndstack.analysis.explorer.catalogue import Catalogue
from ndstack.analysis.source import open_source
from ndstack.cli import app
from ndstack.errors import NdstackError
from ndstack.experiments import zoo_entries
from ndstack.experiments.claims.evidence import SOLVED
from ndstack.model_names import label
from ndstack.training import Run, change_settings, evaluate, make_test_data

NAMES = zoo.names()


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_there_are_some_and_the_command_lists_them():
    listed = json.loads(invoke("zoo", "--json").output)
    assert [row["name"] for row in listed] == NAMES
    assert all(row["difference"] < SOLVED for row in listed)
    assert NAMES[0] in invoke("zoo").output


@pytest.mark.parametrize("name", NAMES)
def test_it_measures_what_its_row_says(name):
    """On a tenth of the test strings of each length, so the numbers are near those recorded."""
    run, record = Run.open(name), zoo_entries.read_row(zoo.resolve(name))
    data = make_test_data(run.config.model_copy(update={"data": run.config.data.model_copy(
        update={"test_per_length": 10})}))  # fmt: skip
    found = evaluate(run.load(), data, "test")
    assert found.overall.difference == pytest.approx(record.test_difference, abs=0.01)
    assert record.parameters == sum(one.numel() for one in nn.load(name).parameters())
    assert (record.language, record.model) == (run.config.language, run.config.model)
    assert name == zoo.entry(record.language, record.model)


def test_names_are_accepted_where_run_folders_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, before = NAMES[0], sorted(zoo.HERE.rglob("*"))
    assert open_source(name).run is not None
    assert "in_language" in invoke("generate", name, "--count", "1", "--max-length", "20", "--json").output
    assert json.loads(invoke("compare", name, "--json").output)[0]["parameters"]
    assert len(json.loads(invoke("show", name, "--json").output)) > 1
    assert sorted(zoo.HERE.rglob("*")) == before
    assert not list(tmp_path.iterdir())


def test_an_evaluation_leaves_the_zoo_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "zoo"
    shutil.copytree(zoo.HERE, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    monkeypatch.setattr(zoo, "HERE", copy)
    for path in copy.glob("*/*/config.json"):
        config = json.loads(path.read_text())
        config["data"]["test_per_length"] = 1
        path.write_text(json.dumps(config))
    before = sorted(copy.rglob("*"))
    assert invoke("evaluate", NAMES[0], "--json").exit_code == 0
    assert sorted(copy.rglob("*")) == before


def test_the_explorer_offers_them_first():
    found = Catalogue()
    first = found.identifiers()[0]
    assert first == "-on-".join(reversed(NAMES[0].removeprefix("zoo:").split("/")))
    assert str(found.describe(first)["label"]).startswith(label(first.partition("-on-")[0]))


def test_names_that_are_not_there_are_refused():
    with pytest.raises(NdstackError, match=f"did you mean {NAMES[0]}"):
        nn.load(f"{NAMES[0]}0")
    with pytest.raises(NdstackError, match="`ndstack zoo` lists all"):
        Run.open("zoo:../../etc")


def test_only_what_has_learned_its_language_comes_in(tmp_path):
    name = NAMES[0]
    place, into = tmp_path / "run", tmp_path / "zoo"
    shutil.copytree(zoo.resolve(name), place)
    epochs = len(Run.open(place).metrics())
    change_settings(place, {"training": {"max_epochs": epochs + 1}})
    with pytest.raises(NdstackError, match="has not ended: resume it with ndstack train --resume"):
        zoo_entries.add(place, into=into)
    change_settings(place, {"training": {"max_epochs": epochs}})
    with pytest.raises(NdstackError, match="was not measured on the test set"):
        zoo_entries.add(place, into=into)
    (place / "test.json").write_text(json.dumps({"overall": {"difference": 0.02}, "by_length": []}))
    found = zoo_entries.add(place, into=into)
    assert (found.name, found.record.test_difference) == (name, 0.02)
    assert (into / name.removeprefix("zoo:") / "best.safetensors").exists()
    with pytest.raises(NdstackError, match="in the zoo is as good"):
        zoo_entries.add(place, into=into)
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    worse = [line | {"validation_difference": 0.05} for line in lines]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in worse))
    with pytest.raises(NdstackError, match=r"has not learned .*: it is 0\.0500 nats"):
        zoo_entries.add(place, into=into)
    assert "expected ndstack zoo add RUN" not in str(invoke("zoo", "add").exception)
    assert "with a run folder" in str(invoke("zoo", "add").exception)

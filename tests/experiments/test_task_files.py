"""The experiment files about other tasks than language modelling run at their smallest scale."""

from pathlib import Path

import pytest

from ndstack.errors import NdstackError
from ndstack.experiments.gathering import read_run
from ndstack.experiments.jobs import Job, do_job
from ndstack.experiments.registry import read_experiments
from ndstack.experiments.results import Finished
from ndstack.experiments.sheets import make_sheet
from ndstack.experiments.sweep import measures_of
from ndstack.experiments.trials import choose, expand
from ndstack.training import Run

COUNTS = {"chomsky": [140], "recognition": [90, 90], "questions": [15]}


@pytest.mark.parametrize("name", COUNTS)
def test_names_stand_for_files_and_all_scales_can_be_expanded(name):
    found = read_experiments(Path(name))
    assert [len(expand(one)) for one in found] == COUNTS[name]
    for one in found:
        for scale in one.scale_names():
            assert expand(one.at(scale))


def test_a_folder_of_the_same_name_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("questions").mkdir()  # where the sweep may write to
    assert read_experiments(Path("questions"))[0].name == "questions"


def test_other_names_are_files():
    with pytest.raises(NdstackError, match=r"cannot read nothing"):
        read_experiments(Path("nothing"))


@pytest.mark.parametrize(
    "name, only, column",
    [
        ("recognition", "model=lstm,language=dyck", "dyck"),
        ("questions", "model=tf+sup-32", "Hierarchical"),
        ("chomsky", "model=sup-10,language=stack-manipulation", "stack-manipulation"),
    ],
)
def test_smoke(name, only, column, tmp_path):
    experiment = read_experiments(Path(name))[0].at("smoke")
    (trial,) = choose(expand(experiment), only)
    job = Job(id=trial.id, folder=str(tmp_path / "run"), config=trial.config, measure=measures_of(experiment))
    outcome = do_job(job)
    assert outcome.state == "done", outcome.message
    record, curve = read_run(Run.open(tmp_path / "run"))
    runs = [Finished(record, tuple(curve), trial.label, trial.setting, trial.restart)]
    sheet = make_sheet(experiment.outputs[0], experiment, runs)
    row = next(row for row in sheet.rows if row[0] == trial.label)
    assert 0 <= row[sheet.columns.index(column)] <= 1

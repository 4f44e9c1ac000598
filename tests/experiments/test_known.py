"""Sweeps that are continued where only the tables of earlier runs are."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ndstack.cli import app
from ndstack.experiments import (
    Experiment,
    Inline,
    SweepFolder,
    Tables,
    Watcher,
    expand,
    gather,
    make_report,
    run_sweep,
)
from ndstack.experiments.experiment import Extend
from ndstack.experiments.identity import describe_stages, match_key
from ndstack.experiments.records import EvolutionView, Views
from ndstack.experiments.sweep_folder import KnownRuns
from ndstack.settings.reading import merge

RESULTS = Path(__file__).parents[2] / "results"
CORPUS = {"corpus": {"folder": "/here/ptb", "sha256": {"train": "1"}}}


class Heard(Watcher):
    def __init__(self):
        self.begun, self.started_ids = None, []

    def begin(self, trials, done, known):
        self.begun = len(trials), done, known

    def started(self, trial, attempt):
        self.started_ids.append(trial.id)


def changed(small, **changes):
    return Experiment.of(merge(small.model_dump(mode="json"), changes), "changed")


def elsewhere(experiment, tmp_path, count=None, measures=("test",)):
    """The tables of an experiment whose first trials were run in a folder that is not there any more."""
    folder = SweepFolder(tmp_path / "elsewhere")
    trials = expand(folder.begin(experiment, "paper", None))[:count]
    run_sweep(folder, trials, Inline(), measures=measures, rules=experiment)
    gather([folder.folder], tmp_path / "tables")
    return Tables.read(tmp_path / "tables")


def here(experiment, tmp_path, tables):
    folder, watcher = SweepFolder(tmp_path / "here"), Heard()
    trials = expand(folder.begin(experiment, "paper", None))
    folder.learn(tables)
    summary = run_sweep(folder, trials, Inline(), measures=("test",), rules=experiment, watcher=watcher)
    return folder, trials, summary, watcher


def test_a_known_run_is_not_run_again_and_is_in_the_report(small, tmp_path):
    tables = elsewhere(small, tmp_path, 3)
    folder, trials, summary, watcher = here(small, tmp_path, tables)
    assert watcher.begun == (4, 0, 3)
    assert watcher.started_ids == [trials[3].id]
    assert summary.known == trials[:3]
    assert summary.done == trials[3:]
    made = make_report(SweepFolder(folder.folder))  # the folder remembers
    assert (made.complete, made.known, made.trials) == (4, 3, 4)
    assert made.counts == "4 of 4 trials complete, 3 of them known from tables"
    assert made.counts in made.index.read_text()
    (row,) = csv.DictReader((made.index.parent / "spent.csv").read_text().splitlines())
    assert (row["Complete"], row["Known from tables"], row["Epochs"]) == ("4", "3", "8")
    with (made.index.parent / "trials.csv").open() as lines:
        scores = {one["Trial"]: float(one["Validation"]) for one in csv.DictReader(lines)}
    assert scores.keys() == {trial.id for trial in trials}


def test_known_runs_have_the_numbers_of_runs_that_were_made_here(small, tmp_path):
    tables = elsewhere(small, tmp_path)
    known, _, _, _ = here(small, tmp_path, tables)
    for folder, name in ((known, "known"), (SweepFolder(tmp_path / "elsewhere"), "own")):
        make_report(folder, tmp_path / name)
    for file in ("curve.csv", "curve.md"):
        assert (tmp_path / "known" / file).read_text() == (tmp_path / "own" / file).read_text()


@pytest.mark.parametrize(
    "rules", [{"until": {"difference": 1e9}}, {"budget": {"epochs": 2}}], ids=["until", "budget"]
)
def test_known_runs_count_for_the_rules_of_a_group(rules, small, tmp_path):
    tables = elsewhere(small, tmp_path, 1)
    _, trials, summary, watcher = here(changed(small, **rules), tmp_path, tables)
    assert watcher.started_ids == []
    assert {*summary.not_needed} == {trial.id for trial in trials[1:]}


def test_a_run_without_its_test_results_is_not_complete(small, tmp_path):
    tables = elsewhere(small, tmp_path, 1, measures=())
    _, trials, _, watcher = here(small, tmp_path, tables)
    assert watcher.started_ids == [trial.id for trial in trials]
    assert SweepFolder(tmp_path / "here").known.find(trials[0], (), None) is not None


def found(tables, trial, changes, extend=None, measures=("test",), curve=None):
    """The row of a trial in tables in which it has these values."""
    (old,) = tables.runs.values()
    epochs = tables.curves[old.id][:1] * (curve or old.epochs)
    changed = Tables({old.id: old.model_copy(update=changes)}, {old.id: epochs}, tables.views)
    return KnownRuns(changed).find(trial, measures, extend)


def test_when_a_recorded_run_is_complete(small, tmp_path):
    tables, trial = elsewhere(small, tmp_path, 1), expand(small)[0]
    rule = Extend(epochs=2, times=2, within=2)
    assert found(tables, trial, {"waited": 0}) is not None
    assert found(tables, trial, {"ended": "interrupted"}) is None
    assert found(tables, trial, {}, curve=1) is None  # it had fewer epochs than are asked for now
    assert found(tables, trial, {"waited": 10}, curve=1) is not None  # but none of them would have helped
    assert found(tables, trial, {"waited": 1}, rule) is None  # it was still improving
    assert found(tables, trial, {"waited": 2}, rule) is not None
    assert found(tables, trial, {"waited": 1}, rule, curve=4) is None
    assert (
        found(tables, trial, {"waited": 1}, rule, curve=6) is not None
    )  # it has had all that the rule gives
    assert found(tables, trial, {}, measures=("text",)) is None
    assert found(tables, trial, {"test_perplexity": 100.0}, measures=("text",)) is not None
    assert found(tables, trial, {"test_by_length": {}}) is None
    assert found(tables, trial, {"test_by_length": {}, "test_accuracy": 0.5}) is not None  # a transduction


def test_an_extended_run_and_one_with_snapshots_are_recognized(small, tmp_path):
    rules = {"extend": {"epochs": 2, "times": 1}}
    tables = elsewhere(changed(small, **rules), tmp_path, 1)
    (record,) = tables.runs.values()
    assert record.epochs == 4
    (first, *_) = expand(changed(small, **rules))
    assert KnownRuns(tables).find(first, ("test",), Extend(epochs=2)) is not None
    (first, *_) = expand(changed(small, settings={"training": {"snapshots": 2}}))
    assert KnownRuns(tables).find(first, ("test",), None) is None  # what snapshots show is not in the tables
    shown = Tables(
        tables.runs, tables.curves, {record.id: Views(evolution=EvolutionView(epochs=[], values=[]))}
    )
    assert KnownRuns(shown).find(first, ("test",), None) is not None


def test_a_run_in_stages_is_recognized_by_its_stages(small, tmp_path):
    stages = [{"lengths": [4, 6], "max_epochs": 1}]
    staged = changed(small, settings={"training": {"stages": stages}})
    tables = elsewhere(staged, tmp_path, 1)
    known = KnownRuns(tables)
    assert known.find(expand(staged)[0], ("test",), None) is not None
    assert known.find(expand(small)[0], ("test",), None) is None
    other = changed(small, settings={"training": {"stages": [{"lengths": [4, 8], "max_epochs": 1}]}})
    assert known.find(expand(other)[0], ("test",), None) is None


def test_every_row_of_the_results_is_found_by_its_configuration():
    tables = Tables.read(RESULTS)
    keys = {match_key(one.settings, one.stages) for one in tables.runs.values()}
    assert len(keys) == len(tables.runs)
    for one in tables.runs.values():
        if "start_from" not in one.config:
            assert one.stages == describe_stages(one.settings)


def test_the_folder_of_a_corpus_may_have_another_name(small):
    here = changed(small, settings=CORPUS)
    there = changed(small, settings=merge(CORPUS, {"corpus": {"folder": "/there/penn"}}))
    other = changed(small, settings=merge(CORPUS, {"corpus": {"sha256": {"train": "2"}}}))
    keys = [match_key(expand(one)[0].config) for one in (here, there, other)]
    assert keys[0] == keys[1] != keys[2]


def test_the_command_takes_tables(small, tmp_path):
    elsewhere(small, tmp_path, 3)
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\nlanguages = ["marked-reversal"]\nrestarts = 2\n'
        'models = [{ label = "LSTM", names = ["lstm"] }]\n'
        'search = { "training.learning_rate" = [0.01, 0.005] }\n'
        "settings.data = { train = 20, validation = 10, test_per_length = 1, lengths = [6, 10], "
        'test_lengths = [6, 12] }\nsettings.training = { max_epochs = 2, device = "cpu" }\n'
        'outputs = [{ label = "curve", kind = "curves", select = "setting" }]\n'
    )
    command = ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "0"]
    result = CliRunner().invoke(app, [*command, "--known", str(tmp_path / "tables")])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines[0] == {"event": "begin", "trials": 4, "done": 0, "known": 3}
    assert [line["event"] for line in lines[1:3]] == ["start", "done"]
    assert (lines[-1]["complete"], lines[-1]["known"]) == (4, 3)
    result = CliRunner().invoke(app, [*command, "--known", str(tmp_path / "nothing")])
    assert "expected the tables that ndstack gather makes" in str(result.exception)

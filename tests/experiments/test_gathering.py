"""Tables of results: what is gathered, what is kept, what figures and the report make of it."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ndstack.cli import app
from ndstack.errors import NdstackError
from ndstack.experiments import SweepFolder, expand, gathering, make_report
from ndstack.experiments.figures import draw_figure
from ndstack.experiments.gathering import Origin, find_runs, gather, read_run
from ndstack.experiments.identity import record_id
from ndstack.experiments.matching import runs_of
from ndstack.experiments.records import CURVES, RUNS, EvolutionView, HeatMapView, Tables, Views
from ndstack.experiments.registry import all_experiments, find
from ndstack.experiments.stack_views import measure_onsets, measure_pattern, measure_purity
from ndstack.training import Run, RunConfig
from ndstack.training.machine import commit

EVOLUTION = Views(evolution=EvolutionView(epochs=[0, 1], values=[[0.0], [1.0]]))
RESULTS = Path(__file__).parent.parent.parent / "results"


def made(place, curve, seconds=2.0, measured=True, **settings):
    """A run folder with the given validation differences, without parameters."""
    config = RunConfig.of({"language": "marked-reversal", "model": "lstm", "seed": 1, **settings})
    run = Run.create(place, config)
    run.write_metrics(
        [
            {"epoch": n, "validation_cross_entropy": value + 1, "validation_difference": value}
            for n, value in enumerate(curve, 1)
        ]
    )
    for epoch in range(len(curve)):
        run.add_time(epoch + 1, seconds)
    if measured:
        rows = [{"length": n, "difference": curve[-1] + n / 1000} for n in (41, 99)]
        run.replace("test.json", json.dumps({"overall": {"difference": 0.5}, "by_length": rows}))
    return run


def read_folder(folder):
    """The rows of all runs in a folder."""
    return [read_run(run, origin) for run, origin in find_runs(folder, Origin())]


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_a_run_becomes_a_row_and_its_epochs_rows(tmp_path):
    made(tmp_path / "run", [0.9, 0.1, 0.2], training={"max_epochs": 3, "threads": 1})
    gather([tmp_path / "run"], tmp_path / "tables", commit="abc", this_machine=True)
    (row,) = rows_of(tmp_path / "tables" / RUNS)
    (record,) = Tables.read(tmp_path / "tables").runs.values()
    assert (record.epochs, record.best_epoch, record.waited, record.ended) == (3, 2, 1, "epoch limit")
    assert (record.difference, record.test_difference, record.parameters) == (0.1, 0.5, 2084)
    assert (record.updates, record.seconds, record.threads) == (3000, 6.0, 1)
    assert record.test_by_length == {41: pytest.approx(0.241), 99: pytest.approx(0.299)}
    assert json.loads(row["config"])["training"] == {"seed": 1, "max_epochs": 3, "threads": 1}
    assert record.cpu
    curves = rows_of(tmp_path / "tables" / CURVES)
    assert [one["difference"] for one in curves] == ["0.9", "0.1", "0.2"]
    assert {one["run"] for one in curves} == {record.id}


def test_gathering_again_changes_nothing_and_more_epochs_update_a_run(tmp_path):
    run = made(tmp_path / "run", [0.9, 0.1], training={"max_epochs": 3})
    first = gather([run.folder], tmp_path / "tables")
    assert (len(first.added), len(first.incomplete)) == (1, 1)
    before = (tmp_path / "tables" / RUNS).read_bytes(), (tmp_path / "tables" / CURVES).read_bytes()
    assert len(gather([run.folder], tmp_path / "tables").same) == 1
    assert before == ((tmp_path / "tables" / RUNS).read_bytes(), (tmp_path / "tables" / CURVES).read_bytes())
    (old,) = Tables.read(tmp_path / "tables").runs.values()
    made(tmp_path / "longer", [0.9, 0.1, 0.05, 0.04], training={"max_epochs": 4})
    assert len(gather([tmp_path / "longer"], tmp_path / "tables").updated) == 1
    (new,) = Tables.read(tmp_path / "tables").runs.values()
    assert (old.id, old.ended, new.ended, new.epochs) == (new.id, "interrupted", "epoch limit", 4)
    assert len(gather([run.folder], tmp_path / "tables").same) == 1  # what is known better stays
    assert Tables.read(tmp_path / "tables").runs == {new.id: new}


def test_what_is_known_of_a_stack_is_not_measured_again(tmp_path, monkeypatch):
    run = made(tmp_path / "run", [0.9, 0.1], training={"max_epochs": 2})
    calls = []
    monkeypatch.setattr(gathering, "possible_views", lambda run: ["evolution"])
    monkeypatch.setattr(gathering, "views_of", lambda run: calls.append(run) or EVOLUTION)
    monkeypatch.setattr(gathering, "summarize", lambda views: {"onset_spread": 1.0})
    assert len(gather([run.folder], tmp_path / "tables").added) == 1
    before = (tmp_path / "tables" / RUNS).stat().st_mtime_ns
    assert len(gather([run.folder], tmp_path / "tables").same) == 1
    assert len(calls) == 1
    assert (tmp_path / "tables" / RUNS).stat().st_mtime_ns == before
    monkeypatch.setattr(gathering, "possible_views", lambda run: [])  # the same run without snapshots
    assert len(gather([run.folder], tmp_path / "tables").same) == 1
    (record,) = Tables.read(tmp_path / "tables").runs.values()
    assert record.stack_measures == {"onset_spread": 1.0}


def test_processor_time_is_kept_if_all_epochs_have_it(tmp_path):
    run = made(tmp_path / "run", [0.9, 0.1], training={"max_epochs": 2})
    record, curve = read_run(run)
    assert (record.processor_seconds, curve[0].processor_seconds) == (None, None)
    for epoch in (1, 2):
        run.add_time(epoch, 0.0, 1.5)
    record, curve = read_run(run)
    assert (record.seconds, record.processor_seconds, curve[0].processor_seconds) == (4.0, 3.0, 1.5)


def test_a_run_that_started_from_another_has_its_epochs_as_a_stage(tmp_path):
    made(tmp_path / "short", [0.5, 0.3], data={"lengths": [4, 20]}, training={"max_epochs": 2})
    made(
        tmp_path / "long", [0.4, 0.2, 0.3], start_from="../short", training={"max_epochs": 9, "stop_after": 1}
    )
    ((record, curve),) = read_folder(tmp_path)
    assert record.stages == "4:20@2/10/0.005,40:80@9/1/0.005"
    assert (record.epochs, record.best_epoch, record.difference, record.ended) == (5, 4, 0.2, "converged")
    assert [one.stage for one in curve] == [1, 1, 2, 2, 2]
    assert record.id != record_id(RunConfig.of({"language": "marked-reversal", "model": "lstm", "seed": 1}))


def test_of_a_run_with_stages_the_last_stage_counts(tmp_path):
    run = made(tmp_path / "run", [0.01, 0.02, 0.4, 0.3])
    lines = [line | {"stage": stage} for line, stage in zip(run.metrics(), (1, 1, 2, 2), strict=True)]
    run.write_metrics(lines)
    ((record, curve),) = read_folder(tmp_path)
    assert (record.epochs, record.best_epoch, record.difference) == (4, 4, 0.3)
    assert [one.stage for one in curve] == [1, 1, 2, 2]


def test_a_last_stage_with_more_epochs_is_the_same_run():
    config = RunConfig.of({"language": "marked-reversal", "model": "lstm", "seed": 1})
    first, more = "4:20@9/10/0.01,40:80@9/10/0.01", "4:20@9/10/0.01,40:80@99/10/0.01"
    assert record_id(config, first) == record_id(config, more)
    assert record_id(config, first) != record_id(config, first.replace("@9", "@8"))


def test_trials_of_a_sweep_know_their_experiment(small, tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    trial = expand(folder.begin(small, "paper", None))[0]
    made(folder.trial(trial), [0.2], measured=False)
    ((record, _),) = read_folder(tmp_path / "sweep")
    assert (record.experiment, record.label, record.test_difference) == ("small", "LSTM", None)


def test_damaged_tables_are_named_with_the_line(tmp_path):
    made(tmp_path / "run", [0.9])
    gather([tmp_path / "run"], tmp_path / "tables")
    path = tmp_path / "tables" / RUNS
    good = path.read_text()
    for bad in (good.replace(",1,", ",x,", 1), good.rstrip("\n") + ",1,2\n", good.replace("{", "[", 1)):
        path.write_text(bad)
        with pytest.raises(NdstackError, match=r"runs\.csv, line 2: "):
            Tables.read(tmp_path / "tables")
    with pytest.raises(NdstackError, match=r"has no runs\.csv"):
        Tables.read(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NdstackError, match="has no runs in it"):
        gather([tmp_path / "empty"], tmp_path / "tables")


def test_a_damaged_test_result_is_named(tmp_path):
    run = made(tmp_path / "run", [0.9])
    for bad in ('{"by_length": [1]}', '{"by_length": [{"length": "x"}]}', '{"overall": 3}'):
        run.replace("test.json", bad)
        with pytest.raises(
            NdstackError, match=r"test\.json is damaged: expected what ndstack evaluate writes"
        ):
            read_folder(tmp_path)


def test_runs_belong_to_the_lines_whose_settings_they_have(tmp_path):
    faithful = {"training": {"learning_rate": 0.01}}
    made(tmp_path / "a", [0.3], model="rns-2-3", options={"bottom_fix": False}, **faithful)
    made(tmp_path / "b", [0.3], model="rns-2-3", **faithful)
    made(
        tmp_path / "c", [0.3], model="rns-2-3", options={"bottom_fix": False}, training={"learning_rate": 0.3}
    )
    made(tmp_path / "d", [0.3], training={"eos": False})
    gather([tmp_path], tmp_path / "tables")
    tables = Tables.read(tmp_path / "tables")
    labels = {one.name: [run.label for run in runs_of(tables, one)] for one in all_experiments()}
    assert labels["cfls"] == labels["times"] == ["NS+S+U"]
    assert labels["ns-cfls"] == ["LSTM"]
    assert labels["stack-attention"] == ["RNS"]
    assert labels["capacity"] == ["RNS 2-3"]  # k is 2 where nothing is said
    assert not runs_of(tables, find("cfls"), staged=True)


def test_the_report_of_tables_has_every_figure_and_says_how_many_runs(tmp_path):
    made(tmp_path / "run", [0.3, 0.2])
    gather([tmp_path / "run"], tmp_path / "tables")
    found = make_report(tmp_path / "tables")
    assert found.outputs == [output.label for one in all_experiments() for output in one.outputs]
    text = found.index.read_text(encoding="utf-8")
    assert "Runs per language: LSTM: 0 to 1; Strat.: 0" in text
    assert "| LSTM | 0.2000 |" in (tmp_path / "tables" / "report" / "figure-6.1.md").read_text()


def test_the_command_gathers(tmp_path):
    made(tmp_path / "run", [0.9])
    words = ["gather", str(tmp_path / "run"), "--out", str(tmp_path / "tables")]
    assert "1 runs added" in CliRunner().invoke(app, words).output
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert (found["added"], found["same"], found["incomplete"]) == (0, 1, 1)


def test_the_tables_that_are_kept_can_be_read_and_name_no_place():
    tables = Tables.read(RESULTS)
    assert len(tables.runs) >= 48
    assert all(len(tables.curves[name]) == one.epochs for name, one in tables.runs.items())
    assert all(one.settings.language == one.language for one in tables.runs.values())
    assert "/" not in "".join(str(one.config.get("start_from", "")) for one in tables.runs.values())


def test_what_is_measured_of_stacks():
    epochs, n = list(range(6)), 9
    outward = [[1.0 if epoch >= abs(t - 4) else 0.0 for t in range(n)] for epoch in epochs]
    found = measure_onsets(EvolutionView(epochs=epochs, values=outward))
    assert found["onset_outward"] == pytest.approx(1.0)
    assert found["onset_spread"] == pytest.approx(3.0, abs=0.5)
    at_once = [[0.0] * n, *[[1.0] * n] * 5]
    assert measure_onsets(EvolutionView(epochs=epochs, values=at_once)) == {
        "onset_spread": 0.0,
        "onset_outward": 0.0,
    }
    import numpy as np

    readings = np.array([[0.0], [0.1], [1.0], [1.1], [0.05]])
    assert measure_purity(readings, ["a", "a", "b", "b", "b"]) == pytest.approx(0.8)
    word = ["0", "1", "0", "#", "0", "1", "0"]
    values = [[0.0], [0.0], [0.0], [0.5], [1.0], [0.5], [0.0]]
    assert measure_pattern(HeatMapView(word=word, names=["v1"], values=values)) == pytest.approx(0.0)


def test_the_commit_of_a_clone_is_read_without_git(tmp_path):
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text("0123456789abcdef\n")
    assert commit(tmp_path) == "0123456789ab"
    (git / "refs" / "heads" / "main").unlink()
    assert commit(tmp_path) == ""
    (git / "packed-refs").write_text("# x\nfedcba9876543210 refs/heads/main\n")
    assert commit(tmp_path) == "fedcba987654"
    (git / "HEAD").write_text("aaaaaaaaaaaaaaaa\n")
    assert commit(tmp_path) == "aaaaaaaaaaaa"


def test_figures_of_what_stacks_do_are_drawn_from_kept_views(tmp_path):
    options = {"bottom_fix": False}
    run = made(tmp_path / "a", [0.3], model="rns-2-3", options=options)
    wide = made(tmp_path / "b", [0.3], model="rns-2-3", language="marked-reversal(k=40)")
    views = {
        run: {"evolution": {"epochs": [0, 1], "values": [[0.0, 0.5, 0.0], [1.0, 0.5, 1.0]]}},
        wide: {
            "readings": {
                "points": [[0, 1], [1, 0]],
                "variance": [0.9, 0.1],
                "labels": ["0", "1"],
                "purity": 1.0,
            },
            "heat_map": {"word": ["0", "#", "0"], "names": ["a", "b"], "values": [[0, 1], [1, 0], [0, 1]]},
        },
    }
    tables = Tables.empty()
    for one, kept in views.items():
        own = Views.model_validate(kept)
        record, curve = read_run(one, views=own)
        tables = tables.with_run(record, curve, own)
    tables.write(tmp_path)
    tables = Tables.read(tmp_path)
    assert {one.stack_measures.get("purity") for one in tables.runs.values()} == {None, 1.0}
    for label, marks in (("figure-6.2", "images"), ("figure-9.4", "collections"), ("figure-9.5", "images")):
        experiment = find(label)
        (output,) = (one for one in experiment.outputs if one.label == label)
        figure = draw_figure(output, experiment, runs_of(tables, experiment))
        assert getattr(figure.axes[0], marks), label

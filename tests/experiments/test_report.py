"""Selection by the dissertation's rules, curves, tables, pages and estimates."""

import csv
import io
import json
import os
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ndstack import languages
from ndstack.analysis.figures import Evolution
from ndstack.cli import app
from ndstack.errors import NdstackError
from ndstack.experiments import Experiment, Inline, SweepFolder, estimate, expand, make_report, run_sweep
from ndstack.experiments.experiment import Rules
from ndstack.experiments.figures.stack_views_6_2_9_4_9_5 import draw_evolution, draw_heatmaps, draw_readings
from ndstack.experiments.groups import Spent
from ndstack.experiments.report_page import Section, inline, render_page
from ndstack.experiments.results import finished, mean_by_length, mean_curve, select
from ndstack.experiments.sheets import Sheet
from ndstack.experiments.stack_views import correct_shares, pattern
from ndstack.nn.storage.files import pack_tensors
from ndstack.training import Run


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def invented(experiment, path, curves, seconds=2.0):
    """A folder whose trials have the given validation differences, epoch after epoch."""
    folder = SweepFolder(path)
    trials = expand(folder.begin(experiment, "paper", None))
    for trial, curve in zip(trials, curves, strict=True):
        place = folder.trial(trial)
        run = Run.create(place, trial.config)
        run.write_metrics(
            [
                {"epoch": i + 1, "validation_cross_entropy": v + 1, "validation_difference": v}
                for i, v in enumerate(curve)
            ]
        )
        for epoch in range(len(curve)):
            run.add_time(epoch + 1, seconds)
        rows = [{"length": n, "difference": curve[-1] * n} for n in (6, 8)]
        run.replace("test.json", json.dumps({"by_length": rows}))
        run.replace("result.json", "{}")
        (place / "best.safetensors").write_bytes(pack_tensors({"weight": torch.zeros(3)}, "{}"))
    return folder, trials


CURVES = [[0.9, 0.1], [0.5, 0.3, 0.4], [0.8, 0.7], [0.45, 0.2]]
"""In the order of trials: both learning rates, then both again."""


def test_the_best_run_and_the_best_setting_are_different_things(small, tmp_path):
    runs = finished(*invented(small, tmp_path, CURVES))
    assert [one.score for one in runs] == [0.1, 0.3, 0.7, 0.2]
    assert [one.score for one in select(runs, "best")] == [0.1]
    # Means 0.4 and 0.25: the setting with the best run is not the best setting.
    assert [one.score for one in select(runs, "setting")] == [0.3, 0.2]
    assert select(runs, "all") == runs
    assert select([], "best") == []


def test_after_a_run_has_converged_its_last_value_counts(small, tmp_path):
    runs = select(finished(*invented(small, tmp_path, CURVES)), "setting")
    mean, deviation = mean_curve(runs)
    assert np.allclose(mean, [(0.5 + 0.45) / 2, (0.3 + 0.2) / 2, (0.4 + 0.2) / 2])
    assert np.allclose(deviation, [0.025, 0.05, 0.1])
    lengths, by_length, _ = mean_by_length(runs)
    assert lengths == [6, 8]
    assert np.allclose(by_length, [0.3 * 6, 0.3 * 8])


def test_what_is_left_is_estimated_from_what_was_measured(small, tmp_path):
    folder, trials = invented(small, tmp_path, CURVES)
    paces = estimate.measure_paces(folder, trials)
    assert paces == {("lstm", "marked-reversal"): estimate.Pace(2.0, 9 / 4)}
    settings = small.settings | {"training": {"max_epochs": 100}}
    longer = expand(small.model_copy(update={"settings": settings}))[0]
    assert estimate.expect(paces, longer) == (2, pytest.approx(2.0 * 9 / 4))
    assert estimate.expect(paces, longer, all_epochs=True) == (100, 200)
    assert estimate.expect({}, longer) is None


def test_rules_that_leave_trials_out_shorten_the_estimate():
    trials = [(10, 100.0)] * 4
    none = estimate.expect_group(Rules(), Spent(), trials)
    assert none == 400.0
    until = Rules.model_validate({"until": {"difference": 0.05}})
    assert estimate.expect_group(until, Spent(), trials) == 100 + 50 + 25 + 12.5
    failed = Spent(complete=2, scores=[0.3, 0.4])
    assert estimate.expect_group(until, failed, trials[:2]) == 100 + 75
    assert estimate.expect_group(until, Spent(complete=1, scores=[0.01]), trials) == 0.0
    budget = Rules.model_validate({"budget": {"epochs": 25}})
    assert estimate.expect_group(budget, Spent(), trials) == 300.0
    assert estimate.expect_group(budget, Spent(epochs=15), trials) == 100.0
    seconds = Rules.model_validate({"budget": {"seconds": 150}})
    assert estimate.expect_group(seconds, Spent(seconds=60), trials) == 100.0


def test_what_full_scale_would_take_is_estimated_if_enough_was_measured(small, tmp_path):
    folder, trials = invented(small, tmp_path, CURVES)
    longer = expand(
        small.model_copy(update={"settings": small.settings | {"training": {"max_epochs": 100}}})
    )[0]
    found = estimate.full_scale(folder, trials, trials[:1] * 10, {"LSTM": 20.0})
    assert found == estimate.FullScale(40.0, 40.0, 1, 400.0)  # 2 epochs are allowed
    assert estimate.full_scale(folder, trials, trials, {}).elsewhere is None
    # Trials that were cut short do not tell how many epochs full scale takes.
    found = estimate.full_scale(folder, trials, [longer] * 10, {"LSTM": 20.0})
    assert found == estimate.FullScale(None, 2000.0, 1, 20_000.0)


def test_trials_with_less_data_say_nothing_about_full_scale(small, tmp_path):
    folder, trials = invented(small, tmp_path, CURVES)
    full = expand(small.model_copy(update={"settings": {}}))
    assert estimate.full_scale(folder, trials, full, {}) is None


def test_a_report_of_half_a_sweep_shows_what_there_is(small, tmp_path):
    folder = SweepFolder(tmp_path)
    trials = expand(folder.begin(small, "paper", None))
    run_sweep(folder, trials[:2], Inline(), measures=("test",))
    folder.fail(trials[2], "the loss is <nan>")
    made = make_report(folder)
    assert (made.complete, made.trials, made.outputs) == (2, 4, ["curve"])
    text = made.index.read_text(encoding="utf-8")
    assert "2 of 4 trials complete" in text
    assert "the loss is &lt;nan&gt;" in text
    assert str(trials[0].config.seed) in text
    assert "torch" in text
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "trials.csv").read_text())))
    assert [row["Trial"] for row in rows] == [trial.id for trial in trials[:2]]
    first = make_report(folder).index.read_bytes()
    assert first == make_report(folder).index.read_bytes()


def test_a_report_of_nothing_is_drawn_as_well(small, tmp_path):
    folder = SweepFolder(tmp_path)
    folder.begin(small, "paper", None)
    assert make_report(folder).complete == 0


def test_the_correct_action_is_push_then_replace_then_pop():
    actions = np.arange(2 * 3 * 3).reshape(2, 3, 3) / 18
    evolution = Evolution(("0", "#", "0"), (0, 1), ("push", "replace", "pop"), actions)
    assert (correct_shares(evolution) * 18).round().tolist() == [[0, 4, 8], [9, 13, 17]]


def test_the_string_of_figure_9_5_repeats_0123():
    language = languages.get("marked-reversal(k=40)")
    word = pattern(language, (8, 14))
    assert word == tuple("012301#103210")
    assert word in language


def test_times_are_shown_in_fitting_units():
    shown = [estimate.show_seconds(seconds) for seconds in (4.2, 100, 600, 9000, 200_000)]
    assert shown == ["4 s", "1.7 min", "10.0 min", "2.5 h", "2.3 days"]


def test_tables_as_markdown_and_csv():
    sheet = Sheet(["Model", "a"], [["NS, |Q| = 1", 0.12345], ["x", None], ["y", 1234]])
    assert sheet.markdown().splitlines()[2:] == ["| NS, \\|Q\\| = 1 | 0.1235 |", "| x |  |", "| y | 1,234 |"]
    assert sheet.csv() == 'Model,a\n"NS, |Q| = 1",0.12345\nx,\ny,1234\n'


def test_a_page_escapes_text_and_keeps_the_ids_of_drawings_apart():
    svg = '<?xml?>\n<svg a="1"><path id="p"/><use xlink:href="#p" clip-path="url(#p)"/></svg>'
    shown = render_page("<t>", "a & b", [Section("x <y>", svg=svg), Section("z", svg=svg)])
    assert "<t>" not in shown.replace("<title>", "")
    assert "x &lt;y&gt;" in shown
    ids = re.findall(r' id="([^"]+)"', shown)
    assert len(set(ids)) == len(ids) == 2
    for name in ids:
        assert f'xlink:href="#{name}"' in shown
        assert f"url(#{name})" in shown
    assert inline(svg, "f-", 'a "b"').startswith('<svg role="img" aria-label="a &quot;b&quot;" a="1">')


def test_the_command_lists_and_refuses_in_one_line(tmp_path):
    run = CliRunner().invoke
    listed = json.loads(run(app, ["reproduce", "list", "--json"]).output)
    assert {row["name"]: row["trials"]["paper"] for row in listed}["cfls"] == 1100
    table = run(app, ["reproduce", "list"]).output.splitlines()
    assert [line.split()[0] for line in table[-len(listed) :]] == [row["name"] for row in listed]
    for arguments, message in [
        (["reproduce", "cfls", "--scale", "smoke"], "expected --out FOLDER"),
        (["reproduce", "cfls", "--scale", "huge", "--out", "x"], "no scale 'huge'"),
        (["reproduce", "ptb", "--scale", "paper", "--out", "x"], "needs a corpus"),
        (["reproduce", "cfls", "--corpus", "x", "--out", "x"], "formal languages"),
        (["reproduce", "cfls", "--address", "auto", "--out", "x"], "expected --engine ray"),
        (["reproduce", "cfls", "--suites", "nowhere", "--out", "x"], "cfls is about formal languages"),
        (["report", str(tmp_path)], "not the folder of a sweep"),
        (["sweep", str(tmp_path / "no.toml"), "--out", "x"], "cannot read"),
    ]:
        error = str(run(app, arguments).exception)
        assert message in error
        assert "\n" not in error


def test_one_folder_can_hold_several_experiments(small, tmp_path):
    other = Experiment.of(small.model_dump(mode="json") | {"name": "other"}, "other")
    folder, trials = invented(small, tmp_path, CURVES)
    assert [t.id for t in expand(folder.begin(other, "paper", None))] == [t.id for t in trials]
    summary = run_sweep(folder, trials, Inline(), measures=("test",))
    assert len(summary.done) == 4
    made = make_report(folder)
    assert made.outputs == ["other-paper-curve", "small-paper-curve"]
    (folder.trial(trials[0]) / "test.json").unlink()  # as if an experiment had run it that needs no test
    assert make_report(folder).complete == 6


def test_the_command_says_which_trials_failed_and_reports_the_others(tmp_path):
    (tmp_path / "my.toml").write_text(
        """
        name = "my"
        languages = ["marked-reversal"]
        models = [{label = "LSTM", names = ["lstm"]}]
        search = {"training.learning_rate" = [0.01, 1e38]}
        outputs = [{label = "curve", kind = "curves"}]
        [settings]
        data = {train = 20, validation = 10, lengths = [6, 10], test_lengths = [6, 8], test_per_length = 1}
        training = {max_epochs = 1, optimizer = "sgd", device = "cpu"}
        """
    )
    command = ["sweep", "my.toml", "--out", "out", "--workers", "0", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = CliRunner().invoke(app, command)
        shown = CliRunner().invoke(app, ["report", "out", "--out", "elsewhere"]).output
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "report": "out/report/index.html", "outputs": ["curve"],
        "trials": 2, "complete": 1, "known": 0, "not_needed": 0,
    }  # fmt: skip
    assert done.stderr.count("\n") == 1
    assert re.match(r"ndstack: lstm-marked-reversal-\w+ failed: .*try a lower learning rate", done.stderr)
    assert shown == "elsewhere/index.html: curve; 1 of 2 trials complete\n"


def test_what_full_scale_takes_is_told_with_the_dissertations_times(small, tmp_path):
    settings = small.settings | {"training": {"max_epochs": 2}}
    known = Experiment.of(small.model_dump(mode="json") | {"name": "times", "settings": settings}, "times")
    folder, _ = invented(known, tmp_path, CURVES)
    text = make_report(folder).index.read_text(encoding="utf-8")
    assert "4 trials would take" in text
    assert "1 pairs of model and language were measured" in text
    assert "by table 6.1" in text


def test_damaged_files_of_a_sweep_are_named(small, tmp_path):
    folder, trials = invented(small, tmp_path, CURVES)
    environment = folder.trial(trials[0]) / "environment.json"
    environment.unlink()
    make_report(folder)
    environment.write_text("[")
    with pytest.raises(NdstackError, match=r"environment\.json is damaged"):
        make_report(folder)
    (plan,) = (tmp_path / "experiments").iterdir()
    plan.write_text('{"format": 99}')
    with pytest.raises(NdstackError, match="is damaged: expected an experiment"):
        make_report(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(NdstackError, match="cannot write to"):
        SweepFolder(tmp_path / "file").begin(small, "paper", None)


def test_figures_about_marked_reversal_refuse_others():
    with pytest.raises(NdstackError, match="dyck has no symbol #"):
        pattern(languages.get("dyck"), (4, 8))
    evolution = Evolution(("(", ")"), (0,), ("push", "replace", "pop"), np.zeros((1, 2, 3)))
    with pytest.raises(NdstackError, match="nondeterministic stacks on marked reversal"):
        correct_shares(evolution)


@pytest.mark.parametrize("draw", [draw_evolution, draw_readings, draw_heatmaps])
def test_figures_of_no_complete_trial_say_so(draw, small):
    (output,) = small.outputs
    (text,) = draw(output, small, []).axes[0].texts
    assert text.get_text() == "curve: no trial is complete"

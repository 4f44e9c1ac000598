"""Restarts that pay: groups that end, more epochs for some runs, an order, budgets, campaigns."""

import csv
import json
import os
import tomllib
from pathlib import Path

import pytest

from ndstack.errors import NdstackError
from ndstack.experiments import (
    Experiment,
    Inline,
    Local,
    Portion,
    SweepFolder,
    Watcher,
    expand,
    make_report,
    read_experiments,
    run_campaign,
    run_sweep,
)
from ndstack.experiments.experiment import Extend
from ndstack.experiments.groups import ended, spent
from ndstack.experiments.jobs import RESULT, Job, more_epochs
from ndstack.settings.reading import merge
from ndstack.training import Run, train
from ndstack.training.run import BEST, METRICS, STATE, best_epoch


def changed(small, **changes):
    return Experiment.of(merge(small.model_dump(mode="json"), changes), "changed")


def sweep(folder, experiment, **options):
    folder = SweepFolder(folder)
    trials = expand(folder.begin(experiment, "paper", None))
    options = {"measures": ("test",), "rules": experiment} | options
    return folder, trials, run_sweep(folder, trials, Inline(), **options)


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


class Broken(Inline):
    """An engine whose machine breaks after so many trials."""

    def __init__(self, count):
        super().__init__()
        self.left = count

    def poll(self, timeout):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().poll(timeout)


def test_a_group_ends_at_success(small, tmp_path):
    easy = changed(small, until={"difference": 100.0}, languages=["marked-reversal", "dyck"])
    folder, trials, summary = sweep(tmp_path, easy)
    assert [trial.language for trial in summary.done] == ["marked-reversal", "dyck"]
    assert len(summary.not_needed) == len(trials) - 2 == 6
    assert {*summary.not_needed.values()} == {"a run is within 100 nats per symbol of the lower bound"}
    assert not any(folder.trial(trial).exists() for trial in trials if trial.id in summary.not_needed)
    made = make_report(folder)
    assert (made.trials, made.complete, made.not_needed) == (8, 2, 6)
    rows = rows_of(tmp_path / "report" / "spent.csv")
    assert [(row["Complete"], row["Not needed"], row["Within 100"]) for row in rows] == [("1", "3", "1")] * 2
    assert "2 of 8 complete, 6 not needed" in made.index.read_text()
    # The same again: nothing is run.
    assert sweep(tmp_path, easy)[2].not_needed == summary.not_needed


def test_without_success_all_are_run(small, tmp_path):
    _, trials, summary = sweep(tmp_path, changed(small, until={"difference": 1e-6}))
    assert len(summary.done) == len(trials) == 4
    assert not summary.not_needed


def test_a_run_that_has_begun_is_completed_though_its_group_has_ended(small, tmp_path):
    easy = changed(small, until={"difference": 100.0})
    folder, trials, _ = sweep(tmp_path, easy)
    train(folder.trial(trials[2]), trials[2].config)  # complete but for its result, as when it was killed
    summary = sweep(tmp_path, easy)[2]
    assert [trial.id for trial in summary.done] == [trials[0].id, trials[2].id]
    assert [*summary.not_needed] == [trials[1].id, trials[3].id]


def test_a_budget_ends_a_group_and_the_report_checks_it(small, tmp_path):
    experiment = changed(
        small,
        budget={"epochs": 3},
        models=[
            {"label": f"{units} units", "names": ["lstm"], "settings": {"options": {"hidden": units}}}
            for units in (4, 5)
        ],
    )
    folder = SweepFolder(tmp_path)
    trials = expand(folder.begin(experiment, "paper", None))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(folder, trials, Broken(3), measures=("test",), rules=experiment)
    assert "These have not spent it yet: 5 units on marked-reversal." in make_report(folder).index.read_text()
    summary = run_sweep(folder, trials, Inline(), measures=("test",), rules=experiment)
    assert {*summary.not_needed.values()} == {"the budget of 3 epochs is spent"}
    assert [trial.label for trial in summary.done] == ["4 units", "5 units", "4 units", "5 units"]
    text = make_report(folder).index.read_text()
    assert "All models have spent it or succeeded, so the comparison is at equal budgets." in text
    (row, _) = rows_of(tmp_path / "report" / "spent.csv")
    assert (row["Epochs"], row["Updates"], row["Budget"]) == ("4", "8", "3 epochs")
    assert (float(row["Share of the budget"]), row["Budget spent"]) == (4 / 3, "yes")
    assert ended(changed(small, budget={"seconds": 1e-9}), spent(folder, trials)) is not None
    assert ended(changed(small, budget={"seconds": 1e9}), spent(folder, trials)) is None


def test_runs_that_still_improve_get_more_epochs_and_equal_one_longer_run(small, tmp_path):
    rules = {"extend": {"epochs": 2, "times": 2, "within": 1}, "restarts": 1, "search": {}}
    experiment = changed(small, **rules, settings={"training": {"learning_rate": 0.001}})
    experiment = experiment.model_copy(update={"search": {}})
    folder, (trial,), _ = sweep(tmp_path / "extended", experiment)
    run = folder.run(trial)
    history = run.metrics()
    assert len(history) == 6, "it improves in every epoch"
    result = json.loads((run.folder / RESULT).read_text())
    assert (result["extended"], result["epochs"], result["updates"]) == (2, 6, 12)
    longer = trial.config.model_dump()
    longer["training"]["max_epochs"] = 6
    train(tmp_path / "longer", type(trial.config).of(longer))
    for name in (METRICS, BEST, STATE):
        assert (run.folder / name).read_bytes() == (tmp_path / "longer" / name).read_bytes()
    # A sweep that was complete without the rule goes further with it; the trial is the same one.
    plain = experiment.model_copy(update={"extend": None})
    folder, (same,), _ = sweep(tmp_path / "later", plain)
    assert same.id == trial.id
    assert len(folder.run(same).metrics()) == 2
    folder, _, summary = sweep(tmp_path / "later", experiment)
    assert (folder.trial(same) / METRICS).read_bytes() == (run.folder / METRICS).read_bytes()
    assert len(summary.done) == 1


@pytest.mark.parametrize(
    ("values", "limit", "stages", "expected"),
    [
        ([5, 4, 3], 3, [1, 1, 1], 5),
        ([5, 4, 4.5], 3, [1, 1, 1], 5),
        ([3, 4, 4.5], 3, [1, 1, 1], None),  # its best epoch is too long ago
        ([5, 4, 3], 4, [1, 1, 1], None),  # it ended before its limit
        ([5, 4, 3, 2, 1], 5, [1] * 5, None),  # it has had its extension
        ([1, 5, 4, 3], 3, [1, 2, 2, 2], 5),  # epochs of the last stage count
        ([5, 4, 3], 3, [1, 1, 1, 1], None),  # the last stage is still to come
    ],
)
def test_which_runs_get_more_epochs(values, limit, stages, expected, small):
    first = [{"lengths": (4, 5)}] * (2 in stages or len(stages) > len(values))
    config = expand(small)[0].config.model_dump()
    config["training"] |= {"max_epochs": 3, "stages": first}
    begun = type(expand(small)[0].config).of(config)
    config["training"]["max_epochs"] = limit
    run = Run("nowhere", type(begun).of(config))
    lines = zip(values, stages, strict=False)
    run.metrics = lambda: [
        {"epoch": epoch, "stage": stage, "validation_cross_entropy": value}
        for epoch, (value, stage) in enumerate(lines, 1)
    ]
    history = run.metrics()
    run.metrics = lambda: history
    assert more_epochs(run, begun, Extend(epochs=2, times=1, within=2)) == expected
    assert more_epochs(run, begun, None) is None


def test_the_order_is_a_permutation_from_the_seed_and_covers_the_grid_early(small):
    rates = [0.01, 0.005, 0.001, 0.0005]
    many = changed(
        small,
        search={"training.learning_rate": rates},
        restarts=3,
        languages=["marked-reversal", "dyck"],
        models=[{"label": "LSTM", "names": ["lstm"]}, {"label": "Sup.", "names": ["sup-2", "sup-3"]}],
    )
    shuffled = changed(many, order="shuffled")
    listed, drawn = expand(many), expand(shuffled)
    assert {trial.id: trial.config for trial in listed} == {trial.id: trial.config for trial in drawn}
    assert [trial.id for trial in drawn] == [trial.id for trial in expand(shuffled)]
    assert [trial.id for trial in drawn] != [trial.id for trial in listed]
    assert [trial.id for trial in drawn] != [trial.id for trial in expand(changed(shuffled, seed=1))]
    mine = [trial for trial in drawn if (trial.label, trial.language) == ("LSTM", "dyck")]
    for first in range(0, 12, 4):
        assert {trial.config.training.learning_rate for trial in mine[first : first + 4]} == {*rates}
        assert {trial.restart for trial in mine[first : first + 4]} == {first // 4}


def test_stages_in_a_sweep(small, tmp_path):
    stages = [[], [{"lengths": [4, 5], "max_epochs": 1}]]
    experiment = changed(small, restarts=1)
    experiment = experiment.model_copy(update={"search": {"training.stages": stages}})
    folder, trials, summary = sweep(tmp_path, experiment)
    assert [len(folder.run(trial).metrics()) for trial in trials] == [2, 3]
    assert len(summary.done) == 2
    make_report(folder)
    plain, staged = rows_of(tmp_path / "report" / "trials.csv")
    assert (plain["Epochs"], plain["Updates"], plain["Stages before"]) == ("2", "4", "")
    assert (staged["Epochs"], staged["Updates"], staged["Stages before"]) == ("3", "6", "4:5")
    best = best_epoch(folder.run(trials[1]).metrics())
    assert best["stage"] == 2
    assert float(staged["Validation"]) == pytest.approx(best["validation_difference"], abs=1e-8)


CAMPAIGN = """
name = "both"

[[experiments]]
from = "small.toml"
name = "second-in-the-alphabet"
restarts = 1

[[experiments]]
from = "small.toml"
name = "first-in-the-alphabet"
"""


@pytest.fixture
def campaign(tmp_path):
    (tmp_path / "small.toml").write_text(
        'languages = ["marked-reversal"]\nrestarts = 2\nmodels = [{ label = "LSTM", names = ["lstm"] }]\n'
        'search = { "training.learning_rate" = [0.01, 0.005] }\n'
        "[settings.data]\ntrain = 20\nvalidation = 10\nlengths = [6, 10]\n"
        "[settings.training]\nmax_epochs = 1\n"
    )
    path = tmp_path / "campaign.toml"
    path.write_text(CAMPAIGN)
    return path


class Started(Watcher):
    def __init__(self):
        self.ids = []

    def started(self, trial, attempt):
        self.ids.append(trial.id)


def test_a_campaign_is_run_in_its_order_and_each_trial_once(campaign, tmp_path):
    found = read_experiments(campaign)
    assert [one.name for one in found] == ["second-in-the-alphabet", "first-in-the-alphabet"]
    folder, watcher = SweepFolder(tmp_path / "out"), Started()
    portions = [
        Portion(expand(folder.begin(one, "paper", None, place)), rules=one) for place, one in enumerate(found)
    ]
    with pytest.raises(KeyboardInterrupt):
        run_campaign(folder, portions, Broken(1), watcher=watcher)
    summary = run_campaign(folder, portions, Inline(), watcher=watcher)
    assert [*dict.fromkeys(watcher.ids)] == [trial.id for trial in portions[1].trials]
    assert len(summary.done) == 6  # two in both
    assert len({trial.id for trial in summary.done}) == 4
    assert [plan.experiment.name for plan in folder.planned()] == [one.name for one in found]
    assert make_report(folder).complete == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiments = []", r"expected one \[\[experiments\]\] table or more"),
        ("experiments = [1]", "experiment 1: expected a table"),
        ("[[experiments]]\nfrom = 3", "from is 3, expected an experiment's name or a file"),
        ('[[experiments]]\nfrom = "cfsl"', "did you mean cfls"),
        ('[[experiments]]\nfrom = "no.toml"', r"no\.toml"),
        ('[[experiments]]\nfrom = "cfls"\n[[experiments]]\nfrom = "cfls"', "two experiments are called cfls"),
        ('restarts = 3\n[[experiments]]\nfrom = "cfls"', "restarts: there is no such name"),
        ('[[experiments]]\nfrom = "cfls"\nuntil = { difference = -1 }', "until.difference"),
        ('[[experiments]]\nfrom = "ptb"\nuntil = { difference = 1 }', "given for an experiment on text"),
        ('[[experiments]]\nfrom = "cfls"\nbudget = {}', "expected either epochs or seconds"),
    ],
)
def test_wrong_campaigns_are_refused_in_one_line(text, message, tmp_path):
    (tmp_path / "campaign.toml").write_text(text)
    with pytest.raises(NdstackError, match=message) as caught:
        read_experiments(tmp_path / "campaign.toml")
    assert "\n" not in str(caught.value)


def test_nice_lowers_the_priority_of_processes(small, tmp_path):
    trial = expand(small)[0]
    job = Job(id=trial.id, folder=str(tmp_path / "trial"), config=trial.config)
    with Local(1, tmp_path / "log", nice=3) as engine:
        engine.submit(job)
        (worker,) = engine._workers
        wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)
        assert os.getpriority(os.PRIO_PROCESS, worker.process.pid) == wanted
        session = Path(f"/proc/{worker.process.pid}/autogroup")
        if session.exists():  # Linux: what the priority of the process's session is
            assert session.read_text().split()[-1] == str(wanted)


FAITHFUL = """
name = "unmarked-reversal-faithful"
languages = ["unmarked-reversal"]
restarts = 5

[search]
"training.learning_rate" = [0.01, 0.005, 0.001, 0.0005]

[[models]]
label = "NS+S+U"
names = ["rns-2-3"]
settings.options.bottom_fix = false
"""


def test_the_campaign_has_the_trials_that_were_begun_before_it_and_shares_them():
    read = read_experiments(Path(__file__).parents[2] / "results" / "campaign.toml")
    found = {one.name: {trial.id for trial in expand(one)} for one in read}
    alone = [trial.id for trial in expand(Experiment.of(tomllib.loads(FAITHFUL), "alone"))]
    assert found["unmarked-reversal-faithful"] == {*alone}
    assert alone[:2] == ["rns-2-3-unmarked-reversal-61e7319a6f", "rns-2-3-unmarked-reversal-30ab49b268"]
    first = found["cfls-unmarked-reversal"]
    assert len(first & {*alone}) == 3
    assert len(first & found["unmarked-reversal-parts"]) == 9
    assert len(found["cfls-solved"] & (found["cfls-deterministic"] | found["cfls-nondeterministic"])) == 8
    assert found["capacity-200"] < found["capacity-three-runs"]
    assert found["non-cfls-count-3"] < found["non-cfls-three-runs"]
    counts = {name: len(ids) for name, ids in found.items()}
    assert counts["unmarked-reversal-stages"] == 10
    assert counts["unmarked-reversal-parts"] == 24
    assert counts["cfls-solved"] == 40

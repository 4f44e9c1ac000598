"""Sweeps that spend hours only where a verdict is open."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ndstack.cli import app
from ndstack.errors import NdstackError
from ndstack.experiments import (
    Experiment,
    Inline,
    Portion,
    SweepFolder,
    Tables,
    Watcher,
    expand,
    gather,
    make_report,
    measures_of,
    registry,
    run_campaign,
    run_sweep,
)
from ndstack.experiments.claims import evidence, read_claims
from ndstack.experiments.claims.open_claims import OpenClaims, check_claims
from ndstack.settings.reading import merge

CLAIMS = """
[[claims]]
id = "C1"
section = "6"
text = "LSTMs fail on marked reversal."
[[claims.parts]]
rule = "fails"
experiments = ["cfls"]
left = ["LSTM"]
languages = ["marked-reversal"]

[[claims]]
id = "C2"
section = "6"
text = "LSTMs fail on both languages."
[[claims.parts]]
rule = "fails"
experiments = ["cfls"]
left = ["LSTM"]
languages = ["marked-reversal"]
[[claims.parts]]
rule = "fails"
experiments = ["cfls"]
left = ["LSTM"]
languages = ["dyck"]
"""


@pytest.fixture
def tiny(small, monkeypatch):
    """A stand-in for an experiment of the dissertation, with two models; every run that ended counts."""
    values = small.model_dump(mode="json")
    values |= {"name": "tiny", "languages": ["marked-reversal", "dyck"], "restarts": 3, "search": {}}
    values["models"] += [{"label": "Large", "names": ["lstm"], "settings": {"options": {"hidden": 24}}}]
    values["settings"]["training"] |= {"max_epochs": 1}
    tiny, load = Experiment.of(values, "tiny"), registry.load
    monkeypatch.setattr(registry, "load", lambda name: tiny if name == "cfls" else load(name))
    monkeypatch.setattr(evidence, "PATIENCE", 0)
    return tiny


@pytest.fixture
def claims(tiny, tmp_path):
    path = tmp_path / "claims.toml"
    path.write_text(CLAIMS)
    return path


class Heard(Watcher):
    def __init__(self):
        self.begun, self.left_out = [], {}

    def started(self, trial, attempt):
        self.begun.append((trial.label, trial.language))

    def ended(self, trial, state, message):
        if state == "not needed":
            self.left_out.setdefault((trial.label, trial.language), []).append(message)


def changed(experiment, **changes):
    return Experiment.of(merge(experiment.model_dump(mode="json"), changes), "changed")


def three_failures(tiny, tmp_path):
    """Tables with three runs of the LSTM on marked reversal."""
    folder = SweepFolder(tmp_path / "elsewhere")
    trials = expand(folder.begin(changed(tiny, languages=["marked-reversal"]), "paper", None))
    run_sweep(folder, [trial for trial in trials if trial.label == "LSTM"], Inline())
    gather([folder.folder], tmp_path / "tables")
    return Tables.read(tmp_path / "tables")


def sweep(tmp_path, *experiments, tables=None, claims=None):
    folder, watcher = SweepFolder(tmp_path / "here"), Heard()
    if tables is not None:
        folder.learn(tables, claims)
    portions = [
        Portion(expand(folder.begin(one, "paper", None, place)), measures_of(one), one)
        for place, one in enumerate(experiments)
    ]
    return folder, run_campaign(folder, portions, Inline(), watcher=watcher), watcher


def test_a_claim_that_is_decided_by_known_tables_needs_no_trial(tiny, claims, tmp_path):
    known = three_failures(tiny, tmp_path)
    mine = changed(tiny, seed=1, languages=["marked-reversal"], claims=["C1"])
    folder, summary, heard = sweep(tmp_path, mine, tables=known, claims=claims)
    assert heard.begun == []
    assert {*summary.not_needed.values()} == {"C1 reproduced"}
    assert len(summary.not_needed) == 6
    assert heard.left_out["LSTM", "marked-reversal"] == ["C1 reproduced"] * 3
    made = make_report(SweepFolder(folder.folder))
    assert made.counts == "0 of 6 trials complete, 6 not needed"
    assert "6 (C1 reproduced)" in made.index.read_text()
    folder, summary, heard = sweep(tmp_path, mine, tables=Tables.empty(), claims=claims)
    assert heard.begun == [("LSTM", "marked-reversal")] * 3  # all are considered again, and these are needed
    assert heard.left_out["Large", "marked-reversal"][0] == (
        "C1 needs no further run of Large on marked-reversal"
    )
    assert make_report(folder).counts == "3 of 6 trials complete, 3 not needed"


def test_a_trial_becomes_unnecessary_in_the_middle_of_a_sweep(tiny, claims, tmp_path, monkeypatch):
    decided, decide = [], OpenClaims._decide
    monkeypatch.setattr(OpenClaims, "_decide", lambda *given: decided.append(1) or decide(*given))
    alone = {"languages": ["marked-reversal"], "models": tiny.model_dump(mode="json")["models"][:1]}
    first, rest = changed(tiny, **alone, claims=["C1"], restarts=5), changed(tiny, **alone, name="rest")
    _, summary, heard = sweep(tmp_path, first, rest, tables=Tables.empty(), claims=claims)
    assert heard.begun == [("LSTM", "marked-reversal")] * 3
    assert [*summary.not_needed.values()] == ["C1 reproduced"] * 2
    assert len(summary.done) == 6  # the second experiment names no claims, and has the same first trials
    assert len(decided) <= 4  # at the start, and after each trial
    _, summary, heard = sweep(tmp_path, first, rest)  # the folder remembers runs and claims
    assert heard.begun == []
    assert [*summary.not_needed.values()] == ["C1 reproduced"] * 2


def test_a_trial_is_needed_if_only_one_part_is_open(tiny, claims, tmp_path):
    known = three_failures(tiny, tmp_path)
    mine = changed(tiny, seed=1, claims=["C1", "C2"])
    _, summary, heard = sweep(tmp_path, mine, tables=known, claims=claims)
    assert heard.begun == [("LSTM", "dyck")] * 3
    why = "C1 reproduced; C2 needs no further run of LSTM on marked-reversal"
    assert heard.left_out["LSTM", "marked-reversal"] == [why] * 3
    assert len(summary.not_needed) == 9


def test_runs_in_stages_are_asked_about_among_runs_in_stages(tiny, claims, tmp_path):
    known = three_failures(tiny, tmp_path)
    staged = changed(tiny, settings={"training": {"stages": [{"lengths": [4, 6], "max_epochs": 1}]}})
    folder = SweepFolder(tmp_path / "here")
    folder.learn(known, claims)
    ledger = OpenClaims(folder, ["C1"])
    asked = changed(tiny, claims=["C1"])
    assert ledger.reason(expand(tiny)[0], asked) == "C1 reproduced"
    assert ledger.reason(expand(staged)[0], asked) is None
    assert ledger.reason(expand(tiny)[0], tiny) is None  # it is made for no claim


def test_the_dissertations_claims_are_the_default(small, tmp_path):
    folder = SweepFolder(tmp_path)
    check_claims(folder, [changed(registry.find("cfls"), claims=["C7", "C14"])])
    for names, message in [
        (["C35"], "cfls: there is no claim C35; expected one of C1 to C34"),
        (["C24"], "cfls: C24 needs none of its runs, but for example those of RNS 2-3, marked-reversal"),
    ]:
        with pytest.raises(NdstackError, match=message) as caught:
            check_claims(folder, [changed(registry.find("cfls"), claims=names)])
        assert "\n" not in str(caught.value)
    with pytest.raises(NdstackError, match="there is no claim C99"):
        run_sweep(folder, [], Inline(), rules=changed(small, claims=["C99"]))
    with pytest.raises(NdstackError, match=r"claims\.0"):
        changed(small, claims=["7"])


def test_the_command_takes_the_claims_beside_the_tables(tiny, claims, tmp_path):
    three_failures(tiny, tmp_path)
    claims.rename(tmp_path / "tables" / "claims.toml")
    file, out = tmp_path / "campaign.toml", tmp_path / "here"
    file.write_text(
        '[[experiments]]\nfrom = "cfls"\nseed = 1\nlanguages = ["marked-reversal"]\nclaims = ["C1"]\n'
    )
    command = ["sweep", str(file), "--out", str(out), "--workers", "0"]
    result = CliRunner().invoke(app, [*command, "--known", str(tmp_path / "tables")])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["event"] for line in lines[1:-1]] == ["not needed"] * 6
    assert {line["message"] for line in lines[1:-1]} == {"C1 reproduced"}
    assert lines[-1]["not_needed"] == 6
    file.write_text(file.read_text().replace("C1", "C7"))
    result = CliRunner().invoke(app, [*command, "--known", str(tmp_path / "tables")])
    assert str(result.exception) == "tiny: there is no claim C7; expected one of C1 to C2"


def test_every_claim_has_its_runs_in_the_campaign(tmp_path):
    read = registry.read_experiments(Path(__file__).parents[2] / "results" / "campaign.toml")
    check_claims(SweepFolder(tmp_path), read)
    plain = [one for one in read if "stages" not in one.settings.get("training", {})]
    for claim in read_claims():
        mine = [one for one in plain if claim.id in one.claims]
        have = {(model.label, place) for one in mine for model in one.models for place in one.all_languages()}
        for part in claim.parts:
            sides = {(label, place) for label in (*part.left, *part.right) for place in part.languages}
            assert sides <= have, claim.id
            if part.rule not in ("trend", "correlation"):  # for which some of the models are enough
                assert {*part.left, *part.right} <= {label for label, _ in have}, claim.id

"""What undecided claims need, by each rule, and what it costs."""

import json

import pytest
from typer.testing import CliRunner

from ndstack.cli import app
from ndstack.errors import NdstackError
from ndstack.experiments import Tables, expand, find
from ndstack.experiments.claims import decide, read_claims
from ndstack.experiments.claims.claim import Claim, ClaimPart
from ndstack.experiments.claims.costs import SECONDS, Costs
from ndstack.experiments.claims.evidence import Side
from ndstack.experiments.claims.ledger import Decided, Entry
from ndstack.experiments.claims.needs import needs_of
from ndstack.experiments.claims.plan import make_plan
from ndstack.experiments.claims.rules import apply
from ndstack.experiments.records import Epoch, Record
from ndstack.experiments.results import Finished


def row(
    number, model, difference, *, waited=10, seconds=None, clock=None, epochs=40, language="dyck", **values
):
    """A run by the recipe of chapter 6, and its epochs."""
    config = {"language": language, "model": model, "seed": number, "training": {"learning_rate": 0.01}}
    record = Record(
        id=f"{model}-{number}", language=language, model=model, seed=number, learning_rate=0.01,
        config=config, epochs=epochs, best_epoch=1, waited=waited, cross_entropy=1.0, difference=difference,
        ended="converged", threads=1, **values,
    )  # fmt: skip
    shared = {"cross_entropy": 1.0, "difference": difference, "seconds": clock, "processor_seconds": seconds}
    return record, [Epoch(run=record.id, epoch=place, **shared) for place in range(1, epochs + 1)]


def runs(*differences, waited=10, **values):
    rows = [row(n, "lstm", difference, waited=waited, **values) for n, difference in enumerate(differences)]
    return [Finished(record, (*epochs,), "X", (), 0) for record, epochs in rows]


BAD, CUT, GOOD = [0.3, 0.3, 0.3], {"waited": 1}, [0.01, 0.02, 0.3]


def needed(rule, *sides, generally=False, **values):
    """What a claim with one part needs: (least, most) for each side, by name."""
    names = [f"M{place}" for place in range(len(sides))]
    right = [] if rule in ("solves", "fails", "above", "correlation", "trend", "no_winner") else names[1:]
    left = names[:1] if right else names
    part = ClaimPart(rule=rule, experiments=["cfls"], left=left, right=right, generally=generally, **values)
    claim = Claim(id="C1", section="1", text="", parts=[part])
    found = [Side(name, "dyck", (*mine,)) for name, mine in zip(names, sides, strict=True)]
    outcomes = apply(claim.parts[0], found[: len(left)], found[len(left) :])
    entry = Entry(claim, (Decided(claim.parts[0], "dyck", (*found,), (*outcomes,)),))
    return {need.label: (need.least, need.most) for need in needs_of(entry)}


def test_success_can_come_early_and_failure_takes_all_runs():
    assert needed("solves", []) == {"M0": (3, 10)}
    assert needed("solves", runs(0.01)) == {"M0": (2, 2)}
    assert needed("solves", runs(*BAD)) == {"M0": (1, 7)}
    assert needed("solves", runs(*BAD), failures=5) == {"M0": (1, 2)}
    assert needed("solves", runs(*GOOD)) == {}  # decided
    assert needed("fails", runs(0.3, 0.3)) == {"M0": (1, 8)}
    assert needed("fails", runs(*BAD)) == {}


def test_a_side_that_has_all_runs_needs_no_more():
    assert needed("beats", runs(*BAD), []) == {"M1": (3, 3)}
    assert needed("beats", runs(*BAD), runs(0.2)) == {"M1": (2, 2)}
    assert needed("beats", runs(*GOOD), runs(*BAD, **CUT)) == {"M1": (3, 3)}  # they might have caught up
    winners = runs(0.0, 0.0, 0.0, **CUT)
    assert needed("beats", winners, []) == {"M0": (0, 3), "M1": (3, 3)}  # unless they lose
    assert needed("beats", winners, runs(*BAD)) == {}
    assert needed("beats", runs(*BAD), runs(*BAD), metric="gap") == {
        "M0": (1, 1),
        "M1": (1, 1),
    }  # not measured


def test_other_rules():
    assert needed("faster", runs(*GOOD), runs(0.3)) == {"M1": (2, 2)}
    assert needed("faster", runs(*GOOD), runs(*BAD, **CUT)) == {"M1": (1, 1)}
    assert needed("above", runs(0.3)) == {"M0": (2, 2)}
    assert needed("above", runs(*BAD), metric="gap") == {"M0": (1, 1)}  # it was not measured
    assert needed("above", runs(0.3, **CUT), metric="stack.purity") == {"M0": (2, 2)}
    options = {"metric": "processor_seconds", "printed": {"M0": 1, "M1": 2}}
    assert needed("ratio", runs(*BAD, seconds=2), runs(*BAD), **options) == {"M1": (3, 3)}
    assert needed("most_beat", runs(*BAD), []) == {"M1": (3, 3)}


def test_rules_that_need_some_of_many_sides():
    many = [runs(*BAD), runs(0.3), [], [], runs(0.3, 0.3)]
    assert needed("no_winner", *many) == {"M1": (0, 2), "M2": (0, 3), "M3": (0, 3), "M4": (1, 1)}
    assert needed("correlation", *many) == {"M1": (2, 2), "M2": (0, 3), "M3": (0, 3), "M4": (1, 1)}
    assert needed("trend", *many)["M3"] == (3, 3)
    assert needed("no_winner", runs(*BAD), runs(*BAD)) == {"M0": (1, 1), "M1": (1, 1)}  # not measured


def test_what_holds_generally_needs_no_more_than_half_of_the_cases():
    assert needed("fails", runs(*BAD), runs(*BAD), [], generally=True) == {}
    assert needed("fails", runs(*BAD), [], [], generally=True) == {"M1": (3, 10), "M2": (3, 10)}


CLAIMS = """
[[claims]]
id = "C1"
section = "6"
text = "NS solves Dyck."
[[claims.parts]]
rule = "solves"
experiments = ["cfls"]
left = ["NS"]
languages = ["dyck"]

[[claims]]
id = "C2"
section = "6"
text = "NS beats the LSTM on Dyck."
[[claims.parts]]
rule = "beats"
experiments = ["cfls"]
left = ["NS"]
right = ["LSTM"]
languages = ["dyck"]

[[claims]]
id = "C3"
section = "6"
text = "LSTMs fail on Dyck."
[[claims.parts]]
rule = "fails"
experiments = ["cfls"]
left = ["LSTM"]
languages = ["dyck"]
"""


@pytest.fixture
def results(tmp_path):
    """Two LSTMs of 9 processor seconds per epoch and 40 epochs, and one RNS of 36 seconds, cut short."""
    tables = Tables.empty()
    for record, epochs in [
        row(1, "lstm", 0.2, seconds=9.0, clock=20.0),
        row(2, "lstm", 0.3, seconds=9.0, clock=20.0),
        row(3, "rns-3-3", 0.3, waited=1, epochs=5, clock=36.0),
    ]:
        tables = tables.with_run(record, epochs)
    tables.write(tmp_path)
    (tmp_path / "claims.toml").write_text(CLAIMS)
    return tmp_path


def test_a_plan_has_the_cheapest_claim_first_and_shared_runs_once(results):
    tables = Tables.read(results)
    steps = make_plan(decide(read_claims(results / "claims.toml"), tables), tables)
    assert [step.claim.id for step in steps] == ["C3", "C2", "C1"]
    lstm, ns = 9 * 40 / 3600, 36 * 40 / 3600
    assert [step.hours for step in steps] == [
        pytest.approx((lstm, 8 * lstm)),
        pytest.approx((3 * ns + lstm, 3 * ns + lstm)),
        pytest.approx((3 * ns, 10 * ns)),
    ]
    assert [step.in_all for step in steps] == [
        pytest.approx((lstm, 8 * lstm)),
        pytest.approx((lstm + 3 * ns, 8 * lstm + 3 * ns)),
        pytest.approx((lstm + 3 * ns, 8 * lstm + 10 * ns)),
    ]
    assert steps[1].row() == ["C2", "4", "1.3", "1.3..2.0", "NS: 3 on dyck; LSTM: 1 on dyck"]


def test_the_command_prints_a_plan(results):
    told = CliRunner().invoke(app, ["claims", str(results), "--plan"])
    lines = told.output.splitlines()
    assert lines[0].split() == ["claim", "runs", "hours", "in", "all", "missing"]
    assert lines[1].split() == ["C3", "1..8", "0.1..0.8", "0.1..0.8", "LSTM:", "1..8", "on", "dyck"]
    assert '"differs"' in told.output
    told = CliRunner().invoke(app, ["claims", str(results), "--plan", "--json"])
    first, second, _ = json.loads(told.output)
    assert (first["claim"], first["hours"], first["in_all"]) == ("C3", [0.1, 0.8], [0.1, 0.8])
    assert second["missing"][0] == {
        "label": "NS", "language": "dyck", "least": 3, "most": 3, "model": "ns-2-3",
        "seconds_per_epoch": 36.0, "epochs": 40, "from": "rns-3-3 by the clock",
    }  # fmt: skip
    told = CliRunner().invoke(app, ["claims", str(results), "--plan", "--out", str(results)])
    assert isinstance(told.exception, NdstackError)
    assert "--plan and --out given" in str(told.exception)


def test_runs_of_the_same_settings_are_shared_between_experiments():
    tables = Tables.empty()
    claims = [one for one in read_claims() if one.id in ("C9", "C14")]  # of cfls, and of times
    first, second = make_plan(decide(claims, tables), tables)
    both = {one.shared for one in first.missing} & {one.shared for one in second.missing}
    assert len(both) == len(first.missing) == 4
    assert second.in_all == pytest.approx(second.hours)


def test_what_the_tables_do_not_say_is_assumed():
    nothing = Costs(Tables.empty())
    trial = next(one for one in expand(find("stack-attention")) if one.label == "Trans. + VRNS")
    cost = nothing.of(trial.config, text=False)
    assert (cost.seconds, cost.epochs, cost.source) == (SECONDS[True, "nondeterministic"], 70, "assumed")
    cost = nothing.of(trial.config, text=True)
    assert (cost.seconds, cost.epochs) == (600.0, 30)
    tables = Tables.empty().with_run(*row(1, "tf+vrns-3-3-5", 0.3, seconds=30.0, epochs=50))
    tables = tables.with_run(*row(2, "tf+vrns-2-3-5", 0.3, seconds=20.0, epochs=60, language="count-3"))
    tables = tables.with_run(*row(3, "not-installed-3", 0.3, seconds=1.0))
    cost = Costs(tables).of(trial.config, text=False)
    assert (cost.seconds, cost.epochs, cost.source) == (20.0, 60, "tf+vrns-2-3-5")
    other = trial.config.model_copy(update={"data": trial.config.data.model_copy(update={"train": 20})})
    assert Costs(tables).of(other, text=False).source == "assumed"  # of another size

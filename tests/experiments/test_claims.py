"""Every rule of the ledger: what it takes to hold, to fail, and to stay undecided."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ndstack.cli import app
from ndstack.errors import NdstackError
from ndstack.experiments.claims import decide, read_claims, write_page
from ndstack.experiments.claims.claim import Claim, ClaimPart
from ndstack.experiments.claims.evidence import Side, describe, expected_best, is_settled, metric_of
from ndstack.experiments.claims.ledger import Decided, Entry
from ndstack.experiments.claims.rules import ALONE, PAIRS, WHOLE, Outcome, apply
from ndstack.experiments.records import Epoch, Record, Tables
from ndstack.experiments.results import Finished

ROOT = Path(__file__).parent.parent.parent


def run(difference, *, waited=10, model="lstm", text=False, curve=None, setting=(), **values):
    """A run that ended by the recipe's rule, unless it waited for fewer epochs."""
    curve = curve or [difference + 0.1, difference]
    record = Record(
        id=f"{model}-{difference}-{waited}", language="dyck", model=model, seed=1, learning_rate=0.01,
        config={"corpus": {"folder": "x"}} if text else {}, epochs=len(curve), best_epoch=1, waited=waited,
        cross_entropy=difference, difference=None if text else difference, ended="converged", **values,
    )  # fmt: skip
    epochs = [Epoch(run=record.id, epoch=n, cross_entropy=v, difference=v) for n, v in enumerate(curve, 1)]
    return Finished(record, tuple(epochs), "X", setting, 0)


def side(*runs, label="A"):
    return Side(label, "dyck", runs)


def part(rule, **values):
    return ClaimPart(rule=rule, experiments=["cfls"], left=["A"], **values)


def answer(rule, *sides, **values):
    (found,) = apply(part(rule, **values), sides[:1], sides[1:])
    return found.answer


GOOD, BAD = [run(0.01), run(0.02), run(0.3)], [run(0.2), run(0.3), run(0.4)]
CUT = [run(0.2, waited=2), run(0.3, waited=0), run(0.4, waited=1)]
"""Ended while they might still have improved."""


def test_every_rule_has_a_function():
    assert {*ALONE, *PAIRS, *WHOLE} == set(ClaimPart.model_fields["rule"].annotation.__args__)


def test_what_solves_and_what_fails():
    assert answer("solves", side(*GOOD)) == "yes"
    assert answer("fails", side(*GOOD)) == "no"
    assert answer("solves", side(*BAD), failures=3) == "no"
    assert answer("solves", side(*BAD)) is None  # the dissertation had more tries
    assert answer("fails", side(*BAD)) == "yes"  # all are far from success
    near = [run(0.06), run(0.3), run(0.4)]
    assert answer("fails", side(*near)) is None
    assert answer("fails", side(*near, *[run(0.3)] * 7)) == "yes"
    assert answer("solves", side(*GOOD[:2])) is None
    assert answer("solves", side()) is None


def test_runs_that_were_cut_short_can_succeed_but_not_fail():
    assert answer("solves", side(*CUT)) is None
    assert answer("fails", side(*CUT)) is None
    cut_but_good = [run(0.01 + n / 1000, waited=0) for n in range(3)]
    assert answer("solves", side(*cut_but_good)) == "yes"
    (found,) = apply(part("solves", failures=3), [side(*CUT)], [])
    assert found.needs == {"A, dyck": (0, 3)}
    assert is_settled(run(0.2, waited=0, curve=[0.2] * 200))  # all epochs of the recipe


def test_the_losing_side_has_to_have_ended_by_itself():
    assert answer("beats", side(*GOOD), side(*BAD)) == "yes"
    assert answer("beats", side(*BAD), side(*GOOD)) == "no"
    assert answer("beats", side(*GOOD), side(*CUT)) is None  # they might have caught up
    assert answer("beats", side(*[run(0.0, waited=0)] * 3), side(*BAD)) == "yes"
    assert answer("beats", side(*GOOD), side(*BAD[:2])) is None
    assert answer("beats", side(*GOOD), side(*BAD), margin=0.5) == "differs"
    assert answer("not_beats", side(*BAD), side(*GOOD)) == "yes"
    assert answer("not_beats", side(*GOOD), side(*BAD)) == "no"
    assert answer("not_beats", side(*GOOD), side(*BAD), margin=0.5) == "yes"
    assert answer("not_beats", side(*CUT), side(*GOOD)) is None
    bad_and_cut = side(*[run(0.2)] * 3, *[run(0.9, waited=0)] * 3)
    assert (
        answer("beats", side(*[run(0.25)] * 3), bad_and_cut, statistic="mean") == "no"
    )  # cut runs count not
    alike, other = side(*[run(0.1)] * 3), side(*[run(0.104)] * 3)
    assert answer("beats", alike, other) == "differs"  # by less than a twentieth
    assert answer("beats", alike, other, share=0.0) == "yes"
    assert answer("beats", alike, other, share=0.0, margin=0.005) == "differs"
    assert answer("alike", side(*GOOD), side(*BAD), margin=0.5) == "yes"
    assert answer("alike", side(*GOOD), side(*BAD), margin=0.01) == "no"
    assert answer("alike", side(*GOOD), side(*CUT), margin=0.01) is None


def test_more_runs_are_no_advantage():
    assert expected_best([1.0, 2.0, 3.0], 1) == pytest.approx(2.0)
    assert expected_best([1.0, 2.0, 3.0], 2) == pytest.approx((1 + 1 + 2) / 3)
    assert expected_best([3.0, 1.0], 5) == 1.0
    many = side(run(0.1), *[run(0.5 + n / 100) for n in range(20)])
    few = side(run(0.3), run(0.31), run(0.32))
    assert answer("beats", few, many) == "yes"  # although the best run of all is one of the many


def test_shares_and_epochs():
    assert answer("share", side(*GOOD), side(*BAD)) == "yes"
    assert answer("share", side(*BAD), side(*GOOD)) == "no"
    assert answer("share", side(*GOOD), side(*GOOD)) == "differs"
    quick, slow = [run(0.01, curve=[0.01])] * 3, [run(0.01, curve=[0.4, 0.3, 0.2, 0.01])] * 3
    assert answer("faster", side(*quick), side(*slow), share=0.5) == "yes"
    assert answer("faster", side(*slow), side(*quick), share=0.5) == "no"
    assert answer("faster", side(*slow), side(*slow), share=0.5) == "differs"
    assert answer("faster", side(*quick), side(*BAD)) == "yes"  # which never solve it
    assert answer("faster", side(*quick), side(*CUT)) is None


def test_thresholds_and_printed_numbers():
    longer = [run(0.01, test_by_length={60: 0.1, 90: 0.3})] * 3
    assert metric_of(longer[0], "gap") == pytest.approx(0.2)
    assert answer("above", side(*longer), metric="gap", threshold=0.1) == "yes"
    assert answer("below", side(*longer), metric="gap", threshold=0.1) == "no"
    assert answer("above", side(*GOOD), metric="gap", threshold=0.1) is None  # not measured
    texts = [run(4.8, text=True, test_perplexity=120.0)] * 3
    assert answer("near", side(*texts), metric="test_perplexity", printed={"A": 121.0}) == "yes"
    assert answer("near", side(*texts), metric="test_perplexity", printed={"A": 90.0}) == "differs"


def timed(*seconds, threads=1):
    one = run(0.1, curve=[0.1] * len(seconds), seconds=999.0, threads=threads)
    curve = [
        epoch.model_copy(update={"processor_seconds": value})
        for epoch, value in zip(one.curve, seconds, strict=True)
    ]
    return dataclasses.replace(one, curve=tuple(curve))


def test_times_are_of_processors_and_of_the_median_epoch():
    options = {"metric": "processor_seconds", "threshold": 2, "printed": {"A": 100.0, "B": 10.0}}
    slow, quick = side(*[timed(90, 20, 20)] * 3), side(*[timed(9, 2, 2)] * 3, label="B")
    assert answer("ratio", slow, quick, **options) == "yes"
    assert answer("ratio", slow, side(*[timed(20)] * 3, label="B"), **options) == "differs"
    older = side(*[timed(2)] * 2, *[timed(None)] * 5, label="B")
    assert answer("ratio", slow, older, **options) is None  # which do not say
    (found,) = apply(part("ratio", **options), [slow], [older])
    assert found.needs == {"A, dyck": (3, 3), "B, dyck": (2, 3)}
    assert metric_of(timed(2, threads=2), "processor_seconds") is None


def test_there_is_no_such_metric():
    with pytest.raises(NdstackError, match="there is no metric 'x'"):
        metric_of(GOOD[0], "x")


def test_means_are_of_the_best_setting():
    first = [run(0.1, setting=("a",)), run(0.1, setting=("a",)), run(0.1, setting=("a",))]
    second = [run(0.0, setting=("b",)), run(0.6, setting=("b",)), run(0.6, setting=("b",))]
    middle = side(*[run(0.2)] * 3)
    assert answer("beats", side(*first, *second), middle, statistic="mean") == "yes"
    assert answer("beats", side(*second), middle, statistic="mean") == "no"


def test_correlations_and_winners():
    def texts(scores, model="lstm"):
        return [
            run(4.8, text=True, model=model, test_perplexity=100.0 + n, sg_score=score)
            for n, score in enumerate(scores)
        ]

    apart = side(*texts([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]))
    assert answer("correlation", apart, threshold=0.5) == "no"
    weakly = side(*texts([0.1, 0.5, 0.2, 0.3, 0.2, 0.3, 0.6, 0.5]))
    assert answer("correlation", weakly, threshold=0.5) == "differs"  # which may be chance
    mixed = side(*texts([0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2]))
    assert answer("correlation", mixed, threshold=0.5) == "yes"
    assert answer("correlation", side(*texts([0.1] * 3)), threshold=0.5) is None
    sizes = [side(*texts([0.1] * 3, f"rns-{n}-3"), label=str(n)) for n in range(1, 9)]
    (found,) = apply(part("trend", metric="test_perplexity", threshold=0.5), sizes, [])
    assert found.answer is None  # all the same
    names = ("Agr.", "Lic.", "GPE", "GSE", "CE", "LDD")
    all_best = [run(4.8, text=True, circuits=dict.fromkeys(names, 0.9))] * 3
    others = [run(4.8, text=True, circuits=dict.fromkeys(names, 0.5))] * 3
    one_best = [run(4.8, text=True, circuits=dict.fromkeys(names, 0.5) | {"CE": 0.95})] * 3
    sides = [side(*all_best, label="a"), side(*others, label="b")]
    assert apply(part("no_winner"), sides, [])[0].answer == "no"
    sides = [side(*all_best, label="a"), side(*one_best, label="b")]
    assert apply(part("no_winner"), sides, [])[0].answer == "yes"
    lstm = side(*BAD)
    assert apply(part("most_beat"), [side(*GOOD), side(*GOOD), side(*BAD)], [lstm])[0].answer == "yes"
    assert apply(part("most_beat"), [side(*GOOD), side(*BAD), side(*BAD)], [lstm])[0].answer == "no"
    assert apply(part("most_beat"), [side(*GOOD), side(), side()], [lstm])[0].answer is None


def test_numbers_are_told_with_their_spread():
    told = describe(side(*GOOD, *CUT), "difference")
    assert told == "A, dyck: 0.010 (mean 0.205 ± 0.160), 6 runs, 2 solved, 3 cut short"
    assert describe(side(), "difference") == "A, dyck: no runs"
    assert math.isinf(metric_of(BAD[0], "epochs_to_solve"))


def test_all_claims_are_there_and_can_be_decided_from_nothing(tmp_path):
    claims = read_claims()
    assert [one.id for one in claims] == [f"C{n}" for n in range(1, 35)]
    for entry in write_page(claims, Tables.empty(), tmp_path):
        have, need = entry.progress
        assert have == 0
        assert entry.verdict == f"undecided: 0 of {need} runs"
    assert not list((tmp_path / "claims").iterdir())


def entry_of(*answers, generally=False):
    one = part("fails", generally=generally)
    outcomes = tuple(Outcome(answer, "", {"A": (1, 3)}) for answer in answers)
    claim = Claim(id="C1", section="1", text="", parts=[one])
    return Entry(claim, (Decided(claim.parts[0], "dyck", (), outcomes),))


@pytest.mark.parametrize(
    ("answers", "verdict", "generally"),
    [
        (["yes", "yes"], "reproduced", "reproduced"),
        (["no", "no"], "not reproduced", "not reproduced"),
        (["yes", "yes", "no"], "differs", "reproduced"),
        (["yes", "no", None], "differs", "undecided: 1 of 3 runs"),
        (["yes", "yes", None], "undecided: 1 of 3 runs", "reproduced"),
        (["differs", None], "differs", "not reproduced"),
        (["no", None, None], "undecided: 1 of 3 runs", "undecided: 1 of 3 runs"),
    ],
)
def test_a_verdict_is_given_as_soon_as_nothing_can_change_it(answers, verdict, generally):
    assert entry_of(*answers).verdict == verdict
    assert entry_of(*answers, generally=True).verdict == generally


def test_a_claim_is_decided_by_all_of_its_parts(tmp_path):
    (tmp_path / "claims.toml").write_text(
        """
        [[claims]]
        id = "C1"
        section = "6"
        text = "LSTMs fail on Dyck."
        [[claims.parts]]
        rule = "fails"
        experiments = ["cfls"]
        left = ["LSTM"]
        languages = ["dyck"]
        """
    )
    tables = Tables.empty()
    for n, difference in enumerate((0.2, 0.3, 0.01)):
        config = {"language": "dyck", "model": "lstm", "seed": n, "training": {"learning_rate": 0.01}}
        one = run(difference).record.model_copy(update={"id": f"r{n}", "config": config, "seed": n})
        tables = tables.with_run(one, [Epoch(run=one.id, epoch=1, cross_entropy=1, difference=difference)])
    claims = read_claims(tmp_path / "claims.toml")
    assert [one.verdict for one in decide(claims, tables)] == ["not reproduced"]
    tables.write(tmp_path)
    told = CliRunner().invoke(app, ["claims", str(tmp_path), "--out", str(tmp_path / "docs"), "--json"])
    assert json.loads(told.output) == [{"claim": "C1", "verdict": "not reproduced"}]
    page = (tmp_path / "docs" / "claims.md").read_text(encoding="utf-8")
    assert "1 not reproduced" in page
    assert "LSTM, dyck: 0.010 (mean 0.170 ± 0.147), 3 runs, 1 solved" in page
    assert (tmp_path / "docs" / "claims" / "C1.svg").exists()
    assert "ndstack reproduce cfls --scale paper --only 'model=LSTM,language=dyck' --out runs" in page


def test_claims_about_what_is_not_there_are_refused(tmp_path):
    text = (ROOT / "src/ndstack/experiments/claims/claims.toml").read_text(encoding="utf-8")
    for old, new, message in [
        ('"Strat.", "Sup.", "NS"', '"Strat", "Sup."', "'Strat' is not a model of ns-cfls"),
        ('"marked-reversal", "unmarked', '"marked", "unmarked', "'marked' is not a language of ns-cfls"),
        ('rule = "beats"', 'rule = "wins"', "claims.0.parts.0.rule"),
    ]:
        (tmp_path / "claims.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(NdstackError, match=message):
            read_claims(tmp_path / "claims.toml")


def test_the_page_is_what_the_tables_say(tmp_path):
    """If not: `ndstack claims results --out docs`."""
    write_page(read_claims(), Tables.read(ROOT / "results"), tmp_path)
    assert (tmp_path / "claims.md").read_text() == (ROOT / "docs" / "claims.md").read_text()
    drawn = {path.name for path in (tmp_path / "claims").iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs" / "claims").iterdir()}

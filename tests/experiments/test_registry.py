"""The dissertation's experiments: how many trials, of what, and what they have in common."""

import collections
import functools
import math

import pytest

from ndstack.errors import NdstackError
from ndstack.experiments import Experiment, all_experiments, choose, expand, find
from ndstack.experiments.experiment import PAPER

# Worked out from sections 5.7, 6.2, 6.3, 6.4, 7.3, 8.4, 9.3, 9.4 and 10.3.
PAPER_TRIALS = {
    "ns-cfls": 5 * (1 + 3 + 3 + 1) * 4 * 5,
    "cfls": 5 * (1 + 3 + 3 + 4) * 4 * 5,
    "times": (1 + 3 + 3 + 4) * 4 * 5,
    "evolution": 2,
    "ptb": 33 * 10,
    "non-cfls": 7 * 5 * 10,
    "capacity": 3 * 6 * 7 * 10,
    "readings": 10,
    "ptb-vectors": 11 * 10,
    "stack-attention": 5 * 6 * 10,
}
FIGURES = ("5.3", "6.1", "6.2", "7.2", "8.1", "8.2", "9.1", "9.2", "9.3", "9.4", "9.5", "10.2")
TABLES = ("6.1", "7.1", "7.2", "9.1")


@functools.cache
def paper(name):
    return expand(find(name).at(PAPER))


@pytest.mark.parametrize("name", PAPER_TRIALS)
def test_full_scale_has_the_dissertations_number_of_trials(name):
    assert len(paper(name)) == PAPER_TRIALS[name]


def test_every_figure_and_table_is_there():
    assert sorted(o.label for e in all_experiments() for o in e.outputs) == sorted(
        [*(f"figure-{number}" for number in FIGURES), *(f"table-{number}" for number in TABLES)]
    )
    assert find("Figure 6.1").name == "cfls"


@pytest.mark.parametrize("name", PAPER_TRIALS)
def test_a_laptop_has_the_same_models_and_languages(name):
    experiment = find(name)
    full, small = expand(experiment), expand(experiment.at("laptop"))
    assert {(t.label, t.language) for t in full} == {(t.label, t.language) for t in small}
    assert {t.config.data for t in full} == {t.config.data for t in small}
    assert len(small) <= 130


def test_chapter_5_does_not_predict_the_end_and_has_the_sizes_of_section_5_7():
    trials = paper("ns-cfls")
    assert not any(t.config.training.eos for t in trials)
    sizes = {t.language: t.config.model for t in trials if t.label == "NS"}
    assert sizes == {
        "marked-reversal": "ns-2-2",
        "unmarked-reversal": "ns-2-2",
        "padded-reversal": "ns-3-2",
        "dyck": "ns-2-2",
        "hardest-cfl": "ns-3-3",
    }


def test_grids_have_five_restarts_of_every_setting_with_seeds_of_their_own():
    trials = paper("cfls")
    counts = collections.Counter((t.language, t.setting) for t in trials)
    assert {*counts.values()} == {5}
    assert {t.config.training.learning_rate for t in trials} == {0.01, 0.005, 0.001, 0.0005}
    assert len({t.config.seed for t in trials}) > 0.999 * len(trials)
    assert all(t.config.training.max_epochs == 200 and t.config.data.train == 10_000 for t in trials)


def test_random_search_is_log_uniform():
    rates = [math.log(t.config.training.learning_rate) for t in paper("capacity")]
    low, high = math.log(5e-4), math.log(1e-2)
    shares = sorted((rate - low) / (high - low) for rate in rates)
    # Kolmogorov-Smirnov, 1260 draws: 1.63 / sqrt(n) is the 1 % bound.
    assert max(abs(share - (i + 0.5) / len(shares)) for i, share in enumerate(shares)) < 1.63 / math.sqrt(
        1260
    )
    assert 0 <= shares[0] < shares[-1] <= 1


def test_the_penn_treebank_has_the_recipe_of_section_7_3():
    for trial in paper("ptb"):
        training, options = trial.config.training, trial.config.options
        assert (training.optimizer, training.stop_after, training.decay_after) == ("sgd", 2, 1)
        assert 1 <= training.learning_rate <= 100
        assert 0.0112 <= training.clip <= 1.12
        assert options.hidden == options.embedding
        kind = trial.config.model.split("-")[0]
        assert (options.window, options.depth) == {"lstm": (None, None), "sup": (None, 10)}.get(
            kind, (35, None)
        )
    table = find("table-7.1").outputs[0].printed
    assert table["RNS, |Q| = 2, |Γ| = 3"] == [5_684_068, 131.46, 127.57, 0.463]
    assert find("table-9.1").outputs[0].printed["VRNS 3-3-5"] == [124.71, 120.12]


def test_experiments_share_trials():
    ids = {name: {t.id for t in paper(name)} for name in ("cfls", "times", "capacity", "readings")}
    assert ids["times"] < ids["cfls"]
    assert ids["readings"] < ids["capacity"]


def test_trials_of_a_random_search_at_a_smaller_scale_are_among_the_full_ones():
    assert {t.id for t in expand(find("non-cfls").at("laptop"))} < {t.id for t in paper("non-cfls")}


def test_names_of_trials_do_not_change():
    assert [t.id for t in paper("cfls")[:2]] == [
        "lstm-marked-reversal-39475828e3",
        "strat-2-marked-reversal-c819f44a9d",
    ]


def test_only_chooses():
    trials = paper("cfls")
    chosen = choose(trials, "model=lstm,model=NS+S+U,language=dyck")
    assert {(t.config.model, t.language) for t in chosen} == {("lstm", "dyck"), ("rns-2-3", "dyck")}
    assert len(choose(paper("ptb"), "model=LSTM, 258 units,model=NS, |Q| = 1, |Γ| = 2")) == 20
    assert len(choose(paper("capacity"), "language=dyck")) == 6 * 7 * 10
    with pytest.raises(NdstackError, match="no trial has model=gru; there are LSTM"):
        choose(trials, "model=gru")
    with pytest.raises(NdstackError, match="expected for example"):
        choose(trials, "dyck")


BASE = {"name": "mine", "languages": ["dyck"], "models": [{"label": "L", "names": ["lstm"]}]}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"modles": []}, "modles"),
        ({"languages": ["dick"]}, "did you mean dyck"),
        ({"models": [{"label": "L", "names": ["lstn"]}]}, "did you mean lstm"),
        ({"models": [{"label": "L"}]}, "L has no names for dyck"),
        ({"models": BASE["models"] * 2}, "same label"),
        ({"search": {"training.learning_rate": {"low": 1, "high": 0.1}}}, "low"),
        ({"outputs": [{"label": "f", "kind": "curves", "models": ["M"]}]}, "'M', which is not a model"),
        ({"outputs": [{"label": "f", "kind": "curves", "languages": ["d"]}]}, "'d', which is not a language"),
        ({"restarts": 0}, "restarts"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(changes, message):
    with pytest.raises(NdstackError, match=message) as caught:
        Experiment.of(BASE | changes, "my.toml")
    assert "\n" not in str(caught.value)


def test_wrong_settings_scales_and_names():
    with pytest.raises(NdstackError, match=r"training\.learning"):
        expand(Experiment.of(BASE | {"search": {"training.learning": [1]}}, "my.toml"))
    with pytest.raises(NdstackError, match="no scale 'huge'"):
        Experiment.of(BASE, "my.toml").at("huge")
    with pytest.raises(NdstackError, match="there is no model with the label 'M'"):
        Experiment.of(BASE | {"scales": {"small": {"names": {"M": ["lstm"]}}}}, "my.toml").at("small")
    twice = [{"label": label, "names": ["lstm"]} for label in "LM"]
    with pytest.raises(NdstackError, match="twice; name every model once"):
        expand(Experiment.of(BASE | {"models": twice}, "my.toml"))
    with pytest.raises(NdstackError, match="did you mean cfls"):
        find("cfl")

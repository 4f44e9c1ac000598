"""Recognition: the loss, padding, resuming, evaluation and the commands."""

import json
import math

import pytest
import torch

from ndstack import languages, training
from ndstack.errors import NdstackError, TrainingError
from ndstack.experiments.experiment import Experiment
from ndstack.experiments.gathering import read_run
from ndstack.experiments.jobs import Job, do_job
from ndstack.languages import Plan, make_dataset
from ndstack.nn import models
from ndstack.settings import RecognitionConfig
from ndstack.training.recognition import acceptance_logits, examples
from tests.commands import ndstack, ok
from tests.training.small import small_config, small_run

PLAN = Plan(train=30, validation=20, lengths=(3, 9), test_lengths=(3, 11), test_per_length=8)
NETWORKS = {
    "lstm": {"hidden": 5},
    "vrns-2-2-2": {"hidden": 5, "output_reading": True},
    "sup-4": {"hidden": 5},
    "strat-2": {"hidden": 5},
    "rns-1-2": {"hidden": 5, "reading_layers": 1, "output_reading": True, "normalize_reading": False},
}
TRANSFORMERS = {name: {"d_model": 8, "feedforward": 8, "num_layers": 3} for name in ("tf", "tf+vrns-2-2-3")}


@pytest.fixture(scope="module")
def data():
    return make_dataset(languages.get("marked-reversal"), 0, PLAN)


@pytest.mark.parametrize("name", [*NETWORKS, *TRANSFORMERS])
def test_a_padded_batch_equals_single_strings(name):
    model = models.build(name, "dyck", **{**NETWORKS, **TRANSFORMERS}[name]).double().eval()
    words = ["", "(", "()[]", "([]())[", "]"]
    together = acceptance_logits(model, words)
    alone = torch.cat([acceptance_logits(model, [word]) for word in words])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)
    assert training.accepts(model, words) == (alone > 0).tolist()


@pytest.mark.parametrize("auxiliary", [0.0, 0.7])
def test_the_loss_is_the_cross_entropy_of_decisions(data, auxiliary):
    model = models.build("rns-1-2", data.language, hidden=4).double()
    task = training.RecognitionTask(data, model, RecognitionConfig(auxiliary=auxiliary, most_edits=4))
    batch, expected = task.batches[task.order(0, 2)], []
    for one in batch:
        logits = model.logits([one.word])[0]
        label = one.word in data.language
        terms = [-math.log(_logistic(logits[-1, -1], label))]
        for t in range(len(one.word) + 1):
            may = data.language.next_symbol_sets(one.word)[t]
            own = (-math.log(_logistic(x, y)) for x, y in zip(logits[t], may, strict=True))
            terms.append(auxiliary * sum(own) / (len(one.word) + 1))
        expected.append(terms)
    loss = task.loss(model, 0, 2)
    assert loss.value.item() == pytest.approx(sum(map(sum, expected)) / len(batch))
    assert loss.nats == pytest.approx(sum(terms[0] for terms in expected))
    assert loss.symbols == len(batch)
    shares = [
        training.RecognitionTask(data, model, task.config, share=training.Share(rank, 3)).loss(model, 0, 2)
        for rank in range(3)
    ]
    assert sum(one.value.item() for one in shares) == pytest.approx(loss.value.item())


def _logistic(logit, yes):
    return 1 / (1 + math.exp(-logit.item() if yes else logit.item()))


def test_validation_and_evaluation_count_correct_decisions(data):
    model = models.build("lstm", data.language, hidden=4)
    task = training.RecognitionTask(data, model)
    expected = examples(data, "validation", task.config)
    right = [training.accepts(model, [one.word])[0] == one.inside for one in expected]
    metrics = task.metrics(task.validate(model))
    assert metrics["accuracy"] == sum(right) / 20
    found = training.evaluate_recognition(model, data, "validation")
    assert found.overall.accuracy == metrics["accuracy"]
    assert found.overall.cross_entropy == pytest.approx(metrics["cross_entropy"])
    assert sum(row.strings for row in found.by_length.values()) == 20
    assert sum(row.strings for row in found.by_kind.values()) == 20
    inside = [ok for one, ok in zip(expected, right, strict=True) if one.inside]
    assert found.by_kind["inside"].accuracy == sum(inside) / len(inside)


def test_kinds_are_listed_in_order(data):
    model = models.build("lstm", data.language, hidden=4)
    found = training.evaluate_recognition(model, data, config=RecognitionConfig(most_edits=2))
    assert list(found.by_kind) == ["inside", "1 edit", "2 edits", "uniform"]
    assert found == training.evaluate_recognition(model, data, config=RecognitionConfig(most_edits=2))


def test_a_recognizer_learns():
    language = languages.get("dyck(k=1)")
    plan = Plan(train=500, validation=100, lengths=(2, 8), test_per_length=0)
    model = models.build("sup-3", language, hidden=10, output_reading=True)
    config = training.TrainingConfig(max_epochs=12, learning_rate=0.02, device="cpu")
    task = training.RecognitionTask(make_dataset(language, 0, plan), model, RecognitionConfig(auxiliary=0.5))
    result = training.fit(model, task, config)
    assert result.best["accuracy"] > 0.95
    assert training.accepts(model, ["(())()", "(()", "())(()"]) == [True, False, False]


def test_a_resumed_run_is_the_same_to_the_last_bit(tmp_path):
    changes = {"task": "recognize", "recognition": {"auxiliary": 0.1}}
    small_run(tmp_path / "a", "lstm", **changes)
    small_run(tmp_path / "b", "lstm", **changes, training={"max_epochs": 1})
    training.change_settings(tmp_path / "b", {"training": {"max_epochs": 3}})
    training.train(tmp_path / "b")
    for name in ("metrics.jsonl", "best.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    (line, *_) = training.Run.open(tmp_path / "a").metrics()
    assert {"validation_accuracy", "validation_cross_entropy", "train_cross_entropy"} <= line.keys()


def test_stages_are_recognized_too(tmp_path):
    stages = [{"lengths": (1, 3), "max_epochs": 1}]
    small_run(tmp_path / "run", "lstm", task="recognize", training={"max_epochs": 1, "stages": stages})
    assert [line["stage"] for line in training.Run.open(tmp_path / "run").metrics()] == [1, 2]


def test_commands(tmp_path):
    run = tmp_path / "run"
    given = ["--lengths", "3:9", "--train", 40, "--max-epochs", 1, "--set", "options.hidden=4"]
    done = json.loads(
        ok(
            "train", "marked-reversal", "--task", "recognize", "--model", "lstm", "--out", run, *given
        ).splitlines()[-1]
    )
    assert 0 <= done["accuracy"] <= 1
    found = json.loads(ok("evaluate", run, "--json"))
    assert {row["kind"] for row in found["by_kind"]} >= {"inside", "uniform", "1 edit"}
    assert found["overall"]["strings"] == sum(row["strings"] for row in found["by_length"])
    assert (run / "test.svg").exists()
    text = ok("evaluate", run, "--split", "validation")
    assert "inside" in text
    assert "The accuracy is the share of correct decisions" in text
    assert "accuracy" in ok("show", run)
    assert json.loads(ok("compare", run, "--json"))[0]["accuracy"] == done["accuracy"]
    failed = ndstack("generate", run)
    assert (failed.returncode, failed.stderr) == (
        2,
        f"ndstack: error: {run} has learned to recognize, so it does not generate strings of its language\n",
    )


def test_a_trial_of_a_sweep_is_measured(tmp_path):
    config = small_config("lstm", task="recognize", training={"max_epochs": 1})
    job = Job(id="one", folder=str(tmp_path / "one"), config=config, measure=("test",))
    assert do_job(job).state == "done"
    record, curve = read_run(training.Run.open(tmp_path / "one"))
    test = json.loads((tmp_path / "one" / "test.json").read_text())
    assert record.test_accuracy == pytest.approx(test["overall"]["accuracy"])
    assert record.difference is None
    assert record.accuracy is not None
    assert len(curve) == 1
    assert record.settings.task == "recognize"
    assert record.accuracy_by_length == {
        row["length"]: pytest.approx(row["accuracy"], rel=1e-5) for row in test["by_length"]
    }
    assert record.accuracy_by_kind.keys() >= {"inside", "uniform"}


def test_experiments_may_be_about_recognition():
    values = {
        "name": "mine",
        "languages": ["dyck"],
        "models": [{"label": "LSTM", "names": ["lstm"]}],
        "settings": {"task": "recognize"},
        "outputs": [{"label": "table", "kind": "accuracy"}],
    }
    assert Experiment.of(values, "mine").settings == {"task": "recognize"}


def test_errors(data):
    model = models.build("lstm", data.language, hidden=16, output="adaptive")
    with pytest.raises(TrainingError, match="output='adaptive' given for a recognizer"):
        training.RecognitionTask(data, model)
    with pytest.raises(TrainingError, match="without training or validation strings"):
        training.RecognitionTask(make_dataset(data.language, 0, PLAN.model_copy(update={"train": 0})), model)
    with pytest.raises(TrainingError, match="no train strings"):
        training.evaluate_recognition(
            model, make_dataset(data.language, 0, PLAN.model_copy(update={"train": 0})), "train"
        )
    with pytest.raises(NdstackError, match="task recognize given for a run on text"):
        small_config("lstm", task="recognize", corpus={"folder": "x"})
    with pytest.raises(NdstackError, match="task: Input should be 'model', 'recognize' or 'transduce'"):
        small_config("lstm", task="parse")

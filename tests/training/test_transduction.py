"""Transduction: the loss, evaluation, resuming, files and the commands."""

import json

import pytest
import torch

from ndstack import training, transductions
from ndstack.errors import NdstackError, TrainingError
from ndstack.experiments.experiment import Experiment
from ndstack.experiments.gathering import read_run
from ndstack.experiments.jobs import Job, do_job
from ndstack.experiments.trials import expand
from ndstack.languages import Plan, get, make_dataset
from ndstack.nn import build_transducer, greedy
from ndstack.settings.recipes import with_task_defaults
from ndstack.training import RunConfig, TransductionTask, evaluate_transduction
from ndstack.transductions import make_pairs, write_pairs
from tests.commands import ndstack, ok

PLAN = Plan(train=40, validation=20, lengths=(1, 6), test_lengths=(7, 9), test_per_length=2, batch_size=5)
VALUES = {
    "task": "transduce",
    "language": "reverse-string",
    "model": "lstm",
    "data": PLAN.model_dump(),
    "options": {"hidden": 5},
    "training": {"max_epochs": 2, "threads": 1, "device": "cpu"},
}


@pytest.fixture(scope="module")
def data():
    return make_pairs(transductions.get("reverse-string"), 0, PLAN)


@pytest.fixture(scope="module")
def model(data):
    return build_transducer("lstm", data.source, data.target, hidden=5).double()


def test_the_loss_is_summed_over_time_and_averaged_over_the_batch(data, model):
    task = TransductionTask(data, model, batch_size=5)
    batch = task.batches[task.order(0, 3)]
    assert len({len(pair.source) for pair in batch}) == 1
    logs = [model.log_probability([pair.source], [pair.target]).item() for pair in batch]
    loss = task.loss(model, 0, 3)
    assert loss.value.item() == pytest.approx(-sum(logs) / len(batch))
    assert loss.nats == pytest.approx(-sum(logs))
    assert loss.symbols == sum(len(pair.target) + 1 for pair in batch)
    shares = [
        TransductionTask(data, model, batch_size=5, share=training.Share(rank, 7)).loss(model, 0, 3)
        for rank in range(7)
    ]
    assert sum(one.value.item() for one in shares) == pytest.approx(loss.value.item())
    assert sorted(pair for batch in task.batches for pair in batch) == sorted(data.train)


def test_validation_predicts_symbols_from_correct_prefixes(data, model):
    found = TransductionTask(data, model).validate(model)
    expected = sum(model.log_probability([s], [t]).item() for s, t in data.validation)
    assert found.nats == pytest.approx(-expected)
    right = 0
    for source, target in data.validation:
        logits, indices = model.predict([source], [target])
        right += int((logits.argmax(dim=2) == indices).sum())
    assert found.correct == right


def test_evaluation_compares_greedy_outputs(data, model):
    found = evaluate_transduction(model, data)
    accuracies = []
    for length in (7, 8, 9):
        same = total = 0
        for source, target in data.test:
            if len(source) == length:
                output = greedy(model.given([source]), [""], length + 1)[0].word
                same += sum(a == b for a, b in zip(output, target, strict=False))
                total += length
        assert found.by_length[length].accuracy == same / total
        accuracies.append(same / total)
    assert found.score == pytest.approx(sum(accuracies) / 3)
    assert found.overall.outputs == 6
    assert f"{found.score:.4f}" in found.note


def test_english_outputs_are_judged():
    task = transductions.get("question-formation")
    assert isinstance(task, transductions.EnglishTransduction)
    pairs = make_pairs(task, 0, PLAN.model_copy(update={"lengths": (6, 10), "test_lengths": (6, 10)}))
    model = build_transducer("lstm", pairs.source, pairs.target, hidden=3)
    found = evaluate_transduction(model, pairs, "test", task)
    shares = found.generalization
    assert shares.keys() == {"hierarchical", "linear", "other", "entirely correct"}
    assert shares["hierarchical"] + shares["linear"] + shares["other"] == pytest.approx(1)
    assert "On inputs that tell rules apart: hierarchical" in found.note


def test_a_stack_learns_to_reverse():
    plan = Plan(train=1000, validation=50, lengths=(1, 6), test_lengths=(7, 10), test_per_length=2)
    pairs = make_pairs(transductions.get("reverse-string"), 0, plan)
    model = build_transducer("sup-5", pairs.source, pairs.target, hidden=12)
    config = training.TrainingConfig(max_epochs=12, learning_rate=0.02, device="cpu")
    result = training.fit(model, TransductionTask(pairs, model), config)
    assert result.best["accuracy"] > 0.9
    assert evaluate_transduction(model, pairs, "validation").overall.accuracy > 0.9


def test_a_resumed_run_is_the_same_to_the_last_bit(tmp_path):
    training.train(tmp_path / "a", RunConfig.of(VALUES))
    training.train(
        tmp_path / "b", RunConfig.of({**VALUES, "training": {**VALUES["training"], "max_epochs": 1}})
    )
    training.change_settings(tmp_path / "b", {"training": {"max_epochs": 2}})
    training.train(tmp_path / "b")
    for name in ("metrics.jsonl", "best.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with pytest.raises(TrainingError, match="is a transducer, but this needs a language model"):
        training.Run.open(tmp_path / "a").load()


def test_stages(tmp_path):
    stages = [{"lengths": (1, 3), "max_epochs": 1}]
    own = {"max_epochs": 1, "stages": stages, "device": "cpu", "threads": 1}
    training.train(tmp_path / "run", RunConfig.of({**VALUES, "training": own}))
    assert [line["stage"] for line in training.Run.open(tmp_path / "run").metrics()] == [1, 2]


def test_commands(tmp_path, data):
    run = tmp_path / "run"
    given = ["--max-epochs", 1, "--train", 40, "--lengths", "1:6", "--set", "options.hidden=4"]
    lines = ok("train", "reverse-string", "--task", "transduce", "--model", "lstm", "--out", run, *given)
    assert 0 <= json.loads(lines.splitlines()[-1])["accuracy"] <= 1
    found = json.loads(ok("evaluate", run, "--json"))
    assert found["overall"]["score"] == pytest.approx(
        sum(row["accuracy"] for row in found["by_length"]) / len(found["by_length"])
    )
    assert "entirely correct" in ok("evaluate", run, "--split", "validation")
    rows = [json.loads(line) for line in ok("transduce", run, "ab", "", "--json").splitlines()]
    assert [row["source"] for row in rows] == ["ab", ""]
    assert len(ok("transduce", run, "ab", "--beam", 4, "--count", 3).splitlines()) == 3
    assert len(ok("transduce", run, "ab", "--sample", "--count", 3, "--seed", 1).splitlines()) == 3
    assert ndstack("transduce", run, "xyz").stderr.startswith("ndstack: error: the symbol 'x'")
    assert "has learned to transduce" in ndstack("generate", run).stderr


def test_pairs_from_files(tmp_path, data):
    write_pairs(data, tmp_path / "pairs")
    base = ["train", "--pairs", tmp_path / "pairs", "--task", "transduce", "--model", "tf", "--max-epochs", 1]
    small = ["options.d_model=8", "options.feedforward=8", "options.num_layers=1", "pairs.units=characters"]
    given = [part for setting in small for part in ("--set", setting)]
    ok(*base, "--out", tmp_path / "run", *given)
    assert training.Run.open(tmp_path / "run").config.language == "pairs"
    assert json.loads(ok("evaluate", tmp_path / "run", "--json"))["overall"]["outputs"] == 6
    (tmp_path / "pairs" / "train.tsv").write_text("ab\tba\n")
    failed = ndstack("train", "--resume", tmp_path / "run", "--max-epochs", 2)
    assert "has changed since the run started" in failed.stderr
    assert (
        "expected transduce"
        in ndstack("train", "--pairs", tmp_path / "pairs", "--model", "tf", "--out", "x").stderr
    )


def test_pairs_without_spaces_need_characters_as_symbols(tmp_path, data):
    write_pairs(data, tmp_path / "pairs")
    base = [
        "train",
        "--pairs",
        tmp_path / "pairs",
        "--task",
        "transduce",
        "--model",
        "tf",
        "--out",
        tmp_path / "run",
    ]
    assert "--set pairs.units=characters makes every character a symbol" in ndstack(*base).stderr
    both = ndstack("train", "dyck", *base[1:])
    assert both.returncode == 2
    assert "a LANGUAGE and --pairs given, expected one of them" in both.stderr


def test_a_trial_of_a_sweep_is_measured(tmp_path):
    values = {
        "name": "mine",
        "languages": ["reverse-string"],
        "models": [{"label": "LSTM", "names": ["lstm"]}],
        "settings": {key: VALUES[key] for key in ("task", "data", "options", "training")},
        "outputs": [{"label": "table", "kind": "accuracy"}],
    }
    (trial,) = expand(Experiment.of(values, "mine"))
    job = Job(id=trial.id, folder=str(tmp_path / "one"), config=trial.config, measure=("test",))
    assert do_job(job).state == "done"
    record, _ = read_run(training.Run.open(tmp_path / "one"))
    test = json.loads((tmp_path / "one" / "test.json").read_text())
    assert record.test_accuracy == pytest.approx(test["overall"]["score"])
    with pytest.raises(NdstackError, match="there is no transduction called 'dyck'"):
        Experiment.of({**values, "languages": ["dyck"]}, "mine")


def test_lengths_are_those_of_the_benchmark_unless_they_are_given():
    config = RunConfig.of(
        with_task_defaults({"task": "transduce", "language": "parity-check", "model": "lstm"})
    )
    assert (config.data.lengths, config.data.test_lengths) == ((1, 40), (41, 500))
    given = {"task": "transduce", "language": "x", "model": "lstm", "data": {"lengths": (2, 3)}}
    assert RunConfig.of(with_task_defaults(given)).data.lengths == (2, 3)


def test_errors(data, model):
    empty = make_pairs(transductions.get("reverse-string"), 0, PLAN.model_copy(update={"train": 0}))
    with pytest.raises(TrainingError, match="without training or validation pairs"):
        TransductionTask(empty, model)
    with pytest.raises(TrainingError, match="no train pairs"):
        evaluate_transduction(model, empty, "train")
    with pytest.raises(TrainingError, match="pairs from files cannot be sampled"):
        TransductionTask(data, model).with_lengths((1, 2))
    with pytest.raises(NdstackError, match="pairs given for the task model"):
        RunConfig.of({**VALUES, "task": "model", "pairs": {"folder": "x"}})
    with pytest.raises(NdstackError, match="expected pairs"):
        RunConfig.of({**VALUES, "grammar": "S -> 'a'"})
    with torch.no_grad(), pytest.raises(TrainingError, match="given for a transducer, expected a task"):
        training.fit(model, make_dataset(get("dyck"), 0, Plan(train=1, validation=1, test_per_length=0)))

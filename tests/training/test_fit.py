"""The loop: losses fall, metrics are what they say, the best model is kept, nan stops it."""

import copy
import itertools
import math

import pytest
import torch

from ndstack.errors import NdstackError, TrainingError
from ndstack.languages import Plan, get, make_dataset
from ndstack.nn import models
from ndstack.ops.nondeterministic import reference
from ndstack.training import FormalTask, Run, TrainingConfig, fit, make_data, make_model, train
from tests.training.small import small_config, small_run


@pytest.fixture(scope="module")
def data():
    plan = Plan(train=60, validation=20, lengths=(3, 9), test_per_length=0)
    return make_dataset(get("marked-reversal"), 1, plan)


@pytest.mark.parametrize("name", models.NAMES)
def test_the_loss_of_every_model_falls(name, data):
    sizes = {"d_model": 16, "feedforward": 16} if name.startswith("tf") else {"hidden": 8}
    model = models.build(name, data.language, **sizes)
    config = TrainingConfig(learning_rate=0.02, max_epochs=8)
    history = fit(model, data, config).history
    assert history[-1]["train_cross_entropy"] < 0.85 * history[0]["train_cross_entropy"]
    assert min(line["validation_difference"] for line in history) < history[0]["validation_difference"]


@pytest.mark.parametrize("eos", [True, False])
def test_validation_metrics_equal_a_direct_computation(eos, data):
    model = models.build("rns-2-3", data.language, hidden=6)
    result = fit(model, data, TrainingConfig(max_epochs=2, eos=eos))
    total = sum(-model.log_probability([word], eos=eos).item() for word in data.validation)
    symbols = sum(len(word) + eos for word in data.validation)
    assert result.best["cross_entropy"] == pytest.approx(total / symbols, rel=1e-5)
    lengths = {len(word) for word in data.validation}
    assert lengths <= {3, 5, 7, 9}
    exact = sum(math.log(4) - data.language.log_probability(word) for word in data.validation) / symbols
    assert result.best["lower_bound"] == pytest.approx(exact)
    assert result.best["difference"] == pytest.approx(total / symbols - exact, rel=1e-4)


def test_the_training_metric_is_the_mean_over_all_symbols_of_the_epoch(data):
    model = models.build("lstm", data.language, hidden=6)
    tiny = TrainingConfig(max_epochs=1, learning_rate=1e-12)
    expected = model.cross_entropy(data.train, per="symbol").item()
    assert fit(model, data, tiny).history[0]["train_cross_entropy"] == pytest.approx(expected, rel=1e-5)


def test_one_step_is_adam_on_the_clipped_gradient_of_the_mean_over_the_batch():
    plan = Plan(train=10, validation=1, lengths=(8, 8), test_per_length=0)
    data = make_dataset(get("dyck"), 1, plan)
    model = models.build("sup-3", data.language, hidden=6)
    twin = copy.deepcopy(model)
    fit(model, data, TrainingConfig(max_epochs=1, clip=0.1, learning_rate=0.01))
    loss = -twin.log_probability(data.train).sum() / 10
    loss.backward()
    torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
    torch.optim.Adam(twin.parameters(), 0.01).step()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_batches_come_in_another_order_in_each_epoch_and_each_once(data):
    model = models.build("lstm", data.language, hidden=4)
    task = FormalTask(data, model, seed=3)
    orders = []
    for epoch in range(3):
        symbols = []
        for step in range(task.steps(epoch)):
            loss = task.loss(model, epoch, step)
            symbols.append(loss.symbols)
        orders.append(symbols)
        assert sum(symbols) == sum(len(word) + 1 for word in data.train)
    assert len({tuple(order) for order in orders}) > 1


def test_afterwards_the_model_has_its_best_parameters(data):
    model = models.build("lstm", data.language, hidden=6)
    result = fit(model, data, TrainingConfig(max_epochs=12, learning_rate=0.3, stop_after=6))
    assert result.best_epoch < result.epochs
    symbols = sum(len(word) + 1 for word in data.validation)
    again = -model.log_probability(data.validation).sum().item() / symbols
    assert again == pytest.approx(result.best["cross_entropy"], rel=1e-5)
    assert result.best["cross_entropy"] == min(line["validation_cross_entropy"] for line in result.history)


def test_torchs_own_random_numbers_are_not_touched(data):
    state = torch.get_rng_state()
    fit(models.build("tf", data.language, d_model=8), data, TrainingConfig(max_epochs=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loss_that_is_not_finite_names_the_step_and_keeps_the_best_model(tmp_path, data):
    class Fails(FormalTask):
        def loss(self, model, epoch, step):
            loss = super().loss(model, epoch, step)
            return loss._replace(value=loss.value * math.nan) if (epoch, step) == (2, 1) else loss

    model = models.build("lstm", data.language, hidden=6)
    with pytest.raises(TrainingError, match=r"the loss is nan in epoch 3, step 2; the best model .*epoch \d"):
        fit(model, Fails(data, model), TrainingConfig(max_epochs=5), folder=tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert len(run.metrics()) == 2
    assert all(torch.isfinite(parameter).all() for parameter in run.load().parameters())
    assert "the loss is nan" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("name", ["rns-2-2", "vrns-1-2-2", "sup-3", "strat-3"])
def test_a_nan_stops_training_at_its_first_step_and_at_once(name, data, monkeypatch):
    class Fails(FormalTask):
        def loss(self, model, epoch, step):
            if (epoch, step) == (0, 2):
                with torch.no_grad():
                    next(p for p in model.parameters() if p.dim() == 2)[0, 0] = math.nan
            return super().loss(model, epoch, step)

    def run(*arguments, **options):
        raise AssertionError("computed again in log space")

    monkeypatch.setattr(reference, "run", run)
    model = models.build(name, data.language, hidden=6)
    with pytest.raises(TrainingError, match=r"^the \S+ (norm )?is nan in epoch 1, step 3; .*$"):
        fit(model, Fails(data, model), TrainingConfig(max_epochs=1))


def test_a_diverging_run_stops_too(tmp_path):
    with pytest.raises(TrainingError, match="try a lower learning rate"):
        small_run(tmp_path / "run", "lstm", training={"learning_rate": 1e38, "max_epochs": 50})


def test_fit_with_a_folder_can_go_on_in_python(tmp_path, data):
    def build():
        return models.build("ns-1-2", data.language, hidden=5)

    whole = fit(build(), data, TrainingConfig(max_epochs=4))
    fit(build(), data, TrainingConfig(max_epochs=2), folder=tmp_path / "run")
    # More epochs are a change that is allowed.
    result = fit(build(), data, TrainingConfig(max_epochs=4), folder=tmp_path / "run")
    assert result.history == whole.history
    with pytest.raises(TrainingError, match="made in Python"):
        train(tmp_path / "run")


def test_a_configuration_makes_the_same_run_again(tmp_path):
    first = small_run(tmp_path / "a", "vrns-1-2-2")
    second = train(tmp_path / "b", Run.open(tmp_path / "a").config)
    assert first == second
    other = small_run(tmp_path / "c", "vrns-1-2-2", seed=1)
    assert other.history != first.history


def test_double_precision(tmp_path):
    small_run(tmp_path / "run", "rns-2-2", training={"precision": "64", "max_epochs": 1})
    assert Run.open(tmp_path / "run").load().output.weight.dtype == torch.float64


@pytest.mark.parametrize("name", ["lstm", "sup-3", "rns-2-2", "tf+vrns-1-2-2"])
def test_mixed_precision_learns(name, tmp_path):
    exact = small_run(tmp_path / "32", name)
    mixed = small_run(tmp_path / "16", name, training={"precision": "bf16-mixed"})
    assert mixed.best["cross_entropy"] == pytest.approx(exact.best["cross_entropy"], rel=0.05)


def test_mixed_precision_with_another_controller(tmp_path):
    """It used to corrupt the heap."""
    options = {"model": "rns-2-2", "options": {"controller": "gru"}}
    exact = small_run(tmp_path / "32", **options)
    mixed = small_run(tmp_path / "16", **options, training={"precision": "bf16-mixed"})
    assert mixed.best["cross_entropy"] == pytest.approx(exact.best["cross_entropy"], rel=0.05)


def test_snapshots_are_the_parameters_after_each_epoch(tmp_path):
    small_run(tmp_path / "run", "lstm", training={"snapshots": 2})
    run = Run.open(tmp_path / "run")
    assert list(run.snapshots()) == [0, 1, 2]
    config = small_config("lstm")
    start = make_model(config, make_data(config).language)
    kept = run.load(run.snapshots()[0])
    for mine, theirs in zip(kept.parameters(), start.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_data_set_without_strings_is_refused(data):
    empty = make_dataset(data.language, 0, Plan(train=0, validation=0, test_per_length=0))
    with pytest.raises(NdstackError, match="without training or validation strings"):
        fit(models.build("lstm", data.language), empty)


def test_the_lower_bound_is_one_in_expectation():
    """Over all strings, weighted by their probability, no model is below the true distribution."""
    language = get("marked-reversal")
    halves = [half for size in range(1, 4) for half in itertools.product("01", repeat=size)]
    words = ["".join(half) + "#" + "".join(reversed(half)) for half in halves]
    weights = [math.exp(language.log_probability(word)) / 3 for word in words]
    assert sum(weights) == pytest.approx(1)
    symbols = sum(weight * (len(word) + 1) for weight, word in zip(weights, words, strict=True))
    bounds = [language.lower_bound([word], lengths=(3, 7)) * (len(word) + 1) for word in words]
    bound = sum(weight * nats for weight, nats in zip(weights, bounds, strict=True)) / symbols
    for seed in range(5):
        model = models.build("rns-2-3", language, seed=seed, init_bound=1.0)
        nats = -model.log_probability(words).double()
        assert (torch.tensor(weights, dtype=torch.float64) @ nats).item() / symbols > bound

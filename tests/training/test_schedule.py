import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ndstack.training import TrainingConfig
from ndstack.training.schedule import Schedule


def follow(values, **settings):
    config = TrainingConfig(**settings)
    schedule = Schedule(learning_rate=config.learning_rate)
    rates = []
    for value in values:
        if schedule.stopped(config):
            break
        schedule.end_epoch(value, config)
        rates.append(schedule.learning_rate)
    return schedule, rates, schedule.stopped(config)


def test_the_rate_falls_after_five_epochs_without_improvement_and_training_stops_after_ten():
    schedule, rates, reason = follow([1.0] * 30, learning_rate=1.0)
    assert rates == pytest.approx([1.0] * 5 + [0.9] * 5 + [0.81])
    assert schedule.epochs == 11
    assert schedule.best_epoch == 1
    assert reason == "no improvement for 10 epochs"


def test_the_recipe_of_chapter_7_divides_by_one_and_a_half_at_once_and_stops_after_two():
    values = [5.0, 4.0, 4.5, 3.9, 3.95, 3.97, 1.0]
    _, rates, reason = follow(values, learning_rate=9.0, decay=1 / 1.5, decay_after=1, stop_after=2)
    assert rates == pytest.approx([9.0, 9.0, 6.0, 6.0, 4.0, 8 / 3])
    assert reason == "no improvement for 2 epochs"


def test_an_improvement_too_small_for_the_rate_still_counts_against_stopping():
    values = [1.0 - 1e-6 * step for step in range(20)]
    schedule, rates, reason = follow(values, learning_rate=1.0, max_epochs=20)
    assert rates[5] == pytest.approx(0.9)
    assert schedule.best_epoch == 20
    assert reason == "all 20 epochs done"


@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=60),
    st.integers(1, 6),
    st.sampled_from([0.0, 1e-4, 0.1]),
)
def test_the_rate_is_that_of_torch(values, decay_after, threshold):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    torch_schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.9, patience=decay_after - 1, threshold=threshold, eps=0.0
    )
    expected = []
    for value in values:
        torch_schedule.step(value)
        expected.append(optimizer.param_groups[0]["lr"])
    _, rates, _ = follow(
        values, learning_rate=0.5, decay_after=decay_after, decay_threshold=threshold, stop_after=1000
    )
    assert rates == pytest.approx(expected, rel=1e-12)


def test_a_schedule_survives_json():
    fresh = Schedule(learning_rate=0.1)
    assert fresh.best == math.inf
    assert Schedule.model_validate_json(fresh.model_dump_json()) == fresh


def test_the_public_code_judges_perplexity_and_waits_for_six_epochs():
    _, rates, _ = follow([1.0] * 30, learning_rate=1.0, decay_after=6)
    assert rates == pytest.approx([1.0] * 6 + [0.9] * 5)
    slow = [3.0 - 4e-5 * step for step in range(7)]  # less than 1e-4 of 3 nats in all
    assert follow(slow, learning_rate=1.0)[1][-1] == pytest.approx(0.9)
    assert follow(slow, learning_rate=1.0, decay_by="perplexity")[1][-1] == 1.0

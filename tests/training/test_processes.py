"""Two processes share every batch and get what one gets, up to the order of sums."""

import pytest

from ndstack.errors import TrainingError
from ndstack.training import Run, Share, change_settings, train
from tests.training.small import small_run


def test_shares_are_disjoint_and_complete():
    for count in range(12):
        for processes in range(1, 5):
            parts = [list(range(count))[Share(rank, processes).of(count)] for rank in range(processes)]
            assert [one for part in parts for one in part] == list(range(count))


def test_two_processes_interrupted_give_the_result_of_one(tmp_path):
    data = {"train": 22, "batch_size": 3}  # the last batch is one string: a process has nothing to do
    one = small_run(tmp_path / "one", data=data)
    small_run(tmp_path / "two", data=data, training={"processes": 2, "max_epochs": 2})
    change_settings(tmp_path / "two", {"training": {"max_epochs": 3}})
    two = train(tmp_path / "two")
    for mine, theirs in zip(two.history, one.history, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    best = [Run.open(tmp_path / name).load().state_dict() for name in ("one", "two")]
    for name, tensor in best[0].items():
        assert best[1][name].sub(tensor).abs().max() < 1e-3


def test_an_error_in_one_process_is_one_line(tmp_path):
    with pytest.raises(TrainingError, match=r"in epoch 1, step .*; try a lower learning rate") as error:
        small_run(tmp_path / "run", "lstm", training={"processes": 2, "learning_rate": 1e38})
    assert "\n" not in str(error.value)

"""Data sets of pairs: the same for the same seed, and the same after they were written."""

import pytest

from ndstack.errors import DatasetError
from ndstack.languages import Plan
from ndstack.transductions import get, make_pairs, read_pairs, write_pairs

PLAN = Plan(train=40, validation=10, lengths=(1, 8), test_lengths=(9, 12), test_per_length=3, batch_size=5)


def test_batches_of_one_length_and_tests_by_length():
    data = make_pairs(get("reverse-string"), 3, PLAN)
    assert data == make_pairs(get("reverse-string"), 3, PLAN)
    assert data.train != make_pairs(get("reverse-string"), 4, PLAN).train
    assert data.test == make_pairs(get("reverse-string"), 4, PLAN).test
    for first in range(0, 40, 5):
        assert len({len(pair.source) for pair in data.train[first : first + 5]}) == 1
    assert [len(pair.source) for pair in data.test] == [length for length in range(9, 13) for _ in range(3)]
    assert not data.scores_end
    some = make_pairs(get("reverse-string"), 3, PLAN.model_copy(update={"test_step": 3}))
    assert [len(pair.source) for pair in some.test] == [9] * 3 + [12] * 3


def test_tasks_of_short_inputs_are_tested_at_the_training_lengths():
    data = make_pairs(get("tense-reinflection"), 0, PLAN)
    assert {len(pair.source) for pair in data.test} == {9, 10, 11, 12}
    short = make_pairs(get("question-formation"), 0, PLAN.model_copy(update={"test_lengths": (41, 500)}))
    assert {len(pair.source) for pair in short.test} == {6, 7, 8}
    assert not short.generalization  # these sentences have 9 words or more
    assert data.generalization


@pytest.mark.parametrize("name, units", [("reverse-string", "characters"), ("question-formation", "words")])
def test_written_and_read(name, units, tmp_path):
    data = make_pairs(get(name), 0, PLAN.model_copy(update={"lengths": (6, 12), "train": 300}))
    write_pairs(data, tmp_path / "pairs")
    again = read_pairs(tmp_path / "pairs", units)
    for split in ("train", "validation", "test", "generalization"):
        assert getattr(again, split) == getattr(data, split)
    assert set(again.source) <= set(data.source)
    assert again.name == "pairs"


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "train.tsv").write_text("a b\tb a\n")
    with pytest.raises(DatasetError, match=r"validation.tsv has no pairs"):
        read_pairs(tmp_path)
    (tmp_path / "validation.tsv").write_text("a b b a\n")
    with pytest.raises(DatasetError, match=r"validation.tsv, line 1 has 0 tabs"):
        read_pairs(tmp_path)
    (tmp_path / "validation.tsv").write_text("a\ta\na\tc\n")
    with pytest.raises(DatasetError, match=r"line 2: 'c' does not occur in the training pairs"):
        read_pairs(tmp_path)
    with pytest.raises(DatasetError, match=r"has no inputs of lengths 0\.\.0"):
        make_pairs(get("reverse-string"), 0, PLAN.model_copy(update={"lengths": (0, 0)}))
    with pytest.raises(DatasetError, match="seed -1"):
        make_pairs(get("reverse-string"), -1, PLAN)

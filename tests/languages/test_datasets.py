import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from ndstack import languages
from ndstack.errors import DatasetError
from ndstack.languages import Plan, make_dataset, read_dataset, write_dataset
from ndstack.languages.datasets import own_grammar

SMALL = Plan(
    train=40, validation=25, test_per_length=3, lengths=(10, 20), test_lengths=(10, 24), batch_size=10
)


@pytest.fixture
def dataset():
    return make_dataset(languages.get("dyck"), 5, SMALL)


def test_defaults_are_the_dissertations():
    plan = Plan()
    assert (plan.train, plan.validation, plan.test_per_length) == (10_000, 1_000, 100)
    assert (plan.lengths, plan.test_lengths, plan.batch_size) == ((40, 80), (40, 100), 10)


def test_every_batch_has_one_length_and_every_string_counts_once(dataset):
    for split, sizes in (("train", [10] * 4), ("validation", [10, 10, 5])):
        batches = dataset.batches(split)
        assert [len(b) for b in batches] == sizes
        assert all(len({len(w) for w in b}) == 1 for b in batches)
        assert [w for b in batches for w in b] == list(getattr(dataset, split))
        assert all(w in dataset.language and 10 <= len(w) <= 20 for b in batches for w in b)


def test_test_set_has_the_same_number_of_every_length(dataset):
    groups = dataset.test_by_length()
    assert list(groups) == [10, 12, 14, 16, 18, 20, 22, 24]
    assert all(len(words) == 3 and all(len(w) == n for w in words) for n, words in groups.items())
    some = make_dataset(languages.get("dyck"), 5, SMALL.model_copy(update={"test_step": 3}))
    assert list(some.test_by_length()) == [10, 16, 22]


def test_lengths_are_uniform_over_the_non_empty_ones():
    data = make_dataset(languages.get("dyck"), 1, SMALL.model_copy(update={"train": 6000, "batch_size": 1}))
    counts = np.bincount([len(w) for w in data.train], minlength=21)[10:21:2]
    assert chisquare(counts).pvalue > 0.001


def test_seed_decides_training_data_and_language_alone_the_test_set(dataset):
    again = make_dataset(languages.get("dyck"), 5, SMALL)
    other = make_dataset(languages.get("dyck"), 6, SMALL)
    assert again.train == dataset.train
    assert again.validation == dataset.validation
    assert other.train != dataset.train
    assert other.test == dataset.test == again.test
    assert set(dataset.train[:10]) != set(dataset.validation[:10])


@pytest.mark.parametrize("name", ["dyck", "dyck(k=12)", "count-3", "unmarked-copy(k=30)"])
def test_written_and_read_back(name, tmp_path):
    data = make_dataset(languages.get(name), 3, SMALL)
    write_dataset(data, tmp_path / "d")
    back = read_dataset(tmp_path / "d")
    assert (back.train, back.validation, back.test) == (data.train, data.validation, data.test)
    assert (back.language.name, back.seed, back.plan) == (data.language.name, 3, SMALL)
    assert len((tmp_path / "d" / "train.txt").read_text().splitlines()) == 40


def test_grammars_of_the_user_are_kept_with_the_data(tmp_path):
    language = languages.from_grammar("S -> 'a man' S [0.5] | 'b' [0.5]", name="mine")
    data = make_dataset(language, 0, SMALL)
    write_dataset(data, tmp_path / "d")
    back = read_dataset(tmp_path / "d")
    assert back.train == data.train
    assert back.language.log_probability(("a man", "b")) == language.log_probability(("a man", "b"))


def test_a_grammar_named_like_a_language_is_still_its_own(tmp_path):
    language = languages.from_grammar("S -> '(' S ')' [0.5] | '(' ')' [0.5]", name="dyck")
    write_dataset(make_dataset(language, 0, SMALL), tmp_path / "d")
    assert read_dataset(tmp_path / "d").language.log_probability("(())") == pytest.approx(0)
    assert make_dataset(language, 0, SMALL).test != make_dataset(languages.get("dyck"), 0, SMALL).test


def test_the_current_folder_will_do_if_empty(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset(dataset, Path())
    assert read_dataset(tmp_path).train == dataset.train


def test_what_cannot_be_written_down_is_refused(tmp_path):
    mine = copy.copy(languages.get("marked-copy"))
    mine.name = "mine"
    assert repr(mine) == "<language mine over 3 symbols>"
    with pytest.raises(DatasetError, match="mine has no grammar that could be written down"):
        own_grammar(mine)
    odd = languages.from_grammar("S -> 'a b' S [0.5] | 'c\td' [0.5]")
    dataset = make_dataset(odd, 0, SMALL)
    with pytest.raises(DatasetError, match="cannot be written to a text file"):
        write_dataset(dataset, tmp_path / "data")


def test_negative_seeds_are_refused():
    with pytest.raises(DatasetError, match="seed -1 given"):
        make_dataset(languages.get("dyck"), -1, SMALL)


def test_empty_strings_survive(tmp_path):
    plan = Plan(train=4, validation=0, test_per_length=0, lengths=(0, 0), test_lengths=(0, 0))
    data = make_dataset(languages.get("unmarked-copy"), 0, plan)
    write_dataset(data, tmp_path / "d")
    assert read_dataset(tmp_path / "d").train == ("", "", "", "")


def test_an_existing_folder_is_not_overwritten(dataset, tmp_path):
    (tmp_path / "d").mkdir()
    write_dataset(dataset, tmp_path / "d")
    with pytest.raises(DatasetError, match="exists and is not an empty folder"):
        write_dataset(dataset, tmp_path / "d")


def test_a_failed_write_leaves_nothing(dataset, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(DatasetError, match=r"cannot write the data set .*: No space left on device"):
        write_dataset(dataset, tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_no_strings_in_the_range_is_a_clear_error():
    plan = SMALL.model_copy(update={"lengths": (11, 11)})
    with pytest.raises(DatasetError, match=r"dyck has no strings of lengths 11\.\.11"):
        make_dataset(languages.get("dyck"), 0, plan)


def test_progress_counts_every_string():
    steps = []
    make_dataset(languages.get("dyck"), 5, SMALL, progress=steps.append)
    assert sum(steps) == 40 + 25 + 8 * 3


class TestDamage:
    @pytest.fixture
    def folder(self, dataset, tmp_path):
        write_dataset(dataset, tmp_path / "d")
        return tmp_path / "d"

    def expect(self, folder, message):
        with pytest.raises(DatasetError, match=message) as error:
            read_dataset(folder)
        assert "\n" not in str(error.value)

    def change_header(self, folder, **changes):
        header = json.loads((folder / "header.json").read_text()) | changes
        (folder / "header.json").write_text(json.dumps(header))

    def test_not_a_folder(self, tmp_path):
        self.expect(tmp_path / "nowhere", "is not a data set: cannot read .*header.json: No such file")

    def test_missing_file(self, folder):
        (folder / "test.txt").unlink()
        self.expect(folder, r"cannot read .*test\.txt: No such file")

    def test_truncated_file(self, folder):
        text = (folder / "train.txt").read_bytes()
        (folder / "train.txt").write_bytes(text[: len(text) // 2])
        self.expect(folder, r"train\.txt is not what was written")

    def test_header_that_is_not_json(self, folder):
        (folder / "header.json").write_text("{")
        self.expect(folder, "is not a data set's header: Invalid JSON")

    def test_foreign_format(self, folder):
        self.change_header(folder, format="something else")
        self.expect(folder, "header: format: ")

    def test_unknown_language(self, folder):
        self.change_header(folder, language="klingon")
        self.expect(folder, "no language called 'klingon'")

    def test_wrong_count(self, folder):
        self.change_header(folder, counts={"train": 40, "validation": 25, "test": 25})
        self.expect(folder, r"test\.txt has 24 strings, its header says 25")
        self.change_header(folder, counts={"train": 41, "validation": 25, "test": 24})
        self.expect(folder, "do not fit the plan")

    def test_strings_of_another_language(self, folder):
        self.change_header(folder, language="marked-copy")
        self.expect(folder, r"train\.txt, line 1: not a string of marked-copy")


def test_lower_bound_of_a_data_set(dataset):
    bound = dataset.language.lower_bound(dataset.validation, lengths=SMALL.lengths)
    direct = -sum(dataset.language.log_probability(w) - math.log(6) for w in dataset.validation)
    assert bound == pytest.approx(direct / sum(len(w) + 1 for w in dataset.validation))

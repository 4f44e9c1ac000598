import json
import math

import pytest
import torch

from ndstack.errors import NdstackError
from ndstack.text import ModelScorer, evaluate_pairs, read_pairs, score_words
from ndstack.text.minimal_pairs import tokenize
from tests.text.conftest import small

SENTENCES = [["a", "b", "c"], ["c"], [], ["b", "zebra", "A", "a", "a"]]


@pytest.mark.parametrize("name", ["lstm", "vrns-2-2-3", "tf"])
def test_surprisals_are_true_ones_whatever_the_batch(name):
    model = small(name).eval()
    known = [["a" if word == "A" else "<unk>" if word == "zebra" else word for word in s] for s in SENTENCES]
    for places in (1, 8, 4096):
        scorer = ModelScorer(model, places)
        rows = scorer.with_end(SENTENCES)
        for words, row in zip(known, rows, strict=True):
            assert sum(row) * math.log(2) == pytest.approx(-model.log_probability([words]).item())
            assert len(row) == len(words) + 1
        assert scorer.unknown == {"zebra": 1}
        assert scorer.words == 9
        assert [len(row) for row in scorer(SENTENCES)] == [3, 1, 0, 5]


def test_words_with_their_surprisals():
    model = small("lstm")
    (words,) = score_words(model, [["a", "zebra"]])
    assert [(word.text, word.known) for word in words] == [("a", True), ("zebra", False), ("<eos>", True)]
    expected = model.logits([("a", "<unk>")]).log_softmax(-1)[0, 0, 0].item()
    assert words[0].bits == pytest.approx(-expected / math.log(2))


def test_a_string_is_not_a_list_of_words():
    with pytest.raises(NdstackError, match="expected a list of words"):
        ModelScorer(small("lstm"))(["a b"])


def test_a_model_without_unk_is_refused():
    with pytest.raises(NdstackError, match="<unk> among them"):
        ModelScorer(small("lstm", ("a", "b")))


def test_dropout_is_off_and_comes_back():
    model = small("tf").train()
    scorer = ModelScorer(model)
    assert scorer(SENTENCES) == scorer(SENTENCES)
    assert model.training
    assert not torch.is_inference_mode_enabled()


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    return path


def test_pairs(tmp_path):
    rows = [
        {"sentence_good": "He sleeps.", "sentence_bad": "He sleep.", "linguistics_term": "agreement", "x": 1},
        {"sentence_good": "They sleep", "sentence_bad": "They sleeps", "linguistics_term": "agreement"},
        {"sentence_good": "a b", "sentence_bad": "b a", "UID": "order"},
    ]
    pairs = read_pairs(write(tmp_path / "p.jsonl", rows))
    seen = []

    def scorer(sentences):
        seen.extend(sentences)
        return [[2.0 if word == "sleeps" else 1.0 for word in sentence] for sentence in sentences]

    result = evaluate_pairs(pairs, scorer)
    assert seen[0] == ["He", "sleeps", "."]
    assert result.right == (False, True, False)
    assert result.by_phenomenon() == {"agreement": 0.5, "order": 0.0}
    assert result.accuracy == pytest.approx(1 / 3)
    assert evaluate_pairs(pairs, lambda s: [[len(s) * 1.0] * len(one) for one in s], tokenized=True)


@pytest.mark.parametrize(
    "line, message", [("{", "line 2 is not JSON"), ('{"x": 1}', "line 2: sentence_good")]
)
def test_errors_in_pairs_name_the_line(tmp_path, line, message):
    path = write(tmp_path / "p.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}])
    path.write_text(path.read_text().rstrip() + "\n" + line)
    with pytest.raises(NdstackError, match=message):
        read_pairs(path)


def test_tokens_are_the_treebanks():
    assert tokenize("Kim's dogs didn't bark, did they?") == [
        "Kim", "'s", "dogs", "did", "n't", "bark", ",", "did", "they", "?",
    ]  # fmt: skip

"""Pairs from parallel text, and scores of translations."""

import json

import pytest

from ndstack.errors import DatasetError, NdstackError
from ndstack.nn import build_transducer, greedy
from ndstack.text.translation import as_sentence, as_symbols, prepare_pairs, translate, translation_scores
from ndstack.transductions import read_pairs
from ndstack.transductions.pairs import pair_checksums
from tests.commands import ndstack, ok

GERMAN = ["ein Hund schläft", "zwei Hunde schlafen", "", "ein Hund, ein Tier", "zwei Tiere", "ein Vogel"]
ENGLISH = ["a dog sleeps", "two dogs sleep", "nothing", "a dog, an animal", "two animals", "a bird"]


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("de", GERMAN), ("en", ENGLISH)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return tmp_path / "de", tmp_path / "en"


def test_lines_are_divided_in_order_and_unknown_words_replaced(texts, tmp_path):
    data = prepare_pairs(*texts, tmp_path / "out", split=(3, 1, 1), tokenize="words")
    assert data.train[2] == (("ein", "Hund", ",", "ein", "Tier"), ("a", "dog", ",", "an", "animal"))
    assert data.validation == ((("zwei", "<unk>"), ("two", "<unk>")),)
    assert data.test == ((("ein", "<unk>"), ("a", "<unk>")),)
    assert {"<unk>", "ein", "Tier"} <= {*data.source}
    assert read_pairs(tmp_path / "out") == data
    assert pair_checksums(tmp_path / "out").keys() == {"train", "validation", "test", "symbols"}


def test_rare_words_and_a_largest_size(texts, tmp_path):
    data = prepare_pairs(*texts, tmp_path / "out", split=(3, 1, 1), min_count=2)
    assert set(data.source) == {"ein", "<unk>"}
    small = prepare_pairs(*texts, tmp_path / "small", split=(3, 1, 1), size=4)
    assert len(small.source) == 3  # <eos> counts


def test_subwords_give_the_lines_back(texts, tmp_path):
    data = prepare_pairs(*texts, tmp_path / "out", split=(3, 1, 1), tokenize="subwords", size=30)
    shown = [as_sentence(pair.target) for pair in data.train]
    assert shown == ["a dog sleeps", "two dogs sleep", "a dog, an animal"]
    assert any(len(pair.source) > len(as_sentence(pair.source).split()) for pair in data.train)


def test_scores_are_those_of_the_package():
    references = ["the cat sat on the mat", "a dog sleeps in the park today"]
    assert translation_scores(references, references) == pytest.approx({"bleu": 100, "chrf": 100})
    worse = translation_scores(["the cat sat on a mat", "a dog sleeps in the park today"], references)
    assert 50 < worse["bleu"] < 100
    assert 50 < worse["chrf"] < 100


def test_translations_are_the_best_of_a_beam(texts, tmp_path):
    data = prepare_pairs(*texts, tmp_path / "out", split=(3, 1, 1))
    model = build_transducer("lstm", data.source, data.target, hidden=4)
    outputs, references = translate(model, data.train)
    assert references == [as_sentence(pair.target) for pair in data.train]
    best = [greedy(model.given([pair.source]), [()], 2 * len(pair.source) + 10)[0] for pair in data.train]
    for output, one in zip(outputs, best, strict=True):
        assert not one.complete or output == as_sentence(one.word)


def test_commands(texts, tmp_path):
    row = json.loads(
        ok("text", "prepare-pairs", *texts, "--out", tmp_path / "p", "--split", "3/1/1", "--json")
    )
    assert (row["train"], row["validation"], row["test"]) == (3, 1, 1)
    small = ["--max-epochs", 1, "--set", "options.hidden=4"]
    run = tmp_path / "run"
    ok("train", "--pairs", tmp_path / "p", "--task", "transduce", "--model", "lstm", "--out", run, *small)
    found = json.loads(ok("text", "bleu", run, "--beam", 2, "--json"))
    assert found.keys() == {"split", "sentences", "bleu", "chrf"}
    assert ok("text", "bleu", run, "--split", "train").startswith("BLEU ")


@pytest.mark.parametrize("tokenize", ["spaces", "words", "subwords"])
def test_sentences_are_divided_as_the_pairs_were(texts, tmp_path, tokenize):
    out = tmp_path / "out"
    data = prepare_pairs(*texts, out, split=(3, 1, 1), tokenize=tokenize, size=30)
    lines = [line for line in GERMAN if line]
    for line, pair in zip(lines, [*data.train, *data.validation, *data.test], strict=True):
        assert as_symbols(line, set(data.source), out) == pair.source
        assert as_symbols(" ".join(pair.source), set(data.source), out) == pair.source


def test_symbols_without_a_folder():
    assert as_symbols("abba", {"a", "b"}) == "abba"
    assert as_symbols("push-a pop x", {"push-a", "pop"}) == ("push-a", "pop", "x")
    assert as_symbols("the dog", {"the", "<unk>"}) == ("the", "<unk>")
    assert as_symbols("▁the ▁dog", {"▁the", "▁dog"}) == ("▁the", "▁dog")
    with pytest.raises(
        NdstackError, match=r"plain text given to a model of subwords, but inputs.json is not"
    ):
        as_symbols("the dog", {"▁the", "▁dog"})


@pytest.mark.parametrize("symbols", ["spaces", "subwords"])
def test_plain_text_is_transduced(texts, tmp_path, symbols):
    """With words that are not in the alphabet, and with characters that no subword has."""
    pairs, run = tmp_path / "p", tmp_path / "run"
    # the command as it is also called
    ok("text", "prepare", "pairs", *texts, "--out", pairs, "--split", "3/1/1", "--symbols", symbols)
    small = ["--max-epochs", 1, "--set", "options.hidden=4"]
    ok("train", "--pairs", pairs, "--task", "transduce", "--model", "lstm", "--out", run, *small)
    lines = ok("transduce", run, "ein Hund bellt Ω", "ein Hund").splitlines()
    assert [line.split("\t")[1] for line in lines] == ["ein Hund bellt Ω", "ein Hund"]
    assert all("▁" not in line for line in lines)
    (pairs / "inputs.json").write_text('{"tokenize": "subwords", "subwords": "nonsense"}')
    failed = ndstack("transduce", run, "ein Hund")
    assert failed.returncode == 2
    assert "does not describe subwords" in failed.stderr
    (pairs / "inputs.json").unlink()
    failed = ndstack("transduce", run, "ein Hund")
    assert (failed.returncode == 2) == (symbols == "subwords")


def test_a_text_named_pairs_is_prepared(tmp_path):
    (tmp_path / "pairs").write_text("one two\n" * 10)
    ok("text", "prepare", tmp_path / "pairs", "--out", tmp_path / "corpus", "--split", "8/1/1")
    assert (
        "pairs is neither a text file nor a folder"
        in ndstack("text", "prepare", "pairs", "--out", tmp_path / "new").stderr
    )


def test_errors(texts, tmp_path):
    (tmp_path / "short").write_text("one line\n")
    with pytest.raises(DatasetError, match=r"has 6 lines and .* 1, expected as many"):
        prepare_pairs(texts[0], tmp_path / "short", tmp_path / "out")
    with pytest.raises(DatasetError, match="leave none for validation"):
        prepare_pairs(*texts, tmp_path / "out")
    prepare_pairs(*texts, tmp_path / "out", split=(3, 1, 1))
    (tmp_path / "out" / "symbols.json").write_text('{"source": ["a"]}')
    with pytest.raises(DatasetError, match="expected source and target"):
        read_pairs(tmp_path / "out")
    assert (
        "is not a split"
        in ndstack("text", "prepare-pairs", *texts, "--out", tmp_path / "x", "--split", "a").stderr
    )

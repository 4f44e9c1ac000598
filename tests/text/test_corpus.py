import hashlib
import json
import os
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndstack.errors import DatasetError
from ndstack.text import example, lines, preparation, prepare, read_corpus, read_vocabulary
from ndstack.text.launch import corpus_checksums
from ndstack.text.vocabulary import END, UNKNOWN, Vocabulary, from_counts

WORD = st.sampled_from(["a", "b", "cc", "é", "日本", "<unk>"])
TEXT = st.lists(st.lists(WORD, max_size=5), min_size=1, max_size=8)


@given(TEXT, st.integers(1, 12), st.booleans())
def test_pieces_of_any_size_are_the_lines(tmp_path_factory, text, block, ended):
    path = tmp_path_factory.mktemp("t") / "x.txt"
    path.write_text("\n".join(" ".join(line) for line in text) + "\n" * ended, encoding="utf-8")
    before, lines.BLOCK = lines.BLOCK, block
    try:
        found, current = [], []
        for words, ends in lines.pieces(path):
            current += words
            if ends:
                found.append(current)
                current = []
    finally:
        lines.BLOCK = before
    expected = text if ended else text[: len(text) - (not text[-1])]
    assert found == expected
    assert not current


def test_an_example_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(example, "_pairs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            example.write_example(tmp_path / "text", 10)
    assert not list(tmp_path.iterdir())
    example.write_example(tmp_path / "text", 10)
    assert (tmp_path / "text" / "pairs.jsonl").exists()


@pytest.mark.parametrize("mask, mode", [(0o022, 0o755), (0o077, 0o700)])
def test_a_corpus_has_the_permissions_that_new_folders_have(mask, mode, tmp_path):
    (tmp_path / "x.txt").write_text("a b\n")
    before = os.umask(mask)
    try:
        prepare(tmp_path / "x.txt", tmp_path / "corpus")
    finally:
        os.umask(before)
    assert (tmp_path / "corpus").stat().st_mode & 0o777 == mode


@given(TEXT, TEXT)
def test_a_corpus_says_what_the_text_says(tmp_path_factory, train, test):
    folder = tmp_path_factory.mktemp("t")
    for part, text in (("train", [["a"], *train]), ("test", test)):
        (folder / f"x.{part}.txt").write_text("".join(" ".join(line) + "\n" for line in text), "utf-8")
    before, preparation.BLOCK = preparation.BLOCK, 3
    try:
        corpus = prepare(folder, folder / "corpus")
    finally:
        preparation.BLOCK = before
    again = read_corpus(folder / "corpus")
    known = {word for line in [["a"], *train] for word in line} | {UNKNOWN}
    assert set(corpus.vocabulary.words) == known
    for part, text in (("train", [["a"], *train]), ("test", test)):
        expected = [
            word if word in known or word == END else UNKNOWN for line in text for word in (*line, END)
        ]
        assert corpus.vocabulary.decode(again[part].tolist()) == expected
        split = again.header.splits[part]
        assert (split.tokens, split.lines) == (len(expected), len(text))
        assert split.unknown == expected.count(UNKNOWN)


@pytest.mark.parametrize("shares", [(90, 5, 5), (8, 1, 1), (1, 1, 1), (95, 5, 0)])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_a_file_is_split_by_lines_in_order(shares, ended, block, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK", block)
    text = [f"word{number % 7} é{number}" if number % 5 else "" for number in range(1, 104)]
    (tmp_path / "t.txt").write_text("\n".join(text) + "\n" * ended, encoding="utf-8")
    corpus = prepare(tmp_path / "t.txt", tmp_path / "c", split=shares)
    found = []
    for part in corpus.splits.values():
        found += " ".join(corpus.vocabulary.decode(part)).split("<eos>")[:-1]
    first, second = 103 * shares[0] // sum(shares), 103 * sum(shares[:2]) // sum(shares)
    assert [part.lines for part in corpus.header.splits.values()] == [
        n for n in (first, second - first, 103 - second) if n
    ]
    known = set(corpus.vocabulary.words)
    assert [line.split() for line in found] == [
        [w if w in known else "<unk>" for w in line.split()] for line in text
    ]
    assert {w for line in text[:first] for w in line.split()} | {"<unk>"} == known


def test_splits_that_make_no_sense_are_refused(tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\n")
    with pytest.raises(DatasetError, match="has 2 lines, too few for a valid part"):
        prepare(tmp_path / "t.txt", tmp_path / "c", split=(90, 5, 5))
    with pytest.raises(DatasetError, match="is a folder"):
        prepare(tmp_path, tmp_path / "c", split=(90, 5, 5))
    for text in ("", "90", "90/5", "0/1/1", "90/5/-5", "a/b/c", "90/5/5/5", "²/1/1"):
        with pytest.raises(DatasetError, match="is not a split"):
            lines.parse_split(text)


def test_punctuation_is_separated_as_documented():
    text = "“Don't,” he said: 3.14 (or 1,000.5) well-known A.B. <unk> x_1 naïve... 5th, $4.50; rock-'n'-roll"
    words = (
        "“ Don't , ” he said : 3.14 ( or 1,000.5 ) well-known A . B . <unk> x_1 naïve . . . 5th , $ 4.50 ; "
        "rock - ' n ' - roll"
    )
    assert lines.separate(text, "words") == words.split()
    assert lines.separate(text, "spaces") == text.split()


def test_the_commonest_words_come_first_and_a_limit_keeps_them():
    counts = Counter(["b", "b", "b", "a", "a", "c", "c", "d", "<unk>", "<unk>", "<unk>", "<unk>"])
    assert from_counts(counts).words == (UNKNOWN, "b", "a", "c", "d")
    assert from_counts(counts, size=4).words == (UNKNOWN, "b", "a")
    assert from_counts(counts, min_count=3).words == (UNKNOWN, "b")
    assert from_counts(Counter(["a", "a", "b"]), size=3).words == ("a", UNKNOWN)
    assert len(from_counts(counts, size=4)) == 4


def test_words_are_looked_up_as_they_stand_then_in_lower_case():
    vocabulary = Vocabulary(("the", "N", UNKNOWN))
    assert vocabulary.decode(vocabulary.encode(["The", "N", "n", "THE", "cat"])) == [
        "the", "N", UNKNOWN, "the", UNKNOWN,
    ]  # fmt: skip
    assert vocabulary.unknown_words(["The", UNKNOWN, "cat"]) == ["cat"]


def test_a_given_vocabulary_is_used(tmp_path):
    (tmp_path / "words.txt").write_text("b\na\n<eos>\n")
    (tmp_path / "t.txt").write_text("a b c\n")
    corpus = prepare(tmp_path / "t.txt", tmp_path / "c", vocabulary=read_vocabulary(tmp_path / "words.txt"))
    assert corpus.vocabulary.words == ("b", "a", UNKNOWN)
    assert corpus["train"].tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a b\nc <eos> d\n", "x.train.txt, line 2: <eos> in the text"),
        (b"a b\nc\nd \xff\n", "x.train.txt, line 3: not UTF-8"),
        (b"\n\n", "has no words"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_with_its_place(tmp_path, content, message):
    (tmp_path / "x.train.txt").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        prepare(tmp_path, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_folders_without_or_with_two_training_parts_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="no training part"):
        prepare(tmp_path, tmp_path / "corpus")
    for name in ("a.train.txt", "train.txt"):
        (tmp_path / name).write_text("a\n")
    with pytest.raises(DatasetError, match="both named"):
        prepare(tmp_path, tmp_path / "corpus")


def test_a_vocabulary_file_is_checked(tmp_path):
    (tmp_path / "v").write_text("a\nb\na\n")
    with pytest.raises(DatasetError, match="v, line 3: 'a' is already in line 1"):
        read_vocabulary(tmp_path / "v")
    (tmp_path / "v").write_text("a\nb c\n")
    with pytest.raises(DatasetError, match="v, line 2: 'b c' given, expected one word"):
        read_vocabulary(tmp_path / "v")
    (tmp_path / "v").write_bytes(b"a\n\xff\n")
    with pytest.raises(DatasetError, match="v is not UTF-8 text"):
        read_vocabulary(tmp_path / "v")


def test_a_vocabulary_with_its_checksum_forged_is_noticed(corpus):
    path = corpus.folder / "vocabulary.txt"
    for content, message in ((b"a\na\n<unk>\n", "is not a vocabulary"), (b"<unk>\n", "2 types with <eos>")):
        path.write_bytes(content)
        forged = {"vocabulary_sha256": hashlib.sha256(content).hexdigest()}
        (corpus.folder / "header.json").write_text(corpus.header.model_copy(update=forged).model_dump_json())
        with pytest.raises(DatasetError, match=message):
            read_corpus(corpus.folder)


def test_the_header_says_what_separated_words_and_older_ones_without_it_are_read(corpus, tmp_path):
    assert corpus.header.tokenize == "spaces"
    words = prepare(tmp_path / "text", tmp_path / "words", tokenize="words")
    assert read_corpus(words.folder).header.tokenize == "words"
    path = corpus.folder / "header.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "tokenize"}))
    older = read_corpus(corpus.folder)
    assert older.header.tokenize is None
    assert corpus_checksums(older.header) == corpus_checksums(corpus.header)


def test_what_prepare_is_asked_for_has_to_make_sense(corpus, tmp_path):
    text = tmp_path / "text"
    with pytest.raises(DatasetError, match="exists and is not an empty folder"):
        prepare(text, corpus.folder)
    with pytest.raises(DatasetError, match="but a vocabulary is given"):
        prepare(text, tmp_path / "new", vocabulary=corpus.vocabulary, size=5)
    with pytest.raises(DatasetError, match="vocabulary of size 1"):
        prepare(text, tmp_path / "new", size=1)
    with pytest.raises(DatasetError, match="min_count is 0"):
        prepare(text, tmp_path / "new", min_count=0)
    with pytest.raises(DatasetError, match="has no part called 'dev'; it has train, valid, test"):
        corpus["dev"]
    (text / "valid.txt").write_text("")
    with pytest.raises(DatasetError, match=r"valid\.txt is empty"):
        prepare(text, tmp_path / "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="cannot write the corpus"):
        prepare(text, tmp_path / "file" / "new")


@pytest.mark.parametrize(
    "damage", ["shorter", "another number", "too great", "vocabulary", "header", "no vocabulary", "no tokens"]
)
def test_damage_is_noticed(corpus, damage):
    path = corpus.folder / "train.tokens"
    content = bytearray(path.read_bytes())
    if damage == "shorter":
        path.write_bytes(content[:-2])
    elif damage in ("another number", "too great"):
        content[10] = content[10] ^ 1 if damage == "another number" else 200
        path.write_bytes(content)
        read_corpus(corpus.folder, verify=False)
    elif damage == "vocabulary":
        (corpus.folder / "vocabulary.txt").write_text("a\nb\n")
    elif damage.startswith("no "):
        (corpus.folder / {"no vocabulary": "vocabulary.txt", "no tokens": "train.tokens"}[damage]).unlink()
    else:
        (corpus.folder / "header.json").write_text("{}")
    with pytest.raises(
        DatasetError,
        match=r"bytes|checksum|index 200|header|cannot read .*(vocabulary\.txt|train\.tokens): No such file",
    ):
        read_corpus(corpus.folder)


def test_many_types_take_four_bytes(tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(f"w{i}" for i in range(70_000)))
    corpus = prepare(tmp_path / "t.txt", tmp_path / "c")
    assert corpus["train"].dtype == np.uint32
    assert corpus["train"].max() == corpus.vocabulary.end == 70_001


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK", 1 << 15)
    monkeypatch.setattr(preparation, "BLOCK", 1 << 12)
    peaks = []
    for size in (4, 32):
        path = tmp_path / f"{size}.txt"
        path.write_text("some words and some more of them " * 1000 * size)
        tracemalloc.start()
        prepare(path, tmp_path / f"c{size}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]

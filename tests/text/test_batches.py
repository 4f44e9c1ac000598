from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ndstack.errors import NdstackError
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.text import Sentences, Stream

END = 9


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 9), st.integers(1, 3))
def test_every_token_is_scored_once_after_the_one_before_it(count, rows, length, processes):
    tokens = np.random.default_rng(count).integers(0, 9, count).astype(np.uint16)
    stream = Stream(tokens, END, rows, length)
    if stream.rows < processes:
        with pytest.raises(NdstackError, match="one row each"):
            stream.chunk(0, 0, processes)
        return
    read = [[] for _ in range(stream.rows)]
    wanted = [[] for _ in range(stream.rows)]
    for number in range(len(stream)):
        shares = [stream.chunk(number, process, processes) for process in range(processes)]
        inputs, targets = (
            torch.cat([getattr(share, name) for share in shares]) for name in ("inputs", "targets")
        )
        assert inputs.shape[0] == stream.rows
        assert inputs.shape[1] <= length
        assert {share.tokens for share in shares} == {int((targets != IGNORED).sum())}
        for row in range(stream.rows):
            kept = targets[row] != IGNORED
            read[row] += inputs[row][kept].tolist()
            wanted[row] += targets[row][kept].tolist()
    assert [*chain(*wanted)] == tokens.tolist()
    assert [*chain(*read)] == [END, *tokens.tolist()[:-1]]
    sizes = [len(row) for row in wanted]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 3))
def test_every_sentence_is_scored_once_from_its_beginning(lengths, places, processes):
    rng = np.random.default_rng(sum(lengths))
    sentences = [[*rng.integers(0, 9, length).tolist(), END] for length in lengths]
    data = Sentences(np.array([*chain(*sentences)], np.uint16), END, places)
    found = []
    for number in range(len(data)):
        whole = data.batch(number)
        assert whole.inputs.numel() <= max(places, whole.inputs.shape[1])
        parts = [data.batch(number, process, processes) for process in range(processes)]
        assert torch.equal(torch.cat([part.targets for part in parts]), whole.targets)
        assert {part.tokens for part in parts} == {int((whole.targets != IGNORED).sum())}
        for inputs, targets in zip(whole.inputs, whole.targets, strict=True):
            kept = targets[targets != IGNORED].tolist()
            assert inputs[: len(kept)].tolist() == [END, *kept[:-1]]
            found.append(kept)
    assert sorted(found) == sorted(sentences)


def test_a_stream_of_the_penn_treebanks_size():
    stream = Stream(np.zeros(929_589, np.uint16), END)
    assert len(stream) == 830
    assert sum(stream.chunk(number).tokens for number in (0, 829)) == 32 * 35 + (929_589 - 829 * 32 * 35)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda tokens: Stream(tokens, END, rows=0), "rows is 0, expected 1"),
        (lambda tokens: Stream(tokens, END, length=0), "length is 0, expected 1"),
        (lambda tokens: Stream(tokens[:0], END), "without tokens"),
        (lambda tokens: Stream(tokens, END).chunk(1), "chunk 1 asked for, expected 0 to 0"),
        (lambda tokens: Sentences(tokens, END, places=0), "places is 0, expected 1"),
        (lambda tokens: Sentences(tokens, END), "without a whole line"),
        (lambda tokens: Sentences(tokens[:0], END), "without a whole line"),
    ],
)
def test_wrong_sizes_are_refused(make, message):
    with pytest.raises(NdstackError, match=message):
        make(np.zeros(3, np.uint16))


def test_chunks_are_those_from_a_number_on():
    stream = Stream(np.arange(9, dtype=np.uint16), END, rows=1, length=2)
    assert [chunk.targets.tolist() for chunk in stream.chunks(3)] == [[[6, 7]], [[8]]]

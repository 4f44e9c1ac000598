import dataclasses
import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from ndstack.errors import NdstackError
from ndstack.nn import RNNState, models
from ndstack.nn.storage import states
from ndstack.text import (
    Sentences,
    Stream,
    TextTask,
    batches,
    configure,
    corpus_nats,
    perplexity,
    prepare,
    train_on_text,
)
from ndstack.text.launch import corpus_of, model_options
from ndstack.text.task import read_batch
from ndstack.training import Run, RunConfig, Share, TrainingConfig, fit
from tests.text.conftest import MODELS, small, write_text

WORDS = ("a", "b", "c", "<unk>")


def stream_of(count=30, rows=2, length=5):
    tokens = np.random.default_rng(0).integers(0, 5, count).astype(np.uint16)
    return Stream(tokens, 4, rows, length)


@pytest.mark.parametrize("name", MODELS)
def test_chunks_with_carried_state_are_one_long_sequence(name):
    """Losses are equal; within a chunk so are the derivatives by what is read."""
    model, stream = small(name), stream_of()
    whole = dataclasses.replace(stream, length=15).chunk(0)
    inputs = model.embedding(whole.inputs).detach().requires_grad_()
    hidden, _ = model.backbone(inputs, model.start(2))
    losses = cross_entropy(model.output(hidden).transpose(1, 2), whole.targets, reduction="none")
    state = None
    for number in range(3):
        part = slice(5 * number, 5 * number + 5)
        expected = torch.autograd.grad(losses[:, part].sum(), inputs, retain_graph=True)[0][:, part]
        chunk = stream.chunk(number)
        total, after = read_batch(model, chunk, state)
        torch.testing.assert_close(total, losses[:, part].sum())
        leaf = inputs[:, part].detach().requires_grad_()
        own, _ = model.backbone(leaf, model.start(2) if state is None else state)
        loss = cross_entropy(model.output(own).flatten(0, 1), chunk.targets.flatten(), reduction="sum")
        torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], expected)
        state = after.detach()


@pytest.mark.parametrize("name", ["lstm", "sup-3", "vrns-2-2-3"])
def test_the_gradient_of_a_chunk_is_that_of_its_tokens_alone(name):
    model, stream = small(name), stream_of()
    task = TextTask.__new__(TextTask)
    task.training, task.share, task.state = stream, Share(), None
    first = task.loss(model, 0, 0)
    whole = dataclasses.replace(stream, length=15).chunk(0)
    logits, _ = model(whole.inputs, model.start(2))
    expected = cross_entropy(logits[:, :5].flatten(0, 1), whole.targets[:, :5].flatten())
    names = dict(model.named_parameters())
    mine = torch.autograd.grad(first.value, names.values())
    for key, own, long in zip(names, mine, torch.autograd.grad(expected, names.values()), strict=True):
        torch.testing.assert_close(own, long, msg=key)
    second = task.loss(model, 0, 1)
    assert second.value.requires_grad
    state: RNNState = task.state
    assert not any(tensor.requires_grad for tensor in state.hidden)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["lstm", "rns-2-2", "tf+sup-3"])
def test_perplexity_is_the_direct_computation(name, rows):
    model = small(name).eval()
    tokens = np.array([*np.random.default_rng(1).integers(0, 5, 31), 4], np.uint16)
    part = batches(model, tokens, rows, 4)
    direct, listed = 0.0, tokens.tolist()
    if isinstance(part, Sentences):
        lines = [line.split() for line in " ".join(map(str, listed)).split("4")[:-1]]
        direct -= model.log_probability([[WORDS[int(word)] for word in line] for line in lines]).sum().item()
    else:
        sizes = [32 // rows + (row < 32 % rows) for row in range(rows)]
        for row in range(rows):
            first, last = sum(sizes[:row]), sum(sizes[: row + 1])
            log_p = model(torch.tensor([[4, *listed][first:last]]), model.start(1))[0].log_softmax(-1)
            direct -= sum(log_p[0, at, word].item() for at, word in enumerate(listed[first:last]))
    total = corpus_nats(model, part)
    assert total.symbols == 32
    assert perplexity(total) == pytest.approx(math.exp(direct / 32), rel=1e-9)
    if rows == 3:
        shares = [corpus_nats(model, part, Share(rank, 2)) for rank in range(2)]
        assert sum(share.nats for share in shares) == pytest.approx(total.nats)
        assert sum(share.symbols for share in shares) == 32


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", [*MODELS, "strat-2", "tf+vrns-2-2-3"])
def test_a_state_goes_through_a_file_and_on_exactly(name, double):
    model = small(name, double=double).eval()
    tokens = torch.randint(0, 5, (3, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        state = model.start(3)
        for first in range(0, 30, 6):
            put_back = states.unpack_state(states.pack_state(state))
            before, _ = model(tokens[:, first : first + 6], put_back)
            after, state = model(tokens[:, first : first + 6], state)
            assert torch.equal(before, after)


def test_a_damaged_state_is_refused():
    tensors = states.pack_state(small("rns-2-2").start(2))
    with pytest.raises(NdstackError, match="not the state of a network"):
        states.unpack_state({"structure": tensors["structure"]})


@pytest.mark.parametrize(
    "layout", [[1e152, 2, 8, 0], [2, 2, 10**12, 0], [10**6, 10**6, 8, 0], [2, True, 8, 0]]
)
def test_a_chart_of_impossible_sizes_is_refused(layout):
    model = small("rns-2-2")
    _, state = model(torch.zeros(2, 3, dtype=torch.long), model.start(2))
    tensors = states.pack_state(state)
    structure = json.loads(bytes(tensors["structure"].tolist()))
    structure["fields"]["stack"]["fields"]["chart"]["chart"]["layout"] = layout
    text = bytearray(json.dumps(structure).encode())
    with pytest.raises(NdstackError, match="not the state of a network: ValueError"):
        states.unpack_state({**tensors, "structure": torch.frombuffer(text, dtype=torch.uint8)})


@pytest.mark.parametrize("name", ["lstm", "vrns-2-2-3", "tf"])
def test_training_lowers_the_perplexity_and_its_shares_add_up(corpus, name):
    model = small(name, corpus.vocabulary.words)
    task = TextTask(corpus, model, rows=4, length=6)
    shares = [TextTask(corpus, model, rows=4, length=6, share=Share(rank, 2)) for rank in range(2)]
    model.eval()
    for step in range(min(3, task.steps(0))):
        whole, parts = task.loss(model, 0, step), [share.loss(model, 0, step) for share in shares]
        torch.testing.assert_close(sum(part.value for part in parts), whole.value)
        assert sum(part.symbols for part in parts) == whole.symbols
    rate = {"learning_rate": 0.003} if name == "tf" else {"optimizer": "sgd", "learning_rate": 0.5}
    result = fit(model, task, TrainingConfig(max_epochs=4, clip=1.0, **rate))
    first, last = (result.history[place]["validation_perplexity"] for place in (0, -1))
    assert last < first
    assert perplexity(task.validate(model)) == pytest.approx(
        min(h["validation_perplexity"] for h in result.history)
    )


def test_parameter_counts_are_the_dissertations():
    words = [f"w{index}" for index in range(9998)] + ["<unk>"]
    counts = {"lstm": 5_656_336, "sup-22": 5_685_289, "rns-4-5": 5_902_976, "vrns-3-3-5": 5_752_279}
    for name, expected in counts.items():
        model = models.build(name, words, **model_options(name))
        assert sum(p.numel() for p in model.parameters()) == expected
        assert max(p.abs().max() for p in model.parameters()) <= 0.05


def test_models_that_cannot_read_a_stream_or_this_text_are_refused(corpus):
    with pytest.raises(NdstackError, match="never discards an element"):
        configure(corpus.folder, "strat-3")
    with pytest.raises(NdstackError, match="knows 4 words, expected the 8"):
        TextTask(corpus, small("lstm"))
    with pytest.raises(NdstackError, match="cannot read <eos>"):
        TextTask(corpus, models.build("lstm", corpus.vocabulary.words))
    with pytest.raises(NdstackError, match="a state for 2 rows carried to a chunk of 3"):
        read_batch(small("lstm"), stream_of(rows=3).chunk(0), small("lstm").start(2))
    formal = RunConfig.of({"language": "dyck", "model": "lstm"})
    with pytest.raises(NdstackError, match="on the formal language dyck; use ndstack train"):
        corpus_of(formal)


def test_training_needs_two_parts(tmp_path):
    (tmp_path / "t.txt").write_text("a b\n")
    prepare(tmp_path / "t.txt", tmp_path / "corpus")
    with pytest.raises(NdstackError, match="has no valid part"):
        configure(tmp_path / "corpus", "lstm")


def test_a_run_in_double_precision(tmp_path, corpus):
    settings = {"training": {"max_epochs": 1, "precision": "64"}, "corpus": {"rows": 4, "length": 20}}
    train_on_text(tmp_path / "run", configure(corpus.folder, "tf", hidden=16, settings=settings))
    assert {p.dtype for p in Run.open(tmp_path / "run").load().parameters()} == {torch.float64}


TRAIN = """
import sys
from ndstack.text import configure, train_on_text
if __name__ == "__main__":
    corpus, name, out, resume = sys.argv[1:]
    config = configure(corpus, name, hidden=12, window=6, depth=5, settings={
        "training": {"max_epochs": 2, "checkpoint_seconds": 0.0, "threads": 1, "learning_rate": 2.0},
        "corpus": {"rows": 4, "length": 5}})
    train_on_text(out, None if resume == "yes" else config)
"""


@pytest.mark.parametrize("name", ["vrns-2-2-3", "sup-h"])
def test_a_killed_run_goes_on_in_the_middle_of_an_epoch_and_ends_the_same(tmp_path, name):
    corpus = prepare(write_text(tmp_path / "text", lines=400), tmp_path / "corpus")
    script = tmp_path / "go.py"
    script.write_text(TRAIN)

    def command(out, resume):
        return [sys.executable, str(script), str(corpus.folder), name, str(out), resume]

    subprocess.run(command(tmp_path / "whole", "no"), check=True, timeout=300)
    state = tmp_path / "cut" / "last" / "state.safetensors"
    process = subprocess.Popen(command(tmp_path / "cut", "no"))
    while not state.exists():
        time.sleep(0.02)
        assert process.poll() is None
    time.sleep(0.1)
    process.kill()
    process.wait()
    train_on_text(tmp_path / "cut")
    begun = (tmp_path / "cut" / "log.txt").read_text().splitlines()[1]
    assert "start at epoch" in begun
    assert not begun.endswith("step 1")
    for file in ("metrics.jsonl", "best.safetensors", "last/state.safetensors"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


def test_two_processes_do_what_one_does(tmp_path, corpus):
    results = []
    for processes in (1, 2):
        settings = {
            "training": {"max_epochs": 1, "processes": processes, "threads": 1, "learning_rate": 1.0},
            "corpus": {"rows": 3, "length": 20},
        }
        config = configure(corpus.folder, "lstm", hidden=4, settings=settings)
        results.append(train_on_text(tmp_path / f"run{processes}", config))
    one, two = (result.history[0] for result in results)
    assert one == pytest.approx(two, rel=1e-4)


def test_a_run_notices_that_its_text_has_changed(tmp_path):
    folder = prepare(write_text(tmp_path / "text"), tmp_path / "corpus").folder
    settings = {"training": {"max_epochs": 1}, "corpus": {"rows": 4, "length": 20}}
    train_on_text(tmp_path / "run", configure(folder, "lstm", hidden=4, settings=settings))
    for file in folder.iterdir():
        file.unlink()
    prepare(write_text(tmp_path / "other", seed=1), folder)
    with pytest.raises(NdstackError, match="another corpus than when the run began"):
        train_on_text(tmp_path / "run")

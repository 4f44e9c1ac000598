"""Models in folders: what is saved comes back; what is damaged, truncated or foreign gets one line."""

import copy
import json
import pickle
import struct

import pytest
import safetensors.torch
import torch

from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel, StackRNN, load, models
from ndstack.nn.networks.backbone import Backbone
from ndstack.stacks import Several, Stratification, Superposition

WORDS = ["01#10", "11#11"]


@pytest.mark.parametrize("name", models.NAMES)
def test_a_saved_model_comes_back(name, tmp_path):
    model = models.build(name, "marked-reversal", seed=3).eval()
    model.save(tmp_path / "runs" / "one")
    again = load(tmp_path / "runs" / "one")
    assert not again.training
    assert repr(again) == repr(model)
    assert torch.equal(again.logits(WORDS), model.logits(WORDS))
    assert sorted(path.name for path in (tmp_path / "runs" / "one").iterdir()) == [
        "model.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: models.build(
            "rns-2-3",
            "dyck",
            hidden=6,
            num_layers=2,
            controller="gru",
            window=9,
            bottom_fix=False,
            reading_layers=2,
            output_reading=True,
            normalize_reading=False,
        ),
        lambda: models.build("sup-2-4", ["the", "cat"], embedding=5, depth=7).double(),
        lambda: models.build(
            "tf+strat-4", "dyck", num_layers=2, d_model=8, heads=2, feedforward=9, dropout=0.3
        ),
        lambda: LanguageModel(
            StackRNN(4, 5, Several(Superposition((2, 2), synchronized=True), Superposition(3))),
            "01#",
            bos=True,
        ),
        lambda: LanguageModel(StackRNN(2, 5, Stratification(3), controller="rnn"), "01"),
    ],
)
def test_every_option_comes_back(make, tmp_path):
    model = make().eval()
    model.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert repr(again) == repr(model)
    assert again.alphabet == model.alphabet
    for (name, one), (other_name, other) in zip(
        model.state_dict().items(), again.state_dict().items(), strict=True
    ):
        assert name == other_name
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    empty = torch.zeros(2, 3, dtype=torch.long)
    assert torch.equal(again.logits(empty), model.logits(empty))


def test_saving_again_replaces_and_gives_the_same_bytes(tmp_path):
    models.build("lstm", "dyck", seed=1).save(tmp_path)
    first = [(tmp_path / name).read_bytes() for name in ("model.json", "model.safetensors")]
    models.build("sup-3", "dyck").save(tmp_path)
    assert load(tmp_path).backbone.stack is not None
    models.build("lstm", "dyck", seed=1).save(tmp_path)
    assert first == [(tmp_path / name).read_bytes() for name in ("model.json", "model.safetensors")]


def test_a_failed_save_leaves_the_old_model_and_no_litter(tmp_path, monkeypatch):
    model = models.build("lstm", "dyck", seed=1)
    model.save(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ndstack.files.os.fsync", fail)
    with pytest.raises(NdstackError, match=r"cannot write a model to .*: No space left on device"):
        models.build("sup-3", "dyck").save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(load(tmp_path).output.weight, model.output.weight)


def test_deep_copies_and_state_dicts():
    model = models.build("vrns-1-2-3", "marked-reversal")
    other = copy.deepcopy(model)
    assert torch.equal(other.logits(WORDS), model.logits(WORDS))
    other.load_state_dict(models.build("vrns-1-2-3", "marked-reversal", seed=9).state_dict())
    assert not torch.equal(other.logits(WORDS), model.logits(WORDS))


def damage(tmp_path, name, change):
    path = tmp_path / name
    path.write_bytes(change(path.read_bytes()))


def rewritten(change):
    """A function of the bytes of a JSON file that changes its content."""

    def apply(content):
        data = json.loads(content)
        change(data)
        return json.dumps(data).encode()

    return apply


def with_header(change):
    """A function of the bytes of a safetensors file that changes its header."""

    def apply(content):
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + size :]

    return apply


def flipped(content):
    return content[:-5] + bytes([content[-5] ^ 64]) + content[-4:]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.json", lambda b: b[: len(b) // 2], "model.json does not describe a model: Invalid JSON"),
        ("model.json", lambda b: b"", "does not describe a model"),
        ("model.json", lambda b: b"\xff\xfe", "does not describe a model"),
        ("model.json", lambda b: b"[1, 2]", "does not describe a model"),
        ("model.json", rewritten(lambda d: d.update(format="ndstack model 2")), "format: Input should be"),
        ("model.json", rewritten(lambda d: d.update(extra=1)), "extra: there is no such name"),
        ("model.json", rewritten(lambda d: d.pop("bos")), "bos: Field required"),
        (
            "model.json",
            rewritten(lambda d: d["backbone"].update(kind="cnn")),
            "backbone: there is no stack or network called 'cnn'",
        ),
        (
            "model.json",
            rewritten(lambda d: d["backbone"].update(hidden_size="6")),
            "hidden_size: Input should be",
        ),
        (
            "model.json",
            rewritten(lambda d: d["backbone"]["stack"].update(sizes=[])),
            "no sizes given",
        ),
        ("model.json", rewritten(lambda d: d.update(alphabet=["0", "0"])), "repeats symbols"),
        (
            "model.json",
            rewritten(lambda d: d["backbone"].update(hidden_size=7)),
            "expected .*as model.json says",
        ),
        (
            "model.json",
            rewritten(lambda d: d["backbone"].update(hidden_size=10**9)),
            "does not describe a model",
        ),
        (
            "model.json",
            rewritten(lambda d: d["backbone"].update(num_layers=2)),
            "lacks backbone.controller.bias",
        ),
        (
            "model.json",
            rewritten(lambda d: d["backbone"].update(stack=None)),
            "has the unknown backbone.actions",
        ),
        (
            "model.json",
            rewritten(lambda d: d.update(dtype="float64")),
            "torch.float32, expected .* of torch.float64",
        ),
        ("model.safetensors", lambda b: b[:-7], "damaged or not a safetensors file"),
        ("model.safetensors", lambda b: b"", "damaged or not a safetensors file"),
        ("model.safetensors", lambda b: b[:4], "damaged or not a safetensors file"),
        ("model.safetensors", lambda b: pickle.dumps([1, 2]), "damaged or not a safetensors file"),
        ("model.safetensors", flipped, "do not have the checksum"),
        ("model.safetensors", with_header(lambda h: h.pop("__metadata__")), "do not have the checksum"),
        (
            "model.safetensors",
            lambda _: safetensors.torch.save({"weight": torch.zeros(3)}),
            "lacks backbone.actions.bias and 9 more",
        ),
    ],
)
def test_damaged_and_foreign_files_get_one_line(name, change, message, tmp_path):
    models.build("sup-3", "marked-reversal", hidden=6).save(tmp_path)
    damage(tmp_path, name, change)
    with pytest.raises(NdstackError, match=message) as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_missing_files_get_one_line(name, tmp_path):
    models.build("lstm", "dyck").save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(NdstackError, match=rf"cannot read .*{name}: No such file or directory"):
        load(tmp_path)


def test_networks_of_others_cannot_be_saved(tmp_path):
    class Other(Backbone):
        input_size = output_size = 3

        def start(self, batch_size, dtype=None, device=None): ...

        def forward(self, x, state=None): ...

    with pytest.raises(NdstackError, match="a model with a Other cannot be saved"):
        LanguageModel(Other(), "01#").save(tmp_path / "new")
    assert not (tmp_path / "new").exists()

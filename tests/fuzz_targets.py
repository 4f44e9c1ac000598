"""The readers that `tests/fuzz.py` tries: whatever comes from a file, an argument or a request."""

import functools
import json

import torch
from hypothesis import strategies as st

from ndstack.errors import NdstackError
from tests.fuzz import altered, content, file, good, lazily, noisy, phrases, target, values, with_file

GRAMMARS = (
    b"S -> 'a' S 'b' [0.5] | 'c' [0.5]\n",
    b"%start S\nS -> A \\\n C\nA -> 'a' A \"b\" |\nC -> 'c' C [1/3]\n",
)
TOML = b"""
name = "mine"
title = "t"
languages = ["dyck", "count-3"]
restarts = 2
[[models]]
label = "LSTM"
names = ["lstm"]
[search]
"training.learning_rate" = { low = 0.001, high = 0.1 }
[settings.training]
max_epochs = 3
[[outputs]]
label = "figure-1"
kind = "curves"
[scales.smoke]
restarts = 1
"""


@target(
    st.one_of(
        phrases(
            "S", "A", " -> ", " | ", "'a'", '"b"', " [0.5]", "[1/0]", "\n", "%start ", "#", "\\", "^", "<>"
        ),
        noisy(*GRAMMARS).map(lambda raw: raw.decode("utf-8", "replace")),
    )
)
def grammar_text(text):
    from ndstack.grammars import read_grammar

    grammar = read_grammar(text)
    assert read_grammar(str(grammar)).rules


@target(noisy(*GRAMMARS, GRAMMARS[0].decode().encode("utf-16"), b"\xef\xbb\xbf" + GRAMMARS[1]))
def grammar_file(raw):
    from ndstack.languages import from_grammar

    with file(raw) as path:
        from_grammar(path).lengths(0, 3)


@target(
    phrases("(5;%a%)", "(*;%b%)", "(", ")", "[", "]", "<", ">", "=", "&", "|", "+", "-", "1.5", " ", "%", ";")
)
def formula(text):
    from ndstack.text import formulas

    found = formulas.parse_formula(text)
    formulas.is_true(found, lambda number, condition: 1.0)
    list(formulas.regions(found))


def _suite():
    return next(iter(sorted((good() / "example" / "suites").glob("*.json"))))


def _short_suite():
    suite = json.loads(_suite().read_bytes())
    return {**suite, "items": suite["items"][:2]}


@target(lazily(lambda: altered(_short_suite())))
def suite(raw):
    from ndstack.text.generalization import evaluate_suites
    from ndstack.text.suites import read_suite

    with file(raw) as path:
        found = read_suite(path)
    evaluate_suites([found], lambda sentences: [[1.0] * len(words) for words in sentences])


@target(lazily(lambda: st.one_of(altered(json.loads(content("example/pairs.jsonl").splitlines()[0])),
                                 noisy(content("example/pairs.jsonl")[:500]))))  # fmt: skip
def pairs(raw):
    from ndstack.text.minimal_pairs import evaluate_pairs, read_pairs

    with file(raw) as path:
        found = read_pairs(path)
    evaluate_pairs(found, lambda sentences: [[1.0] * len(words) for words in sentences])


@target(noisy(b"the\ncat\n<unk>\nsleeps\n"))
def vocabulary(raw):
    from ndstack.text.vocabulary import read_vocabulary

    with file(raw) as path:
        read_vocabulary(path)


@target(noisy(b"the cat\nsleeps <unk>\n\n", "le chât\r\n".encode("utf-16")))
def text(raw):
    from ndstack.text import prepare

    with file(raw) as path:
        prepare(path, path.parent / "out")


@target(lazily(lambda: altered(values("corpus/header.json"))))
def corpus_header(raw):
    from ndstack.text.corpus import read_corpus

    with with_file("corpus", "header.json", raw) as folder:
        read_corpus(folder)


@target(
    st.sampled_from(["vocabulary.txt", "test.tokens"]), lazily(lambda: noisy(content("corpus/test.tokens")))
)
def corpus_files(name, raw):
    from ndstack.text.corpus import read_corpus

    with with_file("corpus", name, raw) as folder:
        read_corpus(folder)


@target(lazily(lambda: altered(values("data/header.json"))))
def dataset_header(raw):
    from ndstack.languages import read_dataset

    with with_file("data", "header.json", raw) as folder:
        read_dataset(folder)


@target(st.sampled_from(["train.txt", "test.txt"]), lazily(lambda: noisy(content("data/train.txt"))))
def dataset_files(name, raw):
    from ndstack.languages import read_dataset

    with with_file("data", name, raw) as folder:
        read_dataset(folder)


def _run_config():
    from ndstack.training import RunConfig

    return json.loads(RunConfig(language="dyck", model="rns-2-3").model_dump_json())


@target(lazily(lambda: altered(_run_config())))
def run_config(raw):
    from ndstack.training import Run
    from ndstack.training.material import language_of

    with file(raw, "config.json") as path:
        language_of(Run.open(path.parent).config)


METRICS = b'{"epoch": 1, "train_cross_entropy": 0.5, "validation_cross_entropy": 0.4, "seconds": 1.0}\n'


@target(
    st.sampled_from(["metrics.jsonl", "times.jsonl"]), st.one_of(noisy(METRICS), altered(json.loads(METRICS)))
)
def metrics(name, raw):
    from ndstack.training import Run, RunConfig

    with file(RunConfig(language="dyck", model="lstm").model_dump_json().encode(), "config.json") as path:
        (path.parent / name).write_bytes(raw)
        Run.open(path.parent).summary()


@target(noisy(TOML))
def experiment_file(raw):
    from ndstack.experiments import Experiment, expand

    with file(raw) as path:
        expand(Experiment.read(path).at("smoke"))


@target(lazily(lambda: altered(__import__("tomllib").loads(TOML.decode()))))
def experiment(raw):
    from ndstack.experiments import Experiment

    with file(raw) as path:
        try:
            plain = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return
    Experiment.of(plain, "an experiment").at("smoke")


@target(phrases("training", ".", "clip", "=", "3", "[1, 2]", "{}", "options", "_", "1979-05-27"))
def setting(text):
    from ndstack.settings.reading import merge, parse_setting
    from ndstack.settings.run import RunConfig

    RunConfig.of(merge({"language": "dyck", "model": "lstm"}, parse_setting(text)))


@target(phrases("rns", "-", "2", "3", "tf+", "sup", "lstm", "h", "0", "²"))
def model_name(text):
    from ndstack.nn import models

    models.parse(text)


@target(phrases("dyck", "marked-copy", "(k=", "3", ")", "40", "²", "٣", most=6))
def language_name(text):
    from ndstack.languages import get

    get(text)


@target(phrases("40", ":", "80", "²", "٣", "-", most=6))
def lengths(text):
    from ndstack.cli.arguments import parse_lengths

    low, high = parse_lengths(text)
    assert 0 <= low <= high


@target(lazily(lambda: altered(values("model/model.json"))))
def model_description(raw):
    from ndstack.nn.storage.files import load

    with with_file("model", "model.json", raw) as folder:
        load(folder)


def _with_length(raw):
    """A safetensors file whose header claims another length."""
    return st.integers(0, 2**64 - 1).map(lambda n: n.to_bytes(8, "little") + raw[8:])


@target(lazily(lambda: st.one_of(noisy(content("model/model.safetensors")),
                                 _with_length(content("model/model.safetensors")))))  # fmt: skip
def parameters(raw):
    from ndstack.nn.storage.files import load

    with with_file("model", "model.safetensors", raw) as folder:
        load(folder)


NAMES = [
    "model.output.weight",
    "optimizer.0.step",
    "optimizer.x.y",
    "carried.0.structure",
    "x",
    "",
    ".",
    "\ud800"[:0],
]
SHAPES = [(), (0,), (3,), (2, 3), (1, 1, 1)]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.complex64]
NOTE = {"epoch": 1, "step": 0, "schedule": {"learning_rate": 0.1}, "fingerprint": ""}


@functools.cache
def _training():
    from ndstack.nn import models

    model = models.build("rns-1-2", ("a", "b"), hidden=2)
    return model, torch.optim.Adam(model.parameters())


@target(
    st.dictionaries(
        st.sampled_from(NAMES), st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)), max_size=3
    ),
    st.booleans(),
    altered(NOTE),
)
def checkpoint(shapes, whole, note):
    """A state with a right checksum and wrong content."""
    from ndstack.nn.storage.files import pack_tensors
    from ndstack.training import Run, RunConfig
    from ndstack.training.checkpoint import Progress, fingerprint, restore_state
    from ndstack.training.schedule import Schedule

    model, optimizer = _training()
    tensors = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
    if whole:
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()} | tensors
    with file(b"", "config.json") as path:
        run = Run(path.parent, RunConfig(language="dyck", model=None))
        text = note.decode("utf-8", "replace").replace(
            '"fingerprint": ""', f'"fingerprint": "{fingerprint(run, model)}"'
        )
        (path.parent / "last").mkdir()
        (path.parent / "last" / "state.safetensors").write_bytes(pack_tensors(tensors, text))
        restore_state(run, Progress(schedule=Schedule(learning_rate=1.0)), model, optimizer, _OneStage(), 0)


class _OneStage:
    """Stages of a run with a task that only reads what was carried."""

    count = 1

    def task(self, stage):
        return self

    def carry(self, tensors):
        from ndstack.nn.storage import states

        if tensors:
            states.unpack_state(tensors)


NUMBERS = {"tensor": "0"}
CHART = {
    "layout": [1, 2, 8, 0],
    "bottom_fix": True,
    "time": 2,
    "columns": NUMBERS,
    "times": [NUMBERS] * 4,
    "lost": NUMBERS,
}
STACK = {
    "reading": NUMBERS,
    "time": {"value": 2},
    "vectors": {"value": None},
    "history": {"tuple": []},
    "chart": {"chart": CHART},
}
STATE = {
    "hidden": {"tuple": [NUMBERS]},
    "cells": {"tuple": []},
    "stack": {"state": "NondeterministicState", "fields": STACK},
}


@target(altered({"state": "RNNState", "fields": STATE}))
def carried_state(raw):
    from ndstack.nn.storage import states

    structure = torch.frombuffer(bytearray(raw or b" "), dtype=torch.uint8)
    states.unpack_state({states.STRUCTURE: structure, "0": torch.zeros(1, 2)})


@functools.cache
def _client():
    from fastapi.testclient import TestClient

    from ndstack.analysis.explorer.app import make_app
    from ndstack.analysis.explorer.catalogue import Catalogue

    return TestClient(make_app(Catalogue()), "http://127.0.0.1:8765")


@target(
    st.sampled_from(["look", "sample", "save", "models", "models/dyck", "../x", "\0", "look?x=1"]),
    st.one_of(
        altered({"model": "palindromes", "text": "ab"}),
        altered({"model": "dyck", "length": 3, "seed": 1}),
        altered({"model": "palindromes", "text": "a", "t": 0, "stack": 0, "run": 0}),
        st.binary(max_size=40),
    ),
    st.sampled_from(["application/json", "text/plain", "multipart/form-data", "\\x", ""]),
)
def explorer(path, body, kind):
    from urllib.parse import quote

    answer = _client().request(
        "GET" if "models" in path else "POST",
        f"/api/{quote(path)}",
        content=body,
        headers={"content-type": kind},
    )
    assert answer.status_code in (200, 400, 404, 405, 413, 422), answer.status_code
    if answer.status_code != 200:
        raise NdstackError(answer.json()["error"])

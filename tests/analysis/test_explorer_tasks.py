"""The explorer with networks of other tasks: recognisers, and encoders with decoders."""

import json

import numpy as np
import pytest
import torch

from ndstack import languages
from ndstack.analysis import figures, trace
from ndstack.analysis.explorer.catalogue import Catalogue, longest
from ndstack.analysis.explorer.export import export
from ndstack.analysis.source import open_source
from ndstack.nn import build_transducer
from ndstack.nn.language_models.generation import greedy
from ndstack.training.recognition import acceptance_logits
from tests.analysis.browser import Browser, find_browser
from tests.training.small import small_run

ONE = {"data": {"train": 10, "validation": 5, "lengths": (3, 9)}, "training": {"max_epochs": 1}}
RECOGNIZERS = {"sure": ("rns-1-2", {"auxiliary": 0.5}), "plain": ("tf+vrns-1-2-2", {})}
TRANSDUCERS = {"reverse": ("vrns-1-2-2", {}), "attends": ("tf+vrns-1-2-2", {"options": {"both_ways": True}})}
MODELS = ("sup-3", "vrns-2-2-2", "strat-2", "lstm", "tf", "tf+sup-4")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, (model, settings) in RECOGNIZERS.items():
        small_run(folder / name, model, language="dyck", task="recognize", recognition=settings, **ONE)
    for name, (model, settings) in TRANSDUCERS.items():
        small_run(folder / name, model, language="reverse-string", task="transduce", **ONE, **settings)
    return folder


@pytest.fixture(scope="module")
def catalogue(runs):
    return Catalogue([runs / name for name in (*RECOGNIZERS, *TRANSDUCERS)], examples=False)


@pytest.mark.parametrize("name", RECOGNIZERS)
@pytest.mark.parametrize("text", ["", "()", "([)"])
def test_a_recogniser_shows_its_stack_and_its_decision(catalogue, runs, name, text):
    view, model, dyck = catalogue.look(name, text), open_source(runs / name).model, languages.get("dyck")
    prefixes = [text[:end] for end in range(len(text) + 1)]
    sure = torch.sigmoid(acceptance_logits(model, prefixes)).tolist()
    assert [row[-1] for row in view["predictions"]] == pytest.approx(sure, abs=1e-5)
    assert [row[-1] for row in view["truth"]] == [prefix in dyck for prefix in prefixes]
    assert view["accepted"] == (sure[-1] > 0.5)
    assert view["decides"]
    assert view["written"] is None
    assert len(view["outputs"]) == (5 if name == "sure" else 1)
    if name == "sure":
        np.testing.assert_array_equal(view["truth"], dyck.next_symbol_sets(text))
    assert view["stacks"][0]["kind"] == "nondeterministic"
    assert view["stacks"][0]["automaton"]["accepting"] is False


@pytest.mark.parametrize("name", MODELS)
def test_the_trace_of_a_transducer_has_its_output_and_its_readings(name):
    small = {"d_model": 8, "num_layers": 1} if name.startswith("tf") else {"hidden": 5}
    model = build_transducer(name, "ab", "abc", seed=1, **small).double().eval()
    found = trace(model, "abbab")
    written = greedy(model.given(["abbab"]), [()], 20)[0].word
    assert found.written == tuple(written)
    logits, _ = model.predict(["abbab"], [written])
    np.testing.assert_allclose(found.predictions, logits[0].softmax(dim=1).detach(), atol=1e-12)
    decoded = ("BOS", *written)
    if name.startswith("tf"):
        assert [one.inputs for one in found.stacks] == [(*"abbab", "EOS"), decoded][: 2 * ("+" in name)]
    elif name != "lstm":
        (stack,) = found.stacks
        assert stack.inputs == (*"abbab", "EOS", *decoded)
        symbols = torch.tensor([[model.boundary, *("abc".index(symbol) for symbol in written)]])
        _, state = model(symbols, model.read(["abbab"]))
        np.testing.assert_allclose(stack.readings[-1], state.network.stack.reading[0].detach(), atol=1e-9)
    assert figures.draw_predictions(found).svg()


def test_a_stack_that_reads_from_right_to_left_shows_what_the_network_computes():
    model = build_transducer("tf+sup-4", "ab", "ab", d_model=8, num_layers=1, both_ways=True).double().eval()
    found = trace(model, "abb")
    wheres = ["encoder, layer 1", "encoder, layer 1, right to left", "decoder, layer 1"]
    assert [one.where for one in found.stacks] == wheres
    assert found.stacks[1].inputs == ("EOS", "b", "b", "a")
    layer, caught = model.network.encoder[0].attention.backwards, []
    handle = layer.register_forward_hook(lambda _, given, out: caught.append((given[0], out[0])))
    model.read(["abb"])
    handle.remove()
    readings = torch.from_numpy(found.stacks[1].readings)[None]
    torch.testing.assert_close(layer.output(readings), caught[0][1])


def test_a_transducer_shows_the_tapes_of_encoder_and_decoder(catalogue, runs):
    view = catalogue.look("reverse", "ab")
    written = view["written"]
    assert view["expected"] == "ba"
    assert view["inputs"] == ["a", "b", "EOS", "BOS", *written.replace("nothing", "")]
    assert view["first"] == 4
    assert len(view["predictions"]) == len(view["inputs"]) - 3
    assert view["notes"]["string"].startswith(f"It writes {written}")
    stacks = catalogue.look("attends", "ab")["stacks"]
    assert [(one["where"].split(",")[0], one["first"]) for one in stacks] == [
        ("encoder", None),
        ("encoder", None),
        ("decoder", 1),
    ]
    assert stacks[1]["inputs"] == ["EOS", "b", "a"]
    assert longest(open_source(runs / "reverse")) < 100
    text = catalogue.sample("reverse", 5, 1)
    assert len(text) == 5
    json.dumps(catalogue.look("reverse", text), allow_nan=False)
    build_transducer("lstm", ("left", "right"), "ab").save(runs / "saved")
    own = Catalogue([runs / "saved"], examples=False)
    assert set(own.sample("saved", 4, 0).split()) <= {"left", "right"}
    assert own.look("saved", "left right")["expected"] is None


def test_a_static_page_shows_recognisers_and_transducers(catalogue, tmp_path):
    path, problem = find_browser()
    strings = {"sure": ["()"], "plain": ["("], "reverse": ["ab"], "attends": ["abb"]}
    assert export(catalogue, tmp_path / "site", strings) >= 4
    if path is None:
        pytest.skip(problem)
    browser = Browser(path, tmp_path / "browser")
    try:
        browser.open((tmp_path / "site" / "index.html").as_uri())
        browser.until("typeof view === 'object' && view && view.text === '()'")
        assert browser.run("$('next-title').textContent") == "Decision"
        assert "the probability that it is in the language is" in browser.run("$('time-note').textContent")
        browser.run("choose('reverse')")
        browser.until("view.text === 'ab'")
        assert "It writes" in browser.run("$('time-note').textContent")
        assert browser.run("$('slider').max") == str(len(catalogue.look("reverse", "ab")["inputs"]))
        browser.run("go(2)")
        assert browser.run("$('next').textContent").startswith("Nothing is written before")
        browser.run("choose('attends')")
        browser.until("view.text === 'abb'")
        assert browser.run("view.inputs.join(' ')") == "a b b EOS"
        browser.run("$('stack').value = 1; $('stack').dispatchEvent(new Event('change'))")
        assert browser.run("view.inputs.join(' ')") == "EOS b b a"
        browser.run("$('stack').value = 2; $('stack').dispatchEvent(new Event('change'))")
        assert browser.run("view.inputs[0]") == "BOS"
        assert browser.run("document.querySelector('#next svg') !== null")
        assert browser.errors == []
    finally:
        browser.close()

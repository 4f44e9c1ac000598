"""What the explorer's server answers, and what it refuses."""

import json
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ndstack import languages, zoo
from ndstack.analysis import StackRuns, most_probable_stacks, stack_wfa_marginals
from ndstack.analysis.explorer import catalogue as explorer_catalogue
from ndstack.analysis.explorer.answer import EDGES, STACKS, answer
from ndstack.analysis.explorer.app import allowed_hosts, make_app
from ndstack.analysis.explorer.catalogue import Catalogue, longest
from ndstack.analysis.explorer.requests import RequestQueue, SupersededError, TooManyError
from ndstack.analysis.explorer.stack_flows import flows
from ndstack.analysis.source import EXAMPLES, Source, open_source
from ndstack.cli.analysis import explore
from ndstack.errors import NdstackError
from ndstack.nn import models
from tests.analysis.automata import random_weights

LOCAL = "http://127.0.0.1:8765"
KINDS = ("vrns-2-3-2", "sup-3-3", "strat-2", "lstm", "tf+vrns-2-2-2")

ZOO = ["-on-".join(reversed(name.removeprefix("zoo:").split("/"))) for name in zoo.names()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    for name in KINDS:
        models.build(name, "dyck").save(path / name)
    return path


@pytest.fixture(scope="module")
def client(folder):
    return TestClient(make_app(Catalogue([folder / name for name in KINDS])), LOCAL)


def look(client, model, text):
    answer = client.post("/api/look", json={"model": model, "text": text})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_models_are_listed_and_described(client):
    assert client.get("/api/models").json() == [*KINDS, *ZOO, *EXAMPLES]
    model = client.get("/api/models/english").json()
    assert model["alphabet"][:2] == ["Mary", "a man"]
    assert look(client, "english", model["examples"][0])["accepted"] is True
    assert look(client, "english", model["examples"][1])["accepted"] is True
    assert client.get("/api/models").json() == [*KINDS, *ZOO, *EXAMPLES]  # whatever has been opened
    assert "It was not trained" in model["about"]
    wrong = client.post("/api/look", json={"model": "english", "text": "Mary saw a"})
    assert "'a' is not in the alphabet of english: Mary, a man, the park" in error(wrong, 400)


def test_a_trained_network_says_how_long_its_strings_were_and_how_probable_one_is(client):
    model = client.get("/api/models/rns-2-3-on-marked-reversal").json()
    assert "trained on strings of 40 to 80 symbols" in model["about"]
    assert (
        "a renormalising nondeterministic stack of 2 states (q0, q1) and 3 symbols (⊥, 1, 2)"
        in model["about"]
    )
    assert "the numbers are names, and not symbols of the string" in model["about"]
    assert all(40 <= len(text) <= 80 for text in model["examples"])
    note = look(client, model["id"], model["examples"][0])["notes"]["string"]
    entropy, bound = (float(number) for number in re.findall(r"is (\d+\.\d+)", note))
    language, low, high = languages.get("marked-reversal"), 40, 80
    assert bound == pytest.approx(language.lower_bound(model["examples"][:1], lengths=(low, high)), abs=1e-3)
    assert abs(entropy - bound) < 0.1
    assert "probable" in note
    short = look(client, model["id"], "011#110")["notes"]["string"]
    assert "strings of 40 to 80 symbols, and this one has 7" in short


@pytest.mark.parametrize(
    "model, text", [("vrns-2-3-2", "([()])["), ("palindromes", "abbaa"), ("dyck", "([)")]
)
def test_an_answer_has_the_numbers_of_the_analysis(client, folder, model, text):
    found = look(client, model, text)
    source = open_source(folder / model if model in KINDS else model)
    trace = source.trace(source.split(text))
    stack, shown = trace.stack(), found["stacks"][0]
    for name in ("actions", "readings", "attention"):
        np.testing.assert_allclose(shown[name], getattr(stack, name), atol=1e-6)
    if trace.predictions is not None:
        np.testing.assert_allclose(found["predictions"], trace.predictions, atol=1e-6)
    automaton, runs = shown["automaton"], stack.runs
    accepts = bool(trace.accepted)
    assert automaton["accepting"] == accepts
    chosen = runs.accepting() if accepts else runs
    np.testing.assert_allclose(automaton["posterior"], chosen.posterior.actions(), atol=1e-6)
    assert automaton["entropy"] == pytest.approx(chosen.entropy(), abs=1e-4)
    for one, run in zip(automaton["runs"], chosen.k_best(3), strict=True):
        assert one["log_probability"] == pytest.approx(run.log_probability, abs=1e-4)
        assert leaves(one["tree"]) == list(range(1, len(stack.inputs) + 1))
        assert one["tree"]["label"] == run.tree().label()
    for time, now in enumerate(automaton["times"]):
        best = most_probable_stacks(runs.at(time), STACKS)
        listed = [(q, tuple(beta), pytest.approx(p, rel=1e-4)) for q, beta, p, _ in now["stacks"]]
        assert [p for *_, p in listed] == [one.probability for one in best]
        graph = stack_wfa_marginals(runs.at(time), most=EDGES)
        assert [edge[-1] for edge in now["edges"]] == pytest.approx(list(graph.edges), rel=1e-4)


def leaves(tree):
    return [
        leaf for child in tree["children"] for leaf in ([child] if isinstance(child, int) else leaves(child))
    ]


@pytest.mark.parametrize("fix", [True, False])
def test_flows_into_a_stack_add_up_to_its_probability(fix):
    runs = StackRuns(random_weights(3, n=5, bottom_fix=fix, zeros=0.2))
    for time in range(1, 6):
        before, after = (most_probable_stacks(runs.at(t), 10_000) for t in (time - 1, time))
        total = np.zeros(len(after))
        for _, j, p in flows(runs, time, before, after):
            total[j] += p
        np.testing.assert_allclose(total, [one.probability for one in after], atol=1e-12)
    assert flows(StackRuns(random_weights(3, n=5, window=2)), 2, before, after) == []


def test_upper_parts_of_stacks_share_out_all_probability():
    runs = StackRuns(random_weights(4, n=6, symbols=3, zeros=0.0))
    whole = most_probable_stacks(runs, 10_000)
    for limit in (1, 300, 2000):
        parts = most_probable_stacks(runs, 10_000, limit, parts=True)
        assert sum(one.probability for one in parts) == pytest.approx(1.0)
        for part in parts:
            depth = len(part.stack)
            same = [
                one.probability
                for one in whole
                if one.state == part.state
                and (one.stack[-depth:] == part.stack if not part.whole else one.stack == part.stack)
            ]
            assert part.probability == pytest.approx(sum(same), abs=1e-12)
    assert not any(one.whole for one in most_probable_stacks(runs, 5, 1, parts=True))


def test_other_models_show_what_applies(client):
    stack = look(client, "sup-3-3", "()")["stacks"]
    assert [one["kind"] for one in stack] == ["superposition"] * 2
    assert all(one["automaton"] is None for one in stack)
    assert look(client, "strat-2", "()")["stacks"][0]["action_names"] == ["push", "pop"]
    none = look(client, "lstm", "()")
    assert none["stacks"] == []
    assert "no stack" in none["notes"]["stack"]
    layered = look(client, "tf+vrns-2-2-2", "()")
    assert layered["first"] == 1
    assert layered["inputs"] == ["BOS", "(", ")"]
    assert len(layered["predictions"]) == 3


@pytest.mark.parametrize("model", [*KINDS, *EXAMPLES])
def test_nothing_and_a_sample_can_be_read(client, model):
    empty = look(client, model, "")
    assert len(empty["inputs"]) == empty["first"]
    text = client.post("/api/sample", json={"model": model, "length": 6, "seed": 1}).json()["text"]
    answer = look(client, model, text)
    assert answer["accepted"] in (True, None)
    json.dumps(answer, allow_nan=False)


def test_where_no_run_survives_nothing_is_made_up(monkeypatch):
    source = open_source("dyck")
    trace = source.trace(("(",) * 3)
    trace.stack().weights.push[1] = trace.stack().weights.replace[1] = trace.stack().weights.pop[1] = -np.inf
    monkeypatch.setattr(type(source), "trace", lambda *_: trace)
    found = answer(source, ("(",) * 3)["stacks"][0]["automaton"]
    assert found["runs"] == []
    assert found["entropy"] is None
    assert [bool(now["stacks"]) for now in found["times"]] == [True, True, False, False]


def error(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def test_limits(client):
    def ask(**question):
        return client.post("/api/look", json={"model": "dyck", "text": "()"} | question)

    assert "201 symbols, but dyck is shown with at most 200" in error(ask(text="(" * 201), 400)
    assert "'x' is not in the alphabet of dyck: ( ) [ ]" in error(ask(text="(x)"), 400)
    assert "no model 'nothing'" in error(ask(model="nothing"), 404)
    assert "at most 8000" in error(ask(text="(" * 9000), 422)
    assert "text" in error(ask(text=5), 422)
    assert "path" in error(ask(path="/etc/passwd"), 422)
    assert "more than 16384 bytes" in error(ask(text="(" * 20_000), 413)
    chunks = (b"x" * 1000 for _ in range(20))
    assert "more than 16384 bytes" in error(client.post("/api/look", content=chunks), 413)
    assert longest(open_source("four-counts")) < 150


PATHS = "/../pyproject.toml /%2e%2e/server.py /..%2fserver.py /assets/app.js /etc/passwd /index.html /docs /x"


@pytest.mark.parametrize("path", PATHS.split())
def test_no_path_reaches_a_file(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("model", ["../dyck", "/etc", ".", "", "dyck/../..", "runs\x00"])
def test_no_model_is_opened_by_its_path(client, folder, model):
    error(client.post("/api/look", json={"model": model, "text": ""}), 404)
    error(client.post("/api/look", json={"model": str(folder / "lstm"), "text": ""}), 404)


def test_identifiers_are_short_and_distinct(tmp_path):
    for place in ("one", "two", "<b>"):
        models.build("lstm", "dyck").save(tmp_path / place / "lstm")
    (tmp_path / "dyck.cfg").write_text("S -> 'x'")
    catalogue = Catalogue([*sorted(tmp_path.glob("*/lstm")), tmp_path / "dyck.cfg"])
    assert catalogue.identifiers() == [
        "lstm",
        "lstm-2",
        "lstm-3",
        "dyck",
        *ZOO,
        *(name for name in EXAMPLES if name != "dyck"),
    ]
    assert catalogue.source("dyck").alphabet == ("x",)


def test_without_the_extra_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(NdstackError, match=r"pip install 'ndstack\[explore\]'"):
        explore()


def test_only_this_machine_is_answered(folder):
    client = TestClient(make_app(Catalogue()), LOCAL)
    for host, status in {
        "localhost:1": 200,
        "[::1]:80": 200,
        "evil.example": 400,
        "127.0.0.1.evil": 400,
    }.items():
        assert client.get("/api/models", headers={"Host": host}).status_code == status
    assert allowed_hosts("box")[-1] == "box"
    assert allowed_hosts("0.0.0.0") == allowed_hosts("::") == ["*"]
    assert "other sites" in error(client.get("/api/models", headers={"Origin": "http://evil.example"}), 403)
    assert client.get("/api/models", headers={"Origin": LOCAL}).status_code == 200
    plain = client.post(
        "/api/look", content='{"model": "dyck", "text": ""}', headers={"Content-Type": "text/plain"}
    )
    assert plain.status_code == 422


def test_every_answer_keeps_the_page_closed(client):
    for path in ("/", "/app.js", "/api/models", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    page = client.get("/").text
    assert not re.search(r"(https?:)?//\w", page)


def test_a_saved_page_is_one_file_with_the_view(client):
    question = {"model": "palindromes", "text": "abba", "t": 2, "stack": 0, "run": 0}
    answer = client.post("/api/save", json=question)
    assert "attachment" in answer.headers["Content-Disposition"]
    assert not re.search(r"<script src|<link rel=.stylesheet|@import|url\(", answer.text)
    data = json.loads(re.search(r'id="saved">(.*?)</script>', answer.text).group(1))
    assert data["place"]["t"] == 2
    assert data["view"] == look(client, "palindromes", "abba")


def test_symbols_cannot_end_the_data_of_a_saved_page(tmp_path):
    (tmp_path / "bad.cfg").write_text("S -> '</script><b>' S | 'a'")
    client = TestClient(make_app(Catalogue([tmp_path / "bad.cfg"], examples=False)), LOCAL)
    assert client.get("/api/models").json() == ["bad"]
    text = client.post("/api/save", json={"model": "bad", "text": "</script><b> a"}).text
    assert "</script><b>" not in text


def test_a_model_on_an_unknown_language_writes_its_own_samples(tmp_path):
    models.build("rns-2-2", ["a", "b"]).save(tmp_path / "own")
    client = TestClient(make_app(Catalogue([tmp_path / "own"], examples=False)), LOCAL)
    text = client.post("/api/sample", json={"model": "own", "length": 5, "seed": 1}).json()["text"]
    assert set(text) <= {"a", "b"}
    assert "not known which language" in look(client, "own", text)["notes"]["next"]


def test_a_slow_request_blocks_no_other_and_ends_when_superseded_or_stopped(monkeypatch):
    """The slow one is held at its first check; meanwhile others are answered, of the same model, too."""
    catalogue = Catalogue()
    client = TestClient(make_app(catalogue), LOCAL)
    slow, began = threading.Event(), threading.Event()

    def answer(source, word, trace, check):
        if word == ("(", ")"):
            began.set()
            while not slow.wait(0.02):
                check()
        return {"text": source.join(word)}

    monkeypatch.setattr(Source, "trace", lambda self, word: None)
    monkeypatch.setattr(explorer_catalogue, "answer", answer)

    def ask(text, page):
        return client.post("/api/look", json={"model": "dyck", "text": text, "page": page})

    with ThreadPoolExecutor(4) as pool:
        for end in (lambda: ask("[]", "one"), lambda: client.post("/api/stop", json={"page": "one"})):
            began.clear()
            first = pool.submit(ask, "()", "one")
            assert began.wait(60)
            assert ask("[()]", "two").status_code == 200  # while the first is held
            assert client.get("/api/models").status_code == 200
            assert not first.done()
            assert end().status_code == 200
            assert first.result(60).status_code == 409
        slow.set()
        assert ask("()", "one").json()["text"] == "()"


def test_requests_that_arrive_in_another_order_are_superseded_in_the_order_of_their_page():
    queue = RequestQueue()
    second, first = queue.register("a", 2), queue.register("a", 1)
    second()
    with pytest.raises(SupersededError):
        first()
    queue.stop("a", 1)
    second()
    queue.stop("a", 3)
    with pytest.raises(SupersededError):
        second()
    queue.register("a")()


def test_too_many_requests_are_refused_and_those_that_wait_are_dropped_when_superseded():
    queue = RequestQueue(workers=1, waiting=1)
    with queue.working(queue.register("a")), ThreadPoolExecutor(1) as pool:

        def wait(check):
            with queue.working(check):
                pass

        waiting = pool.submit(wait, queue.register("b"))
        while queue._places._value:
            sleep(0.01)
        with pytest.raises(TooManyError), queue.working(queue.register("c")):
            pass
        queue.stop("b")
        with pytest.raises(SupersededError):
            waiting.result(60)
        alone = pool.submit(wait, queue.register(None))
        queue.close()
        with pytest.raises(SupersededError, match="shutting down"):
            alone.result(60)
    queue = RequestQueue()
    with queue.working(queue.register("d")):
        pass

"""The explorer as a static site, and its guided tour: without a server, from a disk, in a real browser."""

import json
import re

import pytest

from ndstack.analysis.explorer.catalogue import Catalogue
from ndstack.analysis.explorer.export import ALL, export
from ndstack.analysis.explorer.tour import STEPS
from ndstack.cli.analysis import explore
from ndstack.errors import NdstackError
from ndstack.nn.proofs.recognition import Recognizer
from tests.analysis.browser import Browser, find_browser


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue()


@pytest.fixture(scope="module")
def site(catalogue, tmp_path_factory):
    """A site with one string more than those chosen for it."""
    folder = tmp_path_factory.mktemp("site")
    assert export(catalogue, folder, {"palindromes": ["abababa"]}) > ALL - 10
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path, problem = find_browser()
    if path is None:
        pytest.skip(problem)
    one = Browser(path, tmp_path_factory.mktemp("browser"))
    one.resize(1280, 900)
    yield one
    one.close()


@pytest.fixture
def page(browser, site):
    """The site as a file, with nothing else to be reached."""
    browser.errors.clear()
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.send("Network.emulateNetworkConditions", **offline)
    browser.open("about:blank")
    browser.open((site / "index.html").as_uri())
    browser.until("typeof view === 'object' && view")
    yield browser
    assert browser.run("1") == 1  # all events are read
    assert browser.errors == []


def published(site):
    text = (site / "catalogue.js").read_text()
    return json.loads(re.fullmatch(r"const published = (.*);\n", text).group(1))


def test_the_tour_has_six_steps_that_the_models_can_show(catalogue):
    assert len(STEPS) == 6
    for step in STEPS:
        view = catalogue.look(step.model, step.string)
        assert 0 <= step.t <= len(view["inputs"])
        assert len(step.text.split("**")) % 2 == 1
        assert view["accepted"]
    assert catalogue.tour()["first"]
    assert Catalogue(examples=False).tour() == {"first": False, "steps": []}


def test_the_tour_tells_the_truth_about_the_middle(catalogue):
    """What the steps say: pushes before the middle and pops after it, and wrong guesses that die out."""
    step = next(step for step in STEPS if step.title == "Where the two halves meet")
    automaton = catalogue.look(step.model, step.string)["stacks"][0]["automaton"]
    half = len(step.string) // 2
    assert [row.index(max(row)) for row in automaton["posterior"]] == [0] * half + [2] * half
    assert automaton["entropy"] == 0
    names = automaton["states"]
    seen = [{names[state] for state, *_ in time["stacks"]} for time in automaton["times"]]
    assert all({"q0", "loop", "trap"} <= states for states in seen[1:])
    assert [names.index("loop"), [0]] in [one[:2] for one in automaton["times"][-1]["stacks"]]
    guessing = next(step for step in STEPS if step.title == "Watch it guess the middle")
    assert "compiled from a grammar" in guessing.text
    assert isinstance(catalogue.source(guessing.model).model, Recognizer)


def test_the_site_has_the_answers_of_the_server(catalogue, site):
    models = {model["id"]: model for model in published(site)["models"]}
    assert list(models) == catalogue.identifiers()
    own = models["palindromes"]
    assert "abababa" in own["examples"]
    assert {"", "a", "bababa", "abbabba"} <= own["strings"].keys()
    assert sum(2**length for length in range(own["complete"] + 1)) <= ALL
    assert all(len(model["strings"]) >= 2 for model in models.values())
    for text in ("abababa", "ab"):
        number = own["strings"][text]
        answer = (site / "answers" / f"{number}.js").read_text()
        data = json.loads(re.fullmatch(rf"answerIs\({number},(.*)\);\n", answer).group(1))
        assert {**data, "model": catalogue.describe("palindromes")} == catalogue.look("palindromes", text)
    files = sorted(path.name for path in site.iterdir())
    page = (site / "index.html").read_text()
    assert set(re.findall(r'(?:src|href)="([\w.]+)"', page)) <= set(files)
    assert not re.search(r"(https?:)?//\w", page)


def test_a_folder_with_other_things_is_not_touched(catalogue, site, tmp_path):
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(NdstackError, match="is not empty, expected a new folder or one with an earlier"):
        export(catalogue, tmp_path)
    with pytest.raises(NdstackError, match="is a file, expected a folder"):
        export(catalogue, tmp_path / "letter")
    with pytest.raises(NdstackError, match="no model 'nothing' here; there are: "):
        export(catalogue, tmp_path / "new", {"nothing": ["a"]})
    with pytest.raises(NdstackError, match="expected MODEL:STRING, such as palindromes:abba"):
        explore(export=tmp_path / "new", strings=["abba"])
    with pytest.raises(NdstackError, match="--string given without --export"):
        explore(strings=["palindromes:a"])
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_symbols_cannot_end_the_scripts_of_a_site(tmp_path):
    (tmp_path / "bad.cfg").write_text("S -> '</script>é' S | 'a'", encoding="utf-8")
    export(Catalogue([tmp_path / "bad.cfg"], examples=False), tmp_path / "site")
    for path in (tmp_path / "site" / "answers").iterdir():
        assert path.read_text(encoding="utf-8").isascii()
    assert not published(tmp_path / "site")["tour"]["steps"]


def test_the_page_begins_with_the_tour_and_each_step_shows_its_part(page):
    assert page.run("Tour.at") == 0
    for number, step in enumerate(STEPS):
        page.until(f"view.text === {json.dumps(step.string)} && state.model === '{step.model}'")
        assert page.run("$('tour-title').textContent") == step.title
        assert page.run("$('tour-text').textContent") == step.text.replace("**", "")
        page.until("document.querySelectorAll('.lit').length === 1")
        seen = "(({top, bottom}) => top >= $('tour').getBoundingClientRect().bottom && bottom <= innerHeight)"
        if step.part != "question":
            page.until(f"{seen}(document.querySelector('.lit').getBoundingClientRect())")
        if step.play:
            page.until("player && state.t > 0")
        else:
            assert page.run("[player, state.t]") == [None, step.t]
        assert f"tour={number + 1}" in page.run("location.hash")
        page.run("$('tour-next').click()")
    assert page.run("$('tour').hidden && Tour.at === -1 && !document.querySelector('.lit')")
    assert "tour" not in page.run("location.hash")
    page.run("$('tour-open').click()")
    page.until("view.text === 'abba' && Tour.at === 0")
    page.run("$('tour-dots').children[4].click()")
    page.until("Tour.at === 4 && view.text === Tour.steps[4].string")
    page.run("location.hash = '#tour=2&model=palindromes&text=abba&t=1'")
    page.until("Tour.at === 1 && state.t === 1")


def test_a_published_page_reads_what_it_has_and_says_what_it_has_not(page):
    page.run("Tour.close(); $('text').value = 'bbabb'; look()")
    page.until("view.text === 'bbabb'")
    page.run("$('text').value = 'abababababab'; look()")
    message = page.until("$('message').className === 'error' && $('message').textContent")
    assert message.startswith("This page works without a server and has all strings of up to ")
    assert page.run("view.text") == "bbabb"
    page.run("[...$('chips').children].find((chip) => chip.textContent === 'abababa').click()")
    page.until("view.text === 'abababa' && $('message').textContent === ''")
    page.run("choose('english')")
    page.until("view.model.id === 'english' && document.querySelector('#tree svg')")
    page.run("$('sample').click()")
    page.until("view.text !== 'Mary saw a man in the park with a telescope'")
    assert page.run("$('save').hidden")

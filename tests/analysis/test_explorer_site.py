"""The explorer as a static site, and its guided tour: without a server, from a disk, in a real browser."""

import json
import re
import time

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
    assert "rns-2-3-on-unmarked-reversal" in catalogue.identifiers()  # the last step names it
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
    ends = automaton["times"][-1]["stacks"]
    assert [names.index("loop"), [0]] in [one[:2] for one in ends]
    assert [one[2] for one in ends] == pytest.approx([1 / 6] * 6, rel=1e-4)
    assert automaton["accept"] == [names.index(name) for name in ("q0", "loop")]
    assert automaton["runs"][0]["probability"] == 1
    odd = catalogue.look(step.model, "aba")["stacks"][0]["automaton"]["posterior"]
    assert [row.index(max(row)) for row in odd] == [0, 1, 2]
    assert "compiled from a grammar" in STEPS[0].text
    assert isinstance(catalogue.source(STEPS[0].model).model, Recognizer)


def test_the_site_has_the_answers_of_the_server(catalogue, site):
    models = {model["id"]: model for model in published(site)["models"]}
    assert list(models) == catalogue.identifiers()
    own = models["palindromes"]
    assert "abababa" in own["examples"]
    assert {"", "a", "bababa", "abbabba"} <= own["strings"].keys()
    assert sum(2**length for length in range(own["complete"] + 1)) <= ALL
    assert all(len(model["members"]) >= 2 for model in models.values())
    assert all(set(model["members"]) <= model["strings"].keys() for model in models.values())
    assert all(text == text[::-1] for text in own["members"])
    assert "([)]" in models["dyck"]["strings"].keys() - models["dyck"]["members"]
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


SEEN = """(({top, bottom}) => {
    const tour = $('tour').getBoundingClientRect(), fixed = getComputedStyle($('tour')).position === 'fixed';
    const above = fixed || document.querySelector('header .lit') ? 0 : tour.bottom;
    return top >= above && bottom <= (fixed ? tour.top : innerHeight);
})(document.querySelector('.lit').getBoundingClientRect())"""
"""Whether the highlighted part can be seen beside the tour."""


@pytest.mark.parametrize("width, height", [(1280, 900), (800, 600)])
def test_the_page_begins_with_the_tour_and_each_step_shows_its_part(page, width, height):
    page.resize(width, height)
    page.run("location.hash = '#tour=1'")
    for number, step in enumerate(STEPS):
        page.until(f"Tour.at === {number} && view.text === {json.dumps(step.string)} && !computing")
        assert page.run("$('tour-title').textContent") == step.title
        assert page.run("$('tour-text').textContent") == (step.text + step.published).replace("**", "")
        page.until("document.querySelectorAll('.lit').length === 1")
        page.until(SEEN, 10)
        assert page.run("[player, state.t, $('tour-play').hidden]") == [
            None,
            0 if step.play else step.t,
            not step.play,
        ]
        if step.play:
            page.run("$('tour-play').click()")
            assert page.run("player !== null")
            page.run("pause(); go(view.inputs.length)")
            page.until(SEEN, 10)
            page.run("$('tour-play').click()")
            assert page.run("player !== null && state.t === 0")
        assert f"tour={number + 1}" in page.run("location.hash")
        page.run("$('tour-next').focus(); $('tour-next').click()")
    assert page.run("$('tour').hidden && Tour.at === -1 && !document.querySelector('.lit')")
    assert page.run("document.activeElement.id") == "tour-open"
    assert "tour" not in page.run("location.hash")


def test_the_tour_can_be_opened_at_any_step(page):
    page.resize(1280, 900)
    assert page.run("Tour.at") == 0
    page.run("Tour.close(); $('tour-open').click()")
    page.until("view.text === 'abba' && Tour.at === 0")
    page.run("$('tour-dots').children[4].click()")
    page.until("Tour.at === 4 && view.text === Tour.steps[4].string")
    page.key("p", "p")
    page.until("Tour.at === 3 && view.text === Tour.steps[3].string")
    page.run("location.hash = '#tour=2&model=palindromes&text=abba&t=1'")
    page.until("Tour.at === 1 && state.t === 1")


def test_an_embedded_tour_does_not_scroll_the_page_around_it(page, site, tmp_path):
    address = f"{(site / 'index.html').as_uri()}#tour=5"
    frame = f"<iframe src='{address}' style='width: 700px; height: 500px'></iframe>"
    (tmp_path / "outer.html").write_text(
        f"<div style='height: 600px'></div>{frame}<div style='height: 1500px'></div>"
    )
    page.open((tmp_path / "outer.html").as_uri())
    page.until("document.readyState === 'complete' && frames.length === 1")
    child = page.send("Page.getFrameTree")["frameTree"]["childFrames"][0]["frame"]["id"]
    world = page.send("Page.createIsolatedWorld", frameId=child)["executionContextId"]

    def inside(script):
        done = page.send("Runtime.evaluate", expression=script, contextId=world, returnByValue=True)
        return done["result"].get("value")

    end = time.monotonic() + 30
    while not inside("document.querySelector('#tree-card.lit') && document.scrollingElement.scrollTop > 100"):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert inside("document.querySelector('#tour-next').click() || true")
    assert page.run("scrollY") == 0


def test_the_last_step_says_which_strings_a_published_page_has(site):
    complete = next(one["complete"] for one in published(site)["models"] if one["id"] == STEPS[-1].model)
    assert f"all strings of up to {complete} symbols" in STEPS[-1].published
    assert "ndstack explore" in STEPS[-1].published
    assert "are not symbols of the string" in STEPS[-1].text


def test_cards_say_whether_they_are_about_the_whole_string_or_a_prefix(page):
    page.run("Tour.close(); choose('palindromes', 'abaaba', { t: 2 })")
    page.until("view.text === 'abaaba' && state.t === 2")
    caption = page.run("document.querySelector('[data-band=\"Best run\"] .caption').textContent")
    assert "of the runs on the whole string" in caption
    note = "$('stacks-note').textContent"
    assert page.run(note).startswith("Stacks after the first 2 of 6 steps, whatever comes later; Best run is")
    page.run("go(0)")
    assert page.run(note).startswith("Stacks before anything is read, whatever comes later")
    page.run("go(6)")
    assert page.run(note).startswith("Stacks after the whole string. Percentages")


def test_sample_gives_strings_of_the_language_only(page):
    page.run("Tour.close()")
    for _ in range(12):
        text = page.run("sample().then(() => view.text)")
        assert text == text[::-1]
    assert page.run("Published.model('dyck').then(one => one.members.length)") >= 2


def test_a_published_page_reads_what_it_has_and_says_what_it_has_not(page):
    page.run("Tour.close(); $('text').value = 'bbabb'; look()")
    page.until("view.text === 'bbabb'")
    page.run("$('text').value = 'abababababab'; look()")
    message = page.until("$('message').className === 'error' && $('message').textContent")
    assert message.startswith("This page works without a server and has all strings of up to ")
    assert page.run("[view.text, $('main').className.includes('stale')]") == ["bbabb", True]
    for model, text, says in (
        ("palindromes", "abx", "'x' is not in the alphabet of palindromes: a b"),
        ("english", "Mary saw a", "'a' is not in the alphabet of english: Mary, a man, the park"),
    ):
        page.run(f"choose('{model}', '{text}')")
        assert page.run("$('message').textContent").startswith(says)
    page.run("choose('palindromes', ' bbabb ')")
    page.until("view.text === 'bbabb' && !$('main').className.includes('stale')")
    page.run("[...$('chips').children].find((chip) => chip.textContent === 'abababa').click()")
    page.until("view.text === 'abababa' && $('message').textContent === ''")
    page.run("choose('english')")
    page.until("view.model.id === 'english' && document.querySelector('#tree svg')")
    page.run("$('sample').click()")
    page.until("view.text !== 'Mary saw a man in the park with a telescope'")
    assert page.run("$('save').hidden")

"""The explorer's page in a real browser: load, type, slide, change the model, save; no console error."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlencode

import numpy as np
import pytest

from ndstack import languages
from ndstack.nn import models
from tests.analysis.browser import Browser, find_browser

KEEP_ROOM = """const seen = new MutationObserver(() => {
    if (!document.documentElement) return;
    document.documentElement.style.scrollbarGutter = "%s";
    seen.disconnect();
}); seen.observe(document, {childList: true});"""
"""Sets `scrollbar-gutter` before the page draws."""
LONG = languages.get("marked-reversal").sample(201, np.random.default_rng(0))[:200]


class Server(NamedTuple):
    address: str
    process: subprocess.Popen


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """`ndstack explore` with a few models, and its address."""
    folder = tmp_path_factory.mktemp("models")
    built = {"rns-3-3": "marked-reversal", "rns-4-5": "dyck", "sup-3": "dyck", "lstm": "dyck"}
    for name, language in built.items():
        models.build(name, language).save(folder / name)
    command = [
        sys.executable,
        "-m",
        "ndstack",
        "explore",
        "--port",
        "0",
        "--no-browser",
        *map(str, folder.iterdir()),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield Server(process.stdout.readline().split()[0], process)
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path, problem = find_browser()
    if path is None:
        pytest.skip(problem)
    folder = tmp_path_factory.mktemp("browser")
    one = Browser(path, folder)
    yield one
    one.close()


@pytest.fixture
def page(browser, server):
    browser.errors.clear()
    browser.resize(1280, 900)
    browser.open("about:blank")
    browser.open(f"{server.address}#model=dyck&text=([])")
    browser.until("typeof view === 'object' && view && view.text === '([])'")
    yield browser
    assert browser.run("1") == 1  # all events are read
    assert browser.errors == []


def shown(page, text):
    page.until(f"view.text === {json.dumps(text)}")


def test_load_type_slide_and_change_the_model(page):
    assert page.run("[...$('model').options].map(o => o.value).includes('english')")
    assert page.run("$('now').textContent") == "t = 4 of 4, read )"
    page.key("/", "/")
    assert page.run("document.activeElement.id") == "text"
    page.send("Input.insertText", text="[()]()")
    shown(page, "[()]()")
    page.key("Escape")
    for key, time_ in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 6)):
        page.key(key)
        assert page.run("state.t") == time_
    page.run("$('slider').value = 3; $('slider').dispatchEvent(new Event('input'))")
    stacks = page.run("document.querySelector('#stacks svg').getAttribute('aria-label')")
    assert stacks.startswith("Stacks at time 3: ")
    assert "loop: ⊥" in stacks
    assert page.run("location.hash") == "#model=dyck&text=%5B%28%29%5D%28%29&t=3"
    assert page.run("document.querySelectorAll('#tree text').length") > 6
    page.run("$('model').value = 'english'; $('model').dispatchEvent(new Event('change'))")
    shown(page, "Mary saw a man in the park with a telescope")
    assert "It accepts this string." in page.run("$('time-note').textContent")
    assert page.run("[...$('run').options].map(o => o.textContent)") == [
        "best, 0.333",
        "second best and third best: 2 runs, one tree, 0.333 each",
    ]


@pytest.mark.parametrize("model, says", [("sup-3", "no runs"), ("lstm", "no stack")])
def test_models_without_runs_say_so(page, model, says):
    page.run(f"choose('{model}', '()')")
    shown(page, "()")
    assert says in page.run("$('time-note').textContent")
    assert page.run("document.querySelector('#next svg').getAttribute('aria-label')").count(";") == 4
    page.run("choose('lstm', '')")
    page.until("view.inputs.length === 0")


def test_what_is_wrong_is_said_and_the_picture_is_dimmed(browser, page):
    page.run("$('text').value = '(x'; look()")
    message = page.run("$('message').textContent")
    assert message == "'x' is not in the alphabet of dyck: ( ) [ ]"
    assert page.run("view.text") == "([])"
    opacity = "Number(getComputedStyle($('time-card')).opacity)"
    assert page.run(f"[$('stale').textContent, {opacity} < 0.5]") == ["Below is still ([]).", True]
    page.run("$('text').value = '  ()'; look()")
    assert page.run(f"[view.text, $('stale').textContent, {opacity}]") == ["()", "", 1]
    browser.errors[:] = [one for one in browser.errors if "400 (Bad Request)" not in one]


def test_hovering_shows_numbers_and_a_link_gives_the_same_view(page, server):
    page.open("about:blank")
    page.open(f"{server.address}#model=palindromes&text=abba&t=3&run=0")
    page.until("typeof view === 'object' && view && view.text === 'abba'")
    assert page.run("state.t") == 3
    page.run("document.querySelector('#stacks g').scrollIntoView({block: 'center'})")
    box = page.run("(({x, y, width, height}) => [x + width / 2, y + height / 2])"
                   "(document.querySelector('#stacks g').getBoundingClientRect())")  # fmt: skip
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert "probability" in page.until("!$('tip').hidden && $('tip').textContent")


def test_a_saved_page_works_by_itself(browser, page):
    page.run("go(2)")
    page.run("save()")
    saved = browser.folder / "ndstack-dyck.html"
    end = time.monotonic() + 30
    while not saved.exists():
        assert time.monotonic() < end
        assert page.run("1") == 1
        time.sleep(0.05)
    page.send(
        "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
    )
    page.open(saved.as_uri())
    page.until("typeof view === 'object' && view && location.protocol === 'file:'")
    assert page.run("$('now').textContent") == "t = 2 of 4, read ["
    page.key("ArrowRight")
    assert page.run("state.t") == 3
    assert page.run("$('text').disabled && document.querySelectorAll('#tree text').length > 4")
    page.send(
        "Network.emulateNetworkConditions",
        offline=False,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )


@pytest.mark.parametrize("width, dark", [(390, True), (1280, False)])
def test_narrow_and_dark(page, width, dark):
    page.resize(width, 800, dark)
    page.run("choose('english')")
    page.until("view.model.id === 'english'")
    assert page.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    page.run("$('theme').click()")
    assert page.run("document.documentElement.dataset.theme") == ("light" if dark else "dark")
    page.run("$('theme').click(); localStorage.clear()")
    assert page.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    "model, text, t",
    [
        ("english", "Mary saw a man in the park with a telescope", 5),
        ("dyck", "([])" * 5, 0),
        ("dyck", "()" * 30, 7),
    ],
)
@pytest.mark.parametrize("gutter", ["stable", "auto"])
def test_the_last_column_is_not_cut_off_at_1400_by_900(page, server, model, text, t, gutter):
    """With a real scroll bar, which comes with the first drawing; also where no room is kept for it."""
    page.send("Emulation.setScrollbarsHidden", hidden=False)
    page.resize(1400, 900)
    page.open("about:blank")
    script = page.send("Page.addScriptToEvaluateOnNewDocument", source=KEEP_ROOM % gutter)["identifier"]
    page.open(f"{server.address}#{urlencode({'model': model, 'text': text, 't': t})}")
    try:
        page.until("typeof view === 'object' && view && view.model && innerWidth > document.body.clientWidth")
        page.until("timeline.fits && drawn === $('main').clientWidth", 10)
        boxes = page.run("""[...document.querySelectorAll('#time .band > svg:last-child')].map((band) => {
            const box = $('time').getBoundingClientRect(), last = band.getBoundingClientRect();
            return [last.right - box.left, $('time').clientWidth];
        })""")
        assert len(boxes) >= 6
        assert all(right <= width + 0.5 for right, width in boxes)
        assert page.run("$('time').scrollWidth - $('time').clientWidth") == 0
        assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.run("go(view.inputs.length)")
        shown = page.run("""(() => {
            const text = [...document.querySelectorAll('#time text.current')].at(-1).getBoundingClientRect();
            const cell = document.querySelector('#time rect.tape.current').getBoundingClientRect();
            return [text.left - cell.left, cell.right - text.right, innerWidth - cell.right];
        })()""")
        assert min(shown) >= 0
    finally:
        page.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        page.send("Emulation.setScrollbarsHidden", hidden=True)


def test_a_slow_request_is_said_can_be_stopped_and_holds_up_no_other_page(page, server):
    slow = ("([])[()]([()[]])[][]" * 8)[:150]
    one = page.open_tab(f"{server.address}#model=dyck&text=[]")
    page.until("typeof view === 'object' && view && view.text === '[]'")
    two = page.switch(one)
    page.run(f"state.model = 'rns-4-5'; $('text').value = {json.dumps(slow)}; void look()")
    page.until("$('message').textContent.startsWith('computing …') && !$('stop').hidden", 20)
    page.switch(two)
    page.run("$('text').value = '()[]'; look()")  # is answered
    assert page.run("view.text") == "()[]"
    page.close_tab(back=one)
    assert page.run("computing !== null && $('main').ariaBusy === 'true'")
    assert page.run("view.text") == "([])"
    page.run("$('stop').click()")
    page.until("computing === null && $('stop').hidden && !$('main').ariaBusy")
    assert page.run("[$('message').textContent, view.text]") == ["Stopped.", "([])"]
    page.run(f"$('text').value = {json.dumps('()' + slow[2:])}; void look()")
    page.until("!$('stop').hidden", 20)
    page.run("$('text').value = '[()]'; look()")  # supersedes it
    assert page.run("[view.text, $('message').textContent, $('stop').hidden]") == ["[()]", "", True]


def test_of_two_models_chosen_in_a_row_the_last_is_shown(page):
    page.run("void choose('english'); choose('palindromes')")
    shown(page, "abbabba")
    assert page.run("[state.model, $('model').value]") == ["palindromes"] * 2
    page.run("choose('nothing')")
    assert "no model 'nothing'" in page.run("$('message').textContent")
    assert page.run("[state.model, $('model').value]") == ["palindromes"] * 2
    page.errors[:] = [one for one in page.errors if "404 (Not Found)" not in one]


@pytest.mark.parametrize("model, length", [("rns-3-3", 80), ("rns-2-3-on-marked-reversal", 200)])
def test_long_strings_are_answered(page, model, length):
    """How soon, `python -m benchmarks.explorer` measures."""
    page.run(f"state.model = '{model}'; $('text').value = '{LONG[:length]}'")
    page.run("look()")
    assert page.run("view.inputs.length") == length


def test_ctrl_c_ends_the_server_while_it_computes():
    command = [sys.executable, "-m", "ndstack", "explore", "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = process.stdout.readline().split()[0]
        body = json.dumps({"model": "dyck", "text": "([])" * 50}).encode()
        question = urllib.request.Request(f"{address}api/look", body, {"Content-Type": "application/json"})
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(urllib.request.urlopen, question)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert answer.exception(30) is None or isinstance(answer.exception(), OSError)
    finally:
        process.kill()
        process.stdout.close()


def test_the_command_says_what_is_wrong(server, tmp_path):
    port = server.address.rstrip("/").rpartition(":")[2]
    for arguments, message in (
        [["--port", port], "cannot listen on"],
        [[str(tmp_path / "no")], "there is no run"],
    ):
        command = [sys.executable, "-m", "ndstack", "explore", "--no-browser", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 2
        assert message in done.stderr.splitlines()[-1]
    with urllib.request.urlopen(f"{server.address}api/models") as answer:
        assert "english" in json.load(answer)

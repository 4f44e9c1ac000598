"""Grammars, automata, runs, parses and results show themselves in notebooks; every value is escaped."""

import re
from html.parser import HTMLParser

import pytest

from ndstack import automata, grammars, html_tables, semirings
from ndstack.analysis import trace
from ndstack.analysis.explorer import explore
from ndstack.errors import NdstackError
from ndstack.nn import recognizer
from ndstack.nn.proofs.examples import palindromes
from ndstack.training import Run
from ndstack.training.evaluation import Evaluation, Row
from ndstack.training.loop import Result

EVIL = "<b>&x"
GRAMMAR = grammars.CFG.fromstring(f"S -> '{EVIL}' S '{EVIL}' | 'a'")
WORD = (EVIL, "a", EVIL)


class Balanced(HTMLParser):
    """Checks that every tag is closed."""

    void = ("rect", "path", "line", "br", "circle")

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(thing):
    page = Balanced()
    page.feed(thing._repr_html_())
    page.close()
    assert not page.open
    assert "b" not in page.seen
    return page.text


@pytest.fixture(scope="module")
def read():
    return trace(recognizer(GRAMMAR), WORD)


def test_grammars_have_a_row_for_each_nonterminal():
    assert f"'{EVIL}' S '{EVIL}' | 'a'" in shown(GRAMMAR)
    assert "'a' S [0.25] | ε [0.75]" in shown(grammars.PCFG.fromstring("S -> 'a' S [0.25] | [0.75]"))


def test_automata_have_a_row_for_each_transition():
    pda = automata.to_restricted(GRAMMAR)
    assert pda._repr_html_().count("<tr>") == len(pda.transitions) + 1
    text = shown(pda)
    assert EVIL in text
    assert "accept states: " in text
    assert "weight" not in text
    assert "weight" in shown(automata.unmarked_reversal_pda())


def test_a_stack_wfa_is_a_picture_or_if_it_is_large_a_table():
    pda = automata.to_restricted(GRAMMAR)
    wfa = automata.Lang(pda, semirings.COUNTING, WORD[:1]).stack_wfa()
    assert wfa._repr_html_().startswith("<svg")
    assert EVIL.replace(" ", "") in shown(wfa)
    large = automata.Lang(automata.to_restricted(palindromes()), semirings.COUNTING, "a" * 40).stack_wfa()
    assert len(large.edges) > html_tables.MOST_ROWS
    assert "more rows" in shown(large)


def test_runs_and_parses_show_every_step(read):
    run = next(automata.accepting_runs(automata.to_restricted(GRAMMAR), WORD))
    assert shown(run).count(EVIL) >= 2
    runs = read.stack().runs.accepting()
    assert "entropy 0 nats" in shown(runs)
    best = shown(runs.best())
    assert re.findall("push|replace|pop", best)[0] == "push"
    assert "⊥" in best
    assert f"read: {' '.join(WORD)}, accepted" in shown(read)
    dead = read.stack().weights
    for part in (dead.push, dead.replace, dead.pop):
        part[0] = float("-inf")
    assert "no run survives to time 3" in shown(type(runs)(dead))


def test_results_are_tables():
    rows = (Row(4, 10, 40, 0.5, 0.25), Row(None, 10, 40, 0.5, 0.25))
    text = shown(Evaluation("test", rows[1], rows[:1]))
    assert "all100.50.25" in re.sub(r"\s", "", text)
    result = Result("<b>done", 2, 1, {"difference": 0.125}, [])
    assert "<b>done" in shown(result)
    assert "0.125" in shown(result)
    assert "rns-2-3" in shown(Run.open("zoo:dyck/rns-2-3"))


def test_the_explorer_is_a_closed_frame():
    found = explore(recognizer(GRAMMAR), f"{EVIL} a {EVIL}", time=1)
    page = found._repr_html_()
    assert page.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html')
    assert page.count('"') == 8
    assert '"place": {"t": 1'.replace(" ", "") in found.page()
    assert "Content-Security-Policy" in found.page()
    assert explore("palindromes", "abba").time == 4
    with pytest.raises(NdstackError, match="201 symbols, expected at most 200"):
        explore("palindromes", "a" * 201)

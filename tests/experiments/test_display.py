"""What is seen of a sweep while it runs."""

import io
import json

import pytest
from rich.console import Console

from ndstack.experiments import Inline, SweepFolder, display, expand, run_sweep
from ndstack.experiments.display import JSONLines, LiveTable, choose_watcher


def shown(watcher):
    """The table as text."""
    written = io.StringIO()
    Console(file=written, width=150).print(watcher.live.renderable)
    return written.getvalue()


@pytest.fixture
def table(small, tmp_path):
    folder = SweepFolder(tmp_path)
    trials = expand(folder.begin(small, "paper", None))
    watcher = LiveTable(folder, "small, paper")
    watcher.live.console = Console(file=io.StringIO())
    return watcher, folder, trials


def test_a_table_shows_what_runs_what_ended_and_how_much_is_left(table, monkeypatch):
    watcher, folder, trials = table
    monkeypatch.setattr(display, "MOST_ROWS", 1)
    watcher.begin(trials, 0, 0)
    watcher.tick(trials[:2], None)
    lines = shown(watcher).splitlines()
    assert lines[1].split() == [trials[0].id, "1/2"]
    assert lines[2].split() == ["and", "1", "more"]
    assert lines[3].startswith("small, paper: 0 of 4 done, 2 running; ")
    assert lines[3].endswith(" so far, left: unknown")
    watcher.close()
    run_sweep(folder, trials[:1], Inline(), watcher=watcher)
    for state in ("failed", "given up"):
        watcher.ended(trials[1], state, "No space left on device")
    watcher.tick(trials[:1], 100)
    best = min(line["validation_difference"] for line in folder.run(trials[0]).metrics())
    last = folder.run(trials[0]).metrics()[-1]["validation_difference"]
    lines = shown(watcher).splitlines()
    assert lines[1].split() == [trials[0].id, "done", f"{best:.4f}"]
    assert lines[2].strip().split(maxsplit=2) == [trials[1].id, "failed", "No space left on device"]
    assert lines[4].split()[:3] == [trials[0].id, "2/2", f"{last:.4f}"]
    assert "1 of 1 done, 1 running, 1 failed, 1 given up; " in lines[5]
    assert lines[5].endswith("left: 1.7 min")


def test_a_trial_that_is_being_written_is_shown_by_its_name(table):
    watcher, folder, trials = table
    run_sweep(folder, trials[:1], Inline())
    (folder.trial(trials[0]) / "metrics.jsonl").write_text('{"epoch')
    watcher.tick(trials[:1], None)
    assert shown(watcher).splitlines()[1].split() == [trials[0].id]


def test_elsewhere_than_on_a_terminal_there_are_lines_of_json(table, capsys):
    _, folder, trials = table
    watcher = choose_watcher(folder, "small", quiet=False, as_json=False)
    assert isinstance(watcher, JSONLines)
    assert type(choose_watcher(folder, "small", quiet=True, as_json=True)).__name__ == "Watcher"
    run_sweep(folder, trials[:1], Inline(), watcher=watcher)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["begin", "start", "done"]
    assert lines[-1]["trial"] == trials[0].id
    assert (lines[-1]["done"], lines[-1]["of"], lines[-1]["epochs"]) == (1, 1, 2)

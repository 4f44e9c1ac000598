"""Training and sweeps, killed at random moments: what is there can be looked at, and resumed."""

import multiprocessing
import random

import pytest
from tests.training.small import small_config
from tests.training.test_commands import run

from ndstack.errors import NdstackError
from ndstack.experiments import Inline, SweepFolder, expand, make_report, run_sweep
from ndstack.experiments.sweep import measures_of
from ndstack.files import is_leftover
from ndstack.training import Run, train
from ndstack.training.run import BEST, CONFIG, METRICS, is_run

__all__ = ["run"]

FORK = multiprocessing.get_context("fork")
KILLS = 6


def killed(after, function, *arguments):
    """Whether the function was killed in the given seconds; if not, it is done."""
    process = FORK.Process(target=function, args=arguments)
    process.start()
    process.join(after)
    alive = process.is_alive()
    process.kill()
    process.join()
    return alive


def leftovers(folder):
    return [path for path in folder.rglob(".*") if is_leftover(path)]


def test_a_run_killed_at_any_moment_can_be_shown_and_resumed(run, tmp_path):
    config = small_config("lstm", data={"train": 300}, training={"checkpoint_seconds": 0.0, "max_epochs": 6})
    train(tmp_path / "whole", config)
    rng, folder = random.Random(1), tmp_path / "killed"
    for _ in range(KILLS):
        killed(rng.uniform(0.0, 0.5), train, folder, None if is_run(folder) else config)
        if not is_run(folder):
            assert "is not a run" in run("show", "killed", code=2).err
            continue
        for command in ("show", "compare"):
            assert run(command, "killed", "--json").err == ""
    train(folder, None if is_run(folder) else config)
    assert (folder / METRICS).read_bytes() == (tmp_path / "whole" / METRICS).read_bytes()
    assert not leftovers(folder)
    Run.open(folder).check(complete=True)


def test_a_sweep_killed_at_any_moment_can_be_reported_and_resumed(small, tmp_path):
    folder, measures = SweepFolder(tmp_path / "sweep"), measures_of(small)

    def sweep():
        run_sweep(folder, expand(folder.begin(small, "paper", None)), Inline(), measures=measures)

    rng = random.Random(1)
    for _ in range(KILLS):
        killed(rng.uniform(0.0, 0.5), sweep)
        if list((folder.folder / "experiments").glob("*.json")):
            report = make_report(folder)
            assert 0 <= report.complete <= report.trials == 4
        else:
            with pytest.raises(NdstackError, match="is not the folder of a sweep"):
                make_report(folder)
    sweep()
    assert make_report(folder).complete == 4
    assert not leftovers(folder.folder)
    for name, text, said in [
        ("test.json", "{}", "is damaged: expected what ndstack evaluate writes"),
        (METRICS, "", "is empty; ndstack train --resume"),
        (BEST, None, "is missing; put it back"),
        (CONFIG, None, "is not a run: it has no config.json"),
    ]:
        trial = expand(small)[0]
        path, before = folder.trial(trial) / name, (folder.trial(trial) / name).read_bytes()
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(NdstackError, match=rf"{trial.id}.* {said}"):
            make_report(folder)
        path.write_bytes(before)

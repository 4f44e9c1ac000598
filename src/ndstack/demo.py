"""The demonstration `ndstack demo`, which compares a network with a nondeterministic stack and an LSTM."""

import json
import sys
from pathlib import Path

from ndstack import plotting
from ndstack.analysis import trace
from ndstack.analysis.figures import draw_attention, draw_stacks
from ndstack.analysis.run_tables import run_lines, summary_lines
from ndstack.languages import Language, get
from ndstack.nn import sample
from ndstack.processes import cores
from ndstack.settings import DataConfig
from ndstack.training import Evaluation, Result, Run, RunConfig, evaluate, make_test_data, train
from ndstack.training.material import Show
from ndstack.training.pictures import draw_by_length, draw_curves
from ndstack.training.run import is_run

LANGUAGE = "marked-reversal"
MODELS = ("rns-2-3", "lstm")
WORD = "0010111010#0101110100"


DATA = DataConfig(train=4_000, validation=400, lengths=(10, 30), test_lengths=(10, 40), test_per_length=20)
QUICK = DataConfig(train=400, validation=40, lengths=(3, 9), test_lengths=(3, 11), test_per_length=5)


def run_demo(out: Path, *, quick: bool) -> list[dict[str, str | float | None]]:
    """Train both networks, compare them, and show what the stack does; everything is written to `out`.

    A demonstration that was interrupted resumes where it stopped. The result is a row of numbers for each
    model.
    """
    language, data = get(LANGUAGE), QUICK if quick else DATA
    low, high = data.lengths
    print(
        f"Two networks learn to generate strings like 00101#10100, of {low} to {high} symbols. What follows"
    )
    print("the # is the reversal of what precedes it, so a stack is necessary.\n")
    results, evaluations = {}, {}
    for name in MODELS:
        epochs, threads = 3 if quick else 10, min(2, cores())
        training = {"learning_rate": 0.01, "max_epochs": epochs, "threads": threads}
        settings = {"language": LANGUAGE, "model": name, "seed": 1, "training": training}
        results[name] = _train(out / name, RunConfig.of({**settings, "data": data.model_dump()}))
        run = Run.open(out / name)
        evaluations[name] = evaluate(run.load(), make_test_data(run.config))
    rows = _show_results(results, evaluations, out)
    winner = Run.open(out / MODELS[0])
    _show_strings(winner, language, 4 if quick else 8)
    _show_parse(winner, WORD, out)
    histories = {name: Run.open(out / name).metrics() for name in MODELS}
    plotting.save_figure(draw_curves(histories, LANGUAGE), out / "curves.svg")
    by_length = draw_by_length(evaluations, f"{LANGUAGE}, test set", data.lengths)
    plotting.save_figure(by_length, out / "by-length.svg")
    (out / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    print(f"\nCurves, results by length, pictures of the stacks and both runs are in {out}/")
    return rows


def _train(folder: Path, config: RunConfig) -> Result:
    print(f"Training {config.model} ...", flush=True)
    show: Show = "terminal" if sys.stderr.isatty() else "nothing"
    return train(folder, None if is_run(folder) else config, show=show)


def _show_results(
    results: dict[str, Result], evaluations: dict[str, Evaluation], out: Path
) -> list[dict[str, str | float | None]]:
    print("\nNats per symbol above the true distribution (0 is perfect):\n")
    print(f"{'model':10}{'parameters':>12}{'validation':>12}{'test':>10}{'seconds':>10}")
    rows: list[dict[str, str | float | None]] = []
    for name, result in results.items():
        run = Run.open(out / name)
        size, seconds = run.count_parameters(), round(sum(run.seconds().values()), 1)
        best, test = result.best["difference"], evaluations[name].overall.difference
        rows.append({"model": name, "parameters": size, "validation": best, "test": test, "seconds": seconds})
        print(f"{name:10}{size or 0:12,}{best:12.4f}{test:10.4f}{seconds:10.1f}")
    return rows


def _show_strings(run: Run, language: Language, count: int) -> None:
    longest = run.config.data.test_lengths[1]
    print(f"\nStrings that {run.label} generates:\n")
    for made in sample(run.load(), [""] * count, longest, seed=1):
        verdict = "in the language" if made.complete and made.word in language else "not in the language"
        print(f"  {made.word}  {verdict}")


def _show_parse(run: Run, word: str, out: Path) -> None:
    """Show the most probable run of the stack on a string, in text and in pictures."""
    found = trace(run.load(), word).stack()
    runs = found.runs
    print(f"\nIts stack on {word}: {' '.join(summary_lines(runs))}.\n")
    print("\n".join(run_lines(runs.best(), runs.posterior, "The most probable run")))
    draw_stacks(runs.best()).save(out / "stacks.svg")
    draw_attention(found).save(out / "attention.svg")

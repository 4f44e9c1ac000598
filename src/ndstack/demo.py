"""`ndstack demo`: a nondeterministic stack and an LSTM learn the same language; who gets it, and how?"""

import json
import sys
from pathlib import Path
from typing import Any

from ndstack import plotting
from ndstack.analysis import trace
from ndstack.analysis.figures import draw_attention, draw_stacks
from ndstack.analysis.run_tables import run_lines, summary_lines
from ndstack.languages import get
from ndstack.nn import sample
from ndstack.training import Evaluation, Result, Run, RunConfig, evaluate, make_test_data, train
from ndstack.training.material import Show
from ndstack.training.pictures import draw_by_length, draw_curves
from ndstack.training.run import is_run

LANGUAGE = "marked-reversal"
MODELS = ("rns-2-3", "lstm")
WORD = "0010111010#0101110100"


def _settings(
    lengths: tuple[int, int], test: int, train: int, per_length: int, epochs: int
) -> dict[str, Any]:
    return {
        "language": LANGUAGE,
        "seed": 1,
        "data": {
            "train": train,
            "validation": train // 10,
            "lengths": lengths,
            "test_lengths": (lengths[0], test),
            "test_per_length": per_length,
        },
        "training": {"learning_rate": 0.01, "max_epochs": epochs, "threads": 2},
    }


SETTINGS = _settings((10, 30), test=40, train=4_000, per_length=20, epochs=10)
QUICK = _settings((3, 9), test=11, train=400, per_length=5, epochs=3)


def run_demo(out: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Train both, compare them, let the winner write; runs, pictures and figures go to `out`.

    A demo that was interrupted continues where it stopped. Returns what was measured, a row for each model.
    """
    language = get(LANGUAGE)
    settings = QUICK if quick else SETTINGS
    low, high = settings["data"]["lengths"]
    print(f"Two networks learn to write strings like 00101#10100, {low} to {high} symbols long: what comes")
    print("after the # is what came before it, in reverse, so a stack is what it takes.\n")
    results, evaluations = {}, {}
    for name in MODELS:
        results[name] = _train(out / name, RunConfig.of({**settings, "model": name}))
        run = Run.open(out / name)
        evaluations[name] = evaluate(run.load(), make_test_data(run.config))
    rows = _show_results(results, evaluations, out)
    winner = Run.open(out / MODELS[0])
    _show_strings(winner, language, 4 if quick else 8)
    _show_parse(winner, WORD, out)
    histories = {name: Run.open(out / name).metrics() for name in MODELS}
    plotting.save_figure(draw_curves(histories, LANGUAGE), out / "curves.svg")
    plotting.save_figure(draw_by_length(evaluations, f"{LANGUAGE}, test set"), out / "by-length.svg")
    (out / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    print(f"\nCurves, results by length, pictures of the stacks and both runs are in {out}/")
    return rows


def _train(folder: Path, config: RunConfig) -> Result:
    print(f"Training {config.model} ...", flush=True)
    show: Show = "terminal" if sys.stderr.isatty() else "nothing"
    return train(folder, None if is_run(folder) else config, show=show)


def _show_results(
    results: dict[str, Result], evaluations: dict[str, Evaluation], out: Path
) -> list[dict[str, Any]]:
    print("\nNats per symbol above the true distribution (0 is perfect):\n")
    print(f"{'model':10}{'parameters':>12}{'validation':>12}{'test':>10}{'seconds':>10}")
    rows = []
    for name, result in results.items():
        run = Run.open(out / name)
        row = {
            "model": name,
            "parameters": run.summary()["parameters"],
            "validation": result.best["difference"],
            "test": evaluations[name].overall.difference,
            "seconds": round(sum(run.seconds().values()), 1),
        }
        rows.append(row)
        print(
            f"{name:10}{row['parameters']:12,}{row['validation']:12.4f}{row['test']:10.4f}{row['seconds']:10.1f}"
        )
    return rows


def _show_strings(run: Run, language: Any, count: int) -> None:
    longest = run.config.data.test_lengths[1]
    print(f"\nStrings that {run.label} writes:\n")
    for made in sample(run.load(), [""] * count, longest, seed=1):
        verdict = "in the language" if made.complete and made.word in language else "not in the language"
        print(f"  {made.word}  {verdict}")


def _show_parse(run: Run, word: str, out: Path) -> None:
    """What the stack does: its most probable run on a string, in text and in pictures."""
    found = trace(run.load(), word).stack()
    runs = found.runs
    print(f"\nWhat its stack does on {word}: {' '.join(summary_lines(runs))}.\n")
    print("\n".join(run_lines(runs.best(), runs.posterior, "The most probable one")))
    draw_stacks(runs.best()).save(out / "stacks.svg")
    draw_attention(found).save(out / "attention.svg")

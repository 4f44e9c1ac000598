"""Seconds an epoch of the dissertation's recipe for every kind of model, and seconds to make its data.

Marked reversal, 10,000 strings of lengths 40..80 in batches of 10; an epoch is all training steps as
`ndstack train` does them, without validation. The baseline is the LSTM.

    python -m benchmarks.training [epochs] [data] [--fraction 1.0] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ndstack.languages import DESCRIPTIONS, get, make_dataset
from ndstack.training import Observer, RunConfig, fit, make_data, make_model
from ndstack.training.launch import settle, use_threads

MODELS = (
    *("lstm", "strat-20", "sup-20", "ns-2-3", "rns-2-3", "rns-3-3", "vrns-2-3-3"),
    *("tf", "tf+sup-32", "tf+vrns-3-3-5"),
)
ON_THEIR_MACHINES = {"lstm": 51, "strat-20": 801, "sup-20": 169, "ns-2-3": 1022, "rns-2-3": 1060}
"""Table 6.1: seconds an epoch; the nondeterministic ones on a GPU, the others on a CPU."""

Row = dict[str, Any]


class Stopwatch(Observer):
    """Times the steps of an epoch, not what comes after."""

    def epoch(self, progress: Any, steps: int) -> None:
        self.began = time.perf_counter()

    def step(self, progress: Any, loss: float) -> None:
        self.ended = time.perf_counter()


def seconds_an_epoch(name: str, fraction: float) -> float:
    """One epoch after a few steps to warm up; a fraction of it is scaled up."""
    values = {"language": "marked-reversal", "model": name, "training": {"max_epochs": 1}}
    config = settle(RunConfig.of({**values, "data": {"train": int(10_000 * fraction), "validation": 10}}))
    warm_up = RunConfig.of({**values, "data": {"train": 30, "validation": 10}})
    watch = Stopwatch()
    with use_threads(config):
        data = make_data(config)
        model = make_model(config, data.language)
        fit(model, make_data(warm_up), config.training)
        fit(model, data, config.training, observer=watch)
    return (watch.ended - watch.began) / fraction


def epochs(fraction: float) -> list[Row]:
    print(f"{'model':16}{'s/epoch':>10}{'x LSTM':>10}{'dissertation, s':>18}", flush=True)
    rows: list[Row] = []
    for name in MODELS:
        seconds = seconds_an_epoch(name, fraction)
        ratio = seconds / (rows[0]["seconds"] if rows else seconds)
        theirs = ON_THEIR_MACHINES.get(name)
        rows.append({"model": name, "seconds": seconds, "ratio": ratio, "dissertation_seconds": theirs})
        print(f"{name:16}{seconds:10.1f}{ratio:10.2f}{theirs or '':>18}", flush=True)
    return rows


def data() -> list[Row]:
    print(f"{'language':36}{'seconds for all data':>22}", flush=True)
    rows: list[Row] = []
    for name in DESCRIPTIONS:
        begin = time.perf_counter()
        make_dataset(get(name), 1)
        rows.append({"language": name, "seconds": time.perf_counter() - begin})
        print(f"{name:36}{rows[-1]['seconds']:22.1f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="epochs, data; both if none is given")
    parser.add_argument("--fraction", type=float, default=1.0, help="of an epoch to run; scaled up")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    parts = arguments.parts or ["epochs", "data"]
    results = {"epochs": lambda: epochs(arguments.fraction), "data": data}
    rows = {part: results[part]() for part in parts}
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

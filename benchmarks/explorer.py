"""How long the explorer takes for the longest strings: `python -m benchmarks.explorer`, on one core.

Each model of `ndstack explore` reads a string of the largest length that it is shown with, up to 200 symbols,
or of the greatest length below it that its language has. Compiled code is warm; the answer to the page is
computed and written as JSON. The time is that of the processor, so that other programs count little, and the
best of three.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from ndstack.analysis.explorer.catalogue import Catalogue, longest


def measure(identifier: str, repetitions: int) -> tuple[int, float, int]:
    """Return the number of symbols, the seconds, and the number of bytes of an answer."""
    seconds, size = [], 0
    text = ""
    for number in range(repetitions):
        catalogue = Catalogue()  # one that remembers no answers
        source = catalogue.source(identifier)
        if not number:
            catalogue.look(identifier, catalogue.sample(identifier, 4, 0))
            text = catalogue.sample(identifier, longest(source), 0)
        began = time.process_time()
        size = len(json.dumps(catalogue.look(identifier, text), separators=(",", ":")))
        seconds.append(time.process_time() - began)
    return len(source.split(text)), min(seconds), size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="models whose identifiers contain this")
    parser.add_argument("--repetitions", type=int, default=3, help="the best of so many (default: 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | symbols | seconds | JSON |\n|---|---|---|---|")
    for identifier in Catalogue().identifiers():
        if options.only in identifier:
            symbols, seconds, size = measure(identifier, options.repetitions)
            print(f"| `{identifier}` | {symbols} | {seconds:.2f} | {size / 1e6:.1f} MB |", flush=True)


if __name__ == "__main__":
    main()

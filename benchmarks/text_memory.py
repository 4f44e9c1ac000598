"""Does a long text stream in constant memory? Prepares and reads a text repeated to several lengths.

Peak memory of a process of its own each time: of `ndstack text prepare`, and of reading every chunk of the
training part, 32 rows of 35. Pages of the mapped token file are counted apart: the system takes them back
when it needs them.

    python -m benchmarks.text_memory [TEXT] [--tokens 2000000 10000000] [--json FILE]

TEXT is a tokenised file; without one, the sentences of `ndstack text example` are taken.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def repeat(text: Path, tokens: int, target: Path) -> None:
    """Write the text again and again until it has so many tokens, an end of sentence a line included."""
    content = text.read_text(encoding="utf-8")
    own = len(content.split()) + content.count("\n")
    with target.open("w", encoding="utf-8") as file:
        for _ in range(-(-tokens // own)):
            file.write(content)


def in_a_process(code: str, *arguments: str) -> Row:
    """What the last line of its output says."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    result: Row = json.loads(done.stdout.splitlines()[-1])
    return result


PREPARE = """
import json, sys
from benchmarks.text_memory import memory
from ndstack.text import prepare
prepare(sys.argv[1], sys.argv[2])
print(json.dumps(memory()))
"""

READ = """
import json, sys
from benchmarks.text_memory import memory, stream
print(json.dumps({**stream(sys.argv[1]), **memory()}))
"""


def memory() -> Row:
    """Of this process, in MB: the peak, and what is not a page of a file now."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    own = next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_mb": peak / 1024, "own_mb": int(own) / 1024}


def stream(folder: str) -> Row:
    """Read every chunk of a corpus's training part."""
    from ndstack.text import Stream, read_corpus

    corpus = read_corpus(folder)
    begin, tokens = time.perf_counter(), 0
    for chunk in Stream(corpus["train"], corpus.vocabulary.end, rows=32, length=35).chunks():
        tokens += chunk.tokens
    return {"tokens": tokens, "tokens_per_second": tokens / (time.perf_counter() - begin)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="?", type=Path, help="a tokenised text file")
    parser.add_argument("--tokens", nargs="+", type=int, default=[2_000_000, 10_000_000])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = options.text
        if text is None:
            from ndstack.text.example import write_example

            write_example(folder / "example")
            text = folder / "example" / "train.txt"
        for tokens in options.tokens:
            repeat(text, tokens, folder / "long.txt")
            corpus = folder / f"corpus-{tokens}"
            prepared = in_a_process(PREPARE, str(folder / "long.txt"), str(corpus))
            read = in_a_process(READ, str(corpus))
            rows.append({"prepare_peak_mb": prepared["peak_mb"], **{f"read_{k}": v for k, v in read.items()}})
    print(f"{'tokens':>12}{'prepare, peak MB':>18}{'read, peak MB':>15}{'without pages':>15}{'tokens/s':>12}")
    for row in rows:
        print(
            f"{row['read_tokens']:12,}{row['prepare_peak_mb']:18.0f}{row['read_peak_mb']:15.0f}"
            f"{row['read_own_mb']:15.0f}{row['read_tokens_per_second']:12,.0f}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()

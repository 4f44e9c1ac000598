"""Measures the house before and after, and writes the tables of docs/architecture.md: `make docs`.

`python docs/measure_house.py --base REVISION` compares the working tree with another revision; it needs the
history. What stands between `<!-- made: NAME -->` and `<!-- /made -->` of the page is replaced.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from code_size import File

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BASE = "0f46665"
INNERMOST = "combine"
"""The loop that does the cubic work of Lang's algorithm (docs/algorithm.md)."""
LOOP = "training/loop.py"
TRAINING = "train dyck --model rns-2-3 --lengths 6 --train 10 --max-epochs 1 --quiet --out"
"""A run of one step; compiled functions run as plain Python in it, so that their calls can be seen."""


@dataclass(frozen=True)
class House:
    """The figures of one tree."""

    files: int
    lines: int
    code: int
    ignores: int
    anys: int
    calls: list[tuple[str, str]]

    def rows(self) -> Iterator[tuple[str, int]]:
        """What is measured, by name."""
        yield "files of Python in `src`", self.files
        yield "lines", self.lines
        yield "of them code", self.code
        yield "`type: ignore`", self.ignores
        yield "lines with `Any`", self.anys
        yield "calls from a training step to the innermost loop", len(self.calls)
        yield "files that they are in", len({file for file, _ in self.calls})


def measure(tree: Path) -> House:
    """The figures of the tree in a folder."""
    files = [File(path, path.read_text(encoding="utf-8")) for path in sorted((tree / "src").rglob("*.py"))]
    lines = [line for file in files for line in file.text.splitlines()]
    return House(
        files=len(files),
        lines=len(lines),
        code=sum(file.code() for file in files),
        ignores=sum("# type: ignore" in line for line in lines),
        anys=sum(bool(re.search(r"\bAny\b", line)) for line in lines),
        calls=calls(tree),
    )


def calls(tree: Path) -> list[tuple[str, str]]:
    """The functions, with their files, that lead from a training step to the innermost loop."""
    environment = os.environ | {
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)]),
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", __file__, "--watch", folder]
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
        found = json.loads((Path(folder) / "calls.json").read_text(encoding="utf-8"))
    return [(file, name) for file, name in found]


def watch(folder: Path) -> None:
    """Train for one step in this process, and write down the first chain of calls to the innermost loop."""
    from tests.uncompiled import replace_intrinsics

    replace_intrinsics()
    from ndstack.cli import main as ndstack

    chains: list[list[tuple[str, str]]] = []

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not chains and frame.f_code.co_name == INNERMOST:
            chain = list(callers(frame))
            if chain[-1][0] == LOOP:
                chains.append(chain[::-1])

    sys.argv = ["ndstack", *TRAINING.split(), str(folder / "run")]
    sys.setprofile(see)
    try:
        ndstack()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
    if not chains:
        sys.exit(f"no call of {INNERMOST} was seen below {LOOP}; has the innermost loop another name?")
    (folder / "calls.json").write_text(json.dumps(chains[0]), encoding="utf-8")


def callers(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """The function of a frame and those of this package that called it, up to the training loop."""
    while frame is not None:
        _, inside, file = frame.f_code.co_filename.rpartition("/src/ndstack/")
        if inside:
            yield file, frame.f_code.co_name
        if file == LOOP:
            return
        frame = frame.f_back


def at(revision: str) -> House:
    """The figures of a revision."""
    command = ["git", "archive", "--format=tar", revision, "src", "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode:
        sys.exit(f"{revision} cannot be read: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
        return measure(Path(folder))


def comparison(before: House, after: House) -> str:
    """Both houses side by side."""
    lines = ["| | before | after | change |", "|---|---|---|---|"]
    for (name, old), (_, new) in zip(before.rows(), after.rows(), strict=True):
        lines.append(f"| {name} | {old:,} | {new:,} | {(new - old) / old:+.0%} |")
    return "\n".join(lines)


def way(house: House) -> str:
    """The calls of a training step, with the files that they are in."""
    lines = ["| | function | file |", "|---|---|---|"]
    for number, (file, name) in enumerate(house.calls, 1):
        lines.append(f"| {number} | `{name}` | [{file}](../src/ndstack/{file}) |")
    return "\n".join(lines)


def fill(text: str, parts: dict[str, str]) -> str:
    """The page with its made parts replaced."""
    for name, part in parts.items():
        before, begin, rest = text.partition(f"<!-- made: {name} -->\n")
        _, end, after = rest.partition("<!-- /made -->")
        if not end:
            sys.exit(f"{PAGE.name} has no part called {name}")
        text = f"{before}{begin}{part}\n{end}{after}"
    return text


def main() -> None:
    """Measure both, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=BASE, help=f"the revision to compare with [{BASE}]")
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.watch is not None:
        watch(arguments.watch)
        return
    before, after = at(arguments.base), measure(ROOT)
    parts = {"figures": comparison(before, after), "way": way(after)}
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
    print(parts["figures"])


if __name__ == "__main__":
    main()

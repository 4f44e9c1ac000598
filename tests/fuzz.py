"""What readers make of random and damaged input: success, or an `NdstackError` of one line, and nothing else.

`tests/test_fuzz.py` tries some examples of each; `make fuzz` (`python -m tests.fuzz --examples 5000`) many.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ndstack.errors import NdstackError

TARGETS: dict[str, Callable[[], None]] = {}

WORDS = [
    *(
        "",
        " ",
        "\n",
        "\r\n",
        "\t",
        "\0",
        "\ufeff",
        "\u202e",
        "é",
        "\x1b[31m",
        "../",
        "/dev/null",
        '"\\ud800"',
    ),
    *("-1", "0", "1e999", "NaN", "null", "9" * 30, "9" * 5000),
    *("[", "]", "{", "}", '"', "'", "=", ":", ",", "[" * 2000),
]
VALUES = [
    *(None, True, -1, 0, 1, 2**31, 10**30, 1e300, float("nan"), float("inf")),
    *("", "\ud800", "\0", "x" * 300, "../..", "/dev/null", [], {}, [[]], {"": None}, ["a", 1]),
]


def target(*strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of random input that may end in nothing but success or an `NdstackError`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def guarded(drawn: tuple[Any, ...]) -> None:
            try:
                function(*drawn)
            except NdstackError as error:
                message = str(error)
            else:
                return
            assert message, "an error without a word"
            assert "\n" not in message, f"more than one line: {message!r}"

        TARGETS[function.__name__] = given(st.tuples(*strategies))(guarded)
        return function

    return register


def run(name: str, examples: int, *, fixed: bool) -> None:
    """Try one target."""
    quietly = settings(
        max_examples=examples,
        derandomize=fixed,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    quietly(TARGETS[name])()


def noisy(*originals: bytes) -> st.SearchStrategy[bytes]:
    """Files that were good once: cut, repeated, with bits flipped and other things put in."""

    @st.composite
    def damaged(draw: Any) -> bytes:
        content = bytearray(draw(st.sampled_from(originals)))
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, len(content)))
            kind = draw(st.sampled_from(["flip", "cut", "end", "insert", "word", "repeat"]))
            if kind == "flip" and at < len(content):
                content[at] ^= 1 << draw(st.integers(0, 7))
            elif kind == "cut":
                del content[at : at + draw(st.integers(1, 50))]
            elif kind == "end":
                del content[at:]
            elif kind == "insert":
                content[at:at] = draw(st.binary(max_size=20))
            elif kind == "word":
                content[at:at] = draw(st.sampled_from(WORDS)).encode()
            else:
                content[at:at] = content[max(0, at - 60) : at]
        return bytes(content)

    return st.one_of(damaged(), st.binary(max_size=60))


def altered(original: Any) -> st.SearchStrategy[bytes]:
    """JSON that was good once, with some values replaced, left out or added; and damaged text of it."""

    @st.composite
    def changed(draw: Any) -> bytes:
        value = json.loads(json.dumps(original))
        for _ in range(draw(st.integers(1, 3))):
            value = _change(draw, value)
        return json.dumps(value).encode()

    return st.one_of(changed(), noisy(json.dumps(original).encode()))


def _change(draw: Any, value: Any) -> Any:
    inside = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    if not inside or draw(st.integers(0, 4)) == 0:
        chosen = draw(st.one_of(st.sampled_from(VALUES), st.integers(), st.floats(), st.text(max_size=9)))
        return copy.deepcopy(chosen)
    key = draw(st.sampled_from(inside))
    kind = draw(st.integers(0, 9))
    if kind == 0:
        del value[key]
    elif kind == 1 and isinstance(value, dict):
        value[draw(st.text(max_size=5))] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    elif kind == 1:
        value.append(copy.deepcopy(value[key]))
    else:
        value[key] = _change(draw, value[key])
    return value


def phrases(*parts: str, most: int = 30) -> st.SearchStrategy[str]:
    """Strings of these parts, and any other text now and then."""
    part = st.one_of(st.sampled_from([*parts, *WORDS]), st.text(max_size=4))
    return st.lists(part, max_size=most).map("".join)


@contextlib.contextmanager
def file(content: bytes, name: str = "file") -> Iterator[Path]:
    """A file with this content, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        yield path


@functools.cache
def good() -> Path:
    """A folder with one of everything that ndstack writes, small."""
    from ndstack.languages import Plan, get, make_dataset, write_dataset
    from ndstack.nn import models
    from ndstack.nn.storage.files import save_model as save
    from ndstack.text import prepare
    from ndstack.text.example import write_example

    kept = tempfile.TemporaryDirectory()
    good.kept = kept  # type: ignore[attr-defined]
    folder = Path(kept.name)
    plan = Plan(train=4, validation=2, test_per_length=1, lengths=(2, 4), test_lengths=(2, 4), batch_size=2)
    write_dataset(make_dataset(get("dyck"), 0, plan), folder / "data")
    write_example(folder / "example", 10, 0)
    prepare(folder / "example", folder / "corpus")
    save(models.build("rns-1-2", ("a", "b"), hidden=2), folder / "model")
    return folder


@contextlib.contextmanager
def with_file(folder: str, name: str, content: bytes) -> Iterator[Path]:
    """One of the good folders, in which one file has other content."""
    source = good() / folder
    with tempfile.TemporaryDirectory() as other:
        for path in source.iterdir():
            if path.name != name:
                (Path(other) / path.name).symlink_to(path)
        (Path(other) / name).write_bytes(content)
        yield Path(other)


def content(name: str) -> bytes:
    """Of a good file."""
    return (good() / name).read_bytes()


def values(name: str) -> Any:
    """Of a good JSON file."""
    return json.loads(content(name))


def lazily(make: Callable[[], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A strategy that needs good files, made when first used."""
    return st.deferred(lambda: make())


def main() -> int:
    """Try all targets, or some; 1 if any of them failed."""
    import tests.fuzz_targets  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="some of: " + ", ".join(TARGETS))
    parser.add_argument("--examples", type=int, default=5000, help="of each target")
    chosen = parser.parse_args()
    failed = 0
    for name in chosen.targets or TARGETS:
        begin, verdict = time.monotonic(), "nothing found"
        try:
            run(name, chosen.examples, fixed=False)
        except Exception:
            traceback.print_exc()
            verdict, failed = "FAILED", 1
        print(
            f"{name:20} {chosen.examples:>8,} examples, {time.monotonic() - begin:.0f} s: {verdict}",
            flush=True,
        )
    return failed


if __name__ == "__main__":
    import tests.fuzz

    raise SystemExit(tests.fuzz.main())  # the module that the targets know

"""Wrong, odd and damaged input: files, places, and the commands that are given them."""

from tests.commands import ndstack

GRAMMAR = "S -> 'a' S 'b' [0.5] | 'c' [0.5]\n"

FILES = {
    "empty": b"",
    "bytes": bytes(range(256)) * 8,
    "nul": b"S -> 'a'\0 S\0\0",
    "latin": "S -> 'é'\n".encode("latin-1"),
    "utf-16": GRAMMAR.encode("utf-16"),
    "lists": b"[" * 100_000,
    "objects": b'{"a":' * 50_000,
    "tables": b"a = " + b"[" * 20_000,
    "number": b"1" * 6000,
    "digits": b"seed = " + b"1" * 6000,
    "escape": b"\x1b[31mS",
    "large": b"x" * 300_000,
}
PLACES = ("missing", "folder", "dangling", "loop", "/dev/null", "new\nline", "x" * 5000)
TEXT = {"nul", "lists", "objects", "tables", "number", "digits", "escape", "large"}
"""Files whose content is odd, but text all the same."""

READERS = {
    "explore runs": "explore ? --no-browser",
    "train resume": "train --resume ?",
    "train config": "train --config ? --model lstm --out made",
    "train grammar": "train --grammar ? --model lstm --out made",
    "train start_from": "train dyck --model lstm --out made --start-from ?",
    "train data": "train --data ? --model lstm --out made",
    "evaluate run": "evaluate ?",
    "show run": "show ?",
    "compare runs": "compare {run} ?",
    "generate run": "generate ?",
    "parse run": "parse ? ab",
    "draw run": "draw ? ab --out made.svg",
    "sample grammar": "sample --grammar ?",
    "probability grammar": "probability --grammar ? a",
    "dataset grammar": "dataset --grammar ? --out made",
    "grammar file": "grammar ?",
    "trees grammar": "trees --grammar ? a",
    "automaton grammar": "automaton --grammar ? a",
    "recognize grammar": "recognize --grammar {grammar} --grammar ? a",
    "text prepare source": "text prepare ? --out made",
    "text prepare vocabulary": "text prepare {text} --vocabulary ? --out made",
    "text train corpus": "text train ? --model lstm --out made",
    "text train start_from": "text train {corpus} --model lstm --out made --start-from ?",
    "text train resume": "text train --resume ?",
    "text evaluate run": "text evaluate ?",
    "text evaluate corpus": "text evaluate {text_run} --corpus ?",
    "text generate run": "text generate ?",
    "text surprisal run": "text surprisal ? the",
    "text surprisal file": "text surprisal {text_run} --file ?",
    "text sg paths": "text sg {text_run} ?",
    "text pairs run": "text pairs ? {pairs}",
    "text pairs files": "text pairs {text_run} {pairs} ?",
    "reproduce corpus": "reproduce ptb --scale smoke --corpus ? --out made",
    "reproduce known": "reproduce ptb --scale smoke --corpus {corpus} --known ? --out made",
    "reproduce suites": "reproduce ptb --scale smoke --corpus {corpus} --suites ? --out made",
    "sweep file": "sweep ? --out made",
    "sweep corpus": "sweep {experiment} --corpus ? --out made",
    "sweep known": "sweep {experiment} --corpus {corpus} --known ? --out made",
    "sweep suites": "sweep {experiment} --corpus {corpus} --suites ? --out made",
    "report folder": "report ?",
    "gather folders": "gather {run} ? --out made",
    "claims folder": "claims ?",
    "zoo run": "zoo add ?",
    "hf export run": "hf export ? --out made",
    "hf import folder": "hf import ? --out made",
    "text bleu run": "text bleu ?",
    "text prepare-pairs source": "text prepare-pairs ? {lines} --out made",
    "text prepare-pairs target": "text prepare-pairs {lines} ? --out made",
    "train pairs": "train --pairs ? --task transduce --model lstm --out made",
    "transduce run": "transduce ? ab",
}
"""For every command and each of its parameters that names something to read: how it is called."""
READ_TEXT = {
    "text prepare source",
    "text prepare vocabulary",
    "text prepare-pairs source",
    "text prepare-pairs target",
    "text surprisal file",
}
"""They take any text."""

SMALL = "--model lstm --lengths 4:6 --train 10 --max-epochs 1 --quiet"
FOLDERS = {
    "train out": f"train dyck {SMALL} --out ?",
    "dataset out": "dataset dyck --train 10 --validation 10 --lengths 4:6 --test-lengths 4:6 --out ?",
    "text example out": "text example --sentences 10 --out ?",
    "text prepare out": "text prepare {text} --out ?",
    "text train out": "text train {corpus} --model lstm --hidden 4 --max-epochs 1 --quiet --out ?",
    "demo out": "demo --quick --out ?",
    "reproduce out": "reproduce cfls --scale smoke --workers 0 --out ?",
    "sweep out": "sweep {experiment} --corpus {corpus} --workers 0 --out ?",
    "report out": "report {sweep} --out ?",
    "gather out": "gather {run} --out ?",
    "claims out": "claims {tables} --out ?",
    "explore export": "explore {run} --export ?",
    "hf export out": "hf export {run} --out ?",
    "hf import out": "hf import {exported} --out ?",
    "text prepare-pairs out": "text prepare-pairs {lines} {lines} --out ?",
    "transductions out": "transductions reverse-string --count 10 --out ?",
}
"""The same for folders to write to."""
ANY_FOLDER = {"demo out", "reproduce out", "sweep out", "report out", "gather out", "claims out"}
"""They also write to a folder that has something in it."""
FOLDER_PLACES = ("empty", "empty/made", "full", "loop", "/dev/null", "/proc/made", "x" * 5000)

PICTURES = {
    "evaluate out": "evaluate {run} --out ?",
    "show out": "show {run} --out ?",
    "compare out": "compare {run} --out ?",
    "draw out": "draw dyck () --what stacks --out ?",
    "trees out": "trees dyck () --out ?",
    "automaton out": "automaton dyck () --out ?",
    "text surprisal out": "text surprisal {text_run} the --out ?",
    "text sg out": "text sg {text_run} {suites} --out ?",
}
"""The same for pictures."""
PICTURE_PLACES = (
    "empty",
    "empty/made.svg",
    "folder.svg",
    "loop.svg",
    "/proc/made.svg",
    "x" * 5000 + ".svg",
    "a.gif",
)


def words(line, given, good):
    """A command as a list of words, with what is given in place of the question mark."""
    return [given if word == "?" else word.format_map(good) for word in line.split()]


def refused(*arguments, cwd):
    """The error of a command, which is one short line and all that happens."""
    code, error = outcome(*arguments, cwd=cwd)
    assert code == 2, (arguments, error)
    return error


def outcome(*arguments, cwd):
    """The exit code of a command, and its error; of one that fails, nothing else is left."""
    before = sorted(cwd.iterdir())
    result = ndstack(*arguments, cwd=cwd)
    if result.returncode == 2:
        assert result.stderr.startswith("ndstack: error: "), (arguments, result.stderr[:300])
        assert len(result.stderr) < 1000, arguments
        assert result.stderr[:-1].isprintable(), arguments
        assert sorted(cwd.iterdir()) == before, arguments
    return result.returncode, result.stderr

"""The `ndstack` application and how it ends: wrong input is one line on stderr and exit code 2."""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer
from typer.exceptions import TyperException

from ndstack import __version__
from ndstack.errors import NdstackError

app = typer.Typer(
    name="ndstack",
    help="Neural networks with nondeterministic stacks, and the theory that goes with them.",
    epilog=(
        "Examples:\n\n"
        "ndstack languages\n\n"
        "ndstack sample dyck --lengths 10:20 --count 5\n\n"
        "ndstack recognize dyck '([])' '([)]'\n\n"
        "ndstack automaton unmarked-reversal 0110 --draw stacks.svg\n\n"
        "ndstack grammar my.cfg --to greibach\n\n"
        "ndstack demo\n\n"
        "`ndstack COMMAND --help` has examples for each command. Exit codes: 0 done, 1 the answer is no, "
        "2 wrong input, 130 interrupted."
    ),
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


INTERRUPTED = 130
OUT_OF_MEMORY = ("can't allocate memory", "out of memory")
"""What torch says when memory is short, on a CPU and on other devices."""
LONGEST_ERROR = 800
"""Characters; what is longer has a file or a long argument in it."""


class Interrupted(Exception):  # noqa: N818 - it is no error
    """Ctrl-C, with advice on how to go on."""


def main() -> None:
    """Run the command line; wrong input ends in one line on stderr and exit code 2."""
    sys.stdout, sys.stderr = _opened(sys.stdout), _opened(sys.stderr)
    for stream in (sys.stdout, sys.stderr):  # ⊥ and ε also on terminals that cannot show them
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
    except (NdstackError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        _fail(" ".join(message.split()))
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 1:
            raise
        # What reads our output, such as `head`, has had enough; typer says so by exit code 1.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (MemoryError, OverflowError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        _fail("this needs more memory than there is; ask for something smaller")
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort, Interrupted) as end:
        _interrupted(str(end))
    if code == INTERRUPTED:  # so typer reports Ctrl-C
        _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _opened(stream: TextIO | None) -> TextIO:
    """The stream, or one that leads nowhere if whoever called us has closed it."""
    return Path(os.devnull).open("w", encoding="utf-8") if stream is None else stream


def _interrupted(advice: str = "") -> None:
    print("ndstack: interrupted" + (f"; {advice}" if advice else ""), file=sys.stderr)
    sys.exit(INTERRUPTED)


def _fail(message: str) -> None:
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    if len(shown) > LONGEST_ERROR:
        shown = f"{shown[: LONGEST_ERROR // 2]} [...] {shown[-LONGEST_ERROR // 2 :]}"
    print(f"ndstack: error: {shown}", file=sys.stderr)
    sys.exit(2)


def _show_version(value: bool) -> None:
    if value:
        print(f"ndstack {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural networks with nondeterministic stacks, and the theory that goes with them."""

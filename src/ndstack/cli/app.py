"""The `ndstack` application, the order of its commands, and how it ends.

Wrong input is one line on stderr and exit code 2.
"""

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ndstack import __version__
from ndstack.errors import NdstackError, is_out_of_memory

PANELS = {
    "Start here": ("demo", "explore", "zoo"),
    "Training": ("train", "evaluate", "show", "compare", "generate", "transduce", "hf"),
    "Looking into stacks": ("parse", "draw"),
    "Languages and automata": (
        "languages",
        "sample",
        "probability",
        "dataset",
        "transductions",
        "grammar",
        "trees",
        "automaton",
        "recognize",
    ),
    "Natural language": ("text",),
    "Experiments": ("reproduce", "sweep", "report", "gather", "claims"),
    "Speed": ("compile", "bench"),
}
"""All commands in the order of `ndstack --help`: what a newcomer needs first comes first."""

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_Function = TypeVar("_Function", bound=Callable[..., None])


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of the panels."""
        shown = [name for name in super().list_commands(ctx) if name in _PANEL_OF]
        return sorted(shown, key=list(_PANEL_OF).index)


def as_epilog(*examples: str) -> str:
    """Return the examples at the end of a help text."""
    return "Examples:\n\n" + "\n\n".join(examples)


app = typer.Typer(
    name="ndstack",
    cls=_InOrder,
    help="Neural networks with nondeterministic stacks, and the theory that goes with them.",
    epilog=as_epilog(
        "ndstack demo",
        "ndstack train marked-reversal --model rns-2-3 --out runs/reversal",
        "ndstack evaluate runs/reversal",
        "ndstack parse english 'Mary saw a man in the park with a telescope' --best 3",
        "ndstack explore runs/reversal",
        "ndstack sample dyck --lengths 10:20 --count 5",
        "ndstack reproduce list",
    )
    + "\n\n`ndstack COMMAND --help` has examples for each command. Exit codes: 0 done, 1 the answer is no, "
    "2 wrong input, 130 interrupted.",
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def command(
    *examples: str, name: str | None = None, former_name: str | None = None
) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a function a command of `ndstack`, with examples for its help.

    Args:
        examples: command lines.
        name: of the command; by default, that of the function.
        former_name: a name that still works, but that no help shows.
    """

    def register(function: _Function) -> _Function:
        if former_name is not None:
            app.command(former_name, hidden=True)(function)
        panel = _PANEL_OF[name or function.__name__]
        return app.command(name, rich_help_panel=panel, epilog=as_epilog(*examples))(function)

    return register


INTERRUPTED = 130
LONGEST_ERROR = 800
"""The largest number of characters of an error; a longer one quotes a file or a long argument."""


class Interrupted(Exception):  # noqa: N818 - it is not an error
    """An interruption by Ctrl-C, with advice on how to resume."""


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Print the command at Ctrl-C, for commands that resume where they stopped if they are repeated."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"resume with: {shlex.join(['ndstack', *sys.argv[1:]])}") from None


def main() -> None:
    """Run the command line; wrong input ends in one line on stderr and exit code 2."""
    sys.stdout, sys.stderr = _opened(sys.stdout), _opened(sys.stderr)
    for stream in (sys.stdout, sys.stderr):  # ⊥ and ε also on terminals that cannot show them
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="ndstack", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort, Interrupted) as end:  # before RuntimeError, which Abort is
        _interrupted(str(end))
    except NdstackError as error:
        _fail(str(error))
    except TyperException as error:
        _fail_to_parse(error)
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        # A program that read our output, such as `head`, has closed it; typer exits with code 1.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail("this needs more memory than there is; ask for something smaller")
    except OverflowError as error:
        _fail(f"a number given is too large ({error}); give a smaller one")
    except UnicodeEncodeError as error:  # the name of a file in a locale that lacks its letters
        name = error.object[:100]
        _fail(f"{name!r} cannot be written as {error.encoding}; choose another name, or LC_ALL=C.UTF-8")
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    if code == INTERRUPTED:  # so typer reports Ctrl-C
        _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _opened(stream: TextIO | None) -> TextIO:
    """Return the stream or, if the calling program has closed it, one that discards everything."""
    return Path(os.devnull).open("w", encoding="utf-8") if stream is None else stream


def _interrupted(advice: str = "") -> None:
    print("ndstack: interrupted" + (f"; {advice}" if advice else ""), file=sys.stderr)
    sys.exit(INTERRUPTED)


def _fail_to_parse(error: TyperException) -> None:
    """Print which words of the command line were wrong, and which help describes them."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if not message:  # only a group of commands was given, and its help has been shown
        sys.exit(0)
    if context is not None and not message.endswith("?"):
        message = f"{message.rstrip('.')}; see {context.command_path} --help"
    _fail(message)


def _fail(message: str) -> None:
    message = " ".join(message.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    if len(shown) > LONGEST_ERROR:
        shown = f"{shown[: LONGEST_ERROR // 2]} [...] {shown[-LONGEST_ERROR // 2 :]}"
    print(f"ndstack: error: {shown}", file=sys.stderr)
    sys.exit(2)


def _show_version(value: bool) -> None:
    if value:
        import platform
        from importlib.metadata import version  # to import torch itself would take seconds

        print(f"ndstack {__version__} (Python {platform.python_version()}, torch {version('torch')})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version, and those of Python and torch.",
        ),
    ] = False,
) -> None:
    """Neural networks with nondeterministic stacks, and the theory that goes with them."""

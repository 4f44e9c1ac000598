"""The command that starts the explorer: explore."""

import sys
from typing import Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import read_grammar_file
from ndstack.errors import NdstackError


@command("ndstack explore", "ndstack explore runs/reversal runs/dyck --port 8080 --no-browser")
def explore(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Run folders, saved models, or grammar files to compile."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free port.")] = 8765,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; by default, 127.0.0.1 (this machine only).")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """Explore the stacks of any model on any string, step by step, in the browser.

    Automata that ship are always available, so no trained model is needed. Ctrl-C ends the server.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise NdstackError(
            "the explorer needs fastapi and uvicorn; install them with pip install 'ndstack[explore]'"
        ) from None
    from ndstack.analysis.explorer.catalogue import Catalogue
    from ndstack.analysis.explorer.server import serve

    catalogue = Catalogue(runs or (), read=read_grammar_file)
    print("ndstack: starting (kernels are compiled the first time, which takes a minute)", file=sys.stderr)
    catalogue.warm_up()
    serve(catalogue, host, port, browser)

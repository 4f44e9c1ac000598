"""The command that opens the explorer: explore."""

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
        typer.Argument(metavar="RUN", help="Run folders, saved models, grammar files to compile."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8765,
    host: Annotated[
        str | None, typer.Option(help="Another address to listen on than this machine's own 127.0.0.1.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser?")] = True,
) -> None:
    """Watch stacks at work in the browser: any string, any model, step by step.

    The automata that ship are always there, so that it works without a trained model. Ctrl-C ends it.
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
    print("ndstack: getting ready (the first time, this compiles for a minute)", file=sys.stderr)
    catalogue.warm_up()
    serve(catalogue, host, port, browser)

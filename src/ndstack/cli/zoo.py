"""The command about networks that ship: zoo."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import AsJson
from ndstack.cli.output import print_table
from ndstack.errors import NdstackError


@command("ndstack zoo", "ndstack zoo list --json", "ndstack zoo add runs/reversal")
def zoo(
    action: Annotated[Literal["list", "add"], typer.Argument(help="What to do.")] = "list",
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="To add: a run that has learned its language.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the trained networks that ship; their names can be given wherever a run folder can.

    For maintainers: `add` puts the best model of a run into the source tree, if it is within 0.05 nats per
    symbol of the lower bound and better than what is there.
    """
    from ndstack.experiments import zoo_entries

    if (action == "add") != (run is not None):
        raise NdstackError("expected ndstack zoo, or ndstack zoo add RUN with a run folder")
    found = zoo_entries.entries() if run is None else [zoo_entries.add(run)]
    rows = [one.as_json() for one in found]
    if as_json:
        print(json.dumps(rows))
        return
    columns = ("name", "parameters", "bytes", "validation", "test", "epochs")
    keys = ("name", "parameters", "bytes", "difference", "test_difference", "epochs")
    print_table(columns, [[row[key] for key in keys] for row in rows], right=1, unbroken={"name"})
    print("Validation and test: nats per symbol above the lower bound.")

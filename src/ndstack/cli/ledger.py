"""Commands about results of many runs: gather, claims."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import AsJson, OutFolder, OutFolderIfGiven
from ndstack.cli.output import print_table


@command(
    "ndstack gather sweep --out results",
    "ndstack gather runs/reversal runs/dyck --out results --this-machine --json",
)
def gather(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Run folders, sweep folders, or folders of them.")
    ],
    out: OutFolder,
    commit: Annotated[
        str, typer.Option(help="Git commit of the code that made the runs, for those that do not say.")
    ] = "",
    this_machine: Annotated[
        bool,
        typer.Option("--this-machine", help="The runs were made here: note the processor if they do not."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put runs into tables: runs.csv has a row for each run, curves.csv a row for each epoch.

    Runs that are there already are brought up to date; one that has not ended is marked as interrupted. The
    folders are not needed afterwards: `ndstack report` and `ndstack claims` read the tables.
    """
    from ndstack.experiments.gathering import gather as gather_runs

    found = gather_runs(folders, out, commit=commit, this_machine=this_machine)
    counts = {
        "added": len(found.added),
        "updated": len(found.updated),
        "same": len(found.same),
        "incomplete": len(found.incomplete),
    }
    if as_json:
        print(json.dumps({"tables": str(out), **counts}))
        return
    print(
        f"{out}: {counts['added']} runs added, {counts['updated']} updated, {counts['same']} as they were; "
        f"{counts['incomplete']} of them have not ended"
    )


@command("ndstack claims results", "ndstack claims results --out docs", "ndstack claims results --json")
def claims(
    folder: Annotated[Path, typer.Argument(help="The tables that `ndstack gather` made.")],
    out: OutFolderIfGiven = None,
    as_json: AsJson = False,
) -> None:
    """Decide the dissertation's empirical claims by the runs in the tables, each by a rule of its own.

    With --out, the page claims.md and a picture for each claim. A file claims.toml in the folder takes the
    place of the dissertation's claims.
    """
    from ndstack.experiments.claims import decide, read_claims, write_page
    from ndstack.experiments.records import Tables

    tables = Tables.read(folder)
    own = folder / "claims.toml"
    chosen = read_claims(own if own.exists() else None)
    found = decide(chosen, tables) if out is None else write_page(chosen, tables, out)
    if as_json:
        print(json.dumps([{"claim": one.claim.id, "verdict": one.verdict} for one in found]))
        return
    print_table(
        ("claim", "verdict", ""), [(one.claim.id, one.verdict, one.claim.text) for one in found], right=None
    )

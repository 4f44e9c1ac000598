"""Commands for Hugging Face's transformers: hf export, hf import."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import app, as_epilog
from ndstack.cli.arguments import AsJson, OutFolder
from ndstack.cli.runs import RunFolder

hf = typer.Typer(
    help="Hugging Face: models of ndstack as causal language models of transformers, and back.",
    epilog=as_epilog(
        "ndstack hf export zoo:dyck/rns-2-3 --out dyck-hf",
        "ndstack hf import dyck-hf --out dyck-run",
    ),
    rich_markup_mode="markdown",
    no_args_is_help=True,
)
app.add_typer(hf, name="hf", rich_help_panel="Training")


@hf.command(name="export", epilog=as_epilog("ndstack hf export runs/reversal --out reversal-hf"))
def export_(run: RunFolder, out: OutFolder, as_json: AsJson = False) -> None:
    """Write the best model of a run as a folder for `from_pretrained`, with a tokenizer.

    In Python, `import ndstack.hf` makes the model known to `AutoModelForCausalLM`.
    """
    from ndstack.hf import export_run

    _quiet()
    export_run(run, out)
    print(json.dumps({"model": str(out)}) if as_json else f"Model: {out}")


@hf.command(name="import", epilog=as_epilog("ndstack hf import reversal-hf --out runs/tuned"))
def import_(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="What `save_pretrained` made of a model of ndstack."),
    ],
    out: OutFolder,
    as_json: AsJson = False,
) -> None:
    """Write a model that was exported, and perhaps trained elsewhere, as a run folder again.

    A model that did not come from a run becomes a model folder, for `ndstack.nn.load`. One that was trained
    elsewhere has no results until `ndstack evaluate` measures it.
    """
    from ndstack.hf import import_run
    from ndstack.training.run import Run, is_run

    _quiet()
    import_run(folder, out)
    if is_run(out):
        tuned = Run.open(out).tuned
        told = (
            f"; its parameters have changed, so `ndstack evaluate {out}` has to measure it" if tuned else ""
        )
        print(json.dumps({"run": str(out), "tuned": tuned}) if as_json else f"Run: {out}{told}")
    else:
        told = f"Model, for ndstack.nn.load, since it did not come from a run: {out}"
        print(json.dumps({"model": str(out)}) if as_json else told)


def _quiet() -> None:
    """Let transformers draw no bars and say nothing but errors."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()

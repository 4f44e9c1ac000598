"""Commands that show what is here: demo, bench."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import app
from ndstack.errors import NdstackError

PANEL = "Start here"


@app.command(rich_help_panel=PANEL, epilog="Example: ndstack demo --quick --out /tmp/demo")
def demo(
    out: Annotated[Path, typer.Option(help="Where the pictures go.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="The smallest version.")] = False,
) -> None:
    """Train a network with a stack and one without on one language; compare them, look into the stack."""
    from ndstack.demo import run_demo

    run_demo(out, quick=quick)


@app.command(rich_help_panel=PANEL, epilog="Examples:\n\nndstack bench\n\nndstack bench stacks")
def bench(
    name: Annotated[
        str, typer.Argument(help="languages, stacks, deterministic, training, text or all.")
    ] = "all",
) -> None:
    """Measure speed against named baselines; tables here, JSON under benchmarks/results. Takes minutes."""
    import runpy

    modules = {
        "languages": "benchmarks.formal_languages",
        "stacks": "benchmarks.stacks",
        "deterministic": "benchmarks.deterministic_stacks",
        "training": "benchmarks.training",
        "text": "benchmarks.text",
    }
    if name != "all" and name not in modules:
        raise NdstackError(f"there is no benchmark {name!r}; expected all, {', '.join(modules)}")
    root = Path(__file__).parents[3]
    if not (root / "benchmarks").is_dir():
        raise NdstackError(
            "benchmarks are in the repository, not in the installed package; run it from there"
        )
    results = root / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    sys.path.insert(0, str(root))
    for own, module in modules.items():
        if name in ("all", own):
            print(f"measuring {own}; leave the machine alone", file=sys.stderr)
            sys.argv = [module, "--json", str(results / f"{own}.json")]
            runpy.run_module(module, run_name="__main__")

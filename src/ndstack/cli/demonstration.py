"""Commands for a first impression and for speed: demo, compile, bench."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import command, resumable
from ndstack.cli.arguments import AsJson, OutFolder, complete_model
from ndstack.errors import NdstackError

BENCHMARKS = {
    "languages": "benchmarks.formal_languages",
    "stacks": "benchmarks.stacks",
    "deterministic": "benchmarks.deterministic_stacks",
    "training": "benchmarks.training",
    "text": "benchmarks.text",
}


@command("ndstack demo", "ndstack demo --quick --out /tmp/demo")
def demo(
    out: OutFolder = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Run the smallest version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a network with a stack and one without on one language, compare them, and show the stack.

    An interrupted demo resumes where it stopped.
    """
    from ndstack.demo import run_demo

    with resumable(), contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
        rows = run_demo(out, quick=quick)
    if as_json:
        print(json.dumps(rows))


@command("ndstack compile", "ndstack compile rns-2-3 sup-10", name="compile", former_name="warmup")
def compile_kernels(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models such as rns-2-3; by default, one of each kind.",
            autocompletion=complete_model,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels of models in advance, for an image or a cluster. This takes minutes, once.

    The environment variable NUMBA_CACHE_DIR names the folder in which they are kept.
    """
    from ndstack.warmup import warm_up

    done = warm_up(models)
    if as_json:
        print(json.dumps(done.summary()))
        return
    kept = f"kept in {done.folder}" if done.folder else "not kept, because no folder is writable"
    print(
        f"compiled {len(done.compiled)} kernels in {done.seconds:.0f} s for {', '.join(done.models)}; {kept}"
    )


@command("ndstack bench", "ndstack bench stacks --json")
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="languages, stacks, deterministic, training, text or all.",
            autocompletion=lambda incomplete: [
                one for one in ("all", *BENCHMARKS) if one.startswith(incomplete)
            ],
        ),
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """Measure speed against named baselines, and write JSON to benchmarks/results. This takes minutes."""
    import runpy

    if name != "all" and name not in BENCHMARKS:
        raise NdstackError(f"there is no benchmark {name!r}; expected all, {', '.join(BENCHMARKS)}")
    root = Path(__file__).parents[3]
    if not (root / "benchmarks").is_dir():
        raise NdstackError(
            "benchmarks are in the repository, not in the installed package; run the command there"
        )
    results = root / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    sys.path.insert(0, str(root))
    measured = {}
    for own, module in BENCHMARKS.items():
        if name in ("all", own):
            print(f"measuring {own}; other programs would disturb the measurement", file=sys.stderr)
            file = results / f"{own}.json"
            sys.argv = [module, "--json", str(file)]
            with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
                runpy.run_module(module, run_name="__main__")
            measured[own] = json.loads(file.read_text(encoding="utf-8"))
    if as_json:
        print(json.dumps(measured))

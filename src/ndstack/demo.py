"""`ndstack demo`: a walk through what is here, small enough to watch."""

import json
import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ndstack.automata import Lang, best_run, run_svg, stack_wfa_svg, unmarked_reversal_pda
from ndstack.automata.pda import show_stack
from ndstack.languages import get
from ndstack.semirings import COUNTING, REAL


def run_demo(out: Path, *, quick: bool) -> None:
    """Sample, weigh, recognise, draw; pictures and figures go to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    console = Console(markup=False, highlight=False, emoji=False)
    samples = _show_samples(console, count=1 if quick else 3)
    _show_recognition(console, "0110", out)
    (out / "samples.json").write_text(json.dumps(samples, indent=2) + "\n", encoding="utf-8")
    console.print(f"\nPictures and figures are in {out}/")


def _show_samples(console: Console, count: int) -> list[dict[str, object]]:
    console.print("Strings of length 20 or so, with their exact probability given the length:\n")
    table = Table("language", "string", "log p", "p", box=None, header_style="bold")
    rows: list[dict[str, object]] = []
    rng = np.random.default_rng(1)
    for name in ("marked-reversal", "dyck", "hardest-cfl", "marked-copy"):
        language = get(name)
        length = language.lengths(20, 24)[0]
        for _ in range(count):
            word = language.sample(length, rng)
            log_p = language.log_probability(word)
            table.add_row(name, str(word), f"{log_p:.3f}", f"{math.exp(log_p):.2e}")
            rows.append({"language": name, "string": word, "log_probability": log_p})
    console.print(table)
    return rows


def _show_recognition(console: Console, word: str, out: Path) -> None:
    pda = unmarked_reversal_pda()
    lang = Lang(pda, COUNTING)
    console.print(
        f"\nA nondeterministic pushdown automaton for w reversed(w) reads {word}, all runs at once:\n"
    )
    table = Table("t", "read", "stacks (state: bottom ... top)", box=None, header_style="bold")
    for t, symbol in enumerate(["", *word]):
        if symbol:
            lang.read(symbol)
        stacks = lang.stack_wfa().stacks()
        table.add_row(str(t), symbol, "    ".join(f"{q}: {show_stack(s)}" for q, s in stacks))
    console.print(table)
    verdict = "accepted" if lang.stringsum() else "rejected"
    console.print(f"\n{word} is {verdict}. The accepting run:")
    for transition in best_run(pda, word).transitions:
        console.print(f"  {transition}")
    (out / "stack-wfa.svg").write_text(stack_wfa_svg(lang.stack_wfa()), encoding="utf-8")
    (out / "lang-run.svg").write_text(run_svg(Lang(pda, REAL, word)), encoding="utf-8")

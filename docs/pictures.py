"""Draws the pictures of docs/ and the README again: `make docs`."""

from pathlib import Path

from ndstack.analysis import trace
from ndstack.analysis.figures import draw_stacks, draw_wfa
from ndstack.automata import Lang, run_svg, unmarked_reversal_pda
from ndstack.nn import recognizer
from ndstack.nn.examples import SENTENCE, english
from ndstack.semirings import REAL

HERE = Path(__file__).parent / "pictures"


def main() -> None:
    """Write every picture."""
    HERE.mkdir(exist_ok=True)
    lang = Lang(unmarked_reversal_pda(), REAL, "0110")
    (HERE / "lang-0110.svg").write_text(run_svg(lang), encoding="utf-8")
    runs = trace(recognizer(english()), SENTENCE).stack().runs
    draw_stacks(runs.accepting().best()).save(HERE / "english-stacks.svg")
    draw_wfa(runs.at(5)).save(HERE / "english-wfa.svg")


if __name__ == "__main__":
    main()

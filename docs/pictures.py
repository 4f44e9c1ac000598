"""Draws the pictures of docs/ and the README again: `make docs`."""

from pathlib import Path

from ndstack.automata import Lang, run_svg, unmarked_reversal_pda
from ndstack.semirings import REAL

HERE = Path(__file__).parent / "pictures"


def main() -> None:
    """Write every picture."""
    HERE.mkdir(exist_ok=True)
    lang = Lang(unmarked_reversal_pda(), REAL, "0110")
    (HERE / "lang-0110.svg").write_text(run_svg(lang), encoding="utf-8")


if __name__ == "__main__":
    main()

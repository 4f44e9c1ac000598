"""Lang's algorithm, step by step, on an ambiguous grammar.

In  S -> 'i' S 'e' S | 'i' S | 'x'  (if, else, a statement) it is not said to which `i` an `e` belongs. The
grammar becomes a pushdown automaton, and the automaton has several runs on a string. Lang's algorithm
follows all of them at once: after each symbol it has one finite automaton, the stack WFA, whose paths are
all the stacks there are at this time. Here every run counts 1, so that the weight of a path is the number of
runs that end with this stack; brute force, which follows the runs one by one, has to find the same numbers.

    python examples/watching_langs_algorithm.py
"""

from collections import Counter
from pathlib import Path
from typing import Any

from ndstack.automata import Lang, RestrictedPDA, accepting_runs, run_svg, runs, to_restricted
from ndstack.automata.pda import show_stack
from ndstack.grammars import CFG
from ndstack.semirings import COUNTING

GRAMMAR = CFG.fromstring("S -> 'i' S 'e' S | 'i' S | 'x'")
WORD = "iixex"


def watch(pda: RestrictedPDA, word: str) -> Lang[int]:
    """Read a word symbol by symbol and print all stacks after each of them."""
    lang = Lang(pda, COUNTING)
    for position, symbol in enumerate(word, 1):
        lang.read(symbol)
        wfa = lang.stack_wfa()
        stacks = wfa.stacks()
        one_by_one = Counter((run.last.state, run.last.stack) for run in runs(pda, word[:position]))
        assert stacks == one_by_one, "Lang's algorithm and brute force must agree"
        count, edges = sum(stacks.values()), len(wfa.trimmed().edges)
        print(f"\nAfter {word[:position]}: {count} runs; {edges} edges of the stack WFA hold their stacks")
        for (state, stack), number in sorted(stacks.items()):
            print(f"  {number} in state {state:6} with stack {show_stack(stack)}")
    return lang


def compare(pda: RestrictedPDA, depths: range) -> list[dict[str, Any]]:
    """Count accepting runs on longer and longer words, in both ways."""
    rows = []
    for depth in depths:
        word = "i" * (2 * depth) + "x" + "ex" * depth  # twice as many ifs as elses
        lang = Lang(pda, COUNTING, word)
        brute = sum(1 for _ in accepting_runs(pda, word))
        edges = len(lang.stack_wfa().trimmed().edges)
        rows.append({"word": word, "lang": lang.stringsum(), "brute": brute, "edges": edges})
    return rows


def main(out: Path = Path("langs-algorithm.svg"), depths: range = range(1, 5)) -> dict[str, Any]:
    """Watch a short word, draw its stack WFAs, and count the runs on longer words."""
    pda = to_restricted(GRAMMAR)
    print(f"The automaton: {len(pda.states)} states, {len(pda.stack_alphabet)} stack symbols")
    lang = watch(pda, WORD)
    print(f"\n{WORD} has {lang.stringsum()} accepting runs: the e belongs to the first i or to the second.")
    out.write_text(run_svg(lang), encoding="utf-8")
    print(f"The stack WFA after every symbol is drawn in {out}.\n")

    rows = compare(pda, depths)
    print(f"{'word':24}{'accepting runs':>16}{'by brute force':>16}{'edges':>8}")
    for row in rows:
        print(f"{row['word']:24}{row['lang']:16}{row['brute']:16}{row['edges']:8}")
    print("The runs multiply; the stack WFA that holds all their stacks grows slowly.")
    return {"pda": pda, "word": WORD, "runs": lang.stringsum(), "rows": rows}


if __name__ == "__main__":
    main()

"""Commands about grammars and automata: grammar, automaton, recognize."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ndstack.cli.app import command
from ndstack.cli.arguments import (
    AsJson,
    GrammarFile,
    OutSvg,
    find_language,
    parse_word,
    plain_grammar,
    read_grammar_file,
    strings,
)
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from ndstack.automata import RestrictedPDA

Form = Literal["same", "proper", "greibach", "2-greibach"]


@command(
    "ndstack recognize dyck '([])' '([)]'",
    "ndstack recognize --grammar anbnc.cfg --grammar abncn.cfg aabbcc aabbc",
)
def recognize(
    words: Annotated[list[str], strings("The strings to read.")],
    grammar: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A grammar file; several mean the intersection of their languages."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile grammars into a network (section 8.3) that accepts or rejects strings, without training.

    The exit code is 1 if any string is rejected.
    """
    from ndstack.nn.proofs.recognition import recognize_lines

    sources = (
        [find_language(None, file) for file in grammar] if grammar else [find_language(words.pop(0), None)]
    )
    if not words:
        raise NdstackError("no strings given; write them at the end: ndstack recognize dyck '()' '(]'")
    all_accepted = True
    for text, accepted in recognize_lines([plain_grammar(source) for source in sources], words):
        all_accepted = all_accepted and accepted
        print(json.dumps({"string": text, "accepted": accepted}) if as_json
              else f"{'accept' if accepted else 'reject'}\t{text}")  # fmt: skip
    if not all_accepted:
        raise typer.Exit(1)


@command(
    "ndstack automaton unmarked-reversal 0110 --out stacks.svg",
    "ndstack automaton --grammar my.cfg 'the cat sleeps' --transitions",
)
def automaton(
    words: Annotated[list[str], strings("The string to read.")],
    grammar: GrammarFile = None,
    out: OutSvg = None,
    transitions: Annotated[bool, typer.Option("--transitions", help="Print the transitions.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile a grammar into a restricted pushdown automaton and show how it reads a string.

    With --out, the stack WFA is drawn after every symbol. The exit code is 1 if the string is rejected.
    """
    from ndstack.automata import Lang, best_run, run_svg, to_restricted
    from ndstack.automata.pda import show_stack
    from ndstack.files import replace
    from ndstack.semirings import COUNTING

    source = find_language(None if grammar else words.pop(0), grammar)
    if len(words) != 1:
        raise NdstackError(f"expected one string to read, got {len(words)}: ndstack automaton dyck '()'")
    word = parse_word(source, words[0])
    pda = to_restricted(plain_grammar(source))
    lang = Lang(pda, COUNTING, word)
    if out is not None:
        if out.suffix.lower() != ".svg":
            raise NdstackError(f"{out} cannot be drawn, expected a name that ends in .svg")
        out.parent.mkdir(parents=True, exist_ok=True)
        replace(out, run_svg(lang))
    runs = lang.stringsum()
    one = best_run(pda, word).configurations if runs else ()
    if as_json:
        row = {"string": words[0], "accepted": bool(runs), "runs": runs, "states": len(pda.states)}
        row |= {"stack_symbols": len(pda.stack_alphabet), "transitions": [str(t) for t in pda.transitions]}
        row |= {"run": [{"state": at.state, "stack": at.stack} for at in one]}
        print(json.dumps(row | ({} if out is None else {"picture": str(out)})))
    else:
        _print_automaton(pda, out, transitions)
        print(
            f"accepted by {runs} run{'s' * (runs != 1)} of this automaton; one of them:"
            if runs
            else "rejected: no run ends in an accept state with the bottom symbol on top"
        )
        spaced = any(len(symbol) > 1 for symbol in pda.stack_alphabet)
        for before, symbol in zip(one, [*word, ""], strict=False):
            print(f"  {before.state:8} {show_stack(before.stack, spaced):24} {symbol}".rstrip())
    if not runs:
        raise typer.Exit(1)


def _print_automaton(pda: "RestrictedPDA", picture: Path | None, transitions: bool) -> None:
    if picture is not None:
        print(f"stacks drawn in {picture}")
    print(
        f"restricted PDA: {len(pda.states)} states, {len(pda.stack_alphabet)} stack symbols, "
        f"{len(pda.transitions)} transitions"
    )
    if transitions:
        print("\n".join(f"  {t}" for t in pda.transitions))


@command("ndstack grammar my.cfg", "ndstack grammar my.cfg --to 2-greibach")
def grammar(
    file: Annotated[Path, typer.Argument(help="A grammar in NLTK's notation.")],
    to: Annotated[Form, typer.Option(help="The form; proper has no ε-rules and unary rules.")] = "same",
    as_json: AsJson = False,
) -> None:
    """Check a grammar file and print it, optionally in a normal form."""
    from ndstack.grammars import CFG, greibach, proper, two_greibach
    from ndstack.grammars.grammar import show_symbol

    def same(grammar: CFG) -> CFG:
        return grammar

    forms = {"same": same, "proper": proper, "greibach": greibach, "2-greibach": two_greibach}
    made = forms[to](read_grammar_file(file))
    if not as_json:
        print(made)
        return
    rules = [
        {"left": str(rule.left), "right": [show_symbol(symbol) for symbol in rule.right]}
        | ({"weight": rule.weight} if made.weighted else {})
        for rule in made.rules
    ]
    print(json.dumps({"start": str(made.start), "rules": rules}))

"""Commands about grammars and automata: grammar, automaton, recognize."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ndstack.cli.app import app
from ndstack.cli.arguments import AsJson, GrammarFile, find_language, parse_word, plain_grammar
from ndstack.errors import NdstackError

PANEL = "Languages and automata"


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\nndstack recognize dyck '([])' '([)]'\n\n"
    "ndstack recognize --grammar anbnc.cfg --grammar abncn.cfg aabbcc aabbc",
)
def recognize(
    words: Annotated[list[str], typer.Argument(metavar="[LANGUAGE] STRING...", help="Strings to read.")],
    grammar: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A grammar file; several for the intersection of their languages."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile grammars into a network (section 8.3) and let it accept or reject strings.

    Nothing is trained. The exit code is 1 if any string is rejected.
    """
    from ndstack.nn.recognition import recognize_lines

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


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\nndstack automaton unmarked-reversal 0110 --draw stacks.svg\n\n"
    "ndstack automaton --grammar my.cfg 'the cat sleeps' --transitions",
)
def automaton(
    words: Annotated[list[str], typer.Argument(metavar="[LANGUAGE] STRING", help="A string to read.")],
    grammar: GrammarFile = None,
    draw: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the stack WFA after every symbol.")
    ] = None,
    transitions: Annotated[bool, typer.Option("--transitions", help="Print the transitions.")] = False,
) -> None:
    """Compile a grammar into a restricted pushdown automaton and follow it through a string."""
    from ndstack import files
    from ndstack.automata import Lang, best_run, run_svg, to_restricted
    from ndstack.automata.pda import show_stack
    from ndstack.semirings import COUNTING

    source = find_language(None if grammar else words.pop(0), grammar)
    if len(words) != 1:
        raise NdstackError(f"expected one string to read, got {len(words)}: ndstack automaton dyck '()'")
    word = parse_word(source, words[0])
    pda = to_restricted(plain_grammar(source))
    lang = Lang(pda, COUNTING, word)
    if draw is not None:
        files.replace(draw, run_svg(lang).encode())
        print(f"stacks drawn in {draw}")
    print(
        f"restricted PDA: {len(pda.states)} states, {len(pda.stack_alphabet)} stack symbols, "
        f"{len(pda.transitions)} transitions"
    )
    if transitions:
        print("\n".join(f"  {t}" for t in pda.transitions))
    runs = lang.stringsum()
    if not runs:
        print("rejected: no run ends in an accept state with the bottom symbol on top")
        raise typer.Exit(1)
    print(f"accepted by {runs} run{'s' * (runs != 1)} of this automaton; one of them:")
    for before, symbol in zip(best_run(pda, word).configurations, [*word, ""], strict=True):
        print(f"  {before.state:8} {show_stack(before.stack):24} {symbol}".rstrip())


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\nndstack grammar my.cfg\n\nndstack grammar my.cfg --to 2-greibach",
)
def grammar(
    file: Annotated[Path, typer.Argument(help="A grammar in NLTK's notation.")],
    to: Annotated[
        str, typer.Option(help="same, proper (no ε- or unary rules), greibach or 2-greibach.")
    ] = "same",
) -> None:
    """Check a grammar file and print it, on request in a normal form."""
    from ndstack.grammars import CFG, greibach, proper, read_grammar, two_greibach

    def same(grammar: CFG) -> CFG:
        return grammar

    forms = {"same": same, "proper": proper, "greibach": greibach, "2-greibach": two_greibach}
    if to not in forms:
        raise NdstackError(f"--to {to} is not a form of grammar; expected one of {', '.join(forms)}")
    print(forms[to](read_grammar(file)))

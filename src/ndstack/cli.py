"""The `ndstack` command. Each subcommand is a few lines that call the library and show the result.

Heavy imports happen inside the commands, so that `--help` is quick.
"""

import io
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from ndstack import __version__
from ndstack.errors import NdstackError

if TYPE_CHECKING:
    from nltk import Tree

    from ndstack.grammars import CFG
    from ndstack.languages import Language

app = typer.Typer(
    name="ndstack",
    help="Neural networks with nondeterministic stacks, and the theory that goes with them.",
    epilog=(
        "Examples:\n\n"
        "ndstack languages\n\n"
        "ndstack sample dyck --lengths 10:20 --count 5\n\n"
        "ndstack recognize dyck '([])' '([)]'\n\n"
        "ndstack automaton unmarked-reversal 0110 --draw stacks.svg\n\n"
        "ndstack grammar my.cfg --to greibach\n\n"
        "ndstack demo\n\n"
        "`ndstack COMMAND --help` has examples for each command. Exit codes: 0 done, 1 the answer is no, "
        "2 wrong input, 130 interrupted."
    ),
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

MOST_LENGTH = 20_000

LanguageName = Annotated[
    str | None,
    typer.Argument(metavar="[LANGUAGE]", help="A name such as `dyck` or `marked-reversal(k=40)`."),
]
GrammarFile = Annotated[
    Path | None, typer.Option("--grammar", metavar="FILE", help="A grammar file instead of a language.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random generator.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Run the command line; wrong input ends in one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # ⊥ and ε also on terminals that cannot show them
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
    except (NdstackError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        _fail(" ".join(message.split()))
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 1:
            raise
        # What reads our output, such as `head`, has had enough; typer says so by exit code 1.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError:
        _fail("this needs more memory than there is; ask for something smaller")
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        print("ndstack: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    print(f"ndstack: error: {message}", file=sys.stderr)
    sys.exit(2)


def _show_version(value: bool) -> None:
    if value:
        print(f"ndstack {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural networks with nondeterministic stacks, and the theory that goes with them."""


@app.command(epilog="Example: ndstack languages --json")
def languages(as_json: AsJson = False) -> None:
    """List the formal languages with a sample string each."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from ndstack.languages import DESCRIPTIONS, get

    rows = []
    for name, description in DESCRIPTIONS.items():
        language = get(name)
        word = language.sample(language.lengths(12, 24)[0], np.random.default_rng(1))
        rows.append({"name": name, "strings": description, "sample": "".join(word)})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("strings")
    table.add_column("a sample", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(table)
    console.print("All but hardest-cfl and count-3 also for k symbols, as in marked-reversal(k=40).")


@app.command(
    epilog="Examples:\n\nndstack sample dyck --lengths 40:80 --count 10 --seed 1 --with-probability\n\n"
    "ndstack sample --grammar my.cfg --lengths 12 --tree"
)
def sample(
    language: LanguageName = None,
    grammar: GrammarFile = None,
    lengths: Annotated[str, typer.Option(help="A length, or a range such as 40:80.")] = "40:80",
    count: Annotated[int, typer.Option(min=0, help="How many strings.")] = 10,
    seed: Seed = 0,
    with_probability: Annotated[
        bool, typer.Option("--with-probability", help="Print log p(w | length), in nats, before each.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Print derivations (context-free languages).")] = False,
    as_json: AsJson = False,
) -> None:
    """Sample strings: a length uniformly from the non-empty ones, then a string of that length."""
    import numpy as np

    from ndstack.languages import ContextFreeLanguage

    source = _language(language, grammar)
    choices = _non_empty_lengths(source, lengths)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        length = choices[int(rng.random() * len(choices))]
        row: dict[str, object] = {}
        if tree:
            if not isinstance(source, ContextFreeLanguage):
                raise NdstackError(f"{source.name} is not context-free and has no trees; leave --tree out")
            derivation = source.table.sample_tree(length, rng)
            word, shown = source.word(derivation.leaves()), str(derivation)
            row["tree"] = _nested(derivation)
        else:
            word = source.sample(length, rng)
            shown = source.separator.join(word)
        log_p = source.log_probability(word) if with_probability or as_json else 0.0
        if as_json:
            print(json.dumps({"string": word, "log_probability": log_p, **row}))
        else:
            print(f"{log_p:.6f}\t{shown}" if with_probability else shown)


@app.command(
    epilog="Examples:\n\nndstack probability marked-reversal '01#10' '01#01'\n\n"
    "ndstack probability --grammar my.cfg 'the cat sleeps'"
)
def probability(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[LANGUAGE] STRING...", help="Symbols longer than a character: spaced, or tabbed."
        ),
    ],
    grammar: GrammarFile = None,
    as_json: AsJson = False,
) -> None:
    """Print log p(w | length) of strings, in nats; -inf for those outside the language."""
    name = None if grammar else words.pop(0)
    source = _language(name, grammar)
    if not words:
        raise NdstackError("no strings given; write them behind the language: ndstack probability dyck '()'")
    for text in words:
        value = source.log_probability(_parse_word(source, text))
        finite = value if math.isfinite(value) else None
        print(json.dumps({"string": text, "log_probability": finite}) if as_json else f"{value:.6f}\t{text}")


@app.command(
    epilog="Examples:\n\nndstack recognize dyck '([])' '([)]'\n\n"
    "ndstack recognize --grammar anbnc.cfg --grammar abncn.cfg aabbcc aabbc"
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

    sources = [_language(None, file) for file in grammar] if grammar else [_language(words.pop(0), None)]
    if not words:
        raise NdstackError("no strings given; write them at the end: ndstack recognize dyck '()' '(]'")
    all_accepted = True
    for text, accepted in recognize_lines([_plain_grammar(source) for source in sources], words):
        all_accepted = all_accepted and accepted
        print(json.dumps({"string": text, "accepted": accepted}) if as_json
              else f"{'accept' if accepted else 'reject'}\t{text}")  # fmt: skip
    if not all_accepted:
        raise typer.Exit(1)


@app.command(
    epilog="Examples:\n\nndstack automaton unmarked-reversal 0110 --draw stacks.svg\n\n"
    "ndstack automaton --grammar my.cfg 'the cat sleeps' --transitions"
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
    from ndstack.automata import Lang, best_run, run_svg, to_restricted
    from ndstack.automata.pda import show_stack
    from ndstack.semirings import COUNTING

    source = _language(None if grammar else words.pop(0), grammar)
    if len(words) != 1:
        raise NdstackError(f"expected one string to read, got {len(words)}: ndstack automaton dyck '()'")
    word = _parse_word(source, words[0])
    pda = to_restricted(_plain_grammar(source))
    lang = Lang(pda, COUNTING, word)
    if draw is not None:
        draw.write_text(run_svg(lang), encoding="utf-8")
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


@app.command(epilog="Examples:\n\nndstack grammar my.cfg\n\nndstack grammar my.cfg --to 2-greibach")
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


@app.command(epilog="Example: ndstack dataset dyck --out data/dyck --seed 1")
def dataset(
    language: LanguageName = None,
    grammar: GrammarFile = None,
    out: Annotated[Path, typer.Option(help="A new folder.")] = Path("data"),
    seed: Seed = 0,
    train: Annotated[int, typer.Option(min=0, help="Training strings.")] = 10_000,
    validation: Annotated[int, typer.Option(min=0, help="Validation strings.")] = 1_000,
    test_per_length: Annotated[int, typer.Option(min=0, help="Test strings for each length.")] = 100,
    lengths: Annotated[str, typer.Option(help="Training and validation lengths.")] = "40:80",
    test_lengths: Annotated[str, typer.Option(help="Test lengths.")] = "40:100",
    batch_size: Annotated[int, typer.Option(min=1, help="Strings of one length in a row.")] = 10,
) -> None:
    """Sample training, validation and test strings into a folder."""
    from ndstack.languages import Plan, make_dataset, write_dataset
    from ndstack.progress import progress_bar

    source = _language(language, grammar)
    plan = Plan(
        train=train,
        validation=validation,
        test_per_length=test_per_length,
        lengths=_parse_lengths(lengths),
        test_lengths=_parse_lengths(test_lengths),
        batch_size=batch_size,
    )
    total = train + validation + test_per_length * len(source.lengths(*plan.test_lengths))
    with progress_bar(f"sampling {source.name}", total) as advance:
        data = make_dataset(source, seed, plan, progress=advance)
    write_dataset(data, out)
    print(f"{out}: {train} training, {validation} validation, {len(data.test)} test strings of {source.name}")


@app.command(epilog="Examples:\n\nndstack bench\n\nndstack bench stacks")
def bench(
    name: Annotated[str, typer.Argument(help="languages, stacks, deterministic or all.")] = "all",
) -> None:
    """Measure speed against named baselines; tables here, JSON under benchmarks/results. Takes minutes."""
    import runpy

    modules = {
        "languages": "benchmarks.formal_languages",
        "stacks": "benchmarks.stacks",
        "deterministic": "benchmarks.deterministic_stacks",
    }
    if name != "all" and name not in modules:
        raise NdstackError(f"there is no benchmark {name!r}; expected all, {', '.join(modules)}")
    root = Path(__file__).parents[2]
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


@app.command(epilog="Example: ndstack demo --quick --out /tmp/demo")
def demo(
    out: Annotated[Path, typer.Option(help="Where the pictures go.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="The smallest version.")] = False,
) -> None:
    """Show in a minute what is here: strings, probabilities, an automaton, its stacks."""
    from ndstack.demo import run_demo

    run_demo(out, quick=quick)


def _language(name: str | None, grammar: Path | None) -> "Language":
    from ndstack.languages import from_grammar, get

    if (name is None) == (grammar is None):
        raise NdstackError("give either a LANGUAGE or --grammar FILE; `ndstack languages` lists the names")
    return get(name) if name is not None else from_grammar(grammar or Path(), name=str(grammar))


def _plain_grammar(language: "Language") -> "CFG":
    """The grammar of a context-free language, without weights."""
    from ndstack.grammars import CFG, Rule
    from ndstack.languages import ContextFreeLanguage

    if not isinstance(language, ContextFreeLanguage):
        raise NdstackError(f"{language.name} is not context-free and has no grammar to compile")
    grammar = language.grammar
    return CFG(tuple(Rule(rule.left, rule.right) for rule in grammar.rules), grammar.start)


def _parse_lengths(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    high = high if colon else low
    if not low.isdecimal() or not high.isdecimal() or int(low) > int(high):
        raise NdstackError(f"{text!r} is not a range of lengths; write 40:80, or 40 for one length")
    if int(high) > MOST_LENGTH:
        raise NdstackError(f"length {high} is more than {MOST_LENGTH:,}, the longest this command samples")
    return int(low), int(high)


def _non_empty_lengths(language: "Language", text: str) -> list[int]:
    low, high = _parse_lengths(text)
    found = language.lengths(low, high)
    if not found:
        from ndstack.grammars.lengths import no_strings

        raise NdstackError(no_strings(language.name, low, language.lengths(low - 20, high + 20)))
    return found


def _parse_word(language: "Language", text: str) -> str | tuple[str, ...]:
    """A string as typed: spaced or tabbed where symbols are longer than a character."""
    if not language.separator:
        return text
    symbols = tuple(text.split("\t") if "\t" in text else text.split())
    for symbol in symbols:
        if symbol not in language.alphabet:
            raise NdstackError(
                f"{symbol!r} is not a symbol of {language.name}; write symbols with spaces between them, "
                "or tabs if they have spaces themselves"
            )
    return symbols


def _nested(tree: "Tree") -> list[object]:
    """A tree as nested lists, the label first."""
    return [tree.label(), *(child if isinstance(child, str) else _nested(child) for child in tree)]

"""Arguments and options that several commands share, with one name, one meaning and one description."""

import logging
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ndstack.errors import NdstackError, warn

if TYPE_CHECKING:
    from ndstack.grammars import CFG
    from ndstack.languages import Language


def as_text(given: str | list[str] | None) -> str | list[str] | None:
    """Return words as typed, also in a locale other than UTF-8, in which Python has kept their bytes."""
    return [_decoded(word) for word in given] if isinstance(given, list) else given and _decoded(given)


def _decoded(word: str) -> str:
    try:
        word.encode()
    except UnicodeEncodeError:
        return os.fsencode(word).decode("utf-8", "replace")
    return word


def silence(quiet: bool) -> bool:
    """Suppress messages about kernels that are compiled."""
    if quiet:
        logging.getLogger("ndstack").setLevel(logging.ERROR)
    return quiet


def complete_language(incomplete: str) -> list[str]:
    """Return the names of languages that begin with these characters."""
    from ndstack.languages import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Return one name of each kind of model, if it begins with these characters."""
    from ndstack.model_names import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def complete_experiment(incomplete: str) -> list[str]:
    """Return the names of the dissertation's experiments that begin with these characters."""
    files = (resources.files("ndstack") / "experiments" / "dissertation").iterdir()
    names = ["list", *sorted(file.name.removesuffix(".toml") for file in files)]
    return [name for name in names if name.startswith(incomplete)]


def strings(about: str) -> object:
    """Return the argument of commands that take a language, or a grammar instead, and strings."""
    return typer.Argument(
        metavar="[LANGUAGE] STRING", help=about, autocompletion=complete_language, callback=as_text
    )


LanguageName = Annotated[
    str | None,
    typer.Argument(
        metavar="LANGUAGE",
        help="A name such as `dyck` or `marked-reversal(k=40)`.",
        autocompletion=complete_language,
    ),
]
GrammarFile = Annotated[
    Path | None, typer.Option("--grammar", metavar="FILE", help="A grammar file instead of a language.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", help="Such as lstm, sup-10, rns-2-3, tf+vrns-3-3-5.", autocompletion=complete_model
    ),
]
_LENGTHS = typer.Option("--lengths", metavar="LOW:HIGH", help="The lengths of strings, or one length.")
Lengths = Annotated[str, _LENGTHS]
LengthsIfGiven = Annotated[str | None, _LENGTHS]
Resume = Annotated[Path | None, typer.Option(metavar="RUN", help="Resume the run in this folder.")]

_SEED = typer.Option("--seed", min=0, max=2**63 - 1, help="The seed of all random numbers.")
Seed = Annotated[int, _SEED]
SeedIfGiven = Annotated[int | None, _SEED]

_FOLDER = typer.Option("--out", metavar="FOLDER", help="The folder where the results go.")
OutFolder = Annotated[Path, _FOLDER]
OutFolderIfGiven = Annotated[Path | None, _FOLDER]
_PICTURE = typer.Option("--out", metavar="FILE.svg", help="Where the picture goes (.svg, .png or .pdf).")
OutPicture = Annotated[Path, _PICTURE]
OutPictureIfGiven = Annotated[Path | None, _PICTURE]
OutSvg = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.svg", help="Where the picture goes (.svg only).")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show the result only.", callback=silence)]
Corpus = Annotated[
    Path | None, typer.Option("--corpus", metavar="FOLDER", help="What `ndstack text prepare` made.")
]
Split = Annotated[
    Literal["test", "validation", "train"], typer.Option("--split", help="Which part of the data.")
]

# The options of commands that make strings.
Count = Annotated[int, typer.Option("--count", min=1, help="The number of strings.")]
Prefix = Annotated[str, typer.Option("--prefix", help="The beginning of the strings.", callback=as_text)]
_LONGEST = typer.Option(
    "--max-length", min=1, help="The greatest number of symbols; longer strings are cut off."
)
MaxLength = Annotated[int, _LONGEST]
MaxLengthIfGiven = Annotated[int | None, _LONGEST]
Temperature = Annotated[float, typer.Option("--temperature", help="Below 1, likely symbols become likelier.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always choose the likeliest symbol.")]


def read_grammar_file(file: Path) -> "CFG":
    """Return the grammar in a file, with a warning if its probabilities do not sum to 1 over all strings."""
    from ndstack.grammars import PCFG, is_consistent, read_grammar, total_weight

    grammar = read_grammar(file)
    if isinstance(grammar, PCFG) and not is_consistent(grammar):
        warn(
            f"{file}: derivations end with probability {total_weight(grammar):.4g} only, "
            "the others never end; probabilities given a length are not affected, sums over all strings are"
        )
    return grammar


def find_language(name: str | None, grammar: Path | None) -> "Language":
    """Return the language of this name, or of this grammar file."""
    from ndstack.languages import from_grammar, get

    if (name is None) == (grammar is None):
        raise NdstackError("give either a LANGUAGE or --grammar FILE; `ndstack languages` lists the names")
    if grammar is not None:
        return from_grammar(read_grammar_file(grammar), name=str(grammar))
    return get(name or "")


def plain_grammar(language: "Language") -> "CFG":
    """Return the grammar of a context-free language, without weights."""
    from ndstack.grammars import CFG, Rule
    from ndstack.languages import ContextFreeLanguage

    if not isinstance(language, ContextFreeLanguage):
        raise NdstackError(f"{language.name} is not context-free and has no grammar to compile")
    grammar = language.grammar
    return CFG(tuple(Rule(rule.left, rule.right) for rule in grammar.rules), grammar.start)


def parse_lengths(text: str) -> tuple[int, int]:
    """Return the bounds of a range of lengths: `40:80`, or `40` for one length."""
    from ndstack.settings.data import LONGEST

    low, colon, high = text.partition(":")
    high = high if colon else low
    numbers = low.isdecimal() and high.isdecimal()
    if (numbers and len(low + high) < 100 and int(low) > int(high)) or not numbers:
        raise NdstackError(f"{text!r} is not a range of lengths; write 40:80, or 40 for one length")
    if len(low + high) >= 100 or int(high) > LONGEST:
        raise NdstackError(f"length {high} given, expected at most {LONGEST:,}")
    return int(low), int(high)


def non_empty_lengths(language: "Language", text: str) -> list[int]:
    """Return the lengths in a range as typed at which the language has strings."""
    low, high = parse_lengths(text)
    found = language.lengths(low, high)
    if not found:
        from ndstack.grammars.length_sampling import no_strings

        raise NdstackError(no_strings(language.name, low, language.lengths(low - 20, high + 20)))
    return found


def parse_word(language: "Language", text: str) -> str | tuple[str, ...]:
    """Return the symbols of a string as typed; spaces or tabs separate symbols of several characters."""
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

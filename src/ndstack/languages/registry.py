"""Languages by name: `dyck`, `marked-reversal(k=40)`, ..."""

import difflib
import re
from collections.abc import Callable

from ndstack.errors import LanguageError
from ndstack.languages.context_free import GRAMMARS, ContextFreeLanguage, hardest_cfl_grammar
from ndstack.languages.language import Language
from ndstack.languages.non_context_free import copying_language, count_3
from ndstack.languages.public_data import PUBLIC

DESCRIPTIONS: dict[str, str] = {
    "marked-reversal": "w # reversed w",
    "unmarked-reversal": "w reversed w",
    "padded-reversal": "w, one symbol many times, reversed w",
    "dyck": "balanced brackets of two kinds",
    "hardest-cfl": "as hard to parse as any context-free language",
    "count-3": "a^n b^n c^n",
    "marked-reverse-and-copy": "w # reversed w # w",
    "count-and-copy": "w #^n w with n = |w|",
    "marked-copy": "w # w",
    "unmarked-copy-different-alphabets": "w w', the copy in other symbols",
    "unmarked-reverse-and-copy": "w reversed w w",
    "unmarked-copy": "w w",
}
"""A description of each formal language by name, in the order of the dissertation."""
NAMES = tuple(DESCRIPTIONS)
"""The names of the formal languages, for `get`."""
DEFAULT_K = 2
MOST_SYMBOLS = 10_000

_FIXED: dict[str, Callable[[], Language]] = {
    "hardest-cfl": lambda: ContextFreeLanguage("hardest-cfl", hardest_cfl_grammar()),
    "count-3": count_3,
}


def get(name: str) -> Language:
    """Return the language called `name`.

    A number k of symbols (or kinds of brackets) may follow, as in `dyck(k=5)`. `dyck(public)` and
    `padded-reversal(public)` have the distribution of the dissertation's public data.
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(\s*(?:k\s*=\s*([^)\s]*)|(public))\s*\))?\s*", name)
    if match is None or match[1] not in DESCRIPTIONS:
        raise LanguageError(_unknown(name))
    base, k = match[1], match[2]
    if match[3]:
        return _public(base)
    if base in _FIXED:
        if k is not None:
            raise LanguageError(f"{base} has a fixed alphabet and takes no k; ask for {base!r}")
        return _FIXED[base]()
    number = _number(base, k)
    full = base if number == DEFAULT_K else f"{base}(k={number})"
    if base in GRAMMARS:
        return ContextFreeLanguage(full, GRAMMARS[base](number))
    language = copying_language(base, number)
    language.name = full
    return language


def _public(base: str) -> Language:
    if base not in PUBLIC:
        known = " and ".join(f"{name}(public)" for name in PUBLIC)
        raise LanguageError(f"{base} has no public version; there are {known}")
    return ContextFreeLanguage(f"{base}(public)", PUBLIC[base](DEFAULT_K))


def _number(base: str, text: str | None) -> int:
    if text is None:
        return DEFAULT_K
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MOST_SYMBOLS:
        raise LanguageError(
            f"k={text} is not a number of symbols; expected 1 to {MOST_SYMBOLS:,}, as in {base}(k=40)"
        )
    return int(text)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.split("(")[0].strip().lower(), NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "the languages are " + ", ".join(NAMES)
    return f"there is no language called {name!r}; {hint}"

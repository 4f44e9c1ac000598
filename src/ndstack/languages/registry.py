"""Languages by name: `dyck`, `marked-reversal(k=40)`, ..."""

import difflib
import inspect
import re
from collections.abc import Callable

from ndstack import register
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
register.language.reserve(NAMES)
DEFAULT_K = 2
MOST_SYMBOLS = 10_000

_FIXED: dict[str, Callable[[], Language]] = {
    "hardest-cfl": lambda: ContextFreeLanguage("hardest-cfl", hardest_cfl_grammar()),
    "count-3": count_3,
}


def get(name: str) -> Language:
    """Return the language called `name`.

    A number k of symbols (or kinds of brackets) may follow, as in `dyck(k=5)`. `dyck(public)` and
    `padded-reversal(public)` have the distribution of the dissertation's public data. Other names are
    those of registered languages (`ndstack.register`).
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(\s*(?:k\s*=\s*([^)\s]*)|(public))\s*\))?\s*", name)
    if match is None:
        raise LanguageError(_unknown(name))
    base, k = match[1], match[2]
    if base not in DESCRIPTIONS:
        return _registered(name, base, k)
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


def _registered(name: str, base: str, k: str | None) -> Language:
    """Return a registered language, with the name under which it was requested."""
    make = register.language.find(base)
    if make is None:
        raise LanguageError(_unknown(name))
    takes_k = "k" in inspect.signature(make).parameters
    if k is not None and not takes_k:
        raise LanguageError(f"{base} takes no k; ask for {base!r}")
    language = make(k=_number(base, k)) if takes_k else make()
    if not isinstance(language, Language):
        raise LanguageError(f"{base} was registered as a language, but it makes {language!r}")
    language.name = base if k is None else f"{base}(k={int(k)})"
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
    known = (*NAMES, *register.language.names)
    near = difflib.get_close_matches(name.split("(")[0].strip().lower(), known, n=1, cutoff=0.5)
    if near:
        return f"there is no language called {name!r}; did you mean {near[0]}?"
    return f"there is no language called {name!r}; there are {', '.join(known)}; {register.language.hint}"

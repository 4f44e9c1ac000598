"""The page as a static site: the answers about chosen strings are files, and no server is needed."""

import itertools
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from ndstack import files
from ndstack.analysis.explorer.answer import Json
from ndstack.analysis.explorer.catalogue import Catalogue
from ndstack.analysis.explorer.page_files import SCRIPTS, TYPES, asset
from ndstack.analysis.explorer.tour import STEPS
from ndstack.analysis.source import Source
from ndstack.errors import NdstackError
from ndstack.progress import Advance, no_progress

SAMPLES = 3
"""The number of strings that are sampled for each compiled grammar and each model without examples."""
ALL = 130
"""The largest number of short strings that are all included, for each model of the tour."""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'"
ANSWERS, MODELS = "answers", "catalogue.js"


def export(
    catalogue: Catalogue,
    folder: Path,
    strings: Mapping[str, Iterable[str]] | None = None,
    *,
    progress: Advance = no_progress,
) -> int:
    """Write the page and the answers about chosen strings to a folder, and return the number of strings.

    Scripts, styles and answers are files beside the page, so it works on any static host and from a disk.

    Args:
        catalogue: the models.
        folder: the folder, which must be new or empty, or contain an earlier export.
        strings: more strings, as typed, for some models by their identifiers.
        progress: a function that is called with 1 after each model.
    """
    _check(folder)
    chosen = {one: list((strings or {}).get(one, ())) for one in catalogue.identifiers()}
    if unknown := sorted((strings or {}).keys() - chosen.keys()):
        catalogue.source(unknown[0])  # says what there is
    models: list[Json] = []
    answers: list[str] = []
    for identifier, own in chosen.items():
        listed, complete = _strings(catalogue, identifier, own)
        found: dict[str, int] = {}
        members: list[str] = []
        more = [*_samples(catalogue, identifier, listed), *_short_strings(catalogue, identifier, complete)]
        for text in [*listed, *more]:
            view = catalogue.look(identifier, text)
            if (typed := str(view["text"])) not in found:
                found[typed] = len(answers)
                answers.append(_as_script(len(answers), view))
                if _is_member(catalogue.source(identifier), view):
                    members.append(typed)
        described = {**catalogue.describe(identifier), "examples": listed or more}
        models.append({**described, "strings": found, "members": members, "complete": complete})
        progress(1)
    shutil.rmtree(folder / ANSWERS, ignore_errors=True)  # of an earlier export
    (folder / ANSWERS).mkdir(parents=True)
    for number, answer in enumerate(answers):
        files.replace(folder / ANSWERS / f"{number}.js", answer)
    _write_page(folder, {"models": models, "tour": catalogue.tour()})
    return len(answers)


def _check(folder: Path) -> None:
    """Raise an error if a site cannot be written to the folder."""
    if folder.exists() and not folder.is_dir():
        raise NdstackError(f"{folder} is a file, expected a folder for the site")
    if folder.exists() and any(folder.iterdir()) and not (folder / MODELS).exists():
        raise NdstackError(f"{folder} is not empty, expected a new folder or one with an earlier export")


def _strings(catalogue: Catalogue, identifier: str, own: list[str]) -> tuple[list[str], int]:
    """Return the strings that the page offers, and up to which length there are all others."""
    examples = catalogue.describe(identifier)["examples"]
    assert isinstance(examples, list)
    toured = [step.string for step in STEPS if step.model == identifier]
    listed = list(dict.fromkeys([*own, *toured, *examples]))
    size, complete = len(catalogue.source(identifier).alphabet), 0
    if toured:
        while sum(size**length for length in range(complete + 2)) <= ALL:
            complete += 1
    return listed, complete


def _samples(catalogue: Catalogue, identifier: str, listed: list[str]) -> list[str]:
    """Return strings for **Sample**, besides those listed: a training run has examples of its language."""
    if listed and catalogue.source(identifier).run is not None:
        return []
    try:
        return [catalogue.sample(identifier, None, seed) for seed in range(SAMPLES)]
    except NdstackError:  # there is nothing to sample from
        if not listed:
            raise
        return []


def _is_member(source: Source, view: Json) -> bool:
    """Return whether a string is in the language or, if that is unknown, may be."""
    if view["accepted"] is not None:
        return bool(view["accepted"])
    return source.language is None or source.split(str(view["text"])) in source.language


def _short_strings(catalogue: Catalogue, identifier: str, complete: int) -> Iterable[str]:
    """Yield all strings up to a length, if there is one."""
    source = catalogue.source(identifier)
    for length in range(complete + 1 if complete else 0):
        yield from (source.join(word) for word in itertools.product(source.alphabet, repeat=length))


def _as_script(number: int, view: Json) -> str:
    """Return an answer as a script, because a page on a disk may load scripts, but not data."""
    data = {name: part for name, part in view.items() if name != "model"}
    return f"answerIs({number},{json.dumps(data, separators=(',', ':'))});\n"


def _write_page(folder: Path, published: Json) -> None:
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    page = asset("index.html").replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}')
    first = f'<script src="{SCRIPTS[0]}"></script>'
    page = page.replace(first, f'<script src="{MODELS}"></script>\n{first}')
    files.replace(folder / "index.html", page)
    for name in TYPES:
        files.replace(folder / name, asset(name))
    files.replace(folder / MODELS, f"const published = {json.dumps(published, separators=(',', ':'))};\n")

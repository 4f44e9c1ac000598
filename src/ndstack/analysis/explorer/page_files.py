"""The files of the page, and a saved page with one answer in it, as a single file that works by itself."""

import base64
import functools
import hashlib
import json
from importlib.resources import files

from ndstack.analysis.explorer.answer import Json

SCRIPTS = (
    "core.js",
    "sources.js",
    "tour.js",
    "notes.js",
    "timeline.js",
    "run.js",
    "wfa.js",
    "stacks.js",
    "bars.js",
    "tree.js",
    "app.js",
)
TYPES = {"style.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
"""The files of the page besides index.html; nothing else is served."""


@functools.cache
def asset(name: str) -> str:
    """Return the text of one of the page's files."""
    return (files("ndstack.analysis.explorer") / "assets" / name).read_text(encoding="utf-8")


def saved_page(view: Json, place: dict[str, int]) -> str:
    """Return the page with one answer in it, as a single file that loads nothing else.

    Args:
        view: the answer, from `ndstack.analysis.explorer.answer`.
        place: what the page shows first: the time `t`, the number of the `stack`, the number of the `run`.
    """
    page = asset("index.html")
    page = page.replace('<link rel="stylesheet" href="style.css">', f"<style>\n{asset('style.css')}</style>")
    hashes = []
    for name in SCRIPTS:
        script = f"\n{asset(name)}"
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        hashes.append(f"'sha256-{digest}'")
        page = page.replace(f'<script src="{name}"></script>', f"<script>{script}</script>")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"script-src {' '.join(hashes)}"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    data = json.dumps({"view": view, "place": place}, separators=(",", ":")).replace("<", "\\u003c")
    inside = f'{meta}\n<script type="application/json" id="saved">{data}</script>'
    return page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{inside}')

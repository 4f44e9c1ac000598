"""The kinds of models (`ndstack.nn.models`), where completion in a shell need not wait for torch."""

import re

NAMES = (
    "lstm",
    "strat-20",
    "sup-10",
    "sup-h",
    "sup-3-3-3",
    "ns-2-3",
    "ns+s-2-3",
    "ns+u-2-3",
    "rns-2-3",
    "vrns-2-3-3",
    "tf",
    "tf+sup-32",
    "tf+vrns-3-3-5",
)
"""One name of every kind; the numbers may be others."""

_KINDS = {
    "lstm": "LSTM",
    "strat": "Strat.",
    "sup": "Sup.",
    "ns": "NS",
    "ns+s": "NS+S",
    "ns+u": "NS+U",
    "rns": "RNS",
    "vrns": "VRNS",
    "tf": "Trans.",
    "tf+sup": "Trans. + Sup.",
    "tf+vrns": "Trans. + VRNS",
}
_OLD = "NS+S+U"
"""The name of the RNS in chapter 6."""


def label(name: str) -> str:
    """Return the label of a model in figures: "RNS 2-3" for rns-2-3; other names are returned as they are.

    Chapter 6 calls the RNS NS+S+U; here it has one name.
    """
    kind, _, sizes = name.partition("-")
    if kind in _KINDS and re.fullmatch(r"(\d+(-\d+)*|h)?", sizes):
        return f"{_KINDS[kind]} {sizes}".strip()
    return name.replace(_OLD, _KINDS["rns"])


def family(label: str) -> str | None:
    """Return the kind of a model by its label: "RNS" for "RNS 2-3"; None if it is not the label of one."""
    found = [kind for kind in _KINDS.values() if re.match(rf"{re.escape(kind)}(?![\w+.]| \+)", label)]
    return max(found, key=len, default=None)

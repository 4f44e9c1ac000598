"""The kinds of models (`ndstack.nn.models`), where completion in a shell need not wait for torch."""

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

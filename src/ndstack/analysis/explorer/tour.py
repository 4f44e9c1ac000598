"""The guided tour of the page: six steps, each of which shows one part of the page on one string."""

from dataclasses import asdict, dataclass
from typing import Literal

from ndstack.analysis.explorer.answer import Json

Part = Literal["Best run", "Actions", "stacks-card", "tree-card", "question"]
"""The part of the page that a step is about: a band over time, or the identifier of an element."""

PALINDROMES = "palindromes"


@dataclass(frozen=True)
class Step:
    """A step of the tour.

    Attributes:
        title: its title.
        text: what it explains; words between pairs of asterisks are emphasised.
        model: the identifier of the model that reads.
        string: the string that it reads.
        t: the time that is shown.
        part: the part of the page that is highlighted.
        play: whether the step begins at time 0 and has a button that lets time pass.
        published: what is added to the text on a page that has no server.
    """

    title: str
    text: str
    model: str
    string: str
    t: int
    part: Part
    play: bool = False
    published: str = ""


STEPS = (
    Step(
        "What a stack is",
        "This model accepts strings that read the same from both ends. It has not learned to: it is "
        "compiled from a grammar, so that each of its moves has a meaning. Its memory is a **stack**: it "
        "can push a symbol, replace the top, or pop it, and it sees nothing below the top. In **Best "
        "run**, a block is a symbol on the stack, from its push to its pop. The first half of abba is "
        "pushed; in the second half, each symbol that is read is compared with the top, which is popped. "
        "At the end only the bottom ⊥ is left.",
        PALINDROMES,
        "abba",
        4,
        "Best run",
    ),
    Step(
        "What forking means",
        "After ab, nobody can say whether the middle is here. So the model **forks** and does everything "
        "at once: the upper row has the stacks before b is read, the lower row those after it, and the "
        "lines are runs. The percentages are shares among the runs still alive; when runs die, the others "
        "share out their part. A run in state q0 is still in the first half. A run in state loop has "
        "guessed that the second half has begun, and may only pop. State trap begins beside q0 at the "
        "first symbol and stays forever: it accepts nothing, but keeps one run alive on every string, so "
        "that the network always has something to read.",
        PALINDROMES,
        "abba",
        2,
        "stacks-card",
    ),
    Step(
        "Watch it guess the middle",
        "Press **Play**, as often as you like; it reads abaaba. At each symbol one run stays in q0, and "
        "others leave it for loop: one more guess that the middle is here, after this symbol (push, a "
        "solid line) or at it (replace, a dashed line). A run in loop survives only as long as the symbol "
        "that is read equals the top of its stack; then it pops (a dotted line). Where they differ, it "
        "disappears: wrong guesses die out by themselves, and nobody has to tell the model where the "
        "middle is.",
        PALINDROMES,
        "abaaba",
        6,
        "stacks-card",
        play=True,
    ),
    Step(
        "Where the two halves meet",
        "**Actions** shows what the runs that accept have done at each step: push, then pop. The column "
        "where push ends and pop begins is the middle of the string, where the pyramid of **Best run** "
        "has its top; in a string of odd length, the symbol in the middle has a column of its own, "
        "replace. Of all runs at the end, only those in state loop with the bare bottom ⊥ accept: their "
        "guess was right, and they have popped all that they pushed. Only they count here, so one of six "
        "stacks, with a share of 16.7% among all runs, can have probability 1 among those that accept.",
        PALINDROMES,
        "abaaba",
        6,
        "Actions",
    ),
    Step(
        "The parse",
        "A run is a parse. In **Best parse**, a node is a place on the stack. Its first leaf was read "
        "when the symbol was pushed, and its last leaf when it was popped, so the two belong together, "
        "and whatever was read between them hangs below. From the outside in: the first symbol and the "
        "last, the second and the last but one, and so on to the middle. The model found it by trying all "
        "middles, at a cost cubic in the length.",
        PALINDROMES,
        "abbaabba",
        8,
        "tree-card",
    ),
    Step(
        "Try your own",
        "Type a string of a and b, and move the slider or press the arrow keys. Is the middle found, and "
        "what happens if the string is not a palindrome? Then choose another **Model**: networks that "
        "have learned their language from examples, such as rns-2-3-on-unmarked-reversal, which has "
        "learned to find the middle, and grammars that were compiled into networks, such as english with "
        "its ambiguous sentence. Training gives states and stack symbols their meaning, so they have no "
        "names but numbers: 1 and 2 on such a stack are not symbols of the string. The other cards show "
        "**Attention** (who pushed what is on top), **Weights** (what the network offers), **Readings** "
        "(what it sees), the **Stack WFA** (all stacks in one graph) and **Next symbol** (what a trained "
        "network expects). Hovering shows numbers.",
        PALINDROMES,
        "aabbaa",
        3,
        "question",
        published=" This page has no server, so it can show only what was computed in advance: here, all "
        "strings of up to 6 symbols and a few longer ones; for other models, the strings below the field. "
        "For any other string a model has to read it, which **ndstack explore** does on your machine.",
    ),
)
"""The steps, in their order."""


def as_json() -> list[Json]:
    """Return the steps, for the page."""
    return [asdict(step) for step in STEPS]

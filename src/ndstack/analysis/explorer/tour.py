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
        play: whether time passes by itself, from 0 to the end of the string.
    """

    title: str
    text: str
    model: str
    string: str
    t: int
    part: Part
    play: bool = False


STEPS = (
    Step(
        "What a stack is",
        "This model accepts strings that read the same from both ends. It was not trained: its weights were "
        "computed from a grammar of palindromes. Its memory is a **stack**: it can "
        "push a symbol, replace the top, or pop it, and it sees nothing below the top. In **Best run**, a "
        "block is a symbol on the stack, from its push to its pop. The first half of abba is pushed. "
        "During the second half, each symbol that is read is compared with the top, which is popped, so "
        "the last in is the first out. At the end only the bottom ⊥ is left.",
        PALINDROMES,
        "abba",
        4,
        "Best run",
    ),
    Step(
        "What forking means",
        "After ab, nobody can say whether the middle is here: the string may go on in any way. So the "
        "model **forks** and does everything at once. The upper row has the stacks before b is read, and "
        "the lower row those after it, with their probabilities; the lines are runs. A run in state q0 is "
        "still in the first half. A run in state loop has guessed that the second half has begun, and may "
        "only pop. (State trap is a run that has given up.)",
        PALINDROMES,
        "abba",
        2,
        "stacks-card",
    ),
    Step(
        "Watch it guess the middle",
        "Now it reads abaaba; press ▶ to see it again. At each symbol one run stays in q0, and others "
        "leave it for loop: one more guess that the middle is here, after this symbol (blue) or at it "
        "(green). A run in loop survives only as long as the symbol that is read equals the top of its "
        "stack; then it pops (orange). Where they differ, it disappears. Wrong guesses die out by "
        "themselves, and nobody has to tell the model where the middle is. It did not "
        "learn this from examples: it was compiled from a grammar.",
        PALINDROMES,
        "abaaba",
        6,
        "stacks-card",
        play=True,
    ),
    Step(
        "Where the two halves meet",
        "At the end, the runs in state loop with the bare bottom ⊥ are those whose guess was right: they "
        "have popped all that they pushed. **Actions** shows what these runs have done at each step. The "
        "column where push ends and pop begins is the middle of the string. Compare **Best run** above: "
        "the pyramid has its top there. The model found the middle by trying all of them, at a cost cubic "
        "in the length.",
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
        "last, the second and the last but one, and so on to the middle.",
        PALINDROMES,
        "abbaabba",
        8,
        "tree-card",
    ),
    Step(
        "Try your own",
        "Type a string of a and b, and move the slider or press the arrow keys. Is the middle found, and "
        "what happens if the string is not a palindrome? Then choose another **Model**: networks that "
        "have learned their language from examples, and grammars that were compiled into networks, such "
        "as english with its ambiguous sentence. Hovering over anything shows its numbers.",
        PALINDROMES,
        "aabbaa",
        3,
        "question",
    ),
)
"""The steps, in their order."""


def as_json() -> list[Json]:
    """Return the steps, for the page."""
    return [asdict(step) for step in STEPS]

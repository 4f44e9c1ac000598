"""The explorer's view of one string inside a notebook."""

from dataclasses import dataclass
from html import escape

from ndstack.analysis.explorer.about import describe
from ndstack.analysis.explorer.answer import Json, answer
from ndstack.analysis.explorer.page_files import saved_page
from ndstack.analysis.source import SHORT, Source, open_source
from ndstack.analysis.trace import Model
from ndstack.errors import NdstackError

MOST = 200
"""The largest number of symbols in a string."""


@dataclass(frozen=True, eq=False)
class Exploration:
    """A view of a model that reads a string, which a notebook shows as the explorer's page.

    Attributes:
        view: the answer about the string; see `ndstack.analysis.explorer.answer`.
        time: the time that is shown first.
        height: the height of the page in pixels.
    """

    view: Json
    time: int
    height: int

    def page(self) -> str:
        """Return the page as a single file, which works by itself."""
        return saved_page(self.view, {"t": self.time, "stack": 0, "run": 0})

    def _repr_html_(self) -> str:
        # The frame may run the scripts of the page, which its policy lists, and reach nothing outside it.
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.page())}" title="ndstack explore" '
            f'style="width: 100%; height: {self.height}px; border: 1px solid #8886"></iframe>'
        )


def explore(model: str | Model, text: str, time: int | None = None, height: int = 900) -> Exploration:
    """Return the explorer's view of a model that reads a string, to be shown in a notebook.

    Args:
        model: a model, or a name as for `ndstack explore`: a run folder, a saved model, a network of the zoo,
            an automaton that ships, or a grammar file.
        text: the string, as typed; spaces separate long symbols.
        time: the time that is shown first, from 0; by default, the end of the string.
        height: the height of the view in pixels.
    """
    source = open_source(model) if isinstance(model, str) else Source("model", "model", model, None, SHORT)
    word = source.split(text)
    if len(word) > MOST:
        raise NdstackError(f"the string has {len(word)} symbols, expected at most {MOST}; give a shorter one")
    view = {"model": describe(source, MOST, []), **answer(source, word)}
    inputs = view["inputs"]
    assert isinstance(inputs, list)
    return Exploration(view, len(inputs) if time is None else time, height)

"""What can be looked at by name: run folders, saved models, shipped automata, grammar files to compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ndstack import zoo
from ndstack.analysis.trace import Model, Trace, trace
from ndstack.errors import NdstackError
from ndstack.grammars import CFG, read_grammar
from ndstack.grammars.grammar import Word
from ndstack.languages import Language, from_grammar
from ndstack.nn import load, recognizer
from ndstack.nn.proofs.examples import example, grammars, intersections
from ndstack.nn.proofs.recognition import Recognizer, split_line
from ndstack.nn.storage.files import CONFIGURATION
from ndstack.settings.data import Lengths
from ndstack.training import Run
from ndstack.training.material import find_language
from ndstack.training.run import is_run

EXAMPLES = (*grammars, *intersections)
"""The names of the automata that ship."""

SHORT: Lengths = (1, 20)
"""Lengths for compiled grammars, which were not trained on any."""


@dataclass(frozen=True, eq=False)
class Source:
    """A model to look at.

    Attributes:
        name: what it was opened as.
        label: what kind of model it is, and on what.
        model: the network, in evaluation mode.
        language: that it was trained on or compiled from, if it is one.
        lengths: of the strings it was trained on, for the true distribution and for sampling.
        run: the run folder, if it is one.
    """

    name: str
    label: str
    model: Model
    language: Language | None
    lengths: Lengths
    run: Run | None = None

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols that the model reads."""
        return self.model.alphabet

    def split(self, text: str) -> tuple[str, ...]:
        """The symbols of a string as typed; an error if the model does not know one."""
        word = tuple(text.split("\t")) if "\t" in text else split_line(text, self.alphabet)
        for symbol in word:
            if symbol not in self.alphabet:
                shown = " ".join(self.alphabet[:10]) + (" ..." if len(self.alphabet) > 10 else "")
                raise NdstackError(f"{symbol!r} is not in the alphabet of {self.name}: {shown}")
        return word

    def join(self, word: Word) -> str:
        """A string as it can be typed."""
        return ("" if all(len(symbol) == 1 for symbol in self.alphabet) else " ").join(word)

    def trace(self, word: Word) -> Trace:
        """Everything the stacks do on a string."""
        language = None if isinstance(self.model, Recognizer) else self.language
        return trace(self.model, word, language, self.lengths)


def open_source(name: str | Path, read: Callable[[Path], CFG] = read_grammar) -> Source:
    """A run folder, a saved model, a network of the zoo, the name of a shipped automaton, or a grammar file.

    A run, model or file comes before an automaton of the same name.

    Args:
        name: of one of these.
        read: what reads a grammar file; commands give one that warns of inconsistent probabilities.
    """
    path, name = zoo.resolve(name), str(name)
    if (path.is_dir() and name not in EXAMPLES) or _is_model(path):
        return _open_folder(path, name)
    if path.is_file():
        grammar = read(path)
        return Source(
            name, f"compiled from {path.name}", recognizer(grammar), from_grammar(grammar, name), SHORT
        )
    if name in grammars:
        grammar = grammars[name]()
        return Source(name, "compiled grammar", recognizer(grammar), from_grammar(grammar, name), SHORT)
    if name in intersections:
        return Source(name, "compiled intersection", example(name), None, SHORT)
    raise NdstackError(
        f"there is no run, model or grammar file {name!r}; expected one, a network that `ndstack zoo` lists, "
        f"or one of the automata that ship: {', '.join(EXAMPLES)}"
    )


def _is_model(path: Path) -> bool:
    return is_run(path) or (path / CONFIGURATION).exists()


def _open_folder(path: Path, name: str) -> Source:
    if is_run(path):
        run = Run.open(path)
        language, lengths = find_language(run.config), run.config.data.lengths
        label = f"{run.label} on {run.config.language}"
        return Source(name, label, run.load(), language, lengths, run)
    if (path / CONFIGURATION).exists():
        return Source(name, "saved model", load(path), None, SHORT)
    raise NdstackError(f"{path} is neither a run (config.json) nor a saved model ({CONFIGURATION})")

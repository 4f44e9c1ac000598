"""Models by name: run folders, saved models, the zoo, automata that ship, and grammar files to compile."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ndstack import model_names, zoo
from ndstack.analysis.trace import Model, Trace, trace
from ndstack.errors import LanguageError, NdstackError
from ndstack.grammars import CFG, read_grammar
from ndstack.grammars.grammar import Word
from ndstack.languages import Language, from_grammar
from ndstack.nn import Transducer, recognizer
from ndstack.nn.proofs.examples import example, grammars, intersections
from ndstack.nn.proofs.recognition import Recognizer, split_line
from ndstack.nn.storage.files import CONFIGURATION, load_any
from ndstack.settings.data import Lengths, RecognitionConfig
from ndstack.training import Run
from ndstack.training.material import language_of
from ndstack.training.run import is_run
from ndstack.transductions import Transduction
from ndstack.transductions import get as get_transduction

EXAMPLES = (*grammars, *intersections)
"""The names of the automata that ship."""

SHORT: Lengths = (1, 20)
"""The lengths for compiled grammars, which were not trained."""


@dataclass(frozen=True, eq=False)
class Source:
    """A model, and what is known about it.

    Attributes:
        name: the name under which it was opened.
        label: a description of the model and its language.
        model: the network, in evaluation mode.
        language: the language on which it was trained or from which it was compiled, if it is known.
        lengths: the lengths of its training strings, for the true distribution and for sampling.
        run: the training run, if the model comes from one.
        recognition: the settings of a network that was trained as a recogniser.
        transduction: the transduction on which a transducer was trained, if it is known.
    """

    name: str
    label: str
    model: Model
    language: Language | None
    lengths: Lengths
    run: Run | None = None
    recognition: RecognitionConfig | None = None
    transduction: Transduction | None = None

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols that the model reads."""
        return self.model.source if isinstance(self.model, Transducer) else self.model.alphabet

    def split(self, text: str) -> tuple[str, ...]:
        """Return the symbols of a string as typed; an unknown symbol is an error.

        Spaces around the string do not count, unless the space is a symbol.
        """
        text = text if " " in self.alphabet else text.strip(" ")
        word = tuple(text.split("\t")) if "\t" in text else split_line(text, self.alphabet)
        for symbol in word:
            if symbol not in self.alphabet:
                separator = " " if all(len(one) == 1 for one in self.alphabet) else ", "
                shown = separator.join([*self.alphabet[:10], *["..."] * (len(self.alphabet) > 10)])
                raise NdstackError(f"{symbol!r} is not in the alphabet of {self.name}: {shown}")
        return word

    def join(self, word: Word) -> str:
        """Return a string in the form in which it can be typed."""
        return ("" if all(len(symbol) == 1 for symbol in self.alphabet) else " ").join(word)

    def trace(self, word: Word) -> Trace:
        """Return a trace of the model and its stacks on a string."""
        language = None if isinstance(self.model, Recognizer) else self.language
        return trace(self.model, word, language, self.lengths, self.recognition)

    def expected(self, word: Word) -> Word | None:
        """Return the correct output of a transducer; None if it is unknown, or if there is none."""
        try:
            return None if self.transduction is None else self.transduction.apply(word)
        except LanguageError:
            return None


def open_source(name: str | Path, read: Callable[[Path], CFG] = read_grammar) -> Source:
    """Open a run folder, a saved model, a network of the zoo, an automaton that ships, or a grammar file.

    A run, model or file takes precedence over an automaton of the same name.

    Args:
        name: the name or path of one of these.
        read: the function that reads a grammar file; commands use one that warns of inconsistent
        probabilities.
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
        return _open_run(run, name)
    if (path / CONFIGURATION).exists():
        return Source(name, "saved model", load_any(path), None, SHORT)
    raise NdstackError(f"{path} is neither a run (config.json) nor a saved model ({CONFIGURATION})")


def _open_run(run: Run, name: str) -> Source:
    config = run.config
    label, lengths = f"{model_names.label(run.label)} on {config.language}", config.data.lengths
    if config.task == "transduce":
        known = None if config.pairs is not None else get_transduction(config.language)
        return Source(name, label, run.load_transducer(), None, lengths, run, transduction=known)
    recognition = config.recognition if config.task == "recognize" else None
    return Source(name, label, run.load(), language_of(config), lengths, run, recognition)

"""The models that the page can open, by identifier, and strings for them; nothing else can be opened."""

import contextlib
import dataclasses
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ndstack import zoo
from ndstack.analysis.explorer.about import describe
from ndstack.analysis.explorer.answer import Json, answer
from ndstack.analysis.explorer.requests import RequestQueue
from ndstack.analysis.explorer.tour import STEPS, as_json
from ndstack.analysis.source import EXAMPLES, Source, open_source
from ndstack.analysis.trace import longest_output
from ndstack.errors import NdstackError
from ndstack.grammars import CFG, read_grammar
from ndstack.nn.language_models.generation import sample
from ndstack.nn.language_models.language_model import LanguageModel
from ndstack.nn.proofs.examples import SENTENCE
from ndstack.nn.proofs.recognition import Recognizer
from ndstack.nn.transducers.transducer import Transducer
from ndstack.stacks import Nondeterministic
from ndstack.transductions.transduction import choose_many

LONGEST = 200
"""The largest number of symbols in a string."""
REMEMBERED = 32
"""The number of answers that are kept."""
EXAMPLE_STRINGS = 2
"""The number of strings of its language that the page offers for a training run."""
MOST_WORK = 1e9
"""The largest number of terms of Lang's recurrence for one string, which take two to three seconds."""

_PICTURED: dict[str, tuple[str, ...]] = {
    "dyck": ("([])[()]", "([)]"),
    "palindromes": ("abbabba", "abab"),
    "english": (" ".join(SENTENCE), "Mary saw Mary"),
    "three-counts": ("aaabbbccc", "aabbc"),
    "cross-serial": ("aabbbccddd", "abdc"),
    "four-counts": ("aabbccdd", "abcdd"),
}
_COUNTED: dict[str, Callable[[int, np.random.Generator], str]] = {
    "three-counts": lambda n, _: "".join(symbol * (n // 3) for symbol in "abc"),
    "cross-serial": lambda n, rng: _cross_serial(int(rng.integers(n // 2 + 1)), n // 2),
    "four-counts": lambda n, _: "".join(symbol * (n // 4) for symbol in "abcd"),
}


def _cross_serial(i: int, half: int) -> str:
    return "a" * i + "b" * (half - i) + "c" * i + "d" * (half - i)


def _short(name: str) -> str:
    """Return the identifier of a network of the zoo."""
    return "-on-".join(reversed(name.removeprefix(zoo.PREFIX).split("/")))


class UnknownModelError(NdstackError):
    """An identifier that no model has."""


class Catalogue:
    """Models by identifier, opened when they are first requested.

    A few answers are computed at the same time. A model is locked only while it reads, because its language
    keeps tables.

    Args:
        names: runs, saved models or grammar files, which are opened at once.
        examples: whether the zoo and the automata that ship are in the catalogue, too.
        read: the function that reads a grammar file; see `open_source`.
    """

    def __init__(
        self,
        names: Sequence[str | Path] = (),
        examples: bool = True,
        read: Callable[[Path], CFG] = read_grammar,
    ) -> None:
        self.requests = RequestQueue()
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._answers: OrderedDict[tuple[str, str], Json] = OrderedDict()
        self._open: dict[str, Source] = {}
        for name in names:
            self._add(open_source(name, read))
        self._given = len(self._open)
        self._names = {_short(name): name for name in zoo.names()} | {name: name for name in EXAMPLES}
        self._lazy = [name for name in self._names if examples and name not in self._open]
        self._order = [*self._open, *self._lazy]
        self._descriptions: dict[str, Json] = {}

    def _add(self, source: Source) -> None:
        words = re.findall(r"[A-Za-z0-9+._-]+", Path(source.name).stem if source.run is None else source.name)
        base = (words[-1] if words else "model").strip(".") or "model"
        identifier, number = base, 2
        while identifier in self._open:
            identifier, number = f"{base}-{number}", number + 1
        self._open[identifier] = dataclasses.replace(source, name=identifier)

    def identifiers(self) -> list[str]:
        """Return the identifiers of all models: the given ones, then the zoo, then the automata."""
        return list(self._order)

    def source(self, identifier: str) -> Source:
        """Return the model with this identifier; an unknown identifier is an error."""
        if identifier not in self._open:
            if identifier not in self._lazy:
                raise UnknownModelError(
                    f"there is no model {identifier[:60]!r} here; there are: {', '.join(self.identifiers())}"
                )
            with self._locks[identifier]:
                if identifier not in self._open:
                    found = open_source(self._names[identifier])
                    self._open[identifier] = dataclasses.replace(found, name=identifier)
        return self._open[identifier]

    def tour(self) -> Json:
        """Return the steps of the guided tour, and whether the page begins with it.

        The page begins with the tour if no models are given; there is no tour without the models that ship.
        """
        there = all(step.model in self._lazy for step in STEPS)
        return {"first": there and not self._given, "steps": as_json() if there else []}

    def describe(self, identifier: str) -> Json:
        """Return what the page needs to know about a model, with examples of the lengths of its training."""
        if identifier not in self._descriptions:
            source = self.source(identifier)
            examples = list(_PICTURED.get(identifier, ())) if identifier in self._lazy else []
            known = source.language is not None or source.transduction is not None
            if source.run is not None and known:
                examples = [self.sample(identifier, None, seed) for seed in range(EXAMPLE_STRINGS)]
            self._descriptions[identifier] = describe(source, longest(source), examples)
        return self._descriptions[identifier]

    def look(self, identifier: str, text: str, page: str | None = None, number: int | None = None) -> Json:
        """Return the answer about one string; see `ndstack.analysis.explorer.answer`.

        Args:
            identifier: the identifier of the model.
            text: the string as typed.
            page: the page whose later requests supersede this one, if any; see `RequestQueue`.
            number: the number that the page gave to the request.
        """
        check, key = self.requests.register(page, number), (identifier, text)
        if (known := self._answers.get(key)) is not None:
            return known
        source = self.source(identifier)
        word = source.split(text)
        most = longest(source)
        if len(word) > most:
            raise NdstackError(
                f"the string has {len(word)} symbols, but {identifier} is shown with at most {most}; "
                "give a shorter one"
            )
        with self.requests.working(check):
            with self._locks[identifier]:
                check()
                trace = source.trace(word)
            found = {"model": self.describe(identifier), **answer(source, word, trace, check)}
        self._answers[key] = found
        while len(self._answers) > REMEMBERED:
            with contextlib.suppress(KeyError):  # another thread has removed it
                self._answers.popitem(last=False)
        return found

    def sample(self, identifier: str, length: int | None, seed: int) -> str:
        """Return a string of the model's language or, if that is unknown, one that the model generates."""
        source, rng = self.source(identifier), np.random.default_rng(seed)
        most = longest(source)
        low, high = (min(source.lengths[0], most), min(source.lengths[1], most))
        wanted = int(rng.integers(low, high + 1)) if length is None else max(0, min(length, most))
        if source.language is not None:
            with self._locks[identifier]:
                lengths = source.language.lengths(0, most)
                if not lengths:
                    raise NdstackError(f"{identifier} has no strings of length up to {most}")
                nearest = min(lengths, key=lambda n: (abs(n - wanted), n))
                return source.join(tuple(source.language.sample(nearest, rng)))
        if identifier in _COUNTED and isinstance(source.model, Recognizer):
            return _COUNTED[identifier](max(wanted, 4), rng)
        if isinstance(source.model, LanguageModel):
            with self._locks[identifier]:
                return source.join(tuple(sample(source.model, [()], wanted, seed=seed)[0].word))
        if isinstance(source.model, Transducer):
            return source.join(_sample_input(source, wanted, most, rng))
        raise NdstackError(f"there is no language to sample from for {identifier}; type a string")

    def warm_up(self) -> None:
        """Let every open model, and two that ship, read a short string, which compiles their kernels."""
        shipped = [name for name in EXAMPLES if name in self._lazy]
        for identifier in {**self._open, **dict.fromkeys([*self._lazy[:1], *shipped[1:2]])}:
            self.look(identifier, self.sample(identifier, 4, 0))


def _sample_input(source: Source, wanted: int, most: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Return an input of a transduction or, if that is unknown, random symbols."""
    if source.transduction is None:
        return choose_many(source.alphabet, wanted, rng)
    lengths = source.transduction.lengths(0, most)
    if not lengths:
        raise NdstackError(f"{source.transduction.name} has no inputs of length up to {most}")
    nearest = min(lengths, key=lambda n: (abs(n - wanted), n))
    return tuple(source.transduction.sample(nearest, rng).source)


def longest(source: Source) -> int:
    """Return the largest number of symbols in a string for which an answer does not take too long."""
    most = LONGEST
    for module in source.model.modules():
        if isinstance(module, Nondeterministic):
            K = module.states * module.symbols
            most = min(most, int((6 * MOST_WORK * module.symbols / K**3) ** (1 / 3)))
    if isinstance(source.model, Transducer):
        return max(1, (most - longest_output(0)) // 3)  # the output is read, too
    return min(most, source.model.longest) if isinstance(source.model, Recognizer) else most

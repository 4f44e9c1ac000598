"""Sentences about a model: what it is, what its names mean, and how probable it finds a string."""

import numpy as np

from ndstack.analysis.source import EXAMPLES, Source
from ndstack.analysis.trace import Trace
from ndstack.automata import BOTTOM
from ndstack.grammars.grammar import Word
from ndstack.nn.proofs.recognition import Recognizer
from ndstack.stacks import Nondeterministic, Stratification, Superposition

NEAR = 0.05
"""The difference, in nats per symbol, up to which two cross-entropies are called about the same."""


_LANGUAGES = {
    "dyck": "balanced brackets of two kinds",
    "palindromes": "the strings of a and b that read the same from both ends",
    "english": "the sentences of the grammar of figure 1.2",
    "three-counts": "aⁿbⁿcⁿ, the strings that two grammars have in common",
    "cross-serial": "aⁱbʲcⁱdʲ, the strings that two grammars have in common",
    "four-counts": "aⁿbⁿcⁿdⁿ, the strings that three grammars have in common",
}


def describe(source: Source, longest: int, examples: list[str]) -> dict[str, object]:
    """Return what the page says about a model.

    Args:
        source: the model.
        longest: the largest number of symbols in a string.
        examples: the strings that the page offers.
    """
    return {
        "id": source.name,
        "label": source.label,
        "about": " ".join(_compiled(source) if isinstance(source.model, Recognizer) else _network(source)),
        "alphabet": list(source.alphabet),
        "longest": longest,
        "examples": examples,
    }


def _compiled(source: Source) -> list[str]:
    assert isinstance(source.model, Recognizer)
    states = source.model.layout.states
    shipped = source.name in EXAMPLES and source.label in ("compiled grammar", "compiled intersection")
    language = _LANGUAGES[source.name] if shipped else "the strings of its grammar"
    origin = "grammars" if source.label == "compiled intersection" else "a grammar"
    found = [f"It was not trained: it is compiled from {origin}, and accepts exactly {language}."]
    if "trap" in states:
        found.append(
            "State trap accepts nothing; it keeps one run alive on every string, so that the network always "
            "has a reading."
        )
    if any(name.endswith(".") for name in states):
        found.append(
            "A state whose name ends in dots, such as "
            f"{next(name for name in states if name.endswith('.'))}, waits for the constituent before the "
            "dots; a number before it is that of the grammar."
        )
    return found


def _network(source: Source) -> list[str]:
    found = []
    for module in source.model.modules():
        if isinstance(module, Nondeterministic):
            kind = "" if module.normalized else "renormalising " if module.read_states else "unnormalised "
            states = ", ".join(f"q{number}" for number in range(module.states))
            symbols = ", ".join([BOTTOM, *(str(number) for number in range(1, module.symbols))])
            found.append(
                f"Its stack is a {kind}nondeterministic stack of {module.states} states ({states}) and "
                f"{module.symbols} symbols ({symbols}), to which training has given their meaning; the "
                "numbers are names, and not symbols of the string."
            )
        elif isinstance(module, Superposition):
            sizes = " and ".join(map(str, module.sizes))
            found.append(f"Its stack is a superposition stack of vectors of size {sizes}.")
        elif isinstance(module, Stratification):
            found.append(f"Its stack is a stratification stack of vectors of size {module.size}.")
    found = list(dict.fromkeys(found))  # an encoder and a decoder have the same
    if source.run is not None and (source.language is not None or source.transduction is not None):
        low, high = source.lengths
        found.append(f"It was trained on strings of {low} to {high} symbols.")
    return found


def string_note(source: Source, trace: Trace) -> str:
    """Return a sentence about what a network makes of a string: its output, decision or probability."""
    assert trace.predictions is not None
    if trace.written is not None:
        written, expected = shown_output(trace.written), source.expected(trace.word)
        if expected is None:
            return f"It writes {written}."
        correct = shown_output(expected)
        return f"It writes {written}" + (
            ", which is correct." if written == correct else f"; correct is {correct}."
        )
    if trace.decides:
        return (
            f"It {'accepts' if trace.accepted else 'rejects'} this string: the probability that it is in the "
            f"language is {trace.predictions[-1, -1]:.3g}."
        )
    return probability_note(source, trace)


def shown_output(word: Word) -> str:
    """Return the output of a transducer as it is shown."""
    return ("" if all(len(symbol) == 1 for symbol in word) else " ").join(word) or "nothing"


def probability_note(source: Source, trace: Trace) -> str:
    """Return a sentence about how probable a language model finds a string, in nats per symbol.

    The cross-entropy of a string w is -log p(w) / (|w| + 1), where EOS counts as a symbol, and the lower
    bound is that of the true distribution (section 5.6).
    """
    assert trace.predictions is not None
    places = [*(trace.outputs.index(symbol) for symbol in trace.word), -1]
    rows = np.arange(len(places))
    model = float(-np.log(np.maximum(trace.predictions[rows, places], 1e-300)).mean())
    text = f"The network's cross-entropy on this string is {model:.3f} nats per symbol"
    if trace.truth is None:
        return f"{text}; the smaller, the more probable it finds the string."
    true = trace.truth[rows, places]
    if np.all(true > 0):
        bound = float(-np.log(true).mean())
        verdict = "more probable than" if model < bound else "less probable than"
        if abs(model - bound) <= NEAR:
            verdict = "about as probable as"
        return f"{text}, and the lower bound is {bound:.3f}: it finds the string {verdict} it is."
    (low, high), n = source.lengths, len(trace.word)
    if low <= n <= high:
        return f"{text}. The string is not in the language, so there is no lower bound."
    return (
        f"{text}. It was trained on strings of {low} to {high} symbols, and this one has {n}, so it may not "
        "have learned what to do here; the examples above have the lengths of its training."
    )

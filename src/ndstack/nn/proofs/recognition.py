"""Every context-free language and every intersection of them, recognised by a network (section 8.3).

    "We say that N recognizes language L if there is a multi-layer perceptron
    y = σ(W₂ σ(W₁ h_{|w|+1} + b₁) + b₂) such that, after reading w EOS, we have y > 1/2 iff w ∈ L."

`recognizer` compiles grammars into automata and these into a `StackRNN` and an MLP; nothing is trained. How
the weights are set, and why the result is exact, is in `ndstack.nn.proofs.construction`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ndstack.automata import BOTTOM, PDA, RestrictedPDA, Transition, UnionPDA, WeightedPDA, union
from ndstack.automata.compact import variants
from ndstack.automata.pda import BottomMarkedPDA
from ndstack.errors import NdstackError
from ndstack.grammars import CFG, Rule
from ndstack.grammars.greibach import ASK_THE_GRAMMAR
from ndstack.nn.proofs.construction import ProofLayout, compile_mlp, compile_rnn, with_trap

EOS, UNKNOWN = "EOS", "unknown"

MAX_BYTES = 2 * 2**30
"""How many bytes reading one string of 40 symbols may take, roughly, by default."""
BATCH_BYTES = 2**28

Machine = CFG | PDA
Words = Iterable[Sequence[str]]


def recognizer(machines: Machine | Sequence[Machine], *, max_bytes: int = MAX_BYTES) -> "Recognizer":
    """Return a network that recognises the language of a grammar or PDA, or the intersection of several.

    Args:
        machines: one grammar or PDA, or a list. Weights are disregarded but for being 0 or not. A restricted
            PDA is used as it is, after merging what can be merged.
        max_bytes: how many bytes reading one string of 40 symbols may take, roughly; an automaton that is too
            large for that is an error.
    """
    given = [machines] if isinstance(machines, CFG | PDA) else list(machines)
    if not given:
        raise NdstackError("no grammars given; a recogniser needs at least one")
    for machine in given:
        if not isinstance(machine, CFG | PDA):
            raise NdstackError(f"{machine!r} given, expected a CFG or a PDA, or a list of them")
    automata = _smallest([variants(_without_weights(machine)) for machine in given])
    alphabet = tuple(dict.fromkeys(a for machine in given for a in _alphabet(machine)))
    return Recognizer(_network(automata, alphabet, max_bytes))


class Recognizer(torch.nn.Module):
    """A `StackRNN` with an LSTM controller and an MLP, its weights set by hand. Made by `recognizer`.

    Attributes:
        rnn: the StackRNN.
        hidden, output: the layers of the MLP.
        layout: the automaton, and which unit does what.
    """

    def __init__(self, layout: ProofLayout) -> None:
        super().__init__()
        self.layout = layout
        self.rnn = compile_rnn(layout)
        self.hidden, self.output = compile_mlp(layout)
        self.eval()

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols of the languages. A string with any other symbol is rejected."""
        return self.layout.symbols[:-2]

    @property
    def longest(self) -> int:
        """The length up to which answers are exact in float64; longer strings are refused."""
        return self.layout.longest

    def extra_repr(self) -> str:
        """Return what `print` shows besides the parts."""
        sizes = f"languages={self.layout.parts}, states={len(self.layout.states)}"
        return f"{sizes}, stack_symbols={len(self.layout.tops)}, longest={self.longest}"

    def accepts(self, word: Sequence[str]) -> bool:
        """Return whether the network accepts a string: y > 1/2."""
        return bool(self([word])[0] > 0.5)

    @torch.no_grad()
    def forward(self, words: Words) -> Tensor:
        """y of each string, [B]. Strings of one length are read together.

        Args:
            words: strings, if all symbols are single characters, or sequences of symbols.
        """
        if self.hidden.weight.dtype != torch.float64:
            raise NdstackError(f"a recogniser in {self.hidden.weight.dtype} given, expected float64")
        words = list(words)
        y = self.hidden.weight.new_zeros(len(words))
        for rows in self._batches(words):
            y[rows] = self._read(self.encode([words[row] for row in rows]))
        return y

    def encode(self, words: Sequence[Sequence[str]]) -> Tensor:
        """Return one-hot symbols of strings of one length, EOS at the end, [B, n + 1, symbols]."""
        index = {a: i for i, a in enumerate(self.alphabet)}
        unknown, eos = len(index) + 1, len(index)
        numbers = [[*(index.get(a, unknown) for a in word), eos] for word in words]
        one_hot = torch.nn.functional.one_hot(torch.tensor(numbers), len(self.layout.symbols))
        return one_hot.to(self.hidden.weight)

    def _read(self, x: Tensor) -> Tensor:
        h, _ = self.rnn(x)
        y: Tensor = torch.sigmoid(self.output(torch.sigmoid(self.hidden(h[:, -1]))))
        return y[:, 0]

    def _batches(self, words: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """Yield the places of strings of one length, not too many at once."""
        by_length: dict[int, list[int]] = {}
        for row, word in enumerate(words):
            by_length.setdefault(len(word), []).append(row)
        for length, rows in by_length.items():
            if length > self.longest:
                raise NdstackError(
                    f"a string of length {length} given; the arithmetic of this network is exact up to "
                    f"length {self.longest} in float64"
                )
            most = max(1, BATCH_BYTES // self.layout.bytes_to_read(length))
            yield from (rows[first : first + most] for first in range(0, len(rows), most))


def recognize_lines(grammars: Sequence[CFG], lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether the compiled network accepts it, for the command line.

    Args:
        grammars: one, or several for the intersection of their languages.
        lines: strings as typed; see `split_line`.
    """
    network = recognizer(grammars)
    lines = list(lines)
    accepted = network([split_line(line, network.alphabet) for line in lines]) > 0.5
    yield from zip(lines, accepted.tolist(), strict=True)


def split_line(line: str, alphabet: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols of a string as typed.

    Characters if every symbol is one, else what is between spaces; where symbols contain spaces themselves
    ('the park'), the longest one that fits.
    """
    if all(len(symbol) == 1 for symbol in alphabet):
        return tuple(line)
    symbols = {tuple(symbol.split()): symbol for symbol in alphabet}
    most = max(map(len, symbols))
    parts, found = line.split(), []
    while parts:
        fitting = (n for n in range(min(most, len(parts)), 1, -1) if tuple(parts[:n]) in symbols)
        size = next(fitting, 1)
        found.append(symbols.get(tuple(parts[:size]), parts[0]))
        parts = parts[size:]
    return tuple(found)


def _alphabet(machine: Machine) -> tuple[str, ...]:
    return machine.terminals if isinstance(machine, CFG) else machine.input_alphabet


def _without_weights(machine: Machine) -> Machine:
    if not machine.weighted:
        return machine
    if isinstance(machine, CFG):
        return CFG(tuple(Rule(rule.left, rule.right) for rule in machine.rules), machine.start)
    transitions = tuple(replace(t, weight=1.0) for t in machine.transitions)
    if isinstance(machine, WeightedPDA):
        return PDA(transitions, machine.start, machine.accept)
    build = RestrictedPDA if isinstance(machine, RestrictedPDA) else BottomMarkedPDA
    assert isinstance(machine, BottomMarkedPDA)
    return build(transitions, machine.start, machine.accept, machine.bottom)


def _network(automata: Sequence[RestrictedPDA], alphabet: tuple[str, ...], max_bytes: int) -> ProofLayout:
    """Return the automaton of the proof, and its layout, if the network is not too large."""
    names = _shared_names(automata)
    renamed = [_rename(pda, names) for pda in automata]
    parts = union(renamed) if len(renamed) > 1 else UnionPDA(renamed[0], (renamed[0].accept,))
    eos, unknown = distinct(EOS, alphabet), distinct(UNKNOWN, alphabet)
    parts = with_trap(parts, (*alphabet, unknown))
    layout = ProofLayout(parts, (*alphabet, eos, unknown), parts.pda.states, parts.pda.stack_alphabet)
    need = 8 * layout.actions * layout.units + layout.bytes_to_read(40)
    if need > max_bytes:
        raise NdstackError(
            f"the automaton has {len(layout.states)} states and {len(layout.tops)} stack symbols, and the "
            f"transition weights are dense in both: reading 40 symbols would take about {_size(need)}, more "
            f"than the limit of {_size(max_bytes)} (`max_bytes` in Python); {ASK_THE_GRAMMAR}"
        )
    return layout


def _smallest(choices: list[list[RestrictedPDA]]) -> list[RestrictedPDA]:
    """One automaton from each list, so that their union is small: states add up, stack symbols are shared."""
    found: list[list[RestrictedPDA]] = []
    for symbols in {len(pda.stack_alphabet) for some in choices for pda in some}:
        fitting = [[pda for pda in some if len(pda.stack_alphabet) <= symbols] for some in choices]
        if all(fitting):
            found.append([min(some, key=lambda pda: len(pda.states)) for some in fitting])

    def cost(automata: list[RestrictedPDA]) -> int:
        states = sum(len(pda.states) for pda in automata)
        return (states + 1 + (len(automata) > 1)) * max(len(pda.stack_alphabet) for pda in automata)

    return min(found, key=cost)


def _shared_names(automata: Sequence[RestrictedPDA]) -> list[str]:
    """⊥, then one name for the stack symbols of the same number in each automaton: theirs, joined by |."""
    most = max(len(pda.stack_alphabet) for pda in automata)
    found = [BOTTOM]
    for number in range(1, most):
        own = [pda.stack_alphabet[number] for pda in automata if number < len(pda.stack_alphabet)]
        name = "|".join(dict.fromkeys(own))
        while name in found:
            name += "'"
        found.append(name)
    return found


def _rename(pda: RestrictedPDA, shared: Sequence[str]) -> RestrictedPDA:
    """Return the same names of stack symbols for all parts of a union, so that they share them."""
    names = dict(zip(pda.stack_alphabet, shared, strict=False))

    def rename(stack: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names[x] for x in stack)

    transitions = tuple(
        Transition(t.state, t.read, rename(t.pop), t.target, rename(t.push)) for t in pda.transitions
    )
    return replace(pda, transitions=transitions, bottom=BOTTOM)


def distinct(name: str, taken: Sequence[str]) -> str:
    """Return the name, in as many angle brackets as it takes to be none of those that are taken."""
    while name in taken:
        name = f"<{name}>"
    return name


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"

"""The weights of section 8.3: an LSTM, its action layer and an MLP that carry out the proofs.

Both proofs are one construction for k ≥ 1 languages, L₁ ∩ ⋯ ∩ L_k; that of section 8.3.1 is k = 1, which
needs no offset cell. Numbers are float64, and the infinities of the proofs are chosen so that nothing is
rounded away:

- "a weight of 1 for all transitions of P that scan input symbol w_t, and a weight of 0 for all other
  transitions (by setting the corresponding weights of Δ_t to -∞)". The hidden state says which symbol was
  read: two units for each symbol are tanh(1) after that symbol and exactly 0 after any other. Δ_t = W h_t,
  with 0 in W for the transitions that scan the symbol, so their log weight is exactly 0. A -∞ in W would meet
  a hidden unit that is 0, and 0·∞ is not a number. With the most negative float instead, the two units of the
  symbol read add up to less than any float, which is -∞ in float arithmetic, and those of others to 0.
- Gates that the proofs set to 0 or 1 have biases of -∞ or ∞, and are exactly 0 or 1.
- σ(∞·h) in the MLP: the weight is the largest float, M. σ(M h) is 1 for every h > 10⁻³⁰⁶, 0 for every
  h < -10⁻³⁰⁶ and 1/2 for h = 0. The first proof has the weight 1 here, which is right for real numbers, but
  in floats σ(tanh(tanh(p))) is 1/2 for p < 10⁻¹⁶.
- The offset 1/b^t: "b = |Q|(2|Γ|+1), which is the maximum number of choices P can make from any given
  configuration". No b that is at least the number of choices is wrong. Ours is 1 more than the greatest
  number of transitions from one state and top symbol that scan the same symbol: small, so that b^n stays a
  float.

Why this is exact. Every number that the stack computes from such weights is a quotient of two whole numbers
of runs, neither above b^n, made of sums and products of non-negative floats: as long as b^n < 10³⁰⁰ it is 0
if and only if it should be. `longest` is the greatest such n. Each p_i is then 0, or at least 1/(b-1)^n up to
rounding, and the offset lies between; the sum of readings that makes p_i and minus the offset has the right
sign in any order of summation. Before the first symbol the offset is 0 instead of 1/b⁰, and the accept unit
of a language without the empty string is 0: σ(M·0) = 1/2, which is too little for y > 1/2 as well.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ndstack.automata import Transition, UnionPDA
from ndstack.nn.networks.rnn import StackRNN
from ndstack.stacks import Nondeterministic

SATURATED = 1e4
"""σ(±this) is 1 or 0 and tanh of it is 1, exactly."""
LARGEST = torch.finfo(torch.float64).max
EXACT = 1e300
"""How many runs there may be, so that quotients of such numbers are floats."""


@dataclass(frozen=True)
class ProofLayout:
    """Who is who: the automaton's names and the units of the hidden state.

    Attributes:
        union: the automaton with its trap, and the accept states of each language.
        symbols: what is read, one input for each; the last two are EOS and any symbol that is unknown.
        states: of the automaton, the start state first.
        tops: its stack symbols, ⊥ first.
    """

    union: UnionPDA
    symbols: tuple[str, ...]
    states: tuple[str, ...]
    tops: tuple[str, ...]

    @property
    def parts(self) -> int:
        """k, the number of languages."""
        return len(self.union.parts)

    @property
    def units(self) -> int:
        """Two for each symbol; accept units; the offset, if there are several languages."""
        return 2 * len(self.symbols) + self.parts + (self.parts > 1)

    @property
    def accept(self) -> slice:
        """Where the accept units are."""
        first = 2 * len(self.symbols)
        return slice(first, first + self.parts)

    @property
    def offset(self) -> int | None:
        """Where the offset unit is."""
        return self.units - 1 if self.parts > 1 else None

    @property
    def actions(self) -> int:
        """How many log weights the stack takes at every step."""
        kinds = len(self.states) * len(self.tops)
        return 2 * kinds * kinds + kinds * len(self.states)

    def bytes_to_read(self, length: int) -> int:
        """Return roughly how many bytes reading a string takes: log weights with copies, and the chart."""
        kinds, times = len(self.states) * len(self.tops), length + 2
        return 8 * (4 * self.actions * (length + 1) + kinds * kinds * times * (times + 4) // 2)

    def reading(self, state: str, top: str) -> int:
        """Return where the reading has the probability of a state and top symbol."""
        return self.states.index(state) * len(self.tops) + self.tops.index(top)

    def action(self, t: Transition) -> int:
        """Return where the actions have the log weight of a transition: push, then replace, then pop."""
        Q, K = len(self.states), len(self.states) * len(self.tops)
        start = self.reading(t.state, t.pop[0])
        if t.action == "pop":
            return 2 * K * K + start * Q + self.states.index(t.target)
        return (t.action == "replace") * K * K + start * K + self.reading(t.target, t.push[-1])

    @property
    def base(self) -> int:
        """b of the second proof: more than the number of choices the automaton ever has."""
        choices = Counter((t.state, t.read, t.pop) for t in self.union.pda.transitions)
        return max(choices.values(), default=1) + 1

    @property
    def longest(self) -> int:
        """The length up to which the arithmetic of the proofs is exact in float64."""
        return int(math.log(EXACT) / math.log(self.base))


def with_trap(union: UnionPDA, symbols: tuple[str, ...]) -> UnionPDA:
    """Add q_trap, so that some run survives every string.

    "this can always be ensured by adding to P an extra non-accepting state q_trap and transitions
    q₀, ⊥ -a-> q_trap, ⊥ and q_trap, ⊥ -a-> q_trap, ⊥ for all a ∈ Σ."
    """
    pda = union.pda
    trap = "trap"
    while trap in pda.states:
        trap += "_"
    bottom = (pda.bottom,)
    added = [Transition(q, a, bottom, trap, bottom) for a in symbols for q in (pda.start, trap)]
    return UnionPDA(replace(pda, transitions=(*pda.transitions, *added)), union.parts)


def compile_rnn(layout: ProofLayout) -> StackRNN:
    """Return the StackRNN of the proofs."""
    stack = Nondeterministic(len(layout.states), len(layout.tops))
    with torch.device("cpu"):
        rnn = StackRNN(len(layout.symbols), layout.units, stack).to(torch.float64)
    for parameter in rnn.parameters():
        torch.nn.init.zeros_(parameter).requires_grad_(False)
    _set_controller(rnn, layout)
    assert rnn.actions is not None
    _set_actions(rnn.actions.weight, layout)
    return rnn


def _set_controller(rnn: StackRNN, layout: ProofLayout) -> None:
    """c_t = f c_{t-1} + i g, h_t = o tanh(c_t), for all units at once."""
    assert isinstance(rnn.controller, torch.nn.LSTM)
    by_input, by_hidden, bias, _ = rnn.controller.all_weights[0]
    _, _, g_in, _ = by_input.chunk(4)  # [H, symbols + readings] each
    i_hidden, _, g_hidden, _ = by_hidden.chunk(4)  # [H, H] each
    i, f, g, o = bias.chunk(4)  # [H] each
    i.fill_(math.inf)
    f.fill_(-math.inf)
    o.fill_(math.inf)
    count = len(layout.symbols)
    for number in range(count):
        g_in[2 * number : 2 * number + 2, number] = SATURATED
    for unit, states in zip(range(layout.units)[layout.accept], layout.union.parts, strict=True):
        for state in states:
            g_in[unit, count + layout.reading(state, layout.union.pda.bottom)] = 1.0
    offset = layout.offset
    if offset is not None:
        g_hidden[layout.accept, offset] = -1.0
        # "At the first timestep, initialized to 1/b": the input gate is open while nothing has been read.
        i[offset] = SATURATED
        i_hidden[offset, 0 : 2 * count : 2] = -2 * SATURATED / math.tanh(1.0)
        g[offset] = math.atanh(1 / layout.base)
        # "the forget gate is used to multiply this cell by 1/b": σ(-log(b-1)) = 1/b.
        f[offset] = -math.log(layout.base - 1)


def _set_actions(weight: Tensor, layout: ProofLayout) -> None:
    """Log weight 0 for the transitions that scan a symbol, -∞ (see above) for all others."""
    count = len(layout.symbols)
    weight[:, : 2 * count] = -LARGEST
    for t in layout.union.pda.transitions:
        unit = 2 * layout.symbols.index(t.read)
        weight[layout.action(t), unit : unit + 2] = 0.0


def compile_mlp(layout: ProofLayout) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    """Return the layers of y = σ(W₂ σ(W₁ h + b₁) + b₂).

    For each accept unit there is a unit in the hidden layer with "its incoming weight ... to ∞"; "set the
    incoming weights from each to 1, and set the bias term to ... -k + 1/2".
    """
    first = torch.nn.Linear(layout.units, layout.parts, dtype=torch.float64)
    second = torch.nn.Linear(layout.parts, 1, dtype=torch.float64)
    for parameter in (*first.parameters(), *second.parameters()):
        torch.nn.init.zeros_(parameter).requires_grad_(False)
    first.weight[:, layout.accept] = LARGEST * torch.eye(layout.parts, dtype=torch.float64)
    second.weight.fill_(1.0)
    second.bias.fill_(0.5 - layout.parts)
    return first, second

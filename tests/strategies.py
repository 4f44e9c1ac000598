"""Random small grammars and automata for property tests."""

from hypothesis import assume
from hypothesis import strategies as st

from ndstack.automata import BOTTOM, PDA, RestrictedWPDA, Transition, WeightedPDA
from ndstack.grammars import CFG, PCFG, Nonterminal, Rule, two_greibach
from ndstack.grammars.grammar import trim

ALPHABET = ("a", "b")


@st.composite
def grammars(draw, max_right=3, max_rules=3):
    """A valid CFG over a and b with up to three nonterminals; ε-rules, unary rules and cycles occur."""
    nonterminals = [Nonterminal(name) for name in "SAB"[: draw(st.integers(1, 3))]]
    symbol = st.sampled_from([*nonterminals, *ALPHABET])
    right = st.lists(symbol, max_size=max_right).map(tuple)
    rules = [
        Rule(A, beta)
        for A in nonterminals
        for beta in draw(st.lists(right, min_size=1, max_size=max_rules, unique=True))
    ]
    useful = trim(rules, nonterminals[0])
    assume(useful)
    return CFG(useful, nonterminals[0])


@st.composite
def pcfgs(draw, max_right=3, max_rules=3):
    """A valid PCFG over a and b."""
    grammar = draw(grammars(max_right=max_right, max_rules=max_rules))
    shares = {rule: draw(st.integers(1, 6)) for rule in grammar.rules}
    totals = {A: sum(shares[r] for r in grammar.rules_for(A)) for A in grammar.nonterminals}
    return PCFG(
        tuple(Rule(r.left, r.right, shares[r] / totals[r.left]) for r in grammar.rules), grammar.start
    )


def grammars_with_small_automata():
    """Grammars whose normal forms are small enough to compare automata on every string."""
    return grammars(max_rules=3).filter(lambda grammar: len(two_greibach(grammar).rules) <= 40)


weights = st.one_of(st.floats(0.05, 3.0), st.sampled_from([0.0, 1.0, 1e-12, 1e6]))


@st.composite
def restricted_wpdas(draw):
    """A restricted WPDA over a and b with one or two states and two or three stack symbols."""
    states = ["q", "r"][: draw(st.integers(1, 2))]
    symbols = [BOTTOM, "x", "y"][: draw(st.integers(2, 3))]
    state, symbol = st.sampled_from(states), st.sampled_from(symbols)

    @st.composite
    def transition(draw):
        x, y = draw(symbol), draw(symbol)
        push = draw(st.sampled_from([(x, y), (y,), ()]))
        read = draw(st.sampled_from(ALPHABET))
        return Transition(draw(state), read, (x,), draw(state), push, draw(weights))

    transitions = draw(st.lists(transition(), min_size=1, max_size=7))
    accept = draw(st.sets(state, min_size=1))
    return RestrictedWPDA(tuple(transitions), states[0], frozenset(accept))


@st.composite
def general_pdas(draw, weighted=False):
    """A PDA that pops and pushes strings; silent transitions only lead to later states."""
    states = ["p", "q", "r"][: draw(st.integers(1, 3))]
    string = st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple)

    @st.composite
    def transition(draw):
        source, target = draw(st.sampled_from(states)), draw(st.sampled_from(states))
        silent = source < target and draw(st.booleans())
        read = "" if silent else draw(st.sampled_from(ALPHABET))
        weight = draw(st.floats(0.05, 0.5)) if weighted else 1.0
        return Transition(source, read, draw(string), target, draw(string), weight)

    transitions = draw(st.lists(transition(), min_size=1, max_size=6))
    accept = frozenset(draw(st.sets(st.sampled_from(states), min_size=1)))
    return (WeightedPDA if weighted else PDA)(tuple(transitions), states[0], accept)

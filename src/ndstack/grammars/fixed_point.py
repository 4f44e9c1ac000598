"""Sums over infinitely many derivations: least solutions of monotone polynomial equations.

The total weight Z_A of all finite derivations from A is the least solution >= 0 of the equations
Z_A = Σ_{A→β} w(A→β) Π_{B in β} Z_B. They are solved one strongly connected component at a time by Newton's
method, which starts from 0 and rises monotonically to that solution (Etessami & Yannakakis, 2009).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndstack.errors import DivergenceError
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule
from ndstack.grammars.graphs import grouped, strongly_connected_components, transitive_closure

Vector = NDArray[np.float64]

TOLERANCE = 1e-14
"""The relative size of a Newton step at which a variable counts as solved."""
MAX_STEPS = 200


@dataclass(frozen=True)
class Monomial:
    """One term of an equation: x[variable] = ... + coefficient · Π x[factors] + ..."""

    variable: int
    coefficient: float
    factors: tuple[int, ...]


def total_weight(grammar: CFG) -> float:
    """Return the total weight of all derivations of the grammar; 1 for a consistent PCFG."""
    return total_weights(grammar)[grammar.start]


def total_weights(grammar: CFG) -> dict[Nonterminal, float]:
    """Return the total weight of all derivations from each nonterminal."""
    return _solve(grammar, grammar.rules)


def is_consistent(grammar: PCFG, tolerance: float = 1e-6) -> bool:
    """Return whether derivations end with probability 1: then the probabilities of all strings sum to 1.

    S -> S S [2/3] | 'a' [1/3] is not consistent: with probability 1/2 a derivation never ends. `total_weight`
    is the probability that it ends.
    """
    return total_weight(grammar) > 1 - tolerance


def null_weights(grammar: CFG) -> dict[Nonterminal, float]:
    """Return the total weight of all derivations of ε from each nonterminal.

    In a grammar without weights, it is 1 for the nonterminals that derive ε and 0 for the others.
    """
    if grammar.weighted:
        return _solve(grammar, [r for r in grammar.rules if len(r.variables) == len(r.right)])
    nullable: set[Nonterminal] = set()
    before = -1
    while before != (before := len(nullable)):
        nullable |= {r.left for r in grammar.rules if all(s in nullable for s in r.right)}
    return {A: float(A in nullable) for A in grammar.nonterminals}


def derive_nonempty(grammar: CFG) -> set[Nonterminal]:
    """Return the nonterminals that derive something other than ε."""
    found: set[Nonterminal] = set()
    before = -1
    while before != (before := len(found)):
        found |= {r.left for r in grammar.rules if any(isinstance(s, str) or s in found for s in r.right)}
    return found


def _solve(grammar: CFG, rules: Sequence[Rule]) -> dict[Nonterminal, float]:
    """Return the total weight of the derivations that use only these rules of the grammar."""
    index = {A: i for i, A in enumerate(grammar.nonterminals)}
    monomials = [
        Monomial(index[rule.left], rule.weight, tuple(index[A] for A in rule.variables)) for rule in rules
    ]
    names = [f"derivations from {A}" for A in grammar.nonterminals]
    solution = least_fixed_point(monomials, names)
    return {A: float(solution[i]) for A, i in index.items()}


def least_fixed_point(monomials: Sequence[Monomial], names: Sequence[str]) -> Vector:
    """Return the least x >= 0 with x[v] = Σ over the monomials of v; names of variables are for errors."""
    x = np.zeros(len(names))
    by_variable = grouped(monomials, lambda monomial: monomial.variable)
    edges = [[f for m in by_variable.get(v, ()) for f in m.factors] for v in range(len(names))]
    for component in strongly_connected_components(edges):
        own = [m for v in component for m in by_variable.get(v, ())]
        if len(component) == 1 and component[0] not in edges[component[0]]:
            x[component[0]] = math.fsum(_value(m, x) for m in own)
        else:
            _newton(x, component, own, names)
    return x


def _value(monomial: Monomial, x: Vector) -> float:
    return monomial.coefficient * math.prod(float(x[f]) for f in monomial.factors)


def _newton(x: Vector, component: Sequence[int], monomials: Sequence[Monomial], names: Sequence[str]) -> None:
    """Solve the equations of one component in place by steps x ← x + (I - f'(x))^{-1} (f(x) - x)."""
    local = {v: i for i, v in enumerate(component)}
    rounding = np.finfo(float).eps * (len(monomials) + 1)
    for _ in range(MAX_STEPS):
        f, jacobian = _evaluate(x, local, monomials)
        residual = f - x[component]
        if np.all(np.abs(residual) <= rounding * x[component]):  # near a double root, steps stay large
            _snap_to_one(x, component, local, monomials)
            return
        try:
            step = np.linalg.solve(np.eye(len(component)) - jacobian, residual)
        except np.linalg.LinAlgError:
            break
        if not np.all(np.isfinite(step)) or np.any(step < -TOLERANCE * x[component]):
            break
        x[component] += step
        if np.all(step <= TOLERANCE * x[component]):
            return
    raise DivergenceError(
        f"the total weight of {names[component[0]]} is infinite: the weights of its recursive rules are "
        "too large; reduce them until the sum converges"
    )


def _evaluate(
    x: Vector, local: dict[int, int], monomials: Sequence[Monomial]
) -> tuple[Vector, NDArray[np.float64]]:
    f = np.zeros(len(local))
    jacobian = np.zeros((len(local), len(local)))
    for m in monomials:
        row = local[m.variable]
        f[row] += _value(m, x)
        for position, factor in enumerate(m.factors):
            if factor in local:
                others = m.factors[:position] + m.factors[position + 1 :]
                jacobian[row, local[factor]] += _value(Monomial(0, m.coefficient, others), x)
    return f, jacobian


def _snap_to_one(
    x: Vector, component: Sequence[int], local: dict[int, int], monomials: Sequence[Monomial]
) -> None:
    """Set the variables of a component to 1 if they are close to it and 1 is the least solution.

    At a double root only half the digits are certain. If 1 solves the equations, it is the least solution
    as long as the derivative there has no eigenvalue greater than 1.
    """
    if np.all(np.abs(x[component] - 1) < 1e-6):
        rounded = x.copy()
        rounded[component] = 1.0
        f, jacobian = _evaluate(rounded, local, monomials)
        rounding = 1e-15 * len(monomials)
        radius = np.max(np.abs(np.linalg.eigvals(jacobian)))
        if np.all(np.abs(f - 1) < rounding) and radius <= 1 + rounding:
            x[component] = 1.0


def star(matrix: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """Return I + U + U² + ... = (I - U)^{-1}, computed by Kleene's elimination.

    The only subtraction is that of the weight of a loop from 1, so small entries keep their digits. `what`
    names the sum in the error if it diverges.
    """
    total = matrix.astype(np.float64)
    for k in range(len(total)):
        loop, into, out = float(total[k, k]), total[:, k], total[k]
        if loop >= 1:
            raise DivergenceError(
                f"{what}: a cycle of rules has weight 1 or more, so the sum over its repetitions is infinite"
            )
        if into.any() and out.any():
            total = total + np.outer(into, out) / (1 - loop)
    total[np.diag_indices_from(total)] += 1
    smallest = np.finfo(float).smallest_subnormal  # an entry that underflows must not become 0
    return np.where(transitive_closure(matrix), np.maximum(total, smallest), 0.0)

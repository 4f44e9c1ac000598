"""Sums over infinitely many derivations: least solutions of monotone polynomial equations.

The weight Z_A of all finite derivations from A solves Z_A = Σ_{A→β} w(A→β) Π_{B in β} Z_B, and is the
least solution >= 0. The equations are solved one strongly connected component at a time by Newton's
method from 0, which rises monotonically to that solution (Etessami & Yannakakis, 2009).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndstack.errors import DivergenceError
from ndstack.grammars.grammar import CFG, PCFG, Nonterminal, Rule

Vector = NDArray[np.float64]

TOLERANCE = 1e-14  # relative, on every variable
MAX_STEPS = 200


@dataclass(frozen=True)
class Monomial:
    """One term of an equation: x[variable] = ... + coefficient · Π x[factors] + ..."""

    variable: int
    coefficient: float
    factors: tuple[int, ...]


def total_weight(grammar: CFG) -> float:
    """The total weight of all derivations of the grammar; 1 for a consistent PCFG."""
    return total_weights(grammar)[grammar.start]


def total_weights(grammar: CFG) -> dict[Nonterminal, float]:
    """The total weight of all derivations from each nonterminal."""
    return _solve_rules(grammar, [(rule, True) for rule in grammar.rules])


def is_consistent(grammar: PCFG, tolerance: float = 1e-6) -> bool:
    """Whether derivations end with probability 1, so that the probabilities of all strings sum to 1.

    S -> S S [2/3] | 'a' [1/3] is not consistent: with probability 1/2 a derivation never ends. `total_weight`
    is the probability that it ends.
    """
    return total_weight(grammar) > 1 - tolerance


def null_weights(grammar: CFG) -> dict[Nonterminal, float]:
    """The total weight of all derivations of ε from each nonterminal.

    For a grammar without weights: 1 for the nonterminals that derive ε, 0 for the others.
    """
    if grammar.weighted:
        return _solve_rules(grammar, [(r, not _has_terminal(r)) for r in grammar.rules])
    nullable: set[Nonterminal] = set()
    before = -1
    while before != (before := len(nullable)):
        nullable |= {r.left for r in grammar.rules if all(s in nullable for s in r.right)}
    return {A: float(A in nullable) for A in grammar.nonterminals}


def derive_nonempty(grammar: CFG) -> set[Nonterminal]:
    """The nonterminals that derive something other than ε."""
    found: set[Nonterminal] = set()
    before = -1
    while before != (before := len(found)):
        found |= {r.left for r in grammar.rules if any(isinstance(s, str) or s in found for s in r.right)}
    return found


def _has_terminal(rule: Rule) -> bool:
    return any(isinstance(s, str) for s in rule.right)


def _solve_rules(grammar: CFG, rules: Sequence[tuple[Rule, bool]]) -> dict[Nonterminal, float]:
    index = {A: i for i, A in enumerate(grammar.nonterminals)}
    monomials = [
        Monomial(
            index[rule.left],
            rule.weight,
            tuple(index[s] for s in rule.right if isinstance(s, Nonterminal)),
        )
        for rule, counts in rules
        if counts
    ]
    names = [f"derivations from {A}" for A in grammar.nonterminals]
    solution = least_fixed_point(monomials, names)
    return {A: float(solution[i]) for A, i in index.items()}


def least_fixed_point(monomials: Sequence[Monomial], names: Sequence[str]) -> Vector:
    """The least x >= 0 with x[v] = Σ over monomials of v; one name a variable, for errors."""
    x = np.zeros(len(names))
    by_variable: list[list[Monomial]] = [[] for _ in names]
    for monomial in monomials:
        by_variable[monomial.variable].append(monomial)
    edges = [[f for m in own for f in m.factors] for own in by_variable]
    for component in strongly_connected_components(edges):
        own = [m for v in component for m in by_variable[v]]
        if len(component) == 1 and component[0] not in edges[component[0]]:
            x[component[0]] = math.fsum(_value(m, x) for m in own)
        else:
            _newton(x, component, own, names)
    return x


def _value(monomial: Monomial, x: Vector) -> float:
    return monomial.coefficient * math.prod(float(x[f]) for f in monomial.factors)


def _newton(x: Vector, component: Sequence[int], monomials: Sequence[Monomial], names: Sequence[str]) -> None:
    """x ← x + (I - f'(x))^{-1} (f(x) - x) on the component, in place."""
    local = {v: i for i, v in enumerate(component)}
    rounding = np.finfo(float).eps * (len(monomials) + 1)
    for _ in range(MAX_STEPS):
        f, jacobian = _evaluate(x, local, monomials)
        residual = f - x[component]
        if np.all(np.abs(residual) <= rounding * x[component]):  # at a double root no step is small
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
        f"the total weight of {names[component[0]]} is infinite: its recursive rules weigh too "
        "much; scale them down so that the sum converges"
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
    """At a double root only half the digits are sure. If 1 solves the equations, it is the least
    solution as long as the derivative there has no eigenvalue beyond 1; then take it.
    """
    if np.all(np.abs(x[component] - 1) < 1e-6):
        rounded = x.copy()
        rounded[component] = 1.0
        f, jacobian = _evaluate(rounded, local, monomials)
        rounding = 1e-15 * len(monomials)
        radius = np.max(np.abs(np.linalg.eigvals(jacobian)))
        if np.all(np.abs(f - 1) < rounding) and radius <= 1 + rounding:
            x[component] = 1.0


def strongly_connected_components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Components of the graph v → edges[v], each after all components it points to (Kosaraju)."""
    backward: list[list[int]] = [[] for _ in edges]
    for v, targets in enumerate(edges):
        for target in targets:
            backward[target].append(v)
    order = [v for tree in _depth_first(backward, range(len(edges))) for v in tree]
    return list(_depth_first(edges, reversed(order)))


def _depth_first(edges: Sequence[Sequence[int]], roots: Iterable[int]) -> list[list[int]]:
    """Vertices in post-order, one list a root that is still unvisited."""
    seen: set[int] = set()
    trees = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        tree, open_ = [], [(root, iter(edges[root]))]
        while open_:
            vertex, targets = open_[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    open_.append((target, iter(edges[target])))
                    break
            else:
                open_.pop()
                tree.append(vertex)
        trees.append(tree)
    return trees


def star(matrix: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """I + U + U² + ... = (I - U)^{-1}, by Kleene's elimination, in which nothing is subtracted but the
    weight of a loop from 1, so that small entries keep their digits; `what` names the sum if it diverges.
    """
    total = matrix.astype(np.float64)
    for k in range(len(total)):
        loop, into, out = float(total[k, k]), total[:, k], total[k]
        if loop >= 1:
            raise DivergenceError(
                f"{what}: a cycle of rules weighs 1 or more, so the sum over its repetitions is infinite"
            )
        if into.any() and out.any():
            total = total + np.outer(into, out) / (1 - loop)
    total[np.diag_indices_from(total)] += 1
    smallest = np.finfo(float).smallest_subnormal  # what underflows is still there
    return np.where(reachability(matrix), np.maximum(total, smallest), 0.0)


def reachability(matrix: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which entries of (I - U)^{-1} are not 0: the reflexive-transitive closure of U > 0."""
    closure = (matrix > 0) | np.eye(len(matrix), dtype=bool)
    while True:
        wider = (closure.astype(np.float32) @ closure.astype(np.float32)) > 0
        if np.array_equal(wider, closure):
            return closure
        closure = wider

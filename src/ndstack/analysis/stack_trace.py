"""The actions, readings and attention of a stack of any kind over time, computed from its inputs.

Everything is computed in float64. According to section 9.2, the reading of a superposition stack is a sum of
pushed vectors, each multiplied by the weight of the runs that have it on top; the reading of a stratification
stack is such a sum by definition. The coefficients are an attention distribution. They are the readings of a
stack onto which unit vectors are pushed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ndstack.analysis.stack_run import Names
from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.transition_weights import Floats, TransitionWeights
from ndstack.errors import NdstackError
from ndstack.functional import nondeterministic, stratification, superposition
from ndstack.nn.networks.unnormalized import Unnormalized
from ndstack.stacks import Nondeterministic, Several, Stack, Stratification, Superposition

Kind = Literal["nondeterministic", "superposition", "stratification"]

CaughtStack = tuple[str, Stack[Any], Tensor, Tensor | None]
"""The owner of each stack, the stack, its action logits [n, A] and its pushed vectors [n, m]."""


@dataclass(frozen=True, eq=False)
class StackTrace:
    """One stack over n steps.

    Attributes:
        where: the owner of the stack: "RNN", "layer 3", "layer 3, stack 1".
        kind: the kind of stack.
        inputs: the symbol read at each step.
        action_names: push, replace, pop; push, no-op, pop; or push, pop.
        actions: the weight of each action, [n, A]. For a nondeterministic stack, it is the share of all
            transitions of this type in the total weight; for a superposition stack, a probability; for a
            stratification stack, a strength.
        reading_names: the names of the numbers in a reading.
        readings: the reading after each step, [n, R].
        attention: the share of each reading that was pushed at step j, [n, n + 1]. Step 0 is the initial
            bottom or, for other kinds of stacks, the empty stack.
        attention_by_type: the attention of a nondeterministic stack given the state and the top symbol,
            [n, Q, S, n + 1].
        vectors: the pushed vectors, [n, m]; None if the stack has none.
        weights: the weights of the transitions, if the stack is nondeterministic.
    """

    where: str
    kind: Kind
    inputs: tuple[str, ...]
    action_names: tuple[str, ...]
    actions: Floats
    reading_names: tuple[str, ...]
    readings: Floats
    attention: Floats
    attention_by_type: Floats | None = None
    vectors: Floats | None = None
    weights: TransitionWeights | None = None

    @property
    def steps(self) -> int:
        """The number of steps n."""
        return len(self.inputs)

    @cached_property
    def runs(self) -> StackRuns:
        """The runs of the automaton of a nondeterministic stack."""
        if self.weights is None:
            raise NdstackError(f"the stack is a {self.kind} stack; only a nondeterministic one has runs")
        return StackRuns(self.weights)


def stack_traces(
    caught: list[CaughtStack],
    inputs: tuple[str, ...],
    names: Names | None = None,
    accept: frozenset[tuple[int, int]] | None = None,
) -> Iterator[StackTrace]:
    """Yield the trace of each stack, given its inputs; the stacks within a `Several` come one by one."""
    for where, stack, logits, vectors in caught:
        for place, part, own, pushed in _single(where, stack, logits.double(), vectors):
            if isinstance(part, Superposition):
                yield from _superposition(place, part, own, pushed, inputs)
            elif isinstance(part, Stratification):
                yield _stratification(place, own, pushed, inputs)
            elif isinstance(part, Nondeterministic | Unnormalized):
                yield _nondeterministic(place, part, own, pushed, inputs, names, accept)
            else:
                raise NdstackError(f"a {type(part).__name__} given; this kind of stack cannot be traced")


def _single(where: str, stack: Stack[Any], logits: Tensor, vectors: Tensor | None) -> Iterator[CaughtStack]:
    """Yield the stacks within a `Several`, each with its part of the inputs, vectors in float64."""
    if not isinstance(stack, Several):
        yield where, stack, logits, None if vectors is None else vectors.double()
        return
    first = begun = 0
    for number, part in enumerate(stack.stacks, 1):
        assert isinstance(part, Stack)
        own = logits[:, first : first + part.action_size]
        pushed = None
        if vectors is not None and part.push_size:
            pushed = vectors[:, begun : begun + part.push_size]
        yield from _single(f"{where}, stack {number}", part, own, pushed)
        first, begun = first + part.action_size, begun + part.push_size


def _superposition(
    where: str, stack: Superposition, logits: Tensor, vectors: Tensor | None, inputs: tuple[str, ...]
) -> Iterator[StackTrace]:
    """Yield the trace of each stack of a superposition stack."""
    assert vectors is not None
    sizes = (stack.push_size,) if stack.synchronized else stack.sizes
    for number, (size, own) in enumerate(zip(sizes, torch.split(logits, 3, dim=1), strict=True)):
        first = sum(sizes[:number])
        weights = torch.softmax(own, dim=1)
        push, noop, pop = weights[None].unbind(2)
        coefficients = superposition(push, pop, noop, _units(len(inputs)), depth=stack.depth)
        place = where if len(sizes) == 1 else f"{where}, stack {number + 1}"
        names, pushed = ("push", "no-op", "pop"), vectors[:, first : first + size]
        yield _of_vectors(place, "superposition", inputs, names, weights, coefficients, pushed)


def _stratification(
    where: str, logits: Tensor, vectors: Tensor | None, inputs: tuple[str, ...]
) -> StackTrace:
    assert vectors is not None
    strengths = torch.sigmoid(logits)
    push, pop = strengths[None].unbind(2)
    coefficients = stratification(push, pop, _units(len(inputs)))
    return _of_vectors(where, "stratification", inputs, ("push", "pop"), strengths, coefficients, vectors)


def _of_vectors(
    where: str,
    kind: Kind,
    inputs: tuple[str, ...],
    action_names: tuple[str, ...],
    actions: Tensor,
    coefficients: Tensor,
    pushed: Tensor,
) -> StackTrace:
    """Return the trace of a stack whose readings are sums of pushed vectors with these coefficients."""
    coefficients = coefficients[0, :, : len(inputs)]
    return StackTrace(
        where=where,
        kind=kind,
        inputs=inputs,
        action_names=action_names,
        actions=to_numpy(actions),
        reading_names=_numbered(pushed.shape[1]),
        readings=to_numpy(coefficients @ pushed),
        attention=_with_rest(coefficients),
        vectors=to_numpy(pushed),
    )


def _nondeterministic(
    where: str,
    stack: Nondeterministic | Unnormalized,
    logits: Tensor,
    vectors: Tensor | None,
    inputs: tuple[str, ...],
    names: Names | None,
    accept: frozenset[tuple[int, int]] | None,
) -> StackTrace:
    inner = stack.original if isinstance(stack, Unnormalized) else stack
    assert isinstance(inner, Nondeterministic)
    n, Q, S = len(inputs), inner.states, inner.symbols
    K = Q * S
    split = torch.split(inner.log_weights(logits), [K * K, K * K, K * Q], dim=1)
    push, replace = (part.reshape(n, Q, S, Q, S) for part in split[:2])
    pop = split[2].reshape(n, Q, S, Q)
    names = names or Names.numbered(inputs, Q, S)
    weights = TransitionWeights(
        to_numpy(push), to_numpy(replace), to_numpy(pop), names, inner.window, inner.bottom_fix, accept
    )
    found = nondeterministic(
        push[None], replace[None], pop[None],
        window=inner.window, bottom_fix=inner.bottom_fix, return_attention=True,
    )  # fmt: skip
    types, by_type = (part[0] for part in found)
    if vectors is None and stack is inner:
        readings = types.flatten(1) if inner.read_states else types.sum(1)
    else:
        readings = stack.scan(logits[None], None if vectors is None else vectors[None])[0][0]
    return StackTrace(
        where=where,
        kind="nondeterministic",
        inputs=inputs,
        action_names=("push", "replace", "pop"),
        actions=weights.action_shares(),
        reading_names=_reading_names(inner, names),
        readings=to_numpy(readings),
        attention=to_numpy((types[..., None] * by_type).sum(dim=(1, 2))),
        attention_by_type=to_numpy(by_type),
        vectors=None if vectors is None else to_numpy(vectors),
        weights=weights,
    )


def _reading_names(stack: Nondeterministic, names: Names) -> tuple[str, ...]:
    kinds = names.types() if stack.read_states else names.symbols
    if stack.vector_size is None:
        return kinds
    return tuple(f"{kind}, {number}" for kind in kinds for number in _numbered(stack.vector_size))


def _numbered(size: int) -> tuple[str, ...]:
    return tuple(f"v{number}" for number in range(1, size + 1))


def _units(n: int) -> Tensor:
    """Return the unit vectors of n dimensions (at least one), one for each step, [1, n, n]."""
    return torch.eye(n, max(n, 1), dtype=torch.float64)[None]


def _with_rest(coefficients: Tensor) -> Floats:
    """Return [n, n + 1]: 1 minus the sum of the coefficients, followed by the coefficients."""
    rest = (1 - coefficients.sum(dim=1, keepdim=True)).clamp_min(0.0)
    return to_numpy(torch.cat([rest, coefficients], dim=1))


def to_numpy(tensor: Tensor) -> Floats:
    """Return a tensor as an array in float64, without gradients."""
    array: Floats = tensor.detach().cpu().numpy().astype(np.float64, copy=False)
    return array

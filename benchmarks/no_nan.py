"""Random weights through every kernel: no nan, no inf, and readings that are distributions.

    python -m benchmarks.no_nan --count 1000000 --out no-nan.json

A trial is a batch of sequences with one automaton, length, way of computing and dtype; each sequence has its
own scale of weights (0.1 to 1e4), share of -inf (0 to 0.9) and share of steps at which everything is -inf. A
trial is decided by its number, so a run can be split (`--first`), and one that was stopped goes on where
`--out` says.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ndstack.functional import nondeterministic, stratification, superposition
from ndstack.nn.fused import LSTMWeights, run_lstm, step_lstm
from ndstack.stacks import Nondeterministic, Stack, Stratification, Superposition

BATCH = 1000
LONGEST = 8
WAYS = ("scan cpu", "scan portable", "scan", "steps", "lstm", "lstm steps")
"""Whole sequences by a named backend, whole sequences, single steps; both with an LSTM that drives."""


class Trial:
    """The random choices of one trial."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.random = torch.Generator().manual_seed(number)
        self.kind = self.one_of("nondeterministic", "nondeterministic", "superposition", "stratification")
        self.way = self.one_of(*WAYS)
        self.dtype = self.one_of(torch.float32, torch.float64)
        self.steps = self.between(1, LONGEST)
        self.states, self.symbols, self.size = (self.between(1, top) for top in (4, 4, 3))
        self.vectors = self.kind != "nondeterministic" or self.between(0, 2) == 0
        self.window = self.between(1, LONGEST) if self.between(0, 2) == 0 else None
        self.bottom_fix = bool(self.between(0, 1))
        self.attention = bool(self.between(0, 1))

    def between(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.random))

    def one_of(self, *choices: Any) -> Any:
        return choices[self.between(0, len(choices) - 1)]

    def normal(self, *shape: int, scale: float | Tensor = 1.0) -> Tensor:
        values = torch.randn(*shape, generator=self.random, dtype=torch.float64) * scale
        return values.to(self.dtype).requires_grad_()

    def scales(self, most: float) -> Tensor:
        """One scale for each sequence, from 0.1 up, evenly on a logarithmic axis."""
        share = torch.rand(BATCH, 1, 1, generator=self.random, dtype=torch.float64)
        return 0.1 * (most / 0.1) ** share

    def log_weights(self, size: int) -> Tensor:
        """[B, n, size], some of them -inf, at some steps all."""
        values = self.normal(BATCH, self.steps, size, scale=self.scales(1e4)).detach().clamp(-1e4, 1e4)
        shape = (BATCH, self.steps, 1)
        dropped, dead = (torch.rand(BATCH, 1, 1, generator=self.random) for _ in range(2))
        drop = torch.rand(values.shape, generator=self.random) < 0.9 * dropped
        drop = drop | (torch.rand(shape, generator=self.random) < (0.5 * dead - 0.25))
        return values.masked_fill(drop, -math.inf).requires_grad_()

    def stack(self) -> Stack[Any]:
        if self.kind == "superposition":
            return Superposition(self.size, depth=self.window)
        if self.kind == "stratification":
            return Stratification(self.size)
        size = self.size if self.vectors else None
        stack = Nondeterministic(
            self.states, self.symbols, size, window=self.window, bottom_fix=self.bottom_fix
        )
        return stack.to(self.dtype)

    def __str__(self) -> str:
        width = str(self.dtype).removeprefix("torch.")
        return f"{self.kind}, {self.way}, {width}"


def by_function(trial: Trial) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and inputs of the function on whole sequences."""
    shape = (BATCH, trial.steps)
    vectors = trial.normal(*shape, trial.size)
    if trial.kind != "nondeterministic":
        logits = trial.normal(*shape, 3, scale=trial.scales(1e4))
        if trial.kind == "superposition":
            push, pop, noop = logits.softmax(-1).unbind(-1)
            readings = superposition(push, pop, noop, vectors, depth=trial.window)
        else:
            push, pop = logits[..., :2].sigmoid().unbind(-1)
            readings = stratification(push, pop, vectors)
        return [readings], [logits, vectors]
    kinds = (trial.states, trial.symbols)
    both = math.prod(kinds) ** 2
    actions = trial.log_weights(2 * both + math.prod(kinds) * trial.states)
    push, replace, pop = torch.split(actions, [both, both, math.prod(kinds) * trial.states], -1)
    result = nondeterministic(
        push.reshape(*shape, *kinds, *kinds),
        replace.reshape(*shape, *kinds, *kinds),
        pop.reshape(*shape, *kinds, trial.states),
        vectors=vectors if trial.vectors else None,
        backend=trial.way.removeprefix("scan "),
        return_attention=trial.attention,
        window=trial.window,
        bottom_fix=trial.bottom_fix,
    )
    outputs = list(result) if isinstance(result, tuple) else [result]
    return outputs, [actions] + [vectors] * trial.vectors


def by_stack(trial: Trial) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and inputs of a stack object, all steps at once or one by one."""
    stack = trial.stack()
    shape = (BATCH, trial.steps)
    if trial.kind == "nondeterministic":
        actions = trial.log_weights(stack.action_size)
    else:
        actions = trial.normal(*shape, stack.action_size, scale=trial.scales(1e4))
    pushed = trial.normal(*shape, stack.push_size) if stack.push_size else None
    inputs = [actions] if pushed is None else [actions, pushed]
    if trial.way == "scan":
        return [stack.scan(actions, pushed)[0]], inputs
    state = stack.start(BATCH, dtype=trial.dtype)
    readings = []
    for t in range(trial.steps):
        state = stack.step(state, actions[:, t], None if pushed is None else pushed[:, t])
        readings.append(state.reading)
    return [torch.stack(readings, 1)], inputs


def by_lstm(trial: Trial) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and inputs of a stack whose controller is an LSTM of 5 units.

    Scales are smaller: the gradients of a recurrent network grow as a power of its weights.
    """
    stack, units = trial.stack(), 5
    weights = LSTMWeights(
        trial.normal(4 * units, stack.reading_size),
        trial.normal(4 * units, units),
        trial.normal(stack.control_size, units, scale=10.0 ** trial.between(-1, 1)),
        trial.normal(stack.control_size, scale=10.0 ** trial.between(-1, 3)),
    )
    inputs = trial.normal(BATCH, trial.steps, 4 * units, scale=trial.scales(1e2))
    zeros = torch.zeros(BATCH, units, dtype=trial.dtype)
    state = stack.start(BATCH, dtype=trial.dtype)
    if trial.way == "lstm":
        hidden, readings, _, _ = run_lstm(stack, inputs, weights, (zeros, zeros), state)
        return [readings, hidden], [inputs, *weights]
    memory, steps = (zeros, zeros), []
    for gates in inputs.unbind(1):
        memory, state = step_lstm(stack, gates, weights, memory, state)
        steps.append((state.reading, memory[0]))
    return [torch.stack(each, 1) for each in zip(*steps, strict=True)], [inputs, *weights]


def faults(trial: Trial) -> list[str]:
    """What is wrong with the outputs and derivatives of a trial; nothing, one hopes."""
    if trial.way in ("lstm", "lstm steps"):
        outputs, inputs = by_lstm(trial)
    elif trial.way in ("scan cpu", "scan portable"):
        outputs, inputs = by_function(trial)
    else:
        outputs, inputs = by_stack(trial)
    found = [f"output {j} not finite" for j, one in enumerate(outputs) if not one.isfinite().all()]
    sums = outputs[0].flatten(2).sum(-1)
    if trial.kind == "nondeterministic" and not trial.vectors:
        near = 1e-4 if trial.dtype == torch.float32 else 1e-9
        if not (((sums - 1).abs() < near) | (outputs[0] == 0).flatten(2).all(-1)).all():
            found.append("readings are not distributions")
        if (outputs[0] < 0).any():
            found.append("negative probabilities")
    total = torch.stack([(one * trial.normal(*one.shape).detach()).sum() for one in outputs]).sum()
    grads: tuple[Tensor | None, ...] = torch.autograd.grad(total, inputs, allow_unused=True)
    bad = [j for j, grad in enumerate(grads) if grad is not None and not grad.isfinite().all()]
    return found + [f"derivative by input {j} not finite" for j in bad]


def main() -> int:
    """The number of trials with a fault, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="how many weight tensors")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--out", type=Path, help="a file with the counts so far, to go on from")
    given = parser.parse_args()
    done: dict[str, Any] = {"first": given.first, "trials": 0, "tensors": 0, "kinds": {}, "faults": []}
    if given.out is not None and given.out.exists():
        done = json.loads(given.out.read_text())
    kinds = Counter(done["kinds"])
    while done["tensors"] < given.count:
        trial = Trial(done["first"] + done["trials"])
        done["faults"] += [f"trial {trial.number} ({trial}): {fault}" for fault in faults(trial)]
        done["trials"] += 1
        done["tensors"] += BATCH
        kinds[str(trial)] += BATCH
        done["kinds"] = dict(sorted(kinds.items()))
        if given.out is not None:
            given.out.write_text(json.dumps(done, indent=1) + "\n")
    print(f"{done['tensors']:,} weight tensors in {done['trials']:,} trials, {len(done['faults'])} faults")
    print(*done["faults"], sep="\n")
    return 1 if done["faults"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

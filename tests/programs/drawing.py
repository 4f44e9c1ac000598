"""Random programs over the public Python interface: what they are, how a seed draws one, how it is listed."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

CONTROLLERS = ("lstm", "gru", "rnn")


@dataclasses.dataclass(frozen=True)
class Op:
    """One line of a program. What it makes is numbered like the line, from 1; 0 is the state at the start.

    Attributes:
        name: "scan" (a chunk), "steps" (one by one), "drive" (steps from hidden states), "no_grad" (steps
            without derivatives), "select", "detach", "fork" (steps in a forked process), "pair" (chunks from
            two states at the same time, in two threads) or "threads" (of torch, from here on).
        source: number of the state to go on from.
        steps: how many.
        rows: for "select".
        other: for "pair", the other state; for "threads", how many.
        bad: (row, step, number) for something that is no finite number, or None.
    """

    name: str
    source: int
    steps: int = 0
    rows: tuple[int, ...] = ()
    other: int = 0
    bad: tuple[int, int, float] | None = None


@dataclasses.dataclass(frozen=True)
class Program:
    """What is done, and with what.

    Attributes:
        stack: name and arguments of a stack, or of several, as `make` takes them.
        network: the options of a `StackRNN`, or None where the stack is used by itself.
        dtype: "float32" or "float64".
        scale: of the logits, or of the network's input.
        holes: the share of log weights that are -inf.
        autocast: whether all is done under `torch.autocast` in bfloat16.
        halves: whether the loss is differentiated in two parts.
        backend: of the function on whole sequences that it is compared with.
        lean: for log weights of a nondeterministic stack, which kind of action has the largest; or "".
    """

    seed: int
    stack: tuple[Any, ...]
    network: dict[str, Any] | None
    dtype: str
    batch: int
    scale: float
    holes: float
    autocast: bool
    halves: bool
    backend: str
    ops: tuple[Op, ...]
    lean: str = ""

    def listing(self) -> str:
        """The program for a reader."""
        head = [
            f"seed {self.seed}: {_shown(self.stack)}, batch {self.batch}, {self.dtype}, scale {self.scale:g}"
        ]
        if self.network is not None:
            options = ", ".join(f"{name}={value!r}" for name, value in self.network.items())
            head.append(f"  in StackRNN({options})")
        notes = [f"compared with {self.backend}"]
        notes += [f"{self.holes:.0%} of the log weights are -inf"] if self.holes else []
        notes += ["under autocast"] if self.autocast else []
        notes += [f"mostly {self.lean}"] if self.lean else []
        notes += ["loss in two parts"] if self.halves else []
        return "\n".join(
            [*head, "  " + "; ".join(notes), *(f"  {j + 1}: {_line(o)}" for j, o in enumerate(self.ops))]
        )


def _shown(stack: tuple[Any, ...]) -> str:
    name, *parts = stack
    if name == "several":
        return "Several(" + ", ".join(_shown(part) for part in parts) + ")"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in parts[0].items())})"


def _line(op: Op) -> str:
    if op.name == "threads":
        return f"torch.set_num_threads({op.other})"
    if op.name == "select":
        return f"select rows {list(op.rows)} of {op.source}"
    if op.name == "detach":
        return f"detach {op.source}"
    bad = "" if op.bad is None else f", {op.bad[2]} at row {op.bad[0]}, step {op.bad[1]}"
    where = f"{op.source} and {op.other}" if op.name == "pair" else f"{op.source}"
    return f"{op.name}: {op.steps} steps from {where}{bad}"


def draw(seed: int, *, autocast: bool = True) -> Program:
    """The program of a seed.

    Args:
        autocast: whether programs may be under autocast; if not, the same programs without it.
    """
    rng = random.Random(seed)
    network = _network(rng) if rng.random() < 0.45 else None
    stack = _stack(rng, network)
    batch = rng.choice((1, 2, 3, 5))
    narrow = rng.random() < 0.15
    small = stack[0] == "Nondeterministic" and stack[1]["states"] * stack[1]["symbols"] <= 2
    most = 6 if network is not None else 150 if small and rng.random() < 0.15 else 9
    dtype = "float32" if narrow else rng.choice(("float32", "float64"))
    ops = _ops(rng, batch, most, network is not None)
    longest = sum(op.steps for op in ops)
    backend = rng.choice(("auto", "auto", "auto", "portable", "reference")) if longest < 25 else "auto"
    unnormalized = network is not None and not network.get("normalize_reading", True)
    scale = rng.choice((0.3, 1.0, 1.0) if unnormalized else (0.3, 1.0, 3.0, 10.0))
    extreme = random.Random(-1 - seed)
    weights = network is None and stack[0] == "Nondeterministic" and most < 10
    return Program(
        seed, stack, network, dtype, batch,
        scale=extreme.choice((30.0, 100.0)) if weights and extreme.random() < 0.2 else scale,
        holes=rng.choice((0.0, 0.0, 0.0, 0.2)) if network is None and not _normalized(stack) else 0.0,
        autocast=narrow and autocast,
        halves=rng.random() < 0.2,
        backend=backend,
        ops=ops,
        lean=extreme.choice(("push", "replace", "pop")) if weights and extreme.random() < 0.3 else "",
    )  # fmt: skip


def _normalized(stack: tuple[Any, ...]) -> bool:
    return stack[0] != "Nondeterministic" or bool(stack[1]["normalized"])


def _network(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"input_size": rng.randint(1, 3), "hidden_size": rng.randint(1, 5)}
    if rng.random() < 0.5:
        options["controller"] = rng.choice(CONTROLLERS)
        options["num_layers"] = rng.choice((1, 1, 2))
        options["reading_layers"] = rng.choice((0, 0, 1))
        options["push_hidden"] = rng.random() < 0.2
    options["output_reading"] = rng.random() < 0.5
    if rng.random() < 0.1:
        options["normalize_reading"] = False
    return options


def _stack(rng: random.Random, network: dict[str, Any] | None) -> tuple[Any, ...]:
    if network is not None and not network.get("normalize_reading", True):
        network["push_hidden"] = False
        return _nondeterministic(rng, None)
    if network is not None and network.get("push_hidden"):
        size = network["hidden_size"]
        kinds = (("Superposition", {"sizes": size, "depth": None, "synchronized": False}),
                 ("Stratification", {"size": size}), _nondeterministic(rng, size))  # fmt: skip
        return rng.choice(kinds)
    kind = rng.random()
    if kind < 0.6:
        return _nondeterministic(rng, rng.choice((None, None, 1, 2, 3)))
    if kind < 0.75:
        return _superposition(rng)
    if kind < 0.9:
        return ("Stratification", {"size": rng.randint(1, 4)})
    parts = [_nondeterministic(rng, rng.choice((None, 2))) for _ in range(rng.randint(1, 2))]
    return ("several", *parts, _superposition(rng))


def _nondeterministic(rng: random.Random, size: int | None) -> tuple[Any, ...]:
    return ("Nondeterministic", {
        "states": rng.choice((1, 1, 2, 2, 3)), "symbols": rng.choice((1, 2, 2, 3)), "vector_size": size,
        "normalized": rng.random() < 0.2, "read_states": rng.random() < 0.8,
        "window": rng.choice((None, None, 1, 2, 4, 9)), "bottom_fix": rng.random() < 0.8,
    })  # fmt: skip


def _superposition(rng: random.Random) -> tuple[Any, ...]:
    sizes = tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 3)))
    return ("Superposition", {
        "sizes": sizes if rng.random() < 0.5 else sizes[0], "depth": rng.choice((None, None, 1, 3)),
        "synchronized": rng.random() < 0.3,
    })  # fmt: skip


def _ops(rng: random.Random, batch: int, most: int, network: bool) -> tuple[Op, ...]:
    """Lines that make a tree of states."""
    names = ["scan"] * 5 + ["steps"] * 5 + ["select"] * 3 + ["detach", "no_grad", "pair", "threads"]
    names += [] if network else ["drive"] * 3
    if rng.random() < 0.05:
        names += ["fork"] * 4
    batches = [batch]
    ops: list[Op] = []
    bad = rng.random() < 0.1
    for _ in range(rng.randint(1, 7)):
        name = rng.choice(names)
        usable = [j for j, size in enumerate(batches) if size]
        source = usable[-1] if rng.random() < 0.6 else rng.choice(usable)
        size, steps = batches[source], rng.randint(1, most)
        rows: tuple[int, ...] = ()
        other = 0
        if name == "select":
            rows = tuple(rng.randrange(size) for _ in range(rng.randint(1, size + 1)))
            size = len(rows)
        elif name == "pair":
            other = rng.choice([j for j in usable if batches[j] == size])
        elif name == "threads":
            other, size = rng.choice((1, 2, 3)), 0
        elif name == "fork":
            steps, size = min(steps, 6), 0
        wrong = None
        if bad and name in ("scan", "steps", "drive") and rng.random() < 0.4:
            number = rng.choice((float("nan"), float("nan"), float("inf")))
            wrong = (rng.randrange(size), rng.randrange(steps), number)
        ops.append(
            Op(name, source, 0 if name in ("select", "detach", "threads") else steps, rows, other, wrong)
        )
        batches.append(size)
    return tuple(ops)

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""An LSTM, its action layer and its nondeterministic stack over a whole sequence, as one Triton kernel.

A program is a sequence. Per step it computes the gates and the memory of the LSTM, the log weights of the
actions, and one step of Lang's algorithm as `cpu.forward` has it: because the columns of P sum to 1, log
alpha is known before the cubic part. The chart, [S, T Q, T K] as in `portable.store`, is in global memory;
what a step only needs itself is in registers.

Weights and readings are numbered state first, b' = r S + y, the chart symbol first, b = y Q + r.

| size | what it says |
|---|---|
| Q, S, M | states, symbols, and the size of vectors, 0 if there are none |
| NORMALIZED, BY_STATE | whether weights are normalised, and whether readings tell the state |
| FIX, WINDOW | whether the bottom is that of chapter 8, and whether there is a window |
| QP, KP, MP, HP | powers of two that are not less than Q, K = Q S, M or 1, and the units |
| NP | the same for the number of configuration types, or of symbols, that readings tell |
"""

from __future__ import annotations

import triton
import triton.language as tl

from ndstack.ops.nondeterministic.triton.readings import NEG, columns_at, exp_from, normalize, show
from ndstack.ops.nondeterministic.triton.strips import combine, matmul
from ndstack.ops.runtime.triton_launch import kernel

SIZES = [
    {"TILE": 64, "DEPTH": 16, "warps": 4},
    {"TILE": 64, "DEPTH": 16, "warps": 8},
    {"TILE": 128, "DEPTH": 16, "warps": 8},
]


@triton.jit
def affine(acc, weight, row, vector, o, outputs, inputs, DEPTH: tl.constexpr):
    """acc[o] + sum_c weight[o * row + c] vector[c], c < inputs."""
    for c0 in range(0, inputs, DEPTH):
        c = c0 + tl.arange(0, DEPTH)
        w = tl.load(
            weight + o[:, None] * row + c[None, :], (o < outputs)[:, None] & (c < inputs)[None, :], 0.0
        )
        acc += tl.sum(w * tl.load(vector + c, c < inputs, 0.0)[None, :], 1)
    return acc


@triton.jit
def square(actions, offset, K: tl.constexpr, Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr):
    """Log weights of push or replace, [d, b], symbol first, in float64."""
    d, b = tl.arange(0, KP), tl.arange(0, KP)
    first, second = (d % Q) * S + d // Q, (b % Q) * S + b // Q
    place = offset + first[:, None] * K + second[None, :]
    return tl.load(actions + place, (d < K)[:, None] & (b < K)[None, :], NEG).to(tl.float64)


@triton.jit
def pops(actions, offset, K: tl.constexpr, Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr):
    """Log weights of pop, [d, b], that of (d, r) for every b = (y, r), in float64."""
    d, b = tl.arange(0, KP), tl.arange(0, KP)
    place = offset + ((d % Q) * S + d // Q)[:, None] * Q + (b % Q)[None, :]
    return tl.load(actions + place, (d < K)[:, None] & (b < K)[None, :], NEG).to(tl.float64)


@triton.jit
def lowest(time, window):
    """The first position that counts at a time; `window` is 0 if there is none."""
    return tl.maximum(time - window + 1, 0) * (window > 0)


@triton.jit
def kept_mass(mass, k, low, b, some, times, K: tl.constexpr, FIX: tl.constexpr, WINDOW: tl.constexpr):
    """How much of the columns (k, b) stands on positions from `low` on.

    All of it without a window; but nothing stands below the bottom of chapter 4.
    """
    if WINDOW:
        kept = tl.load(mass + (k * times + low) * K + b, some & (k >= low), 0.0).to(tl.float64)
    else:
        kept = tl.where((k > 0) | FIX, 1.0, 0.0).to(tl.float64)
    return kept


@triton.jit
def write_mass(
    chart, mass, time, low, symbol, row, times, Q: tl.constexpr, K: tl.constexpr, KP: tl.constexpr
):
    """How much of the columns of a time stands on every position and those after it."""
    a = tl.arange(0, KP)
    total = tl.zeros((KP,), mass.dtype.element_ty)
    for position in range(time, low - 1, -1):
        total += tl.sum(columns_at(chart, time, symbol, row, position * K + a, a < K, Q, K, KP), 1)
        tl.store(mass + (time * times + position) * K + a, total, a < K)


@triton.jit
def uncover(
    chart, uses, mass, weights, time, low, symbol, row, use, times,
    Q: tl.constexpr, K: tl.constexpr, FIX: tl.constexpr, WINDOW: tl.constexpr, KP: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """weights' product with the columns of a time, into `uses` [S, Q, use]; gives what that uncovers, [KP].

    Args:
        weights: [d, b], for b = (y, r) those of pops into r.
        low: the first position that counts after the pop.
    """
    b = tl.arange(0, KP)
    found = tl.zeros((KP,), tl.float64)
    for j0 in range(tl.maximum(low, 1) * K, (time + 1) * K, TILE):  # position 0 uncovers nothing
        j = j0 + tl.arange(0, TILE)
        inside = j < (time + 1) * K
        before = columns_at(chart, time, symbol, row, j, inside, Q, K, KP)
        same = (((j % K) // Q)[None, :] == (b // Q)[:, None]) & inside[None, :] & (b < K)[:, None]
        kept = kept_mass(mass, j // K - 1, low, j % K, inside, times, K, FIX, WINDOW)[None, :]
        popped = tl.where(same & (kept > 0), matmul(tl.trans(weights), before), 0.0)
        found += tl.sum(popped.to(tl.float64) * kept, 1)
        place = ((b // Q) * Q + b % Q)[:, None] * use + ((j // K - 1) * Q + j % Q)[None, :]
        tl.store(uses + place, popped, same)
    return found


@triton.jit
def lstm_step(
    gates, trace, hidden, cells, by_reading, by_hidden, reading, t, units, size,
    HP: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One step of the LSTM: activations of the gates into `trace`, c_t and h_t to their places."""
    o = tl.arange(0, HP)
    inside = o < units
    before = hidden + t * units
    c = tl.load(cells + t * units + o, inside, 0.0)
    i = tl.load(gates + o, inside, 0.0)
    i = affine(i, by_reading, size, reading, o, units, size, DEPTH)
    i = tl.sigmoid(affine(i, by_hidden, units, before, o, units, units, DEPTH))
    f = tl.load(gates + units + o, inside, 0.0)
    f = affine(f, by_reading + units * size, size, reading, o, units, size, DEPTH)
    f = tl.sigmoid(affine(f, by_hidden + units * units, units, before, o, units, units, DEPTH))
    g = tl.load(gates + 2 * units + o, inside, 0.0)
    g = affine(g, by_reading + 2 * units * size, size, reading, o, units, size, DEPTH)
    g = affine(g, by_hidden + 2 * units * units, units, before, o, units, units, DEPTH)
    g = 2 * tl.sigmoid(2 * g) - 1
    out = tl.load(gates + 3 * units + o, inside, 0.0)
    out = affine(out, by_reading + 3 * units * size, size, reading, o, units, size, DEPTH)
    out = tl.sigmoid(affine(out, by_hidden + 3 * units * units, units, before, o, units, units, DEPTH))
    c = f * c + i * g
    tl.store(trace + o, i, inside)
    tl.store(trace + units + o, f, inside)
    tl.store(trace + 2 * units + o, g, inside)
    tl.store(trace + 3 * units + o, out, inside)
    tl.store(cells + (t + 1) * units + o, c, inside)
    tl.store(hidden + (t + 1) * units + o, out * (2 * tl.sigmoid(2 * c) - 1), inside)


@triton.jit
def chart_step(
    actions, chart, log_alpha, log_total, mass, uses, t, window, symbol, row, use, times,
    Q: tl.constexpr, S: tl.constexpr, FIX: tl.constexpr, WINDOW: tl.constexpr,
    QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Step t + 1 of Lang's algorithm, with log weights `actions` [2 K^2 + K Q]; gives its probabilities."""
    K: tl.constexpr = Q * S
    b, r = tl.arange(0, KP), tl.arange(0, QP)
    low = lowest(t + 1, window)
    lr = tl.load(log_alpha + t * K + b, b < K, NEG)
    pop = lr[:, None] + pops(actions, 2 * K * K, K, Q, S, KP)
    best = tl.max(pop, 0)
    dtype = chart.dtype.element_ty
    found = uncover(
        chart, uses, mass, exp_from(pop, best[None, :]).to(dtype), t, low, symbol, row, use, times,
        Q, K, FIX, WINDOW, KP, TILE,
    )  # fmt: skip
    kept = kept_mass(mass, t + 0 * b, low, b, b < K, times, K, FIX, WINDOW)
    push = lr[:, None] + square(actions, 0, K, Q, S, KP)
    replace = tl.where(kept > 0, lr, NEG)[:, None] + square(actions, K * K, K, Q, S, KP)
    popped = tl.where(found > 0, best + tl.log(tl.where(found > 0, found, 1.0)), NEG)
    top = tl.maximum(tl.maximum(tl.max(push, 0), tl.max(replace, 0)), popped)
    total = exp_from(push, top[None, :]) + exp_from(replace, top[None, :]) * kept[:, None]
    total = tl.sum(total, 0) + exp_from(popped, top)
    la = tl.where(total > 0, top + tl.log(tl.where(total > 0, total, 1.0)), NEG)
    most = tl.max(la, 0)
    norm = most + tl.log(tl.where(most == NEG, 1.0, tl.sum(exp_from(la, most), 0)))
    after = tl.where(norm == NEG, NEG, la - tl.where(norm == NEG, 0.0, norm))
    tl.store(log_alpha + (t + 1) * K + b, after, b < K)
    tl.store(log_total + (t + 1) * K + b, la, b < K)
    tl.debug_barrier()
    scale = tl.where(found > 0, exp_from(best, la), 0.0)
    width = (t + 1) * K
    for y in range(S):
        own = chart + y * symbol
        of_y = (b // Q == y)[None, :] & (r[:, None] == (b % Q)[None, :])  # [r, b]: which b is (y, r)
        e = tl.sum(tl.where(of_y, scale[None, :], 0.0), 1).to(dtype)
        chosen = of_y[:, :, None] & (b < K)[None, None, :]
        wr = tl.sum(tl.where(chosen, tl.trans(exp_from(replace, la[None, :]))[None, :, :], 0.0), 1).to(dtype)
        for j0 in range(low * K, width, TILE):
            j = j0 + tl.arange(0, TILE)
            before = columns_at(chart, t, symbol, row, j, j < width, Q, K, KP)
            zero = tl.zeros((QP, TILE), dtype)  # columns k <= i have no row i
            acc = combine(
                zero, uses + y * Q * use, use, own, row, (j0 // K) * Q, t * Q, r, j, j < width, Q, DEPTH
            )
            place = ((t + 1) * Q + r)[:, None] * row + j[None, :]
            tl.store(
                own + place, e[:, None] * acc + matmul(wr, before), (r < Q)[:, None] & (j < width)[None, :]
            )
        wu = tl.sum(tl.where(chosen, tl.trans(exp_from(push, la[None, :]))[None, :, :], 0.0), 1).to(dtype)
        place = ((t + 1) * Q + r)[:, None] * row + width + b[None, :]
        tl.store(own + place, wu, (r < Q)[:, None] & (b < K)[None, :])
    tl.debug_barrier()
    if WINDOW:
        write_mass(chart, mass, t + 1, low, symbol, row, times, Q, K, KP)
    return tl.exp(after)


@triton.jit
def control_step(
    by_control, control_bias, hidden, actions, vector, units,
    A: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The action layer: logits [A], and the vector to push [M]."""
    for o0 in range(0, A, TILE):
        o = o0 + tl.arange(0, TILE)
        acc = tl.load(control_bias + o, o < A, 0.0)
        tl.store(actions + o, affine(acc, by_control, units, hidden, o, A, units, DEPTH), o < A)
    if M > 0:
        c = tl.arange(0, MP)
        acc = tl.load(control_bias + A + c, c < M, 0.0)
        acc = affine(acc, by_control + A * units, units, hidden, c, M, units, DEPTH)
        tl.store(vector + c, tl.sigmoid(acc), c < M)


@kernel(SIZES, key=["Q", "S", "M", "HP"])
def run_kernel(
    inputs, by_reading, by_hidden, by_control, control_bias, trace, hidden, cells, actions, vectors, readings,
    chart, log_alpha, log_total, mass, uses, start, steps, times, units, window,
    Q: tl.constexpr, S: tl.constexpr, M: tl.constexpr, NORMALIZED: tl.constexpr, BY_STATE: tl.constexpr,
    FIX: tl.constexpr, WINDOW: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, MP: tl.constexpr,
    NP: tl.constexpr, HP: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The n steps of a sequence after time `start`.

    Args:
        inputs: [B, n, 4 H]; `trace` is alike.
        hidden, cells: [B, n + 1, H], the first ones given.
        actions: [B, n, A].
        vectors: [B, T, M], up to position `start` given.
        readings: [B, n + 1, R], the first one given.
        chart, log_alpha, log_total: those of a store of T times, up to time `start` given.
        mass: [B, T, T, K], likewise (see `kept_mass`), if there is a window.
        uses: [B, S, Q, T Q], room for one step.
    """
    K: tl.constexpr = Q * S
    A: tl.constexpr = 2 * K * K + K * Q
    R: tl.constexpr = (K if BY_STATE else S) * (M if M > 0 else 1)
    sequence = tl.program_id(0).to(tl.int64)
    row, symbol = times * K, times * Q * times * K
    inputs += sequence * steps * 4 * units
    trace += sequence * steps * 4 * units
    hidden += sequence * (steps + 1) * units
    cells += sequence * (steps + 1) * units
    actions += sequence * steps * A
    vectors += sequence * times * M
    readings += sequence * (steps + 1) * R
    chart += sequence * S * symbol
    log_alpha += sequence * times * K
    log_total += sequence * times * K
    mass += sequence * times * times * K
    uses += sequence * K * times * Q
    for n in range(0, steps):
        gates, own, shown = inputs + n * 4 * units, trace + n * 4 * units, readings + n * R
        lstm_step(gates, own, hidden, cells, by_reading, by_hidden, shown, n, units, R, HP, DEPTH)
        tl.debug_barrier()
        told, vector = actions + n * A, vectors + (start + n + 1) * M
        control_step(
            by_control, control_bias, hidden + (n + 1) * units, told, vector, units, A, M, MP, TILE, DEPTH
        )
        tl.debug_barrier()
        if NORMALIZED:
            normalize(told, K, Q, KP, QP)
        p = chart_step(
            told, chart, log_alpha, log_total, mass, uses, start + n, window, symbol, row, times * Q, times,
            Q, S, FIX, WINDOW, QP, KP, TILE, DEPTH,
        )  # fmt: skip
        low = lowest(start + n + 1, window)
        show(
            chart, vectors, p, shown + R, start + n + 1, low, symbol, row,
            Q, S, M, BY_STATE, KP, MP, NP, DEPTH,
        )  # fmt: skip
        tl.debug_barrier()

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""An LSTM, its action layer and its nondeterministic stack over a whole sequence, as one Triton kernel.

A program is a sequence. Per step it computes the gates and the memory of the LSTM, the log weights of the
actions, and one step of Lang's algorithm as `cpu.forward` has it: because the columns of P sum to 1, log
alpha, and so the reading, is known before the cubic part. The chart, [S, T Q, T K] as in `portable.store`, is
in global memory; what a step only needs itself is in registers.

Weights and readings are numbered state first, b' = r S + y, the chart symbol first, b = y Q + r.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ndstack.ops.nondeterministic.triton.strips import combine, matmul
from ndstack.ops.runtime.triton_launch import kernel

NEG: tl.constexpr = tl.constexpr(float("-inf"))
SIZES = [
    {"TILE": 64, "DEPTH": 16, "warps": 4},
    {"TILE": 64, "DEPTH": 16, "warps": 8},
    {"TILE": 128, "DEPTH": 16, "warps": 8},
]


@triton.jit
def exp_from(x, shift):
    """e^{x - shift}, 0 where shift is -inf."""
    dead = shift == NEG
    return tl.where(dead, 0.0, tl.exp(x - tl.where(dead, 0.0, shift)))


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
def columns_at(chart, time, symbol, row, j, inside, Q: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """The columns of a time at the places j, [KP, J]."""
    d = tl.arange(0, KP)
    place = (d // Q) * symbol + (time * Q + d % Q) * row
    return tl.load(chart + place[:, None] + j[None, :], (d < K)[:, None] & inside[None, :], 0.0)


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
def uncover(
    chart, uses, weights, time, symbol, row, use,
    Q: tl.constexpr, S: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """weights' product with the columns of a time, into `uses` [S, Q, use]; gives its sums for each b.

    Args:
        weights: [d, b], for b = (y, r) those of pops into r.
    """
    b = tl.arange(0, KP)
    found = tl.zeros((KP,), tl.float64)
    for j0 in range(K, (time + 1) * K, TILE):  # position 0 uncovers nothing
        j = j0 + tl.arange(0, TILE)
        inside = j < (time + 1) * K
        before = columns_at(chart, time, symbol, row, j, inside, Q, K, KP)
        same = (((j % K) // Q)[None, :] == (b // Q)[:, None]) & inside[None, :] & (b < K)[:, None]
        popped = tl.where(same, matmul(tl.trans(weights), before), 0.0)
        found += tl.sum(popped.to(tl.float64), 1)
        place = ((b // Q) * Q + b % Q)[:, None] * use + ((j // K - 1) * Q + j % Q)[None, :]
        tl.store(uses + place, popped, same)
    return found


@triton.jit
def lstm_step(
    gates, trace, hidden, cells, by_reading, by_hidden, reading, t, units, kinds,
    HP: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One step of the LSTM: activations of the gates into `trace`, c_t and h_t to their places."""
    o = tl.arange(0, HP)
    inside = o < units
    before = hidden + t * units
    c = tl.load(cells + t * units + o, inside, 0.0)
    i = tl.load(gates + o, inside, 0.0)
    i = affine(i, by_reading, kinds, reading, o, units, kinds, DEPTH)
    i = tl.sigmoid(affine(i, by_hidden, units, before, o, units, units, DEPTH))
    f = tl.load(gates + units + o, inside, 0.0)
    f = affine(f, by_reading + units * kinds, kinds, reading, o, units, kinds, DEPTH)
    f = tl.sigmoid(affine(f, by_hidden + units * units, units, before, o, units, units, DEPTH))
    g = tl.load(gates + 2 * units + o, inside, 0.0)
    g = affine(g, by_reading + 2 * units * kinds, kinds, reading, o, units, kinds, DEPTH)
    g = affine(g, by_hidden + 2 * units * units, units, before, o, units, units, DEPTH)
    g = 2 * tl.sigmoid(2 * g) - 1
    out = tl.load(gates + 3 * units + o, inside, 0.0)
    out = affine(out, by_reading + 3 * units * kinds, kinds, reading, o, units, kinds, DEPTH)
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
    actions, chart, log_alpha, log_total, readings, uses, t, symbol, row, use,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """Step t + 1 of Lang's algorithm, with log weights `actions` [2 K^2 + K Q]."""
    K: tl.constexpr = Q * S
    b, r = tl.arange(0, KP), tl.arange(0, QP)
    lr = tl.load(log_alpha + t * K + b, b < K, NEG)
    pop = lr[:, None] + pops(actions, 2 * K * K, K, Q, S, KP)
    best = tl.max(pop, 0)
    dtype = chart.dtype.element_ty
    found = uncover(
        chart, uses, exp_from(pop, best[None, :]).to(dtype), t, symbol, row, use, Q, S, K, KP, TILE
    )
    push = lr[:, None] + square(actions, 0, K, Q, S, KP)
    replace = lr[:, None] + square(actions, K * K, K, Q, S, KP)
    popped = tl.where(found > 0, best + tl.log(tl.where(found > 0, found, 1.0)), NEG)
    top = tl.maximum(tl.maximum(tl.max(push, 0), tl.max(replace, 0)), popped)
    kept = exp_from(replace, top[None, :])
    total = tl.sum(exp_from(push, top[None, :]) + kept, 0) + exp_from(popped, top)
    la = tl.where(total > 0, top + tl.log(tl.where(total > 0, total, 1.0)), NEG)
    most = tl.max(la, 0)
    mass = tl.sum(exp_from(la, most), 0)
    norm = most + tl.log(tl.where(mass > 0, mass, 1.0))
    after = tl.where(norm == NEG, NEG, la - tl.where(norm == NEG, 0.0, norm))
    tl.store(log_alpha + (t + 1) * K + b, after, b < K)
    tl.store(log_total + (t + 1) * K + b, la, b < K)
    tl.store(readings + (b % Q) * S + b // Q, tl.exp(after), b < K)
    tl.debug_barrier()
    scale = tl.where(found > 0, exp_from(best, la), 0.0)
    width = (t + 1) * K
    for y in range(S):
        own = chart + y * symbol
        of_y = (b // Q == y)[None, :] & (r[:, None] == (b % Q)[None, :])  # [r, b]: which b is (y, r)
        e = tl.sum(tl.where(of_y, scale[None, :], 0.0), 1).to(dtype)
        chosen = of_y[:, :, None] & (b < K)[None, None, :]
        wr = tl.sum(tl.where(chosen, tl.trans(exp_from(replace, la[None, :]))[None, :, :], 0.0), 1).to(dtype)
        for j0 in range(0, width, TILE):
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


@kernel(SIZES, key=["Q", "S", "HP"])
def run_kernel(
    inputs, by_reading, by_hidden, by_control, control_bias, trace, hidden, cells, actions, readings,
    chart, log_alpha, log_total, uses, steps, units,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, HP: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """All steps of a sequence.

    Args:
        inputs: [B, n, 4 H]; `trace` is alike.
        hidden, cells: [B, n + 1, H], the first ones given.
        actions: [B, n, A].
        readings: [B, n + 1, K], the first one given.
        chart, log_alpha, log_total: those of a store of n + 1 times, of which time 0 is given.
        uses: [B, S, Q, n Q], room for one step.
    """
    K: tl.constexpr = Q * S
    A: tl.constexpr = 2 * K * K + K * Q
    sequence, times = tl.program_id(0).to(tl.int64), steps + 1
    row, symbol = times * K, times * Q * times * K
    inputs += sequence * steps * 4 * units
    trace += sequence * steps * 4 * units
    hidden += sequence * times * units
    cells += sequence * times * units
    actions += sequence * steps * A
    readings += sequence * times * K
    chart += sequence * S * symbol
    log_alpha += sequence * times * K
    log_total += sequence * times * K
    uses += sequence * K * steps * Q
    for t in range(0, steps):
        gates = inputs + t * 4 * units
        own = trace + t * 4 * units
        shown = readings + t * K
        lstm_step(gates, own, hidden, cells, by_reading, by_hidden, shown, t, units, K, HP, DEPTH)
        tl.debug_barrier()
        for o0 in range(0, A, TILE):
            o = o0 + tl.arange(0, TILE)
            acc = tl.load(control_bias + o, o < A, 0.0)
            acc = affine(acc, by_control, units, hidden + (t + 1) * units, o, A, units, DEPTH)
            tl.store(actions + t * A + o, acc, o < A)
        tl.debug_barrier()
        chart_step(
            actions + t * A, chart, log_alpha, log_total, readings + (t + 1) * K, uses, t,
            symbol, row, steps * Q, Q, S, QP, KP, TILE, DEPTH,
        )  # fmt: skip

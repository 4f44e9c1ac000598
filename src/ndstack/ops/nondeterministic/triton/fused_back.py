# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""The gradient of `fused`, as one Triton kernel: the equations of `cpu.backward`, then those of the LSTM.

Derivatives with respect to the weights are products of the sequences that this kernel leaves, and are
computed outside, by torch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ndstack.ops.nondeterministic.triton.fused import SIZES, columns_at, exp_from, pops, square, uncover
from ndstack.ops.nondeterministic.triton.strips import inner_product, matmul
from ndstack.ops.runtime.triton_launch import kernel

NEG: tl.constexpr = tl.constexpr(float("-inf"))


@triton.jit
def add_ends(
    chart, adjoint, alpha, w, t, symbol, row, Q: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """G_t[i, a | b] += w[b];  ab[i, a] += sum_b P_t[i, a | b] w[b]."""
    d = tl.arange(0, KP)
    place = (d // Q) * symbol + (t * Q + d % Q) * row
    for j0 in range(0, (t + 1) * K, TILE):
        j = j0 + tl.arange(0, TILE)
        inside = j < (t + 1) * K
        fine = (d < K)[:, None] & inside[None, :]
        own = adjoint + place[:, None] + j[None, :]
        tl.store(own, tl.load(own, fine, 0.0) + w[:, None], fine)
        shown = columns_at(chart, t, symbol, row, j, inside, Q, K, KP)
        tl.store(alpha + j, tl.load(alpha + j, inside, 0.0) + tl.sum(shown * w[:, None], 0), inside)


@triton.jit
def tell_columns(
    chart, adjoint, uses, back, scale, t, symbol, row, use,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """B[r; k, u, y] of step t into `back` [Q, T K], and G_k += E A G_t for all k < t - 1.

    Args:
        uses: [S, Q, use], A of the step.
        scale: [KP], E.
    """
    K: tl.constexpr = Q * S
    b, r = tl.arange(0, KP), tl.arange(0, QP)
    for y in range(S):
        of_y = (b // Q == y)[None, :] & (r[:, None] == (b % Q)[None, :])
        e = tl.sum(tl.where(of_y, scale[None, :], 0.0), 1)
        own, columns = adjoint + y * symbol, chart + y * symbol
        for c0 in range(0, (t - 1) * Q, DEPTH):
            c = c0 + tl.arange(0, DEPTH)
            known = c < (t - 1) * Q
            acc = tl.zeros((QP, DEPTH), chart.dtype.element_ty)
            width = tl.minimum(t, c0 // Q + DEPTH // Q + 2) * K  # no column here has a later row
            acc = inner_product(acc, own + t * Q * row, row, columns, row, width, r, c, (t - 1) * Q, Q, DEPTH)
            place = r[:, None] * row + ((c // Q + 1) * K + y * Q + c % Q)[None, :]
            tl.store(back + place, acc * e[:, None], (r < Q)[:, None] & known[None, :])
            some = (r < Q)[None, :] & known[:, None]
            w = tl.load(uses + (y * Q + r)[None, :] * use + c[:, None], some, 0.0) * e[None, :]
            for j0 in range(0, width, TILE):
                j = j0 + tl.arange(0, TILE)
                inside = j < width
                g = tl.load(
                    own + (t * Q + r)[:, None] * row + j[None, :], (r < Q)[:, None] & inside[None, :], 0.0
                )
                target = own + c[:, None] * row + j[None, :]
                fine = known[:, None] & inside[None, :]
                tl.store(target, tl.load(target, fine, 0.0) + matmul(w, g), fine)


@triton.jit
def chart_back(
    actions, chart, log_alpha, log_total, adjoint, alpha, uses, back, grads, shown, t, symbol, row, use,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """The derivatives with respect to the log weights of step t, into `grads`.

    Args:
        shown: [KP], the derivatives with respect to log alpha_t, from the reading.
    """
    K: tl.constexpr = Q * S
    d, r = tl.arange(0, KP), tl.arange(0, QP)
    dtype = chart.dtype.element_ty
    w = tl.load(alpha + (t + 1) * K + d, d < K, 0.0) + shown
    add_ends(chart, adjoint, alpha, w, t, symbol, row, Q, K, KP, TILE)
    lr = tl.load(log_alpha + (t - 1) * K + d, d < K, NEG)
    la = tl.load(log_total + t * K + d, d < K, NEG)
    pop = lr[:, None] + pops(actions, 2 * K * K, K, Q, S, KP)
    best = tl.max(pop, 0)
    cp = exp_from(pop, best[None, :]).to(dtype)
    found = uncover(chart, uses, cp, t - 1, symbol, row, use, Q, S, K, KP, TILE)
    scale = tl.where(found > 0, exp_from(best, la), 0.0).to(dtype)
    wu = exp_from(lr[:, None] + square(actions, 0, K, Q, S, KP), la[None, :]).to(dtype)
    wr = exp_from(lr[:, None] + square(actions, K * K, K, Q, S, KP), la[None, :]).to(dtype)
    tl.debug_barrier()
    tell_columns(chart, adjoint, uses, back, scale, t, symbol, row, use, Q, S, QP, KP, TILE, DEPTH)
    tl.debug_barrier()
    pr = exp_from(
        lr[:, None] + pops_by_state(actions, 2 * K * K, K, Q, S, QP, KP), best_of(pop, r, Q, QP, KP)[None, :]
    )
    pr = pr.to(dtype)
    place = (d // Q) * symbol + (d % Q) * row
    by_replace, by_pop = tl.zeros((KP, KP), dtype), tl.zeros((KP, QP), dtype)
    for j0 in range(0, t * K, DEPTH):
        j = j0 + tl.arange(0, DEPTH)
        inside = j < t * K
        fine = (d < K)[:, None] & inside[None, :]
        before = columns_at(chart, t - 1, symbol, row, j, inside, Q, K, KP)
        g = tl.load(adjoint + place[:, None] + t * Q * row + j[None, :], fine, 0.0)
        uncovered = (j >= K) & inside & (t > 1)
        told = tl.load(back + r[:, None] * row + j[None, :], (r < Q)[:, None] & uncovered[None, :], 0.0)
        by_replace += matmul(before, tl.trans(g))
        by_pop += matmul(before, tl.trans(told))
        target = adjoint + place[:, None] + (t - 1) * Q * row + j[None, :]
        tl.store(target, tl.load(target, fine, 0.0) + matmul(wr, g) + matmul(pr, told), fine)
    first = (d % Q) * S + d // Q
    fine = (d < K)[:, None] & (d < K)[None, :]
    newest = adjoint + place[None, :] + t * Q * row + t * K + d[:, None]  # G_t[t-1, a | b] at [a, b]
    tl.store(grads + first[:, None] * K + first[None, :], tl.load(newest, fine, 0.0) * wu, fine)
    tl.store(grads + K * K + first[:, None] * K + first[None, :], by_replace * wr, fine)
    fine = (d < K)[:, None] & (r < Q)[None, :]
    tl.store(grads + 2 * K * K + first[:, None] * Q + r[None, :], by_pop * pr, fine)


@triton.jit
def pops_by_state(
    actions, offset, K: tl.constexpr, Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr
):
    """Log weights of pop, [d, r], in float64."""
    d, r = tl.arange(0, KP), tl.arange(0, QP)
    place = offset + ((d % Q) * S + d // Q)[:, None] * Q + r[None, :]
    return tl.load(actions + place, (d < K)[:, None] & (r < Q)[None, :], NEG).to(tl.float64)


@triton.jit
def best_of(pop, r, Q: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr):
    """The largest of pop[d, (0, r)] for every r."""
    b = tl.arange(0, KP)
    best = tl.max(pop, 0)
    same = (b[None, :] == r[:, None]) & (r < Q)[:, None]
    return tl.max(tl.where(same, best[None, :], NEG), 1)


@triton.jit
def lstm_back(trace, cells, grad, memory, out, t, units, HP: tl.constexpr):
    """The derivatives with respect to the gates of step t, into `out`; gives that with respect to c_{t-1}."""
    o = tl.arange(0, HP)
    inside = o < units
    own = trace + (t - 1) * 4 * units + o
    i, f = tl.load(own, inside, 0.0), tl.load(own + units, inside, 0.0)
    g, q = tl.load(own + 2 * units, inside, 0.0), tl.load(own + 3 * units, inside, 0.0)
    c = 2 * tl.sigmoid(2 * tl.load(cells + t * units + o, inside, 0.0)) - 1
    before = tl.load(cells + (t - 1) * units + o, inside, 0.0)
    memory += grad * q * (1 - c * c)
    tl.store(out + o, memory * g * i * (1 - i), inside)
    tl.store(out + units + o, memory * before * f * (1 - f), inside)
    tl.store(out + 2 * units + o, memory * i * (1 - g * g), inside)
    tl.store(out + 3 * units + o, grad * c * q * (1 - q), inside)
    return memory * f


@triton.jit
def transposed(acc, weight, row, vector, o, outputs, inputs, DEPTH: tl.constexpr):
    """acc[o] + sum_c weight[c * row + o] vector[c], c < inputs."""
    for c0 in range(0, inputs, DEPTH):
        c = c0 + tl.arange(0, DEPTH)
        w = tl.load(
            weight + c[:, None] * row + o[None, :], (c < inputs)[:, None] & (o < outputs)[None, :], 0.0
        )
        acc += tl.sum(w * tl.load(vector + c, c < inputs, 0.0)[:, None], 0)
    return acc


@kernel(SIZES, key=["Q", "S", "HP"], changes=["adjoint", "alpha"])
def back_kernel(
    by_reading, by_hidden, by_control, trace, cells, actions, readings, chart, log_alpha, log_total,
    adjoint, alpha, uses, back, grad_hidden, grad_readings, grad_memory, given_actions, grad_gates,
    grad_actions, grad_first, steps, units,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, HP: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """All steps of a sequence, from the last to the first.

    Args:
        adjoint, alpha: zeros, of the sizes of the chart and of [B, n + 2, K].
        back: [B, Q, (n + 1) K], room for one step, zeros.
        grad_hidden, grad_readings, grad_memory: with respect to h [B, n, H], r [B, n, K] and c_n [B, H].
        given_actions: [B, n, A], with respect to the log weights, where they are used elsewhere.
        grad_gates, grad_actions: [B, n, 4 H] and [B, n, A], results.
        grad_first: [B, 2 H + K], results: with respect to h_0, c_0 and r_0.
    """
    K: tl.constexpr = Q * S
    A: tl.constexpr = 2 * K * K + K * Q
    sequence, times = tl.program_id(0).to(tl.int64), steps + 1
    row, symbol, four = times * K, times * Q * times * K, 4 * units
    trace += sequence * steps * four
    cells += sequence * times * units
    actions += sequence * steps * A
    readings += sequence * times * K
    chart += sequence * S * symbol
    adjoint += sequence * S * symbol
    log_alpha += sequence * times * K
    log_total += sequence * times * K
    alpha += sequence * (times + 1) * K
    uses += sequence * K * steps * Q
    back += sequence * Q * row
    grad_hidden += sequence * steps * units
    grad_readings += sequence * steps * K
    grad_gates += sequence * steps * four
    grad_actions += sequence * steps * A
    given_actions += sequence * steps * A
    grad_first += sequence * (2 * units + K)
    o, b = tl.arange(0, HP), tl.arange(0, KP)
    place = (b % Q) * S + b // Q
    memory = tl.load(grad_memory + sequence * units + o, o < units, 0.0)
    by_h, by_r = tl.zeros_like(memory), tl.zeros((KP,), chart.dtype.element_ty)
    for t in range(steps, 0, -1):
        p = tl.load(readings + t * K + place, b < K, 0.0)
        grad = tl.load(grad_readings + (t - 1) * K + place, b < K, 0.0) + by_r
        shown = p * (grad - tl.sum(p * grad, 0))
        told = grad_actions + (t - 1) * A
        chart_back(
            actions + (t - 1) * A, chart, log_alpha, log_total, adjoint, alpha, uses, back, told, shown, t,
            symbol, row, steps * Q, Q, S, QP, KP, TILE, DEPTH,
        )  # fmt: skip
        tl.debug_barrier()
        for o0 in range(0, A, TILE):
            e = o0 + tl.arange(0, TILE)
            extra = tl.load(given_actions + (t - 1) * A + e, e < A, 0.0)
            tl.store(told + e, tl.load(told + e, e < A, 0.0) + extra, e < A)
        tl.debug_barrier()
        by_h += tl.load(grad_hidden + (t - 1) * units + o, o < units, 0.0)
        by_h = transposed(by_h, by_control, units, told, o, units, A, DEPTH)
        gates = grad_gates + (t - 1) * four
        memory = lstm_back(trace, cells, by_h, memory, gates, t, units, HP)
        tl.debug_barrier()
        by_h = transposed(tl.zeros_like(memory), by_hidden, units, gates, o, units, four, DEPTH)
        by_r = tl.zeros((KP,), chart.dtype.element_ty)
        for c0 in range(0, four, DEPTH):
            c = c0 + tl.arange(0, DEPTH)
            w = tl.load(
                by_reading + c[:, None] * K + place[None, :], (c < four)[:, None] & (b < K)[None, :], 0.0
            )
            by_r += tl.sum(w * tl.load(gates + c, c < four, 0.0)[:, None], 0)
    tl.store(grad_first + o, by_h, o < units)
    tl.store(grad_first + units + o, memory, o < units)
    tl.store(grad_first + 2 * units + place, by_r, b < K)

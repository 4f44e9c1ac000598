# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""The gradient of `fused`, as one Triton kernel: the equations of `cpu.backward`, then those of the LSTM.

Derivatives with respect to the weights are products of the sequences that this kernel leaves, and are
computed outside, by torch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ndstack.ops.nondeterministic.triton.fused import SIZES, kept_mass, lowest, pops, square, uncover
from ndstack.ops.nondeterministic.triton.readings import (
    NEG,
    columns_at,
    exp_from,
    normalize_back,
    show_back,
    vectors_at,
)
from ndstack.ops.nondeterministic.triton.strips import inner_product, matmul
from ndstack.ops.runtime.triton_launch import kernel


@triton.jit
def add_ends(
    chart, adjoint, alpha, vectors, by_place, ends, weights, t, low, symbol, row,
    Q: tl.constexpr, K: tl.constexpr, M: tl.constexpr, KP: tl.constexpr, MP: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """G_t[i, a | b] += w[i, b];  ab[i, a] += sum_b P_t[i, a | b] w[i, b], and the same for vectors.

    w[i, b] = ends_b + sum_c weights[b, c] v_{i+1}[c], and the derivative with respect to v_{i+1} is added up
    in `by_place`, [T K, M], for every a on its own.
    """
    STEP: tl.constexpr = DEPTH if M > 0 else TILE
    d, c = tl.arange(0, KP), tl.arange(0, MP)
    place = (d // Q) * symbol + (t * Q + d % Q) * row
    for j0 in range(low * K, (t + 1) * K, STEP):
        j = j0 + tl.arange(0, STEP)
        inside = j < (t + 1) * K
        fine = (d < K)[:, None] & inside[None, :]
        w = tl.zeros((KP, STEP), chart.dtype.element_ty) + ends[:, None]
        shown = columns_at(chart, t, symbol, row, j, inside, Q, K, KP)
        if M > 0:
            w += matmul(weights, tl.trans(vectors_at(vectors, j, inside, K, M, MP)))
            told, some = by_place + j[:, None] * M + c[None, :], inside[:, None] & (c < M)[None, :]
            tl.store(told, tl.load(told, some, 0.0) + matmul(tl.trans(shown), weights), some)
        own = adjoint + place[:, None] + j[None, :]
        tl.store(own, tl.load(own, fine, 0.0) + w, fine)
        tl.store(alpha + j, tl.load(alpha + j, inside, 0.0) + tl.sum(shown * w, 0), inside)


@triton.jit
def tell_columns(
    chart, adjoint, uses, back, scale, t, low, symbol, row, use,
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
        for c0 in range(tl.maximum(low - 1, 0) * Q, (t - 1) * Q, DEPTH):
            c = c0 + tl.arange(0, DEPTH)
            known = c < (t - 1) * Q
            acc = tl.zeros((QP, DEPTH), chart.dtype.element_ty)
            width = tl.minimum(t, c0 // Q + DEPTH // Q + 2) * K  # no column here has a later row
            acc = inner_product(
                acc, own + t * Q * row + low * K, row, columns + low * K, row, width - low * K, r, c,
                (t - 1) * Q, Q, DEPTH,
            )  # fmt: skip
            place = r[:, None] * row + ((c // Q + 1) * K + y * Q + c % Q)[None, :]
            tl.store(back + place, acc * e[:, None], (r < Q)[:, None] & known[None, :])
            some = (r < Q)[None, :] & known[:, None]
            w = tl.load(uses + (y * Q + r)[None, :] * use + c[:, None], some, 0.0) * e[None, :]
            for j0 in range(low * K, width, TILE):
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
    actions, chart, log_alpha, log_total, mass, adjoint, uses, back, grads, t, low, symbol, row, use, times,
    Q: tl.constexpr, S: tl.constexpr, FIX: tl.constexpr, WINDOW: tl.constexpr,
    QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The derivatives with respect to the log weights of step t, into `grads`; G_t is complete."""
    K: tl.constexpr = Q * S
    d, r = tl.arange(0, KP), tl.arange(0, QP)
    dtype = chart.dtype.element_ty
    lr = tl.load(log_alpha + (t - 1) * K + d, d < K, NEG)
    la = tl.load(log_total + t * K + d, d < K, NEG)
    pop = lr[:, None] + pops(actions, 2 * K * K, K, Q, S, KP)
    best = tl.max(pop, 0)
    cp = exp_from(pop, best[None, :]).to(dtype)
    found = uncover(chart, uses, mass, cp, t - 1, low, symbol, row, use, times, Q, K, FIX, WINDOW, KP, TILE)
    scale = tl.where(found > 0, exp_from(best, la), 0.0).to(dtype)
    wu = exp_from(lr[:, None] + square(actions, 0, K, Q, S, KP), la[None, :]).to(dtype)
    kept = kept_mass(mass, t - 1 + 0 * d, low, d, d < K, times, K, FIX, WINDOW)
    held = tl.where(kept > 0, lr, NEG)
    wr = exp_from(held[:, None] + square(actions, K * K, K, Q, S, KP), la[None, :]).to(dtype)
    tl.debug_barrier()
    tell_columns(chart, adjoint, uses, back, scale, t, low, symbol, row, use, Q, S, QP, KP, TILE, DEPTH)
    tl.debug_barrier()
    pr = exp_from(
        lr[:, None] + pops_by_state(actions, 2 * K * K, K, Q, S, QP, KP), best_of(pop, r, Q, QP, KP)[None, :]
    )
    pr = pr.to(dtype)
    place = (d // Q) * symbol + (d % Q) * row
    by_replace, by_pop = tl.zeros((KP, KP), dtype), tl.zeros((KP, QP), dtype)
    for j0 in range(low * K, t * K, DEPTH):
        j = j0 + tl.arange(0, DEPTH)
        inside = j < t * K
        fine = (d < K)[:, None] & inside[None, :]
        before = columns_at(chart, t - 1, symbol, row, j, inside, Q, K, KP)
        g = tl.load(adjoint + place[:, None] + t * Q * row + j[None, :], fine, 0.0)
        uncovered = (j >= K) & inside
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


@triton.jit
def control_back(
    by_control, actions, vectors, by_place, given, told, grad, t, units,
    K: tl.constexpr, Q: tl.constexpr, M: tl.constexpr, NORMALIZED: tl.constexpr, QP: tl.constexpr,
    KP: tl.constexpr, MP: tl.constexpr, HP: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The derivatives with respect to the action layer of step t; gives those with respect to h_t, [HP].

    Args:
        given: [A], with respect to the log weights, where they are used elsewhere.
        told: [A + M], with respect to the log weights, from the chart, in the first A places; completed.
        grad: [HP], with respect to h_t so far.
    """
    A: tl.constexpr = 2 * K * K + K * Q
    for o0 in range(0, A, TILE):
        e = o0 + tl.arange(0, TILE)
        extra = tl.load(given + e, e < A, 0.0)
        tl.store(told + e, tl.load(told + e, e < A, 0.0) + extra, e < A)
    tl.debug_barrier()
    if NORMALIZED:
        normalize_back(actions, told, K, Q, KP, QP)
    if M > 0:
        a, c = tl.arange(0, KP), tl.arange(0, MP)
        some = (a < K)[:, None] & (c < M)[None, :]
        by_vector = tl.sum(tl.load(by_place + (t * K + a)[:, None] * M + c[None, :], some, 0.0), 0)
        v = tl.load(vectors + t * M + c, c < M, 0.0)
        tl.store(told + A + c, by_vector * v * (1 - v), c < M)
        tl.debug_barrier()
    o = tl.arange(0, HP)
    return transposed(grad, by_control, units, told, o, units, A + M, DEPTH)


@kernel(SIZES, key=["Q", "S", "M", "HP"], changes=["adjoint", "alpha", "by_place", "grad_readings"])
def back_kernel(
    by_reading, by_hidden, by_control, trace, cells, actions, vectors, readings, chart, log_alpha, log_total,
    mass, adjoint, alpha, by_place, uses, back, grad_hidden, grad_readings, grad_memory, given_actions,
    grad_gates, grad_controls, grad_first, start, steps, times, units, window,
    Q: tl.constexpr, S: tl.constexpr, M: tl.constexpr, NORMALIZED: tl.constexpr, BY_STATE: tl.constexpr,
    FIX: tl.constexpr, WINDOW: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, MP: tl.constexpr,
    NP: tl.constexpr, HP: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The n steps of a sequence after time `start`, from the last to the first.

    Args:
        adjoint, alpha: of the sizes of the chart and of [B, T + 1, K]; brought to time `start`.
        by_place: [B, T, K, M], likewise for the vectors.
        uses: [B, S, Q, T Q], room for one step; `back`, too, [B, Q, T K].
        grad_hidden, grad_memory: with respect to h [B, n, H] and c_n [B, H].
        grad_readings: [B, n + 1, R], given for r_1 .. r_n; completed, and found for r_0.
        given_actions: [B, n, A], with respect to the log weights, where they are used elsewhere.
        grad_gates, grad_controls: [B, n, 4 H] and [B, n, A + M], results.
        grad_first: [B, 2 H], results: with respect to h_0 and c_0.
    """
    K: tl.constexpr = Q * S
    A: tl.constexpr = 2 * K * K + K * Q
    R: tl.constexpr = (K if BY_STATE else S) * (M if M > 0 else 1)
    sequence = tl.program_id(0).to(tl.int64)
    row, symbol, four = times * K, times * Q * times * K, 4 * units
    trace += sequence * steps * four
    cells += sequence * (steps + 1) * units
    actions += sequence * steps * A
    vectors += sequence * times * M
    readings += sequence * (steps + 1) * R
    chart += sequence * S * symbol
    adjoint += sequence * S * symbol
    log_alpha += sequence * times * K
    log_total += sequence * times * K
    mass += sequence * times * times * K
    alpha += sequence * (times + 1) * K
    by_place += sequence * times * K * M
    uses += sequence * K * times * Q
    back += sequence * Q * row
    grad_hidden += sequence * steps * units
    grad_readings += sequence * (steps + 1) * R
    grad_gates += sequence * steps * four
    grad_controls += sequence * steps * (A + M)
    given_actions += sequence * steps * A
    grad_first += sequence * 2 * units
    o, b = tl.arange(0, HP), tl.arange(0, KP)
    memory = tl.load(grad_memory + sequence * units + o, o < units, 0.0)
    by_h = tl.zeros_like(memory)
    for n in range(steps, 0, -1):
        t = start + n
        low = lowest(t, window)
        p = tl.exp(tl.load(log_alpha + t * K + b, b < K, NEG)).to(chart.dtype.element_ty)
        ends, weights = show_back(readings + n * R, grad_readings + n * R, p, Q, S, M, BY_STATE, KP, MP, NP)
        ends += tl.load(alpha + (t + 1) * K + b, b < K, 0.0)
        add_ends(
            chart, adjoint, alpha, vectors, by_place, ends, weights, t, low, symbol, row,
            Q, K, M, KP, MP, TILE, DEPTH,
        )  # fmt: skip
        own, told = actions + (n - 1) * A, grad_controls + (n - 1) * (A + M)
        chart_back(
            own, chart, log_alpha, log_total, mass, adjoint, uses, back, told, t, low,
            symbol, row, times * Q, times, Q, S, FIX, WINDOW, QP, KP, TILE, DEPTH,
        )  # fmt: skip
        tl.debug_barrier()
        by_h += tl.load(grad_hidden + (n - 1) * units + o, o < units, 0.0)
        by_h = control_back(
            by_control, own, vectors, by_place, given_actions + (n - 1) * A, told, by_h, t, units,
            K, Q, M, NORMALIZED, QP, KP, MP, HP, TILE, DEPTH,
        )  # fmt: skip
        gates = grad_gates + (n - 1) * four
        memory = lstm_back(trace, cells, by_h, memory, gates, n, units, HP)
        tl.debug_barrier()
        by_h = transposed(tl.zeros_like(memory), by_hidden, units, gates, o, units, four, DEPTH)
        for e0 in range(0, R, TILE):
            e = e0 + tl.arange(0, TILE)
            place = grad_readings + (n - 1) * R + e
            shown = transposed(tl.load(place, e < R, 0.0), by_reading, R, gates, e, R, four, DEPTH)
            tl.store(place, shown, e < R)
        tl.debug_barrier()
    tl.store(grad_first + o, by_h, o < units)
    tl.store(grad_first + units + o, memory, o < units)

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, allow-untyped-decorators
"""The parts of a block that go step by step, as Triton kernels (see `portable.forward`, `portable.backward`).

A program is a sequence of the batch. Numbers are arranged as in `portable.store`, symbol first; a column of
the chart is a row of memory, and tiles go along it. The pop rule is `leave_column`, the weights of what is
uncovered, and `combine`, the sum over the uncovered columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ndstack.ops.runtime.triton_launch import kernel

TILES = [
    {"TILE": 64, "DEPTH": 16, "warps": 4},
    {"TILE": 32, "DEPTH": 16, "warps": 2},
    {"TILE": 64, "DEPTH": 32, "warps": 8},
    {"TILE": 128, "DEPTH": 16, "warps": 8},
]
"""How many numbers of a row, and how many rows, a program takes at a time."""


@triton.jit
def matmul(x, y):
    """[I, J] times [J, L], by sums of products in full precision; I is too small for a tensor core."""
    return tl.sum(x[:, :, None] * y[None, :, :], 1)


@triton.jit
def combine(
    acc, weights, weight_row, rows, row, first, last, r, j, inside, Q: tl.constexpr, DEPTH: tl.constexpr
):
    """acc[r, j] + sum_c weights[r * weight_row + c] rows[c * row + j], first <= c < last."""
    for c0 in range(first, last, DEPTH):
        c = c0 + tl.arange(0, DEPTH)
        known = c < last
        w = tl.load(weights + r[:, None] * weight_row + c[None, :], (r < Q)[:, None] & known[None, :], 0.0)
        x = tl.load(rows + c[:, None] * row + j[None, :], known[:, None] & inside[None, :], 0.0)
        acc += matmul(w, x)
    return acc


@triton.jit
def leave_column(
    leave, offset, rows, symbol, row, o, wanted, j, inside, Q: tl.constexpr, K: tl.constexpr, KP: tl.constexpr
):
    """sum_d leave[(offset + o) * K + d] rows[d, j]: a pop or a replacement of the column before."""
    d = tl.arange(0, KP)
    w = tl.load(leave + (offset + o)[:, None] * K + d[None, :], wanted[:, None] & (d < K)[None, :], 0.0)
    place = (d // Q) * symbol + (d % Q) * row
    x = tl.load(rows + place[:, None] + j[None, :], (d < K)[:, None] & inside[None, :], 0.0)
    return matmul(w, x)


@kernel(TILES, key=["Q", "S"])
def inner_kernel(
    push, leave, rows, uses, steps,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """g and z of a block."""
    K: tl.constexpr = Q * S
    block = tl.program_id(0).to(tl.int64)
    row, use = steps * K, steps * Q
    push += block * steps * K * K
    leave += block * steps * (Q + K) * K
    rows += block * S * (steps + 1) * Q * row
    uses += block * S * use * use
    symbol = (steps + 1) * Q * row
    r, a = tl.arange(0, QP), tl.arange(0, KP)
    for n in range(1, steps + 1):
        width = (n - 1) * K
        before = rows + (n - 1) * Q * row
        weights = leave + (n - 1) * (Q + K) * K
        for j0 in range(0, width, TILE):
            j = j0 + tl.arange(0, TILE)
            popped = leave_column(weights, 0, before, symbol, row, r, r < Q, j, j < width, Q, K, KP)
            place = ((j % K) // Q) * use * use + (j // K) * Q + j % Q
            place = place[None, :] + ((n - 1) * Q + r)[:, None] * use
            tl.store(uses + place, popped, (r < Q)[:, None] & (j < width)[None, :])
        tl.debug_barrier()
        for y in range(S):
            own = rows + y * symbol
            for j0 in range(0, width, TILE):
                j = j0 + tl.arange(0, TILE)
                acc = leave_column(weights, Q + y * Q, before, symbol, row, r, r < Q, j, j < width, Q, K, KP)
                z = uses + y * use * use + (n - 1) * Q * use
                acc = combine(acc, z, use, own, row, 0, (n - 1) * Q, r, j, j < width, Q, DEPTH)
                place = (n * Q + r)[:, None] * row + j[None, :]
                tl.store(own + place, acc, (r < Q)[:, None] & (j < width)[None, :])
            fine = (r < Q)[:, None] & (a < K)[None, :]
            pushed = tl.load(push + (n - 1) * K * K + a[None, :] * K + (y * Q + r)[:, None], fine, 0.0)
            tl.store(own + (n * Q + r)[:, None] * row + width + a[None, :], pushed, fine)
        tl.debug_barrier()


@kernel(TILES, key=["Q", "S"])
def strip_kernel(
    leave, leave_batch, rows, rows_batch, rows_symbol, row, known, known_batch, known_symbol, known_row,
    popped, popped_batch, popped_symbol, popped_row, uses, uses_batch, uses_symbol, uses_row, newer,
    steps, width, skip, count,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """R and X for a strip of rows; `count` columns can be uncovered in it, after `skip` numbers of a row."""
    K: tl.constexpr = Q * S
    sequence = tl.program_id(0).to(tl.int64)
    leave += sequence * leave_batch
    rows += sequence * rows_batch
    known += sequence * known_batch
    popped += sequence * popped_batch
    uses += sequence * uses_batch
    newer += sequence * S * steps * Q * width
    r = tl.arange(0, QP)
    for n in range(1, steps + 1):
        weights = leave + (n - 1) * (Q + K) * K
        before = rows + (n - 1) * Q * row
        for j0 in range(0, width, TILE):
            j = j0 + tl.arange(0, TILE)
            inside = (j >= skip) & (j < width)
            column = leave_column(weights, 0, before, rows_symbol, row, r, r < Q, j, inside, Q, K, KP)
            e = j - skip
            place = ((e % K) // Q) * popped_symbol + (e // K) * Q + e % Q
            place = place[None, :] + ((n - 1) * Q + r)[:, None] * popped_row
            tl.store(popped + place, column, (r < Q)[:, None] & inside[None, :])
        tl.debug_barrier()
        for y in range(S):
            own = rows + y * rows_symbol
            for j0 in range(0, width, TILE):
                j = j0 + tl.arange(0, TILE)
                inside = j < width
                fine = (r < Q)[:, None] & inside[None, :]
                acc = leave_column(
                    weights, Q + y * Q, before, rows_symbol, row, r, r < Q, j, inside, Q, K, KP
                )
                place = (y * steps * Q + (n - 1) * Q + r)[:, None] * width + j[None, :]
                acc += tl.load(newer + place, fine, 0.0)
                x = popped + y * popped_symbol + (n - 1) * Q * popped_row
                columns = known + y * known_symbol
                acc = combine(acc, x, popped_row, columns, known_row, 0, count * Q, r, j, inside, Q, DEPTH)
                z = uses + y * uses_symbol + (n - 1) * Q * uses_row
                acc = combine(acc, z, uses_row, own, row, 0, (n - 1) * Q, r, j, inside, Q, DEPTH)
                tl.store(own + (n * Q + r)[:, None] * row + j[None, :], acc, fine)
        tl.debug_barrier()


@triton.jit
def gather(acc, uses, uses_row, rows, row, first, last, r, j, inside, Q: tl.constexpr, DEPTH: tl.constexpr):
    """acc[u, j] + sum_c uses[c * uses_row + u] rows[(c + Q) * row + j], first <= c < last."""
    for c0 in range(first, last, DEPTH):
        c = c0 + tl.arange(0, DEPTH)
        some = c < last
        w = tl.load(uses + c[None, :] * uses_row + r[:, None], (r < Q)[:, None] & some[None, :], 0.0)
        x = tl.load(rows + (c + Q)[:, None] * row + j[None, :], some[:, None] & inside[None, :], 0.0)
        acc += matmul(w, x)
    return acc


@triton.jit
def inner_product(acc, own, row, known, known_row, width, r, c, count, Q: tl.constexpr, DEPTH: tl.constexpr):
    """acc[r, c] + sum_j own[r * row + j] known[c * known_row + j], j < width."""
    for j0 in range(0, width, DEPTH):
        j = j0 + tl.arange(0, DEPTH)
        g = tl.load(own + r[:, None] * row + j[None, :], (r < Q)[:, None] & (j < width)[None, :], 0.0)
        p = known + c[None, :] * known_row + j[:, None]
        acc += matmul(g, tl.load(p, (c < count)[None, :] & (j < width)[:, None], 0.0))
    return acc


@kernel(TILES, key=["Q", "S"], changes=["rows"])
def strip_back_kernel(
    rows, rows_batch, rows_symbol, row, uses, uses_batch, uses_symbol, uses_row, uncovered,
    uncovered_batch, uncovered_step, uncovered_row, older, known, known_batch, known_symbol, known_row,
    carry, uncover, steps, width, skip, count, block, first, start, window, base,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """G and B for a strip of rows, from the last step to the first.

    Arguments are as in `portable.backward`; `carry` is WR and CP side by side, [B, m, K, K + Q].
    """
    K: tl.constexpr = Q * S
    sequence = tl.program_id(0).to(tl.int64)
    rows += sequence * rows_batch
    uses += sequence * uses_batch
    uncovered += sequence * uncovered_batch
    older += sequence * S * steps * Q * count * Q
    known += sequence * known_batch
    carry += sequence * steps * K * (K + Q)
    uncover += sequence * steps * K
    r, d = tl.arange(0, QP), tl.arange(0, KP)
    place_d = (d // Q) * rows_symbol + (d % Q) * row
    for n in range(steps, 0, -1):
        low = tl.maximum(start + n - window + 1, 0) * (window > 0) - base * (window > 0) - first
        low = tl.maximum(low, 0) * K
        for y in range(S):
            own = rows + y * rows_symbol
            for j0 in range(0, width, TILE):
                j = j0 + tl.arange(0, TILE)
                fine = (r < Q)[:, None] & (j < width)[None, :]
                place = own + (n * Q + r)[:, None] * row + j[None, :]
                acc = tl.load(place, fine, 0.0)
                later = uses + y * uses_symbol + block + n * Q
                acc = gather(
                    acc, later, uses_row, own, row, (n + 1) * Q, steps * Q, r, j, j < width, Q, DEPTH
                )
                tl.store(place, tl.where((j >= low)[None, :], acc, 0.0), fine)
        tl.debug_barrier()
        target = uncovered + (n - 1) * uncovered_step
        for y in range(S):
            own = rows + y * rows_symbol + n * Q * row
            scale = tl.load(uncover + (n - 1) * K + y * Q + r, r < Q, 0.0)
            for c0 in range(0, count * Q, TILE):
                c = c0 + tl.arange(0, TILE)
                fine = (r < Q)[:, None] & (c < count * Q)[None, :]
                place = (y * steps * Q + (n - 1) * Q + r)[:, None] * count * Q + c[None, :]
                acc = tl.load(older + place, fine, 0.0)
                columns = known + y * known_symbol
                acc = inner_product(acc, own, row, columns, known_row, width, r, c, count * Q, Q, DEPTH)
                place = r[:, None] * uncovered_row + (skip + (c // Q) * K + y * Q + c % Q)[None, :]
                tl.store(target + place, acc * scale[:, None], fine)
        tl.debug_barrier()
        weights = carry + (n - 1) * K * (K + Q)
        for j0 in range(0, width, TILE):
            j = j0 + tl.arange(0, TILE)
            fine = (d < K)[:, None] & (j < width)[None, :]
            w = tl.load(weights + d[:, None] * (K + Q) + d[None, :], (d < K)[:, None] & (d < K)[None, :], 0.0)
            told = matmul(w, tl.load(rows + place_d[:, None] + n * Q * row + j[None, :], fine, 0.0))
            w = tl.load(
                weights + d[:, None] * (K + Q) + K + r[None, :], (d < K)[:, None] & (r < Q)[None, :], 0.0
            )
            shown = (r < Q)[:, None] & (j < width)[None, :]
            told += matmul(w, tl.load(target + r[:, None] * uncovered_row + j[None, :], shown, 0.0))
            place = rows + place_d[:, None] + (n - 1) * Q * row + j[None, :]
            tl.store(place, tl.load(place, fine, 0.0) + tl.where((j >= low)[None, :], told, 0.0), fine)
        tl.debug_barrier()

# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled loops of causal attention with dropout, used by `cpu`.

One call of `forward_head` is one head of one string. Its keys and values are transposed, one row for each of
their numbers, so that the inner loops are over positions, by whole vectors. Queries are taken in tiles of
`TILE` rows; each row of a tile has as many places as its last query may see. Weights are not kept for the
backward pass, but computed again, and so are the random numbers of dropout.
"""

import numpy as np

from ndstack.ops.runtime.exponentials import exp_each
from ndstack.ops.runtime.products import copy, fill
from ndstack.ops.runtime.random_numbers import drop_out
from ndstack.ops.runtime.simd import (
    entry,
    fma,
    kernel,
    kernel_loop,
    lanes,
    larger,
    load,
    maker,
    plus,
    spread,
    store,
    store_sums,
    zeros,
)

TILE = 16
"""The number of queries in a tile, a multiple of the numbers in a vector."""
CHANNELS = 4
"""Sizes of heads are rounded up to a multiple of this."""


@kernel
def padded(size, multiple):
    """The size, rounded up."""
    return (size + multiple - 1) // multiple * multiple


@kernel_loop
def transpose(parts, first, apart, n, size, width, out):
    """out[c * width + t] = parts[first + t * apart + c], and zeros where there is nothing."""
    for j in range(out.size):
        out[j] = 0
    for t in range(n):
        for c in range(size):
            out[c * width + t] = parts[first + t * apart + c]


@kernel_loop
def take_rows(parts, first, apart, count, size, factor, channels, out):
    """out[r * channels + c] = factor parts[first + r * apart + c], and zeros where there is nothing."""
    for j in range(out.size):
        out[j] = 0
    for r in range(count):
        for c in range(size):
            out[r * channels + c] = factor * parts[first + r * apart + c]


@kernel_loop
def put_rows(rows, channels, count, size, factor, out, first, apart):
    """out[first + r * apart + c] = factor rows[r * channels + c], the inverse of `take_rows`."""
    for r in range(count):
        for c in range(size):
            out[first + r * apart + c] = factor * rows[r * channels + c]


@kernel_loop
def put_columns(columns, width, n, size, out, first, apart):
    """out[first + t * apart + c] = columns[c * width + t], the inverse of `transpose`."""
    for t in range(n):
        for c in range(size):
            out[first + t * apart + c] = columns[c * width + t]


@kernel_loop
def rows_by_columns(rows, channels, columns, width, tile_width, out):
    """out[r, j] = sum_c rows[r, c] columns[c, j], for all rows of a tile and j < tile_width."""
    for r in range(0, TILE, 4):
        for j in range(0, tile_width, lanes(out)):
            a, b, c, d = zeros(out), zeros(out), zeros(out), zeros(out)
            for k in range(channels):
                x, at = load(columns, k * width + j), r * channels + k
                a = fma(spread(rows, at), x, a)
                b = fma(spread(rows, at + channels), x, b)
                c = fma(spread(rows, at + 2 * channels), x, c)
                d = fma(spread(rows, at + 3 * channels), x, d)
            store(out, r * tile_width + j, a)
            store(out, (r + 1) * tile_width + j, b)
            store(out, (r + 2) * tile_width + j, c)
            store(out, (r + 3) * tile_width + j, d)


@kernel_loop
def rows_by_rows(weights, tile_width, columns, width, channels, out):
    """out[r, c] = sum_j weights[r, j] columns[c, j], for all rows of a tile."""
    for r in range(TILE):
        for k in range(0, channels, 4):
            a, b, c, d = zeros(out), zeros(out), zeros(out), zeros(out)
            for j in range(0, tile_width, lanes(out)):
                x, at = load(weights, r * tile_width + j), k * width + j
                a = fma(x, load(columns, at), a)
                b = fma(x, load(columns, at + width), b)
                c = fma(x, load(columns, at + 2 * width), c)
                d = fma(x, load(columns, at + 3 * width), d)
            store_sums(out, r * channels + k, a, b, c, d)


@kernel_loop
def add_columns_by_rows(rows, channels, weights, tile_width, width, out):
    """out[c, j] += sum_r rows[r, c] weights[r, j], over the rows of a tile."""
    for k in range(0, channels, 4):
        for j in range(0, tile_width, lanes(out)):
            at = k * width + j
            a, b = load(out, at), load(out, at + width)
            c, d = load(out, at + 2 * width), load(out, at + 3 * width)
            for r in range(TILE):
                x, place = load(weights, r * tile_width + j), r * channels + k
                a = fma(spread(rows, place), x, a)
                b = fma(spread(rows, place + 1), x, b)
                c = fma(spread(rows, place + 2), x, c)
                d = fma(spread(rows, place + 3), x, d)
            store(out, at, a)
            store(out, at + width, b)
            store(out, at + 2 * width, c)
            store(out, at + 3 * width, d)


@kernel_loop
def largest(values, first, last, room):
    """The largest of values[first : last], whole vectors; what is returned beside a nan does not matter."""
    found = load(values, first)
    for j in range(first, last, lanes(values)):
        found = larger(found, load(values, j))
    store(room, 0, found)
    high = room[0]
    for j in range(lanes(values)):
        high = room[j] if room[j] > high else high
    return high


@kernel_loop
def add(values, first, last, room, number):
    """values[first : last] += number, whole vectors."""
    room[0] = number
    summand = spread(room, 0)
    for j in range(first, last, lanes(values)):
        store(values, j, plus(load(values, j), summand))


@kernel_loop
def normalize(values, first, last, room):
    """Divide values[first : last], whole vectors, by their sum, and return the sum."""
    found = zeros(values)
    for j in range(first, last, lanes(values)):
        found = plus(found, load(values, j))
    store(room, 0, found)
    mass = values.dtype.type(0)
    for j in range(lanes(values)):
        mass += room[j]
    room[0] = 1 / mass
    factor, none = spread(room, 0), zeros(values)
    for j in range(first, last, lanes(values)):
        store(values, j, fma(load(values, j), factor, none))
    return mass


@kernel_loop
def hide(scores, tile_width, start):
    """Set the scores of a tile to -inf where a query would look at a later position."""
    for r in range(TILE):
        for j in range(start + r + 1, tile_width):
            scores[r * tile_width + j] = -np.inf


@kernel
def softmax(scores, tile_width, start, room, logs):
    """Turn the scores of a tile into weights, 0 where a query may not look, and write down log sums.

    The last rows of the last tile, if it is not full, have no queries, and nobody reads what they hold.
    """
    hide(scores, tile_width, start)
    for r in range(TILE):
        first = r * tile_width
        logs[r] = largest(scores, first, first + tile_width, room)
        add(scores, first, first + tile_width, room, -logs[r])
    exp_each(scores)
    for r in range(TILE):
        logs[r] += np.log(normalize(scores, r * tile_width, (r + 1) * tile_width, room))


@kernel
def softmax_again(scores, tile_width, start, room, logs):
    """The weights of `softmax`, given its log sums."""
    hide(scores, tile_width, start)
    for r in range(TILE):
        add(scores, r * tile_width, (r + 1) * tile_width, room, -logs[r])
    exp_each(scores)


@kernel_loop
def derivatives_of_scores(weights, kept, grads, tile_width, deltas):
    """grads = weights (kept grads - delta), kept = weights kept, for the factors of dropout in `kept`."""
    for r in range(TILE):
        delta = deltas[r]
        for j in range(r * tile_width, (r + 1) * tile_width):
            weight, factor = weights[j], kept[j]
            grads[j] = weight * (factor * grads[j] - delta)
            kept[j] = weight * factor


@kernel_loop
def sums_of_products(left, right, channels, out):
    """out[r] = sum_c left[r, c] right[r, c], for all rows of a tile."""
    for r in range(TILE):
        found = out.dtype.type(0)
        for c in range(r * channels, (r + 1) * channels):
            found += left[c] * right[c]
        out[r] = found


@kernel
def places(n):
    """How many places the tiles of a head have."""
    tiles = padded(n, TILE) // TILE
    return TILE * TILE * tiles * (tiles + 1) // 2


@maker
def forward_head(parts, at, apart, n, size, factor, seeds, line, out, out_at, logs):
    """Attend with one head, whose first query is at `at` and whose keys and values follow the queries."""
    third, one = apart // 3, parts.dtype.type(1)
    channels, width = padded(size, CHANNELS), padded(n, TILE)
    keys, values = np.empty(channels * width, parts.dtype), np.empty(channels * width, parts.dtype)
    transpose(parts, at + third, apart, n, size, width, keys)
    transpose(parts, at + 2 * third, apart, n, size, width, values)
    queries, rows = np.empty(TILE * channels, parts.dtype), np.empty(TILE * channels, parts.dtype)
    scores, own = np.empty(TILE * width, parts.dtype), np.empty(TILE, parts.dtype)
    room = np.empty(TILE, parts.dtype)
    counter = line * places(n)
    for start in range(0, n, TILE):
        count, tile_width = min(TILE, n - start), start + TILE
        take_rows(parts, at + start * apart, apart, count, size, factor, channels, queries)
        weights = scores[: TILE * tile_width]
        rows_by_columns(queries, channels, keys, width, tile_width, weights)
        softmax(weights, tile_width, start, room, own)
        drop_out(weights, counter, seeds)
        counter += TILE * tile_width
        rows_by_rows(weights, tile_width, values, width, channels, rows)
        put_rows(rows, channels, count, size, one, out, out_at + start * third, third)
        copy(own, logs[start : start + count])


@maker
def backward_head(parts, at, apart, n, size, factor, seeds, line, out, grad_out, out_at, logs, grad_parts):
    """Write the derivatives with respect to queries, keys and values of one head."""
    third, one = apart // 3, parts.dtype.type(1)
    channels, width = padded(size, CHANNELS), padded(n, TILE)
    keys, values = np.empty(channels * width, parts.dtype), np.empty(channels * width, parts.dtype)
    transpose(parts, at + third, apart, n, size, width, keys)
    transpose(parts, at + 2 * third, apart, n, size, width, values)
    grad_keys, grad_values = np.zeros(channels * width, parts.dtype), np.zeros(channels * width, parts.dtype)
    queries, grad_rows = np.empty(TILE * channels, parts.dtype), np.empty(TILE * channels, parts.dtype)
    rows, own = np.empty(TILE * channels, parts.dtype), np.zeros(TILE, parts.dtype)
    tiles, room = np.empty((3, TILE * width), parts.dtype), np.empty(TILE, parts.dtype)
    counter = line * places(n)
    for start in range(0, n, TILE):
        count, tile_width = min(TILE, n - start), start + TILE
        weights, kept = tiles[0, : TILE * tile_width], tiles[1, : TILE * tile_width]
        grads = tiles[2, : TILE * tile_width]
        take_rows(parts, at + start * apart, apart, count, size, factor, channels, queries)
        rows_by_columns(queries, channels, keys, width, tile_width, weights)
        copy(logs[start:], own[:count])
        softmax_again(weights, tile_width, start, room, own)
        fill(kept, 0, kept.size, one)
        drop_out(kept, counter, seeds)
        counter += TILE * tile_width
        take_rows(grad_out, out_at + start * third, third, count, size, one, channels, grad_rows)
        take_rows(out, out_at + start * third, third, count, size, one, channels, rows)
        sums_of_products(grad_rows, rows, channels, own)
        rows_by_columns(grad_rows, channels, values, width, tile_width, grads)
        derivatives_of_scores(weights, kept, grads, tile_width, own)
        add_columns_by_rows(queries, channels, grads, tile_width, width, grad_keys)
        add_columns_by_rows(grad_rows, channels, kept, tile_width, width, grad_values)
        rows_by_rows(grads, tile_width, keys, width, channels, rows)
        put_rows(rows, channels, count, size, factor, grad_parts, at + start * apart, apart)
    put_columns(grad_keys, width, n, size, grad_parts, at + third, apart)
    put_columns(grad_values, width, n, size, grad_parts, at + 2 * third, apart)


@entry
def forward(first, last, parts, n, heads, size, factor, seeds, out, logs):
    """Attend with the heads first..last-1 of a batch.

    parts is [B, n, 3, heads, size], flat; out is [B, n, heads, size], flat; logs is [B * heads, n].
    """
    third = heads * size
    for line in range(first, last):
        at = line // heads * n * 3 * third + line % heads * size
        out_at = line // heads * n * third + line % heads * size
        forward_head(parts, at, 3 * third, n, size, factor, seeds, line, out, out_at, logs[line])


@entry
def backward(first, last, parts, n, heads, size, factor, seeds, out, grad_out, logs, grad_parts):
    """Write the derivatives of the heads first..last-1, [B, n, 3, heads, size], flat."""
    third = heads * size
    for line in range(first, last):
        at = line // heads * n * 3 * third + line % heads * size
        out_at = line // heads * n * third + line % heads * size
        backward_head(
            parts, at, 3 * third, n, size, factor, seeds, line, out, grad_out, out_at, logs[line], grad_parts
        )


@entry
def factors(first, last, n, seeds, out):
    """What dropout multiplies the weights of the heads first..last-1 by, [heads, n, n]; 0 for later keys."""
    room = np.empty(TILE * padded(n, TILE), out.dtype)
    for line in range(first, last):
        counter = line * places(n)
        for start in range(0, n, TILE):
            tile_width = start + TILE
            kept = room[: TILE * tile_width]
            fill(kept, 0, kept.size, out.dtype.type(1))
            drop_out(kept, counter, seeds)
            counter += TILE * tile_width
            for t in range(start, min(start + TILE, n)):
                for i in range(n):
                    out[line, t, i] = kept[(t - start) * tile_width + i] if i <= t else 0

"""The loops for machines with few registers do what those for machines with many do."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from ndstack.ops.nondeterministic.cpu import blocks, narrow, streams
from ndstack.ops.runtime import simd
from ndstack.ops.runtime.simd import BYTES, entry

STEP = 2 * BYTES // 8
WIDE6, WIDE4 = blocks._wide_combine6, blocks._wide_combine4
WIDE3, WIDE2 = blocks._wide_combine3, blocks._wide_combine2
ADD_TWO, ADD_THREE = streams._wide_add_two, streams._wide_add_three
NARROW_ADD_TWO, NARROW_ADD_THREE = streams._narrow_add_two, streams._narrow_add_three
WIDE_DOTS3, WIDE_DOTS2 = blocks._wide_dots3, blocks._wide_dots2
WIDE_PAIRS = blocks._wide_dots_of_pairs


@entry
def combine_all(X, off, W, first, wide, apart, counts, tiles, out, pos):
    """Results 0 to 14 by the loops for wide registers, 15 to 29 by those for narrow ones."""
    WIDE6(X, off, W, first, wide, apart, 0, counts, tiles, out, pos)
    WIDE4(X, off, W, first + 6 * apart, wide, apart, 6, counts, tiles, out, pos)
    WIDE3(X, off, W, first + 10 * apart, wide, apart, 10, counts, 0, tiles, out, pos)
    WIDE2(X, off, W, first + 13 * apart, wide, apart, 13, counts, 0, tiles, out, pos)
    narrow.combine6(X, off, W, first, wide, apart, 15, counts, tiles, out, pos)
    narrow.combine4(X, off, W, first + 6 * apart, wide, apart, 21, counts, tiles, out, pos)
    narrow.combine3(X, off, W, first + 10 * apart, wide, apart, 25, counts, 0, tiles, out, pos)
    narrow.combine2(X, off, W, first + 13 * apart, wide, apart, 28, counts, 0, tiles, out, pos)


@entry
def add_all(X, each, size, S, W, first, apart, lengths, groups, out, pos):
    """For two states, then for three; by the loops for wide registers, then by those for narrow ones."""
    one, two, three = each, each[S * size :], each[2 * S * size :]
    ADD_TWO(X, one, two, S, W, first, 2 * S, apart, lengths, groups, out[0], pos)
    NARROW_ADD_TWO(X, one, two, S, W, first, 2 * S, apart, lengths, groups, out[1], pos)
    ADD_THREE(X, one, two, three, S, W, first, 3 * S, apart, lengths, groups, out[2], pos)
    NARROW_ADD_THREE(X, one, two, three, S, W, first, 3 * S, apart, lengths, groups, out[3], pos)


@entry
def multiply_all(X, off, lengths, groups, Y, pos, many, res):
    """Rows 0 to 4 by the loops for wide registers, 5 to 9 by those for narrow ones."""
    WIDE_DOTS3(X, off, lengths, groups, Y, pos, 0, many, res)
    WIDE_DOTS2(X, off, lengths, groups, Y, pos, 3, many, res)
    narrow.dots3(X, off, lengths, groups, Y, pos, 5, many, res)
    narrow.dots2(X, off, lengths, groups, Y, pos, 8, many, res)


@entry
def multiply_pairs(X, one, two, lengths, groups, Y, pos, by_wide, by_narrow):
    """Sums by the loops for wide registers, and by those for narrow ones."""
    WIDE_PAIRS(X, one, two, lengths, groups, Y, pos, by_wide)
    narrow.dots_of_pairs(X, one, two, lengths, groups, Y, pos, by_narrow)


@pytest.mark.parametrize("first, wide, apart", [(0, 15, 1), (0, 1, 12), (11, -1, 12), (170, -15, 0)])
@pytest.mark.parametrize("counts", [[12, 7, 0, 1], [1, 3, 3, 12], [12, 12, 5], [9]])
def test_sums_of_columns(first: int, wide: int, apart: int, counts: list[int]) -> None:
    """The weights may lie in any order: those of one column together, those of one result, or backwards."""
    rng = np.random.default_rng(0)
    columns, weights, before = rng.random(12 * 70), rng.random(180), rng.random(30 * 70 + 20)
    off, pos, results = np.arange(12) * 70, np.arange(30) * 70, before.copy()
    combine_all(columns, off, weights, first, wide, apart, np.array(counts), len(counts), results, pos)
    for r in range(30):
        for tile, count in enumerate(counts):
            place, own = 70 * r + STEP * tile, before[70 * r + STEP * tile :][:STEP].copy()
            for c in range(count):
                weight = weights[first + c * wide + r % 15 * apart]
                own += weight * columns[off[c] + STEP * tile :][:STEP]
            np.testing.assert_allclose(results[place:][:STEP], own, rtol=1e-13)


def test_sums_of_the_columns_of_many_times() -> None:
    """Every (k, u) has a column; each group of four times has a length of its own."""
    rng, S, size, lengths = np.random.default_rng(0), 2, 11, [16, 48]
    columns, weights, before = rng.random(6 * size * 50), rng.random(200), rng.random((4, 3 * 50))
    each, pos, results = np.arange(6 * size) * 50, np.arange(3) * 50, before.copy()
    first, apart = 3, 60
    add_all(columns, each, size, S, weights, first, apart, np.array(lengths), 2, results, pos)
    for which, states in enumerate((2, 2, 3, 3)):
        expected = before[which].copy()
        for r in range(states):
            for k in range(8):
                for u in range(states):
                    weight = weights[first + k * states * S + u * S + r * apart]
                    column = columns[each[u * S * size + k] :][: lengths[k // 4]]
                    expected[pos[r] :][: lengths[k // 4]] += weight * column
        np.testing.assert_allclose(results[which], expected, rtol=1e-13)


def test_products_of_columns() -> None:
    rng = np.random.default_rng(0)
    columns, rows = rng.random(12 * 70), np.tile(rng.random(5 * 70), 2)
    off, pos = np.arange(12) * 70, np.arange(10) * 70
    products = np.zeros(3 * 10 * 4)
    multiply_all(columns, off, np.array([48, 16, 0]), 3, rows, pos, 10, products)
    products = products.reshape(3, 10, 4)
    np.testing.assert_allclose(products[:, 5:], products[:, :5], rtol=1e-14)
    assert (products[:2] > 0).all()


@pytest.mark.parametrize("features, expected", [("+avx2,+fma", False), ("+avx2,+avx512f", True), ("", False)])
def test_the_target_decides(features: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
    assert simd.has_wide_registers() is expected


def test_so_does_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    for found, expected in (({"avx512f": True}, True), ({"avx512f": False}, False), ({}, False)):
        monkeypatch.setattr(simd, "get_host_cpu_features", lambda found=found: found)
        assert simd.has_wide_registers() is expected


def test_products_of_pairs_of_columns() -> None:
    rng = np.random.default_rng(0)
    columns, rows, lengths = rng.random(16 * 70), rng.random(2 * 70), [48, 16]
    one, two, pos = np.arange(8) * 70, np.arange(8, 16) * 70, np.arange(2) * 70
    found = np.zeros((2, 32))
    multiply_pairs(columns, one, two, np.array(lengths), 2, rows, pos, *found)
    for group, length in enumerate(lengths):
        for which, off in enumerate((one, two)):
            for r in range(2):
                for c in range(4):
                    column = columns[off[4 * group + c] :][:length]
                    expected = column @ rows[pos[r] :][:length]
                    own = found[:, 16 * group + 8 * which + 4 * r + c]
                    np.testing.assert_allclose(own, expected, rtol=1e-13)

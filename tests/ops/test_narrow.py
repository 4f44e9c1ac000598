"""The loops for machines with few registers do what those for machines with many do."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from ndstack.ops.nondeterministic.cpu import blocks, narrow
from ndstack.ops.runtime.simd import BYTES, entry

STEP = 2 * BYTES // 8
WIDE3, WIDE2 = blocks._wide_combine3, blocks._wide_combine2
WIDE_DOTS3, WIDE_DOTS2 = blocks._wide_dots3, blocks._wide_dots2
WIDE_PAIRS = blocks._wide_dots_of_pairs


@entry
def combine_all(X, off, W, first, wide, apart, counts, tiles, out, pos):
    """Results 0 to 4 by the loops for wide registers, 5 to 9 by those for narrow ones."""
    WIDE3(X, off, W, first, wide, apart, 0, counts, tiles, out, pos)
    WIDE2(X, off, W, first + 3 * apart, wide, apart, 3, counts, tiles, out, pos)
    narrow.combine3(X, off, W, first, wide, apart, 5, counts, tiles, out, pos)
    narrow.combine2(X, off, W, first + 3 * apart, wide, apart, 8, counts, tiles, out, pos)


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


@pytest.mark.parametrize("first, wide, apart", [(0, 5, 1), (0, 1, 12), (11, -1, 12), (57, -5, 0)])
@pytest.mark.parametrize("counts", [[12, 7, 0, 1], [1, 3, 3, 12], [12, 12, 5]])
def test_sums_of_columns(first: int, wide: int, apart: int, counts: list[int]) -> None:
    """The weights may lie in any order: those of one column together, those of one result, or backwards."""
    rng = np.random.default_rng(0)
    columns, weights, before = rng.random(12 * 70), rng.random(60), rng.random(10 * 70 + 20)
    off, pos, results = np.arange(12) * 70, np.arange(10) * 70, before.copy()
    combine_all(columns, off, weights, first, wide, apart, np.array(counts), len(counts), results, pos)
    for r in range(10):
        for tile, count in enumerate(counts):
            place, own = 70 * r + STEP * tile, before[70 * r + STEP * tile :][:STEP].copy()
            for c in range(count):
                weight = weights[first + c * wide + r % 5 * apart]
                own += weight * columns[off[c] + STEP * tile :][:STEP]
            np.testing.assert_allclose(results[place:][:STEP], own, rtol=1e-13)


def test_products_of_columns() -> None:
    rng = np.random.default_rng(0)
    columns, rows = rng.random(12 * 70), np.tile(rng.random(5 * 70), 2)
    off, pos = np.arange(12) * 70, np.arange(10) * 70
    products = np.zeros(3 * 10 * 4)
    multiply_all(columns, off, np.array([48, 16, 0]), 3, rows, pos, 10, products)
    products = products.reshape(3, 10, 4)
    np.testing.assert_allclose(products[:, 5:], products[:, :5], rtol=1e-14)
    assert (products[:2] > 0).all()


@pytest.mark.parametrize("features, expected", [("+avx2,+fma", True), ("+avx2,+avx512f", False), ("", True)])
def test_the_target_decides(features: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
    assert narrow.is_narrow() is expected


def test_so_does_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    for found, expected in (({"avx512f": True}, False), ({"avx512f": False}, True), ({}, True)):
        monkeypatch.setattr(narrow, "get_host_cpu_features", lambda found=found: found)
        assert narrow.is_narrow() is expected


@pytest.mark.skipif(BYTES < 64, reason="eight sums need registers of eight numbers")
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

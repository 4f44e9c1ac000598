"""The loops for machines with few registers do what those for machines with many do."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from ndstack.ops.nondeterministic.cpu import blocks, narrow
from ndstack.ops.runtime.simd import entry

WIDE3, WIDE2 = blocks._wide_combine3, blocks._wide_combine2
WIDE_DOTS3, WIDE_DOTS2 = blocks._wide_dots3, blocks._wide_dots2


@entry
def combine_all(X, off, W, wide, counts, tiles, out, pos):
    """Results 0 to 4 by the loops for wide registers, 5 to 9 by those for narrow ones."""
    WIDE3(X, off, W, wide, 0, counts, tiles, out, pos)
    WIDE2(X, off, W, wide, 3, counts, tiles, out, pos)
    narrow.combine3(X, off, W, wide, 5, counts, tiles, out, pos)
    narrow.combine2(X, off, W, wide, 8, counts, tiles, out, pos)


@entry
def multiply_all(X, off, lengths, groups, Y, pos, many, res):
    """Rows 0 to 4 by the loops for wide registers, 5 to 9 by those for narrow ones."""
    WIDE_DOTS3(X, off, lengths, groups, Y, pos, 0, many, res)
    WIDE_DOTS2(X, off, lengths, groups, Y, pos, 3, many, res)
    narrow.dots3(X, off, lengths, groups, Y, pos, 5, many, res)
    narrow.dots2(X, off, lengths, groups, Y, pos, 8, many, res)


def test_sums_and_products_of_columns() -> None:
    rng = np.random.default_rng(0)
    columns, rows = rng.random(12 * 70), np.tile(rng.random(5 * 70), 2)
    off, pos = np.arange(12) * 70, np.arange(10) * 70
    weights = np.tile(rng.random((12, 5)), 2).flatten()
    results = np.zeros(10 * 70 + 20)
    combine_all(columns, off, weights, 10, np.array([12, 7, 0, 1]), 3, results, pos)
    results = results[:700].reshape(10, 70)
    np.testing.assert_allclose(results[5:], results[:5], rtol=1e-14)
    assert (results[:, 0] > 0).all()
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

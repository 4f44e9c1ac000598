"""What users with a GPU are asked to run, in its smallest form."""

from __future__ import annotations

import math

import pytest
from benchmarks import gpu

pytest.importorskip("triton")


def test_the_report_has_comparisons_times_and_memory() -> None:
    results = gpu.run(tiny=True, most=1)
    text = gpu.report(results)
    assert "0 of 6 comparisons failed." in text
    for backend in ("portable", "triton", "steps", "fixed capacity"):
        assert any(row["backend"] == backend and row["error"] <= gpu.LIMIT for row in results["checks"])
    assert "|  | log space | CPU kernels | portable | triton |" in text
    assert all(row[way] > 0 for row in results["times"] for way in ("cpu", "portable", "triton"))
    assert "reference" in results["times"][0]
    assert all(0.5 * row["planned"] < row["took"] <= row["planned"] for row in results["memory"])
    assert all(float(row["fixed capacity"]) > 0 for row in results["steps"])


def test_a_failure_is_part_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> float:
        raise RuntimeError("out of\n  memory")

    row = gpu.attempt("a scan", "triton", fail)
    assert row["error"] == math.inf
    assert gpu.verdict(row) == "RuntimeError: out of memory"
    assert gpu.verdict(gpu.attempt("a scan", "triton", lambda: 1.0)) == "WRONG"
    assert gpu.verdict(gpu.attempt("a scan", "triton", lambda: math.nan)) == "WRONG"

"""Every experiment at the scale smoke, from its trials to its figures and tables."""

import os

import pytest
from typer.testing import CliRunner

from ndstack.cli import app
from ndstack.experiments import find
from ndstack.experiments.registry import ORDER


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch):
    """Files of a test need not outlive the machine."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize("name", ORDER)
def test_a_smoke_run_draws_everything(name, tmp_path):
    done = CliRunner().invoke(
        app, ["reproduce", name, "--scale", "smoke", "--out", str(tmp_path), "--workers", "0", "--quiet"]
    )
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    for output in find(name).outputs:
        files = {path.suffix for path in (tmp_path / "report").glob(f"{output.label}.*")}
        table = output.kind in ("times", "perplexity", "circuits")
        drawing = output.kind in ("evolution", "pca", "heatmaps")
        assert (
            files == {".md", ".csv"} if table else {".svg", ".png"} | (set() if drawing else {".md", ".csv"})
        )
        assert output.label.replace("-", " ").capitalize() in page
    assert "<script" not in page
    assert 'src="' not in page
    assert page.count("<svg") == sum(
        output.kind not in ("times", "perplexity", "circuits") for output in find(name).outputs
    )

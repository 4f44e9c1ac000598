"""The conda-forge recipe has the version, the checksum and the dependencies of what is released."""

import hashlib
import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
yaml = pytest.importorskip("yaml", reason="comes with the extra `docs`")


def test_the_recipe_says_what_the_project_says(tmp_path):
    spec = importlib.util.spec_from_file_location("conda_recipe", ROOT / "packaging" / "conda_recipe.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    archive = tmp_path / "ndstack-1.2.tar.gz"
    archive.write_bytes(b"an archive")
    found = yaml.safe_load(made.recipe(archive, "https://example.org/ndstack-1.2.tar.gz"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found["context"]["version"] == "1.2"
    assert found["source"]["url"] == "https://example.org/ndstack-${{ version }}.tar.gz"
    assert found["source"]["sha256"] == hashlib.sha256(b"an archive").hexdigest()
    assert len(found["requirements"]["run"]) == len(project["dependencies"]) + 1
    assert "pytorch >=2.5,<3" in found["requirements"]["run"]
    assert found["build"]["python"]["entry_points"] == ["ndstack = ndstack.cli:main"]
    with pytest.raises(SystemExit, match="expected a source archive"):
        made.recipe(tmp_path / "x.zip", "")

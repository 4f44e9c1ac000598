"""The conda-forge recipe says what the project says, and the program that builds from it can read it."""

import hashlib
import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
yaml = pytest.importorskip("yaml", reason="comes with the extra `docs`")


@pytest.fixture
def made():
    spec = importlib.util.spec_from_file_location("conda_recipe", ROOT / "packaging" / "conda_recipe.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def text(made, tmp_path):
    archive = tmp_path / "ndstack-1.2.tar.gz"
    archive.write_bytes(b"an archive")
    return made.recipe(
        archive, "https://example.org/ndstack-1.2.tar.gz", "https://example.org", ["one", "two"]
    )


def test_the_recipe_says_what_the_project_says(made, text, tmp_path):
    found = yaml.safe_load(text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found["context"]["version"] == "1.2"
    assert found["source"]["url"] == "https://example.org/ndstack-${{ version }}.tar.gz"
    assert found["source"]["sha256"] == hashlib.sha256(b"an archive").hexdigest()
    assert len(found["requirements"]["run"]) == len(project["dependencies"]) + 1
    assert "pytorch >=2.5,<3" in found["requirements"]["run"]
    assert found["build"]["python"]["entry_points"] == ["ndstack = ndstack.cli:main"]
    assert found["extra"] == {"recipe-maintainers": ["one", "two"]}
    with pytest.raises(SystemExit, match="expected a source archive"):
        made.recipe(tmp_path / "x.zip", "", "", [])


def test_the_builder_of_conda_packages_accepts_the_recipe(text):
    rattler_build = pytest.importorskip("rattler_build", reason="py-rattler-build comes with the extra `dev`")
    (rendered,) = rattler_build.Stage0Recipe.from_yaml(text).render(rattler_build.VariantConfig())
    found = rendered.recipe.to_dict()
    assert found["package"] == {"name": "ndstack", "version": "1.2"}
    assert found["source"][0]["url"] == "https://example.org/ndstack-1.2.tar.gz"
    assert "python >=3.11" in found["requirements"]["run"]
    with pytest.raises(rattler_build.RattlerBuildError):  # it would have said so
        rattler_build.Stage0Recipe.from_yaml(text.replace("noarch: python", "noarc: python"))

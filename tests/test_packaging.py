"""The wheel: complete, and of use on its own outside the repository."""

import email
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import ndstack
from ndstack import zoo

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ndstack"
pytest.importorskip("hatchling", reason="the build backend; make install brings it")


def build(kind, folder):
    """Build from this repository with its backend, without network; the archive's path."""
    code = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = run(sys.executable, "-c", code, folder, cwd=ROOT)
    return folder / done.stdout.split()[-1]


def run(*command, cwd, **environment):
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the package alone in it, as pip installs it."""
    folder = tmp_path_factory.mktemp("installed")
    options = ("--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "install", *options, "--target", folder, wheel, cwd=folder)
    return folder


def source_files():
    return {
        f"ndstack/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == source_files()
    assert {"ndstack/py.typed", "ndstack/analysis/explorer/assets/index.html"} < names
    assert len([name for name in names if name.endswith(".toml")]) == 14
    assert len([name for name in names if name.endswith("/best.safetensors")]) == len(zoo.names()) > 1


def test_what_the_wheel_says_of_itself(wheel):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    archive = zipfile.ZipFile(wheel)
    folder = f"ndstack-{ndstack.__version__}.dist-info"
    about = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
    needed = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert about["Name"] == "ndstack"
    assert about["Version"] == ndstack.__version__
    assert len(needed) == len(project["dependencies"])
    assert "ndstack = ndstack.cli:main" in archive.read(f"{folder}/entry_points.txt").decode()


def test_the_source_archive_builds_and_tests_itself_and_has_no_caches(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if (ROOT / ".git").exists():  # it does not, where the archive itself is tested
        folders = ("src", "tests", "docs", "benchmarks", "examples", "results")
        assert set(run("git", "ls-files", *folders, cwd=ROOT).stdout.split()) <= names
    assert {"Makefile", "constraints.txt", "pyproject.toml", "README.md", "LICENSE", ".ci/run"} <= names
    unwanted = ("__pycache__", ".venv", ".pytest_cache", "benchmarks/results", ".nbi", ".nbc", ".git/")
    assert not [name for name in names if any(part in name for part in unwanted)]


def test_the_package_alone_works_outside_the_repository(installed, tmp_path):
    def ndstack(*words):
        return run(sys.executable, "-m", "ndstack", *words, cwd=tmp_path, PYTHONPATH=str(installed)).stdout

    code = (
        "import ndstack\n"
        "from ndstack.analysis.explorer.page_files import asset\n"
        "print(ndstack.__file__)\n"
        "print(asset('index.html')[:15])\n"
    )
    place, page = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).stdout.splitlines()
    assert Path(place).is_relative_to(installed)
    assert page.lower() == "<!doctype html>"
    assert ndstack("--version").startswith("ndstack 0.")
    assert "marked-reversal" in ndstack("languages")


def test_kernels_compile_where_their_code_cannot_be_kept(tmp_path):
    code = (
        "import warnings\n"
        "from ndstack.ops.runtime.compiling import compiler\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    double = compiler(nogil=True)(lambda x: 2 * x)\n"  # numba has no place for what has no file
        "print(double(21), *[one.message for one in caught])\n"
    )
    shown = run(sys.executable, "-c", code, cwd=tmp_path).stdout
    assert shown.startswith("42 compiled kernels cannot be kept")
    assert shown.endswith("set NUMBA_CACHE_DIR\n")

"""Writes a conda-forge recipe for a release.

    python packaging/conda_recipe.py dist/ndstack-*.tar.gz URL HOMEPAGE MAINTAINER...

URL is the address from which the source archive can be downloaded, HOMEPAGE that of the project, and a
MAINTAINER an account on GitHub; conda-forge asks for all of them. The version and the checksum are those of
the archive, and the dependencies those of pyproject.toml under the names that conda-forge uses. The recipe is
recipe.yaml beside the archive.
"""

import hashlib
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMES = {"torch": "pytorch", "graphviz": "python-graphviz", "matplotlib": "matplotlib-base"}
"""The names of packages that conda-forge has under another name."""
RECIPE = """\
schema_version: 1

context:
  version: "{version}"
  python_min: "{python}"

package:
  name: ndstack
  version: ${{{{ version }}}}

source:
  url: {url}
  sha256: {sha256}

build:
  number: 0
  noarch: python
  script: python -m pip install . -vv --no-deps --no-build-isolation
  python:
    entry_points:
{entry_points}

requirements:
  host:
    - python ${{{{ python_min }}}}.*
    - {backend}
    - pip
  run:
    - python >=${{{{ python_min }}}}
{run}

tests:
  - python:
      imports:
        - ndstack
        - ndstack.nn
      pip_check: false
      python_version: ${{{{ python_min }}}}.*
  - script:
      - ndstack --version

about:
  homepage: {homepage}
  summary: {summary}
  license: {license}
  license_file: LICENSE

extra:
  recipe-maintainers:
{maintainers}
"""


def recipe(archive: Path, url: str, homepage: str, maintainers: list[str]) -> str:
    """The recipe for a source archive of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    about, backend = project["project"], project["build-system"]["requires"][0]
    found = re.fullmatch(r"ndstack-(.+)\.tar\.gz", archive.name)
    if found is None:
        sys.exit(f"{archive} given, expected a source archive ndstack-VERSION.tar.gz, which make dist writes")
    return RECIPE.format(
        version=found[1],
        url=url.replace(found[1], "${{ version }}"),
        python=about["requires-python"].removeprefix(">="),
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        backend=_conda(backend),
        entry_points="\n".join(f"      - {name} = {what}" for name, what in about["scripts"].items()),
        run="\n".join(f"    - {_conda(needed)}" for needed in about["dependencies"]),
        homepage=homepage,
        maintainers="\n".join(f"    - {name}" for name in maintainers),
        summary=about["description"],
        license=about["license"],
    )


def _conda(requirement: str) -> str:
    """A requirement of pip as one of conda."""
    name = re.split(r"[^\w-]", requirement)[0]
    return f"{NAMES.get(name, name)} {requirement.removeprefix(name)}".strip()


def main() -> None:
    """Write the recipe beside the archive."""
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    archive, url, homepage, *maintainers = sys.argv[1:]
    path = Path(archive).with_name("recipe.yaml")
    path.write_text(recipe(Path(archive), url, homepage, maintainers), encoding="utf-8")
    print(f"{path} written")


if __name__ == "__main__":
    main()

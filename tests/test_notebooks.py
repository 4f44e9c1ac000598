"""The notebooks run from the first cell to the last, are kept without outputs, and link to what exists."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
HTML = "text/html"


def read(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    return book


def test_there_are_three_and_the_readme_lists_them():
    assert len(NOTEBOOKS) == 3
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    assert all(f"notebooks/{path.name}" in readme for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs_and_its_links_lead_somewhere(path):
    for cell in read(path).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
        for link in re.findall(r"\]\(([^):#]+)\)", cell.source) if cell.cell_type == "markdown" else ():
            assert (FOLDER / link).exists()


@pytest.mark.filterwarnings("ignore")  # of the kernel's event loop, which is not ours
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_it_promises(path, tmp_path):
    book = read(path)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output["data"]
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    page = "".join(data.get(HTML, "") for data in shown)
    if path.name.startswith("1"):
        assert any("image/svg+xml" in data for data in shown)
    else:
        assert '<iframe sandbox="allow-scripts"' in page
        assert page.count("<table>") >= 2
    if path.name.startswith("3"):
        assert "<svg" in page

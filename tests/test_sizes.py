"""Files and functions stay short; what is longer has a reason."""

import importlib.util
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "code_size.py"
MOST_LINES, MOST_OF_A_FUNCTION = 400, 60
REASONS = {
    "nondeterministic": "the same, with equations",
}
OPERATIONS = "ops"
"""One pass over a chart may be one function: what is compiled together is written together."""


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", PAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_are_short(figures):
    for folder in ("src", "tests", "benchmarks", "examples"):
        long = [
            (file.path.name, file.lines) for file in figures.files(folder, ".py") if file.lines > MOST_LINES
        ]
        assert not long, folder


def test_functions_are_short_or_have_a_reason(figures):
    long = {
        name
        for file in figures.files("src", ".py")
        for length, name in file.functions()
        if length > MOST_OF_A_FUNCTION and OPERATIONS not in file.path.parts
    }
    assert long == REASONS.keys()


def test_what_counts_as_code(figures):
    text = '"""A page."""\n\nimport math  # why\n\n\n# now\n'
    text += 'def f(\n    x,\n):\n    """Of x."""\n    return """a\n\nb"""\n'
    file = figures.File(Path("x.py"), text)
    assert (file.lines, file.code(), list(file.functions())) == (13, 7, [(7, "f")])


def test_the_table_has_a_row_for_each_part(figures, capsys):
    figures.main()
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert [line.count(" | ") for line in rows] == [head.count(" | ")] * len(figures.PARTS)

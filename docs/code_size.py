"""Prints how large the code is, as the table of docs/reliability.md: `python docs/code_size.py`.

Code is what is neither blank nor comment nor docstring. A function is as long as its lines from `def` to the
end, signature and docstring included.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = {
    "the package, `src`": ("src", ".py"),
    "the explorer's page, `src`": ("src", ".js .css .html"),
    "`tests`": ("tests", ".py"),
    "`benchmarks`": ("benchmarks", ".py"),
    "`examples`": ("examples", ".py"),
    "`docs`": ("docs", ".md"),
}
WORDLESS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class File:
    """A file and its text."""

    path: Path
    text: str

    @property
    def lines(self) -> int:
        """All of them."""
        return len(self.text.splitlines())

    def code(self) -> int:
        """How many lines have code of Python on them."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        filled = {
            line
            for token in tokens
            if token.type not in WORDLESS
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(filled - set(self._docstrings()))

    def functions(self) -> Iterator[tuple[int, str]]:
        """The length of every function of Python, and its name."""
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                yield node.end_lineno - node.lineno + 1, node.name

    def _docstrings(self) -> Iterator[int]:
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def files(folder: str, suffixes: str) -> list[File]:
    """The files of a part."""
    found = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes.split())
    return [File(path, path.read_text(encoding="utf-8")) for path in found]


def row(name: str, folder: str, suffixes: str) -> str:
    """A row of the table."""
    found = files(folder, suffixes)
    longest = max(found, key=lambda file: file.lines)
    code = function = ""
    if suffixes == ".py":
        code = f"{sum(file.code() for file in found):,}"
        length, own, file = max((*one, file.path.name) for file in found for one in file.functions())
        function = f"`{own}` in {file}, {length}"
    lines = sum(file.lines for file in found)
    cells = (name, len(found), f"{lines:,}", code, f"{longest.path.name}, {longest.lines}", function)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    print("| part | files | lines | of them code | longest file, lines | longest function, lines |")
    print("|---|---|---|---|---|---|")
    for name, (folder, suffixes) in PARTS.items():
        print(row(name, folder, suffixes))


if __name__ == "__main__":
    main()

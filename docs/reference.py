"""Writes docs/reference/ again, a page for each public module, from signatures and docstrings: `make docs`.

The sources are read, not imported, so that the pages show types and defaults as they are written and are the
same on every machine.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent / "reference"
SOURCES = Path(__file__).parent.parent / "src"
MODULES = (
    "grammars",
    "automata",
    "automata.compact",
    "semirings",
    "languages",
    "functional",
    "stacks",
    "nn",
    "nn.models",
    "nn.proofs.examples",
    "training",
    "text",
    "analysis",
    "analysis.figures",
    "experiments",
    "kernels.threads",
    "errors",
)
WIDTH = 100
BAR = r"\|"
NAMED = ("Args", "Attributes")
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?:    .*\n|\n)+)", re.M)
KEPT = re.compile(r"(`[^`]*`|^    .*$|\*\*\w+\*\*|(?<!\S)\*[^\s*][^*\n]*\*(?!\w))", re.M)
HOOKS = {"extra_repr"}
RECORDS = {"BaseModel", "NamedTuple"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    """A module of the package: its dotted name, its file, what it contains."""

    name: str
    file: Path
    tree: ast.Module

    @property
    def doc(self) -> str:
        """Its docstring."""
        return ast.get_docstring(self.tree) or ""

    def statements(self) -> Iterator[ast.stmt]:
        """Of the module, also those under `if`."""
        for statement in self.tree.body:
            yield from statement.body if isinstance(statement, ast.If) else (statement,)

    def public(self) -> list[str]:
        """What `__all__` says; without it, all classes and functions defined here."""
        for statement in self.statements():
            if isinstance(statement, Assignment) and targets(statement) == ["__all__"]:
                return list(ast.literal_eval(statement.value))
        defined = (one.name for one in self.statements() if isinstance(one, ast.ClassDef | Function))
        return [name for name in defined if not name.startswith("_")]


@dataclass(frozen=True)
class Name:
    """A public name, and where it is defined."""

    name: str
    module: Module
    node: ast.ClassDef | Function | Assignment | None
    doc: str

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return self.doc.partition("\n")[0]


@cache
def module(name: str) -> Module:
    """The module of this dotted name."""
    path = SOURCES / Path(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return Module(name, file, ast.parse(file.read_text(encoding="utf-8")))


def targets(statement: Assignment) -> list[str]:
    """The names that an assignment gives a value."""
    given = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [target.id for target in given if isinstance(target, ast.Name)]


def find(where: Module, name: str) -> Name:
    """The definition of a name that a module defines or imports."""
    statements = list(where.statements())
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef | Function) and statement.name == name:
            return Name(name, where, statement, ast.get_docstring(statement) or "")
        if isinstance(statement, Assignment) and name in targets(statement):
            return Name(name, where, statement, text_of(following))
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    if (source := f"{statement.module}.{alias.name}").removeprefix("ndstack.") in MODULES:
                        return Name(name, module(source), None, module(source).doc)
                    return find(module(statement.module), alias.name)
    raise ValueError(f"{where.name} has no {name}")


def text_of(statement: ast.stmt | None) -> str:
    """The text of a string that stands alone, as after a constant or a field."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return inspect.cleandoc(str(statement.value.value))
    return ""


def markdown(doc: str) -> str:
    """A docstring as Markdown: sections become lists; `<eos>` is no tag, and a* b* has no emphasis."""

    def section(match: re.Match[str]) -> str:
        title, text = match[1], inspect.cleandoc(match[2])
        if title not in NAMED:
            return f"**{title}**: {text}\n\n"
        items = re.findall(r"^(\S.*?): ((?:.*\n?)(?:^ +.*\n?|^\n)*)", text, re.M)
        lines = [f"- {quoted(names)}: {' '.join(about.split())}" for names, about in items]
        return f"**{title}**\n\n" + "\n".join(lines) + "\n\n"

    def quoted(names: str) -> str:
        return ", ".join(f"`{name}`" for name in names.split(", "))

    parts = KEPT.split(SECTION.sub(section, doc + "\n").strip())
    return "".join(part if n % 2 else re.sub("[<*]", r"\\\g<0>", part) for n, part in enumerate(parts))


def value(node: ast.AST) -> str:
    """A value as in the source, in one line, with double quotes where that is simple."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def kind(node: ast.expr) -> str:
    """A type; quotes around it are left out."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else value(node)


def parameters(function: Function, bound: bool) -> list[str]:
    """The parameters of a function with types and defaults; without the first, if it is bound."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)

    def one(arg: ast.arg, default: ast.expr | None) -> str:
        name = f"{arg.arg}: {kind(arg.annotation)}" if arg.annotation else arg.arg
        return name if default is None else f"{name} = {value(default)}"

    shown = [one(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        shown.insert(len(args.posonlyargs), "/")
    if args.vararg:
        shown.append("*" + one(args.vararg, None))
    elif args.kwonlyargs:
        shown.append("*")
    shown += [one(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        shown.append("**" + one(args.kwarg, None))
    return shown[1:] if bound else shown


def call(name: str, given: list[str], result: str = "") -> str:
    """A signature, in one line if it is short enough."""
    line = f"{name}({', '.join(given)}){result}"
    if len(line) <= WIDTH or not given:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in given) + f"){result}"


def signature(function: Function, name: str, bound: bool = False) -> str:
    """How a function is called."""
    return call(
        name, parameters(function, bound), f" -> {kind(function.returns)}" if function.returns else ""
    )


def decorators(node: ast.ClassDef | Function) -> set[str]:
    """The last parts of the decorators' names."""
    names = (ast.unparse(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list)
    return {name.rpartition(".")[2] for name in names}


def bases(found: Name) -> list[Name]:
    """Those bases of a class that the package defines."""
    assert isinstance(found.node, ast.ClassDef)
    names = [ast.unparse(base).partition("[")[0] for base in found.node.bases]
    known = []
    for name in names:
        try:
            known.append(find(found.module, name))
        except (ValueError, FileNotFoundError):
            continue
    return known


def is_record(found: Name) -> bool:
    """Whether a class is called with its fields."""
    assert isinstance(found.node, ast.ClassDef)
    named = {ast.unparse(base) for base in found.node.bases}
    return bool(named & RECORDS or "dataclass" in decorators(found.node)) or any(map(is_record, bases(found)))


def fields(found: Name) -> dict[str, tuple[str, str]]:
    """The fields of a class, those of its bases first: declaration and text."""
    assert isinstance(found.node, ast.ClassDef)
    shown = {name: field for base in bases(found) for name, field in fields(base).items()}
    body = found.node.body
    for one, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            name, declared = one.target.id, kind(one.annotation)
            if not name.startswith("_") and not declared.startswith("ClassVar"):
                default = f" = {field_default(one.value)}" if one.value else ""
                shown[name] = (f"{name}: {declared}{default}", text_of(following))
    return shown


def field_default(default: ast.expr) -> str:
    """A field's default; of `field(...)` only that it has one."""
    made = isinstance(default, ast.Call) and value(default.func).rpartition(".")[2] in ("field", "Field")
    return "..." if made else value(default)


def describe_class(found: Name) -> Iterator[str]:
    """Signature, docstring, fields, properties and methods of a class."""
    node = found.node
    assert isinstance(node, ast.ClassDef)
    methods = methods_of(found)
    made = next((one for one in methods if one.name == "__init__"), None)
    record = is_record(found)
    declared = fields(found) if record else {}
    if made:
        yield code(call(f"class {node.name}", parameters(made, True)))
    elif record:
        yield code(call(f"class {node.name}", [declaration for declaration, _ in declared.values()]))
    else:
        yield code(f"class {node.name}")
    yield place(found) + "".join(f", a subclass of {base}" for base in shown_bases(found)[:1]) + "."
    yield markdown(documented(found.doc, found.name))
    about = [f"- `{declaration}`: {markdown(text)}" for declaration, text in declared.values() if text]
    if about:
        yield "**Fields**\n\n" + "\n".join(" ".join(line.split()) for line in about)
    for method in methods:
        if not method.name.startswith("_") and method.name not in HOOKS:
            yield from describe_method(node.name, method)


def shown_bases(found: Name) -> list[str]:
    """The bases that say something, with links to those that are public."""
    assert isinstance(found.node, ast.ClassDef)
    texts = [value(base) for base in found.node.bases]
    known = {base.name: pages().get((base.module.name, base.name)) for base in bases(found)}
    shown = []
    for text in texts:
        name = text.partition("[")[0]
        if page := known.get(name):
            shown.append(f"[`{text}`]({page}.md#{name.lower()})")
        elif name not in known and name not in ("ABC", "Generic"):
            shown.append(f"`{text}`")
    return shown


def methods_of(found: Name) -> list[Function]:
    """The methods of a class, those of bases that are not public included."""
    assert isinstance(found.node, ast.ClassDef)
    own = {one.name: one for one in found.node.body if isinstance(one, Function)}
    hidden = [base for base in bases(found) if (base.module.name, base.name) not in pages()]
    inherited = {one.name: one for base in hidden for one in methods_of(base)}
    return list((inherited | own).values())


@cache
def pages() -> dict[tuple[str, str], str]:
    """The page of each public name, by the module that defines it."""
    names = [
        (part, find(of, name))
        for part in MODULES
        for of in [module(f"ndstack.{part}")]
        for name in of.public()
    ]
    return {(found.module.name, found.name): part for part, found in names}


def describe_method(owner: str, method: Function) -> Iterator[str]:
    """A method or property of a class."""
    kinds = decorators(method)
    yield f"### `{owner}.{method.name}`"
    if kinds & {"property", "cached_property"}:
        yield code(f"{method.name}: {kind(method.returns)}" if method.returns else method.name)
    else:
        start = {"classmethod": f"{owner}.", "staticmethod": f"{owner}."}
        prefix = next((start[kind] for kind in sorted(kinds) if kind in start), "")
        yield code(signature(method, prefix + method.name, bound="staticmethod" not in kinds))
    yield markdown(documented(ast.get_docstring(method), f"{owner}.{method.name}"))


def code(text: str) -> str:
    """A block of Python."""
    return f"```python\n{text}\n```"


def documented(doc: str | None, name: str) -> str:
    """The docstring, which has to be there."""
    if not doc:
        raise ValueError(f"{name} is public and has no docstring")
    return doc


def describe(found: Name) -> Iterator[str]:
    """Everything about a name, in blocks of Markdown."""
    node = found.node
    yield f"## `{found.name}`"
    if node is None:
        yield f"A module: {link(found.module.name)}. {markdown(found.summary)}"
        return
    if isinstance(node, ast.ClassDef):
        yield from describe_class(found)
        return
    if isinstance(node, Function):
        yield code(signature(node, found.name))
    elif isinstance(node, ast.AnnAssign):
        yield code(f"{found.name}: {kind(node.annotation)}")
    else:
        source = found.module.file.read_text(encoding="utf-8")
        yield code(ast.get_source_segment(source, node) or "")
    yield place(found) + "."
    yield markdown(documented(found.doc, found.name))


def place(found: Name) -> str:
    """Where a name is defined."""
    file = found.module.file.relative_to(SOURCES.parent).as_posix()
    return f"In [{file.removeprefix('src/')}](../../{file})"


def link(name: str) -> str:
    """To the page of a module."""
    return f"[{name}]({name.removeprefix('ndstack.')}.md)"


def anchors(blocks: list[str]) -> dict[str, str]:
    """What follows # in links to the headings of a page, as GitHub makes it."""
    seen: dict[str, int] = {}
    found = {}
    for heading in (block.lstrip("# ") for block in blocks if block.startswith("#")):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[heading.strip("`")] = plain + (f"-{seen[plain]}" if plain in seen else "")
        seen[plain] = seen.get(plain, 0) + 1
    return found


def main() -> None:
    """Write every page and the index."""
    HERE.mkdir(exist_ok=True)
    for old in HERE.glob("*.md"):
        old.unlink()
    index = ["# Reference", "Every public name, from its docstring. `make docs` writes these pages."]
    for part in MODULES:
        of = module(f"ndstack.{part}")
        names = [find(of, name) for name in of.public()]
        blocks = [f"# {of.name}", markdown(of.doc)]
        for found in names:
            blocks += describe(found)
        (HERE / f"{part}.md").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
        places = anchors(blocks)
        rows = [
            f"| [`{one.name}`]({part}.md#{places[one.name]}) | {markdown(one.summary).replace('|', BAR)} |"
            for one in names
        ]
        index += [
            f"## {link(of.name)}",
            markdown(of.doc).partition("\n")[0],
            "\n".join(["| | |", "|---|---|", *rows]),
        ]
    (HERE / "README.md").write_text("\n\n".join(index) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

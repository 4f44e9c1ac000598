"""What the site does beyond MkDocs: `mkdocs.yml` names this file.

- The order of the pages is that of `docs/index.md`.
- The pages link to files of the repository outside `docs`: each of these becomes a page of the site, which is
  complete in this way wherever it is.
- Formulas (`$..$` and `$$..$$`) become MathML when the site is built; a browser shows it without a program.
- The explorer is part of the site, with the strings of its guided tour; `docs/explore.md` embeds it.
"""

import ast
import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = "docs"
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".toml": "toml"}
SHOWN = tuple(f"{suffix}.md" for suffix in LANGUAGES)
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
EXPLORER = "explorer"
OUTSIDE, FOLDER = "repository/", "folder.md"
HEADING = """\
    options:
      show_root_heading: true
      show_root_full_path: false
      show_root_toc_entry: true
"""
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def on_config(config: MkDocsConfig) -> None:
    """Take the navigation from the list of pages in `docs/index.md`."""
    config.nav = navigation((ROOT / DOCS / "index.md").read_text(encoding="utf-8"))


def navigation(index: str) -> list[object]:
    """The sections of the index, which are its bold lines, with the pages that each of them lists."""
    nav: list[object] = ["index.md"]
    for section, text in re.findall(r"^\*\*(.*?)\*\*$(.*?)(?=^\*\*|\Z)", index, re.M | re.S):
        listed = re.findall(r"^- \[(.*?)\]\(([^)]*)\)", text, re.M)
        nav.append({section: [{title: site_path(posixpath.join(DOCS, page))} for title, page in listed]})
    modules = sorted(page.stem for page in (ROOT / DOCS / "reference").glob("[!R]*.md"))
    nav.append({"Modules": [{f"ndstack.{name}": f"reference/{name}.md"} for name in modules]})
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside `docs`, and what that links to in turn."""
    pages = [file.src_uri for file in files.documentation_pages()]
    while pages:
        page = pages.pop()
        text = shown(repository_path(page))
        for target in linked(page, text) if text is not None else ():
            uri = site_path(target)
            if files.get_file_from_path(uri) is None:
                files.append(outside_file(target, uri, config))
                pages.append(uri)
    return files


def outside_file(target: str, uri: str, config: MkDocsConfig) -> File:
    """The file of the site for a file or a folder outside `docs`."""
    if (text := shown(target)) is None:
        return File.generated(config, uri, abs_src_path=str(ROOT / target))
    return File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def shown(target: str) -> str | None:
    """A file of the repository as the Markdown of its page; None for one that has no page."""
    path = ROOT / target
    if path.is_dir():
        listed = sorted(one.name for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
        return f"{UNSEARCHED}# {target}\n\n" + "".join(f"- [{name}]({name})\n" for name in listed)
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    if path.suffix in LANGUAGES:
        code = path.read_text(encoding="utf-8")
        return f"{UNSEARCHED}# {target}\n\n~~~~{LANGUAGES[path.suffix]}\n{code}~~~~\n"
    return None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links to files of the repository links to the pages that show them."""
    here = page.file.src_uri
    if here == "explore.md":
        page.meta["hide"] = ["navigation", "toc"]  # room for the explorer
    if here.startswith("reference/"):
        markdown += hidden(posixpath.basename(here).removesuffix(".md"))

    def mended(link: re.Match[str]) -> str:
        target = resolved(here, link[1])
        return posixpath.relpath(site_path(target), posixpath.dirname(here)) if exists(target) else link[1]

    return markdown if here.endswith(SHOWN) else LINK.sub(mended, markdown)


def hidden(module: str) -> str:
    """Public names of a package that mkdocstrings takes for its modules of the same names."""
    folder = ROOT / "src" / "ndstack" / module.replace(".", "/")
    file = folder / "__init__.py"
    statements = ast.parse(file.read_text(encoding="utf-8")).body if file.exists() else []
    found = {
        f"{one.module}.{alias.name}"
        for one in statements
        if isinstance(one, ast.ImportFrom) and one.module != f"ndstack.{module}"
        for alias in one.names
        if (folder / f"{alias.name}.py").exists()
    }
    return "".join(f"\n::: {name}\n{HEADING}" for name in sorted(found))


def on_page_content(html_text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML."""
    return FORMULA.sub(mathml, html_text)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the explorer to a folder of the site."""
    from ndstack.analysis.explorer.catalogue import Catalogue
    from ndstack.analysis.explorer.export import export

    export(Catalogue(), Path(config.site_dir) / EXPLORER)


def mathml(formula: re.Match[str]) -> str:
    """One formula as MathML."""
    return convert(html.unescape(formula[3]), display="inline" if formula[2] == "(" else "block")


def linked(page: str, text: str) -> set[str]:
    """What a page of the site links to in the repository outside `docs`."""
    if page.endswith(SHOWN):
        return set()
    found = {resolved(page, target) for target in LINK.findall(text)}
    return {target for target in found if exists(target) and not target.startswith(f"{DOCS}/")}


def exists(target: str) -> bool:
    """Whether it is a file or a folder of the repository."""
    return not target.startswith("..") and (ROOT / target).exists()


def resolved(page: str, target: str) -> str:
    """Where a link of a page of the site leads, as a path in the repository."""
    here = page.removeprefix(OUTSIDE) if page.startswith(OUTSIDE) else f"{DOCS}/{page}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), target))


def repository_path(page: str) -> str:
    """What a page of the site is made from: a file or a folder of the repository."""
    path = resolved(page, posixpath.basename(page))
    if path.endswith(SHOWN):
        return path.removesuffix(".md")
    return posixpath.dirname(path) if path.endswith(FOLDER) else path


def site_path(path: str) -> str:
    """The page of the site that is made from a file or a folder of the repository."""
    path = posixpath.normpath(path)
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if (ROOT / path).is_dir():
        path = posixpath.join(path, FOLDER)
    return OUTSIDE + path + (".md" if Path(path).suffix in LANGUAGES else "")

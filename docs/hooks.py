"""MkDocs hooks: pages that lie outside docs/ and pages made from the code join the site, and links follow them."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from quaere.cli.reference import reference_pages

ROOT = Path(__file__).parents[1]
RECIPES = {
    path.relative_to(ROOT).as_posix(): f"recipes/{path.parent.name if path.name == 'README.md' else path.stem}.md"
    for path in sorted(ROOT.glob("src/quaere/recipes/**/*.md"))
}
PROJECT = {name: f"project/{name.lower()}" for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")}
# By its path in the repository, where a page stands in the site.
PLACES = {"README.md": "overview.md", **RECIPES, **PROJECT}
SOURCES = {place: source for source, place in PLACES.items()}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
# GitHub wants a bar in a table escaped in code too; Python-Markdown would show the backslash.
CELL = re.compile(r"^\|.*\|$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")


def on_config(config: Any) -> Any:
    """Add what is not written down in mkdocs.yml to the navigation."""
    named = re.findall(r"[\w-]+\.md", str(config.nav))
    more = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named]
    settings = [path for path in _reference() if path != "reference/commands.md"]
    config.nav += [{"More": more}] if more else []
    config.nav += [{"Recipes": list(RECIPES.values())}]
    config.nav += [{"Reference": ["reference/commands.md", {"Settings": settings}]}]
    config.nav += [{"Project": list(PROJECT.values())}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages; and, as pages, files of the repository that pages link to."""
    pages = {place: (ROOT / source).read_text(encoding="utf-8") for source, place in PLACES.items()}
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    linked = {target for place, text in (pages | written).items() for target in _linked_files(place, text)}
    shown = {f"source/{name}.md": _as_page(name) for name in sorted(linked)}
    for place, text in (pages | shown | _reference()).items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links lead to where their targets stand in the site, and bars in the code of tables stay bars."""
    place = page.file.src_uri

    def rewrite(found: re.Match[str]) -> str:
        target = _place_of(_resolve(place, found[2]))
        if not target:
            return found[0]
        return f"{found[1]}{posixpath.relpath(target, posixpath.dirname(place) or '.')}{found[3]}"

    def unescape(row: re.Match[str]) -> str:
        return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])

    return CELL.sub(unescape, LINK.sub(rewrite, markdown))


@functools.cache
def _reference() -> dict[str, str]:
    return reference_pages()


def _resolve(place: str, link: str) -> str:
    """The path in the repository that a link of the page at this place in the site means."""
    source = SOURCES.get(place, f"docs/{place}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _place_of(path: str) -> str:
    """Where a file of the repository stands in the site; "" if it does not."""
    if path in PLACES:
        return PLACES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md" if (ROOT / path).is_file() else ""


def _linked_files(place: str, text: str) -> Iterator[str]:
    for found in LINK.finditer(text):
        path = _resolve(place, found[2])
        if _place_of(path).startswith("source/"):
            yield path


def _as_page(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    return f"# {name}\n\n````text\n{text.rstrip()}\n````\n"

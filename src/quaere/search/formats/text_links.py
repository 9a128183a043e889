"""Hyperlinks of texts whose source is kept: Markdown with MyST's roles and wiki links, reStructuredText, AsciiDoc.

find_markdown_links("Built by [Venn](people/venn.md).") -> [Hyperlink(start=10, end=14, target="people/venn.md")]

The text is scanned once, whatever it holds: every pattern ends at a mark that it began with, or at a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from quaere.search.formats.text_headings import FENCE
from quaere.search.hyperlinks import MAX_ANCHOR_CHARS, MAX_LINKS, Hyperlink, clean_target

_ANCHOR = rf"[^\[\]]{{1,{MAX_ANCHOR_CHARS}}}+"
_ROLE = r"`(?P<role>[^`]{1,700}+)`"
_TITLE = r"""\s++(?:"[^"]*+"|'[^']*+'|\([^()]*+\))"""
_PATH = r"(?:[^\s()<>]++|\([^\s()<>]*+\))++"
# Code comes before links: a link in code is none.
_MARKDOWN = re.compile(
    rf"\{{(?:ref|doc)\}}{_ROLE}"
    r"|`++[^`]*+`++"
    rf"|\[\[(?P<wiki>[^\[\]|\n]{{1,{MAX_ANCHOR_CHARS}}}+)(?:\|(?P<shown>[^\[\]\n]{{1,{MAX_ANCHOR_CHARS}}}+))?\]\]"
    rf"|(?<![!\\])\[(?P<text>{_ANCHOR})\](?:\(\s*+(?:<(?P<angle>[^<>\n]*+)>|(?P<path>{_PATH}))(?:{_TITLE})?\s*+\)"
    rf"|\[(?P<ref>[^\[\]]{{0,{MAX_ANCHOR_CHARS}}}+)\]|(?![:(]))"
)
_DEFINITION = re.compile(rf"^ {{0,3}}\[(?!\^)(?P<ref>{_ANCHOR})\]:[ \t]*+<?+(?P<target>[^\s<>]++)", re.MULTILINE)
_RST = re.compile(
    rf":(?:std:)?(?:ref|doc|any):{_ROLE}"
    r"|``(?:[^`]|`(?!`))*+``"
    rf"|`(?P<text>[^`<>]{{1,{MAX_ANCHOR_CHARS}}}+)<(?P<path>[^`<>\s]++)>`_"
)
_ADOC = re.compile(
    rf"\b(?:xref|link):(?P<path>[^\s\[\]]++)\[(?P<text>{_ANCHOR})\]"
    rf"|<<(?P<id>[^<>,\n]++),(?P<shown>[^<>]{{1,{MAX_ANCHOR_CHARS}}}+)>>"
)
_TITLED_ROLE = re.compile(r"([^<>]++)<([^<>]++)>\s*+")
_AROUND = " \t\r\n*`"  # white space and emphasis around an anchor


def find_markdown_links(text: str) -> list[Hyperlink]:
    """Links in the text or by reference, `{ref}` and `{doc}`, and `[[Page|anchor]]`; none of those in code."""
    prose = _blank_code(text)
    definitions = {_fold(found["ref"]): found["target"] for found in islice(_DEFINITION.finditer(prose), MAX_LINKS)}

    def find() -> Iterator[Hyperlink | None]:
        for found in _MARKDOWN.finditer(prose):
            if found["role"]:
                yield _read_role(found)
            elif wiki := found["wiki"]:
                yield _make(found, "shown" if found["shown"] else "wiki", wiki)
            elif found["text"]:
                target = found["angle"] or found["path"] or definitions.get(_fold(found["ref"] or found["text"]), "")
                yield _make(found, "text", target)

    return _take(find())


def find_rst_links(text: str) -> list[Hyperlink]:
    """`:ref:` and `:doc:`, and links with a path of their own."""
    return _take(
        _read_role(found) if found["role"] else _make(found, "text", found["path"] or "")
        for found in _RST.finditer(text)
    )


def find_adoc_links(text: str) -> list[Hyperlink]:
    """`xref:`, `link:` and `<<id,anchor>>`."""
    return _take(
        _make(found, "shown", found["id"]) if found["id"] else _make(found, "text", found["path"])
        for found in _ADOC.finditer(text)
    )


def _take(links: Iterator[Hyperlink | None]) -> list[Hyperlink]:
    return list(islice(filter(None, links), MAX_LINKS))


def _make(found: re.Match[str], group: str, target: str) -> Hyperlink | None:
    """The link whose anchor is this group, without emphasis."""
    said = found[group]
    return _place(found.start(group), said, target) if said else None


def _read_role(found: re.Match[str]) -> Hyperlink | None:
    """The link of a role: `anchor <target>`, or a target that is its own anchor."""
    titled = _TITLED_ROLE.fullmatch(found["role"])
    said, target = titled.groups() if titled else (found["role"], found["role"])
    return _place(found.start("role"), said, target)


def _place(start: int, said: str, target: str) -> Hyperlink | None:
    cleaned = clean_target(target)
    start += len(said) - len(said.lstrip(_AROUND))
    end = start + len(said.strip(_AROUND))
    return Hyperlink(start, end, cleaned) if cleaned and start < end <= start + MAX_ANCHOR_CHARS else None


def _fold(reference: str) -> str:
    return " ".join(reference.casefold().split())


def _blank_code(text: str) -> str:
    """The text with spaces for fenced code. A fence with a name in braces is MyST's note or table, and no code."""
    lines, fence, is_code = [], "", False
    for line in text.split("\n"):
        marks = FENCE.match(line)
        rest = line[marks.end() :].strip() if marks else ""
        if fence:
            lines.append(" " * len(line) if is_code else line)
            fence = "" if marks and marks.group(1).startswith(fence) and not rest else fence
        elif marks and marks.group(1)[0] != ":":
            fence, is_code = marks.group(1), not rest.startswith("{") or rest.startswith("{code")
            lines.append(" " * len(line))
        else:
            lines.append(line)
    return "\n".join(lines)

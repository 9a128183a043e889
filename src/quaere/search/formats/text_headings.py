"""Headings of texts whose source is kept: Markdown, reStructuredText, AsciiDoc, and plain text with underlined titles.

find_markdown_headings("# The Oss\n\nCourse\n------\n") ->
    [Heading(start=0, level=1, text="The Oss"), Heading(start=11, level=2, text="Course")]

A table of Markdown is under its header row (a heading below all sections), so that a passage from its middle has the
names of the columns. Lines are looked at one by one, each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from quaere.search.extracted import SECTION_LEVELS, Heading

_HASHES = re.compile(r" {0,3}(#{1,6})[ \t]++(.*+)")
_EQUALS = re.compile(r"(={1,6})[ \t]++(.*+)")
FENCE = re.compile(r"[ \t]*+(`{3,}|~{3,}|:{3,})")
_ADOC_FENCE = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,}|_{4,}|={4,}|\*{4,})[ \t]*+$")
_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1++[ \t]*+$")
_TABLE_RULE = re.compile(r"[ \t]*+\|?+[ \t]*+:?+-++:?+[ \t]*+(?:\|[ \t:-]*+)*+$")
# MyST's or AsciiDoc's name of the section below.
_LABEL = re.compile(r"\([\w.:-]++\)=[ \t]*+$|\[[\[#][^\]]*+\]\]?+[ \t]*+$")
_SETEXT = re.compile(r"(?:=++|-{2,}+)[ \t]*+$")
_COLUMNS = SECTION_LEVELS + 1


def find_markdown_headings(text: str) -> list[Heading]:
    """Headings with `#` or underlined with `=` or `-`, and the header rows of tables; none of those in code."""
    found: list[Heading] = []
    fence, in_table = "", False
    above, before, before_start = "", "", 0  # the two lines before this one
    for start, line in _lines(_blank_front_matter(text)):
        marks = FENCE.match(line)
        if fence:
            fence = "" if marks and marks.group(1).startswith(fence) and not line[marks.end() :].strip() else fence
            line = ""
        elif marks and marks.group(1)[0] != ":":
            fence, line = marks.group(1), ""
        elif heading := _HASHES.match(line):
            at = before_start if _LABEL.match(before) else start
            found.append(Heading(at, len(heading.group(1)), _clean(heading.group(2).rstrip(" \t#"))))
            in_table, line = False, ""
        elif "|" in line and "|" in before and _TABLE_RULE.match(line):
            found.append(Heading(start, _COLUMNS, _clean(before.strip(" \t|"))))
            in_table = True
        elif before.strip() and not above.strip() and _SETEXT.match(line):
            found.append(Heading(before_start, 1 if line[0] == "=" else 2, _clean(before)))
            line = ""
        if in_table and "|" not in line:
            found.append(Heading(start, _COLUMNS, ""))
            in_table = False
        above, before, before_start = before, line, start
    return [heading for heading in found if heading.text or heading.level == _COLUMNS]


def find_underlined_headings(text: str, *, slack: int | None = None) -> list[Heading]:
    """Lines that are underlined at their whole length, by at most `slack` more; marks have levels as they come up.

    An overline belongs to the heading, and makes its mark another one.
    """
    found: list[Heading] = []
    styles: dict[tuple[str, bool], int] = {}
    above, above_start, before, before_start = "", 0, "", 0
    for start, line in _lines(text):
        title = before.strip()
        rule = _UNDERLINE.match(line)
        if rule and title and not _UNDERLINE.match(before) and (longer := len(line.rstrip()) - len(title)) >= 0:
            has_overline = above.strip() == line.strip()
            is_title = has_overline or not above.strip()
            if is_title and (slack is None or longer <= slack):
                level = styles.setdefault((line[0], has_overline), len(styles) + 1)
                at = above_start if has_overline else before_start
                found.append(Heading(at, min(level, SECTION_LEVELS), _clean(title)))
                line = ""
        above, above_start, before, before_start = before, before_start, line, start
    return found


def find_adoc_headings(text: str) -> list[Heading]:
    """Headings with `=`, outside of delimited blocks."""
    found: list[Heading] = []
    fence, before, before_start = "", "", 0
    for start, line in _lines(text):
        marks = _ADOC_FENCE.match(line)
        if marks:
            fence = "" if fence == marks.group(1) else fence or marks.group(1)
        elif not fence and (heading := _EQUALS.match(line)):
            at = before_start if _LABEL.match(before) else start
            found.append(Heading(at, len(heading.group(1)), _clean(heading.group(2))))
        before, before_start = line, start
    return [heading for heading in found if heading.text]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line without its end, and where its first word starts."""
    start = 0
    for line in text.split("\n"):
        yield start + len(line) - len(line.lstrip()), line.removesuffix("\r")
        start += len(line) + 1


def _blank_front_matter(text: str) -> str:
    """The text with spaces for the settings between two `---` lines that it may open with."""
    if not text.startswith("---\n"):
        return text
    end = text.find("\n---\n", 3)
    return text if end < 0 else " " * (end + 4) + text[end + 4 :]


def _clean(heading: str) -> str:
    return " ".join(heading.split())

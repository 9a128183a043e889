"""Pages of a report: Markdown, or HTML in a single file. Citations are links to the passages they cite.

    to_markdown(report, link)
    to_html(report, link)

An unresolved citation is marked in the text and listed at the end; the queries behind the report are listed too.

No text of a document or a model can become markup. The HTML page is a template (`templates/report.html.j2`) that
escapes all of it, and a content security policy forbids scripts. In Markdown, passages are in fences longer than any
run of backticks in them, all punctuation in titles is escaped, and the report keeps its headings, lists and emphasis,
but no links, images, HTML or code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from quaere.chat.report_layout import (
    CitedNumber,
    Link,
    Part,
    SourceLayout,
    anchors,
    clean,
    cut_long,
    find_quotations,
    lay_out,
    number_citation,
    one_line,
)
from quaere.chat.statements import find_citations
from quaere.records import Report

if TYPE_CHECKING:
    from jinja2 import Template

# ---------------------------------------------------------------------------------------------------------- Markdown

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LEAD = re.compile(r"[ \t]*+(#{1,6}[ \t]++|[-*+][ \t]++|[0-9]{1,3}[.)][ \t]++|>[ \t]*+)?")
_SPECIAL = re.compile(r"([\\`\[\]~])")


def to_markdown(report: Report, link: Link, *, index: str = "", searches: Sequence[str] = ()) -> str:
    """The report as Markdown: text, sources with their passages, unresolved citations, searches.

    to_markdown(report, lambda passage: f"docs/{passage.doc_id}")
    -> "# What is known of the Oss?\\n\\nThe Oss rises at Korrin [[2]](#source-2). ..."
    """
    layout = lay_out(report, link, index=index, searches=searches)
    known, opened = {source.number for source in report.sources}, anchors(report, find_quotations(report))
    text = "\n".join(_markdown_line(line, known, opened) for line in clean(report.text).split("\n"))
    parts = [f"# {_escape(layout.title)}", text, f"*{layout.counts}*", "## Sources"]
    parts += map(_markdown_source, layout.sources)
    if not layout.sources:
        parts.append("No source is cited.")
    if layout.unresolved:
        parts += ["## Unresolved citations", "The writer was shown no passage of these numbers."]
        named = ((", ".join(f"**{_escape(cite)}**" for cite in cites), said) for cites, said in layout.unresolved)
        parts.append("\n".join(f"- {cites} in: {_escape(said)}" for cites, said in named))
    if layout.searches:
        parts += ["## Searches", "\n".join(f"- {_escape(query)}" for query in layout.searches)]
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """The text on one line, with all Markdown punctuation escaped."""
    return _PUNCTUATION.sub(r"\\\1", one_line(text))


def _markdown_line(line: str, known: set[int], opened: Iterator[str]) -> str:
    lead = _LEAD.match(line)
    at = lead.end() if lead else 0
    # At most two spaces are kept: nested lists stay lists, and no line becomes a code block, which takes four.
    pieces = [f"{'  ' * line.startswith(('  ', chr(9)))}{lead.group(1)}" if lead and lead.group(1) else ""]
    for cite in find_citations(line):
        words = _markdown_words(line[at : cite.start])
        if words.endswith("!"):  # or a link becomes an image
            words = f"{words[:-1]}\\!"
        pieces += [words, *map(_markdown_number, number_citation(line, cite, known, opened))]
        at = cite.end
    return "".join([*pieces, _markdown_words(line[at:])])


def _markdown_words(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")


def _markdown_number(one: CitedNumber) -> str:
    return f"[\\[{one.said}\\]](#{one.anchor})" if one.is_known else f"**\\[{one.said}: no such source\\]**"


def _markdown_source(source: SourceLayout) -> str:
    name = f"[{_escape(source.name)}]({source.address})" if source.address else f"document {_escape(source.name)}"
    text = "".join(part.text for part in source.parts)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    title = f" **{_escape(source.title)}**," if source.title else ""
    head = f'<a id="source-{source.number}"></a>**\\[{source.number}\\]**{title} {name}{_escape_place(source.place)}'
    quoted = [_markdown_quotation(part) for part in source.parts if part.anchor]
    return "\n\n".join([head, f"{fence}text\n{text}\n{fence}", *(["\n".join(quoted)] if quoted else [])])


def _markdown_quotation(part: Part) -> str:
    place = f"[{part.place}]({part.address})" if part.address else part.place
    return f'- <a id="{part.anchor}"></a>{_escape(cut_long(one_line(part.text)))}, {place}'


def _escape_place(place: str) -> str:
    return _PUNCTUATION.sub(r"\\\1", place)  # it begins with a space or a comma, which `_escape` would drop


# -------------------------------------------------------------------------------------------------------------- HTML


def to_html(report: Report, link: Link, *, index: str = "", searches: Sequence[str] = ()) -> str:
    """The report as a self-contained HTML page: citations link to the passages on it, passages to their documents."""
    layout = lay_out(report, link, index=index, searches=searches)
    return _page_template().render(layout._asdict())


@cache
def _page_template() -> Template:
    """The Jinja template of the HTML page; all inserted text is escaped and freed of unprintable characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("quaere.chat"),
        autoescape=True,
        finalize=lambda value: clean(value) if type(value) is str else value,  # what a macro returns is no plain str
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2")

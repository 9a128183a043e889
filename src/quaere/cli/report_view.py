"""Renders a report for the terminal and as JSON. Pure functions: records in, rich renderables out.

Console().print(render_report(report))
"""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from quaere.chat.report_pages import count_line
from quaere.chat.statements import find_citations
from quaere.cli.episode_view import printable, trim
from quaere.records import Report

_LOST = "bold red"


def render_report(report: Report) -> Group:
    """The text with its citations, the sources they resolve to, and the unresolved ones."""
    parts: list[RenderableType] = [Text(), _render_text(report), Text()]
    for source in report.sources:
        passage = source.passage
        place = f"  {passage.doc_id} {passage.start}-{passage.end}"
        named = (f"[{source.number}] ", "cyan"), (printable(passage.title), "bold"), (printable(place), "dim")
        parts += [Text.assemble(*named), Padding(Text(printable(trim(passage.text))), (0, 0, 0, 4))]
    parts += [Text(), Text(count_line(report), "yellow" if report.unresolved else "bold")]
    if report.unresolved:
        numbers = ", ".join(f"[{number}]" for number in report.unresolved[:20])
        more = len(report.unresolved) - 20
        parts.append(Text(f"unresolved: {numbers}" + (f" and {more} more" if more > 0 else ""), _LOST))
    return Group(*parts)


def _render_text(report: Report) -> Text:
    known = {source.number for source in report.sources}
    shown = printable(report.text)
    styled = Text(shown)
    for cite in find_citations(shown):
        styled.stylize("cyan" if known.issuperset(cite.numbers) else _LOST, cite.start, cite.end)
    return styled


def report_row(report: Report) -> dict[str, Any]:
    """The report as a dictionary for `--json`."""
    return {
        "report": report.text,
        "conclusion": report.conclusion,
        "statements": [
            {"text": said.text, "start": said.start, "end": said.end, "citations": list(said.citations)}
            for said in report.statements
        ],
        "sources": [
            {
                "number": source.number,
                "passage": source.passage.id,
                "doc_id": source.passage.doc_id,
                "title": source.passage.title,
                "start": source.passage.start,
                "end": source.passage.end,
                "text": source.passage.text,
            }
            for source in report.sources
        ],
        "citations": list(report.citations),
        "unresolved": list(report.unresolved),
        "resolved_share": report.resolved_share,
    }

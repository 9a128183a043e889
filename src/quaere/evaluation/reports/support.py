"""Checks a report against its sources: unsupported sentences are left out or marked, unsupported citations removed.

    held = await hold_to_sources(report, CitationChecks())
    held.text -> "The Oss rises at Korrin [2]."      # of "The Oss rises at Korrin [2, 9]. It is the longest [3]."

A sentence has support if it cites a passage that a citation judge finds to support it. Headings and labels without a
sentence below them are left out as well.
"""

import re
from collections.abc import Collection

from quaere.chat.statements import find_citations, make_report, split_statements
from quaere.evaluation.reports.citations import CitationJudge, check_citations
from quaere.grouping import group_by
from quaere.records import Report, Statement

UNSUPPORTED = "(unsupported)"
_NO_HEADING = 7  # the level of a label, below that of all headings
_HASHES = re.compile(r"[ \t]*+(#{1,6})[ \t]")
_GAP = re.compile(r"(?<=\S)[ \t]{2,}")  # where a sentence was
_ENDING = re.compile(r"[.!?…。！？]+[\"'”’»)\]*_」』）]*+$")


async def hold_to_sources(report: Report, judge: CitationJudge, *, strict: bool = True, seed: int = 0) -> Report | None:
    """The report without sentences that have no support, or with these marked if not `strict`; None if none is left."""
    (checks,) = await check_citations(judge, [report], seed=seed)
    supported = group_by((one for one in checks if one.verdict == "supported"), lambda one: one.statement)
    pieces: list[str] = []
    done = 0
    for place, statement in enumerate(report.statements):
        numbers = {check.citation for check in supported.get(place, ())}
        said = _cite_only(statement.text, numbers) if numbers else "" if strict else _mark(statement)
        pieces += [report.text[done : statement.start], said]
        done = statement.end
    held = make_report(report.question, _drop_empty("".join(pieces) + report.text[done:]), report.sources)
    return held if held.statements else None


def _cite_only(text: str, numbers: Collection[int]) -> str:
    """The sentence with the citations of these numbers only."""
    for cite in reversed(find_citations(text)):
        kept = ", ".join(str(number) for number in cite.numbers if number in numbers)
        before = text[: cite.start] if kept else text[: cite.start].rstrip(" \t")
        text = before + (f"[{kept}]" if kept else "") + text[cite.end :]
    return text


def _mark(statement: Statement) -> str:
    ending = _ENDING.search(statement.text)
    at = ending.start() if ending else len(statement.text)
    return f"{statement.text[:at].rstrip()} {UNSUPPORTED}{statement.text[at:]}"


def _drop_empty(text: str) -> str:
    """The text without lines that lost their sentences, and without headings that lost all below them."""
    kept: list[str] = []
    headings: list[tuple[int, str]] = []  # the headings above this line that have no sentence below them yet
    for line in text.split("\n"):
        if split_statements(line):
            kept += [heading for _, heading in headings]
            kept.append(_GAP.sub(" ", line).rstrip())
            headings = []
        elif line.strip():
            hashes = _HASHES.match(line)
            level = len(hashes.group(1)) if hashes else _NO_HEADING
            headings = [*(one for one in headings if one[0] < level), (level, line)]
        elif kept and kept[-1] and not headings:
            kept.append("")
        elif headings and headings[-1][1]:
            headings.append((headings[-1][0], ""))
    return "\n".join(kept).strip()

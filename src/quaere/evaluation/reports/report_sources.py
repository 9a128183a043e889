"""Readers of reports to evaluate, from a JSONL file or from a run, and of the known facts of a world's open questions.

read_report_run(Path("runs/report-20250301-101500")).num_unfinished -> 1
read_facts(Path("questions.jsonl")).find("What is known of the Oss?").facts
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from msgspec import Struct

from quaere.errors import BadInput
from quaere.evaluation.reports.lexical import split_words, squeeze
from quaere.records import Report, ReportTask
from quaere.search.json_lines import BadLines, decode_lines
from quaere.worlds.open_questions import ReportLine


class ReportSet(Struct, frozen=True):
    """Reports from one source; an unfinished report is included with empty text.

    ReportSet(name="report-20250301-101500", reports=(Report(...),), num_unfinished=1)
    """

    name: str
    reports: tuple[Report, ...]
    num_unfinished: int


def read_report_file(path: Path, limit: int | None = None) -> ReportSet:
    """The reports of a JSONL file, one per line."""
    reports: list[Report] = []
    hint = "quaere report ... writes them"
    for number, report in islice(decode_lines(path, Report, what="a report", hint=hint), limit):
        if any(report.text[one.start : one.end] != one.text for one in report.statements):
            raise BadLines(path, "`start` and `end` of a statement do not match its text", line=number)
        reports.append(report)
    if not reports:
        raise BadInput(f"{path} contains no report", hint=hint)
    return ReportSet(path.stem, tuple(reports), sum(not report.text.strip() for report in reports))


def read_report_run(path: Path, limit: int | None = None) -> ReportSet:
    """The reports of a run; an episode that ended without a report becomes one with empty text."""
    from quaere.dialects.report.report_writer import bind_report
    from quaere.runs import Run

    with Run.open(path) as run:
        written = ((one.task, bind_report(one)) for one in run.episodes() if isinstance(one.task, ReportTask))
        found = list(islice(written, limit))
        if not found:
            said = f"run {run.info.id} contains no report: it is a run of kind {run.info.kind}"
            raise BadInput(said, hint="quaere report --questions FILE --index DIR writes some")
        reports = tuple(report or Report(task.question, "") for task, report in found)
        return ReportSet(run.info.id, reports, sum(report is None for _, report in found))


# ---------------------------------------------------------------------------------------------------------- known facts


_HINT = "quaere questions --world DIR --out FILE writes them"


class FactBook:
    """Known facts of questions, looked up by the question's text.

    FactBook([ReportLine(question="What is known of the Oss?", ...)]).find("What is known of  the Oss?").facts
    """

    def __init__(self, lines: Iterable[ReportLine]) -> None:
        self._by_text = {squeeze(line.question): line for line in lines}

    def find(self, text: str) -> ReportLine | None:
        """The known facts of this question; None if it has none."""
        return self._by_text.get(squeeze(text))


def read_facts(path: Path) -> FactBook:
    """The open questions of a world with their known facts, as `quaere questions --world` writes them."""
    lines: dict[str, ReportLine] = {}
    for number, line in decode_lines(path, ReportLine, what="a question with known facts", hint=_HINT):
        if wrong := _find_fault(line):
            raise BadLines(path, wrong, line=number, hint=_HINT)
        if squeeze(line.question) in lines:
            raise BadLines(path, "the question occurs twice; questions must be unique", line=number)
        lines[squeeze(line.question)] = line
    if not lines:
        raise BadInput(f"{path} contains no question", hint=_HINT)
    return FactBook(lines.values())


def _find_fault(line: ReportLine) -> str:
    if not line.question.strip():
        return "the question is empty"
    for fact in line.facts:
        if not any(map(split_words, fact.names)) or not any(map(split_words, fact.answers)):
            return f"the fact {fact.relation!r} names nothing"
        text, start, end = fact.evidence.text, fact.evidence.start, fact.evidence.end
        if not text.strip() or start < 0 or end - start != len(text):
            return f"the evidence of {fact.relation!r} is not a span of a document"
    return ""

"""Readers of reports to evaluate: from a JSONL file or from a run.

read_report_run(Path("runs/report-20250301-101500")).num_unfinished -> 1
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Report, ReportTask
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines


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
    for number, line in read_lines(path):
        if limit is not None and len(reports) >= limit:
            break
        where = f"{path}, line {number}"
        try:
            report = decode_json(line, Report)
        except msgspec.DecodeError as error:
            raise BadInput(f"{where}: not a report: {error}", hint="quaere report ... writes them") from error
        if any(report.text[one.start : one.end] != one.text for one in report.statements):
            raise BadInput(f"{where}: `start` and `end` of a statement do not match its text")
        reports.append(report)
    if not reports:
        raise BadInput(f"{path} contains no report", hint="quaere report ... writes them")
    return ReportSet(path.stem, tuple(reports), sum(not report.text.strip() for report in reports))


def read_report_run(path: Path, limit: int | None = None) -> ReportSet:
    """The reports of a run; an episode that ended without a report becomes one with empty text."""
    from quaere.dialects.report.report_writer import bind_report
    from quaere.runs import Run

    reports: list[Report] = []
    num_unfinished = 0
    with Run.open(path) as run:
        for episode in run.episodes():
            if not isinstance(episode.task, ReportTask):
                continue
            if limit is not None and len(reports) >= limit:
                break
            report = bind_report(episode)
            num_unfinished += report is None
            reports.append(report or Report(episode.task.question, ""))
        if not reports:
            said = f"run {run.info.id} contains no report: it is a run of kind {run.info.kind}"
            raise BadInput(said, hint="quaere report --questions FILE --index DIR writes some")
        return ReportSet(run.info.id, tuple(reports), num_unfinished)

"""The pages of research reports: a run's reports, and one with its citations, rubric, scores and the harness behind it.

    read_report(run, "oss", ById(id="i0-r3-q1-r0")).parts[1] ->
    ReportPart("[2]", number=2, href="/run/oss/document?id=rivers.md&start=118&end=142#span")

Scores are those that the evaluator of the same run gave (recipe SCORE), with what it verified and found missing.
"""

from collections.abc import Iterator

from msgspec import Struct

from quaere.api.run import Run, open_documents
from quaere.chat.dimensions import POOL
from quaere.chat.report_layout import count_line
from quaere.chat.statements import extract_conclusion, find_citations
from quaere.dialects.report.assessment import count_searches
from quaere.dialects.report.report_writer import bind_report
from quaere.records import Assessment, AssessTask, Harness, Report, ReportTask, Rubric
from quaere.runs.rows import EpisodeFilter, EpisodeRow
from quaere.viewer.attempt_groups import reward_of
from quaere.viewer.document_reader import document_address, place_of
from quaere.viewer.page_formats import ById, Listed, ListPage, copy_fields, cut_page, path_to
from quaere.viewer.run_folder import require
from quaere.viewer.run_overview import REPORT_WRITER, HarnessChange, read_harness

ASSESSOR = "report-assessor"  # the protocol of episodes that score reports
_CONCLUSION_CHARS = 300


class ReportsQuery(Listed, frozen=True):
    """Which reports are listed: those at a step, with these words in question or report.

    ReportsQuery(step=5, text="river", page=2)
    """

    step: int | None = None


class ReportLine(Struct, frozen=True):
    """One report in the list; `conclusion` is None if the report was not finished.

    ReportLine(id="i0-r3-q1-r0", question="What is known of the Oss?", step=3, conclusion="It is short.", reward=0.6,
               scores={"factuality": 7.0})
    """

    id: str
    question: str
    step: int
    conclusion: str | None
    num_searches: int
    reward: float | None
    scores: dict[str, float]


class ReportsPage(ListPage[ReportsQuery, ReportLine], frozen=True):
    """The reports of a run, one page of them."""

    run: str


class ReportPart(Struct, frozen=True):
    """A piece of a report: text, or a citation with its `number`; `href` is "" if no passage has that number.

    ReportPart("[2]", number=2, href="#source-2")
    """

    text: str
    number: int | None = None
    href: str = ""


class SourceView(Struct, frozen=True):
    """A cited passage; `href` is the URL of its place in the document, "" if the document is missing or has changed."""

    number: int
    id: str
    title: str
    place: str
    text: str
    num_citations: int
    href: str


class RubricRow(Struct, frozen=True):
    """A dimension of the rubric, its weight and its description; the weight of the primary dimension is None.

    RubricRow("coverage", 0.4, "Every side of the question that the documents know of is treated.")
    """

    name: str
    weight: float | None
    text: str


class Pass(Struct, frozen=True):
    """One evaluator episode's scores of a report, with its reasons.

    The evaluator was shown `num_reports` reports at once; `place` is the position of this report among them.

    Pass(id="i0-r3-q1-a0", place=2, num_reports=4, harness=1, scores={"factuality": 7.0}, verification="[1] says so.",
         gaps="No dates.", validity=None, num_searches=2)
    """

    id: str
    place: int
    num_reports: int
    harness: int
    scores: dict[str, float]
    verification: str
    gaps: str
    validity: float | None
    num_searches: int


class ReportPage(EpisodeRow, frozen=True, kw_only=True):
    """All that the page of a report shows, its index row included.

    `counts` is a line with the numbers of statements and citations; `said` is why documents cannot be opened. `harness`
    has all versions of the evaluator's harness (its rules and its pool of dimensions), `harness_version` the one that
    assessed the report, None if none did. `siblings` are the other reports on the question at the same step.
    """

    run: str
    reward: float | None
    parts: list[ReportPart]
    counts: str
    unresolved: list[int]
    sources: list[SourceView]
    said: str
    rubric: list[RubricRow]
    passes: list[Pass]
    harness: list[HarnessChange]
    harness_version: int | None
    siblings: list[str]


def read_reports(run: Run, name: str, query: ReportsQuery) -> ReportsPage:
    """One page of the reports of a run, in the order they were written."""
    rows = run.rows(EpisodeFilter(step=query.step, protocol=REPORT_WRITER, text=query.text))
    return ReportsPage(query, cut_page(rows, query.page).map(_line), name)


def read_report(run: Run, name: str, query: ById) -> ReportPage:
    """The page of a report; `NotShown` if the run has none of this id."""
    rows = run.rows(EpisodeFilter(id=query.id, protocol=REPORT_WRITER))
    (row,) = require(rows, f"run {name} has no report {query.id}", "its reports are listed")
    episode = run.episode(query.id)
    assert isinstance(episode.task, ReportTask)
    report, documents = bind_report(episode), open_documents(run)
    cited = report.citations if report else ()
    sources = [
        copy_fields(
            SourceView,
            source.passage,
            number=source.number,
            num_citations=cited.count(source.number),
            href=document_address(documents.read, path_to("run", name, "document"), place_of(source.passage)),
        )
        for source in (report.sources if report else ())
    ]
    assessed = list(_find_assessments(run, row, report)) if report else []
    tasks = [task for task, _ in assessed]
    written = run.rows(EpisodeFilter(step=row.step, phase=row.phase, protocol=REPORT_WRITER))
    return copy_fields(
        ReportPage,
        row,
        run=name,
        reward=reward_of(row.metrics),
        parts=list(_cut(report, sources)) if report else [],
        counts=count_line(report) if report else "",
        unresolved=sorted(set(report.unresolved)) if report else [],
        sources=sources,
        said=documents.said,
        rubric=_view_rubric(episode.task.rubric or (tasks[0].rubric if tasks else None), tasks),
        passes=[one for _, one in assessed],
        harness=read_harness(run.path),
        harness_version=tasks[0].harness.version if tasks else None,
        siblings=[one.id for one in written if one.question == row.question and one.id != row.id],
    )


# ------------------------------------------------------------------------------------------------------------- details


def _line(row: EpisodeRow) -> ReportLine:
    return copy_fields(
        ReportLine,
        row,
        conclusion=None if row.answer is None else extract_conclusion(row.answer)[:_CONCLUSION_CHARS],
        reward=reward_of(row.metrics),
        scores={name.removeprefix("score/"): value for name, value in row.metrics.items() if name.startswith("score/")},
    )


def _cut(report: Report, sources: list[SourceView]) -> Iterator[ReportPart]:
    places = {source.number: source.href or f"#source-{source.number}" for source in sources}
    end = 0
    for cite in find_citations(report.text):
        if cite.start > end:
            yield ReportPart(report.text[end : cite.start])
        for number in cite.numbers:
            said = "" if number in places else ": no such source"
            yield ReportPart(f"[{number}{said}]", number, places.get(number, ""))
        end = cite.end
    if end < len(report.text):
        yield ReportPart(report.text[end:])


def _find_assessments(run: Run, row: EpisodeRow, report: Report) -> Iterator[tuple[AssessTask, Pass]]:
    """Evaluator episodes of the same step that scored this report: each with its task and scores."""
    others = run.rows(EpisodeFilter(step=row.step, protocol=ASSESSOR))
    for episode in (run.episode(other.id) for other in others if other.question == row.question):
        task, outcome = episode.task, episode.outcome
        if isinstance(task, AssessTask) and isinstance(outcome, Assessment):
            for place, shown in enumerate(task.reports, start=1):
                if shown == report and (scores := outcome.find(place)) is not None:
                    num_reports, harness = len(task.reports), task.harness.version
                    num_searches = count_searches(episode, num_reports)[place - 1]
                    given = {"num_reports": num_reports, "harness": harness, "num_searches": num_searches}
                    yield task, copy_fields(Pass, scores, id=episode.id, place=place, **given)


def _view_rubric(rubric: Rubric | None, tasks: list[AssessTask]) -> list[RubricRow]:
    """The rubric's dimensions with their weights and the harness's description of each; [] without a rubric."""
    if rubric is None:
        return []
    harness = tasks[0].harness if tasks else Harness(0, POOL)
    weights = {item.dimension: item.weight for item in rubric.weights}
    known = [(name, harness.find(name)) for name in rubric.dimensions]
    return [RubricRow(name, weights.get(name), found.text if found else "") for name, found in known]

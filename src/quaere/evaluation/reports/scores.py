"""Evaluation of reports: every citation checked and every dimension graded, with repeats, and aggregated.

    judges = open_judges("checks")
    scores = await score_reports(judges, reports, [general_criteria()] * len(reports), repeats=3)
    summarise(scores).measures["valid citations"].value -> Interval(mean=0.66, low=0.6, high=0.72, num=50)

A `ReportEvaluation` is stored in a file with the scores of every report, so that two can be compared question by
question. The judge's accuracy (`judges/probes.py`) comes first, in the file and on the screen.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import variance
from typing import Any

import msgspec
from msgspec import Struct, structs

from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.evaluation.intervals import (
    Interval,
    bootstrap_interval,
    paired_difference,
    ratio_interval,
    smallest_difference,
)
from quaere.evaluation.judges.judge import Advance, idle
from quaere.evaluation.judges.probes import JudgeAgreement
from quaere.evaluation.reports.citations import (
    VERDICTS,
    CitationCheck,
    CitationChecks,
    CitationJudge,
    EndpointCitations,
    ModelCitations,
    check_citations,
    find_cited,
    valid_share,
)
from quaere.evaluation.reports.criteria import SCALE, Criteria, weighted_mean
from quaere.evaluation.reports.fact_coverage import JudgeTruth, Knowing, judge_truth, know_report, label_citations
from quaere.evaluation.reports.grades import Grader, ModelGrader, ProxyGrader, Submission
from quaere.evaluation.reports.report_sources import FactBook
from quaere.grouping import group_by
from quaere.records import Report
from quaere.rollout.policy import Policy
from quaere.search.words import count_words

CHECKS = "checks"
MODEL_PREFIX = "model:"
OVERALL, VALID, SPECIFIC = "overall", "valid citations", "question-specific"
TOLD, PROVEN, ADMITTED = "facts told", "facts proven", "gaps admitted"
SHARES = (VALID, TOLD, PROVEN, ADMITTED)  # from 0 to 1; all other measures are grades from 0 to 10


class Judges(Struct, frozen=True):
    """The citation judge and the grader; `policy` is the model behind both, if there is one.

    Judges(name="checks", citations=CitationChecks(), grader=ProxyGrader(), policy=None)
    """

    name: str
    citations: CitationJudge
    grader: Grader
    policy: Policy | None = None

    async def stop(self) -> None:
        """Stop the model behind the judges, if there is one."""
        if self.policy is not None:
            await self.policy.stop()


def open_judges(
    name: str, *, temperature: float = 0.0, guided: bool | None = None, concurrency: int = 32, **engine: Any
) -> Judges:
    """The judges for a name: `checks`, `model:NAME` (a local model), or `openai:MODEL@URL`.

    open_judges("checks"); open_judges("model:smollm2-135m", device="cpu")
    """
    if name == CHECKS:
        return Judges(name, CitationChecks(), ProxyGrader())
    is_endpoint = name.startswith("openai:")
    if not is_endpoint and not name.startswith(MODEL_PREFIX):
        raise BadInput(f"unknown judge {name!r}", hint="--judge checks, model:NAME or openai:MODEL@URL")
    from quaere.policies.catalogue import needs_guide
    from quaere.rollout.policy import open_policy

    model = name.removeprefix(MODEL_PREFIX)
    policy = open_policy(model, max_rows=concurrency, **engine)
    asking: dict[str, Any] = {"temperature": temperature, "concurrency": concurrency}
    if is_endpoint:
        return Judges(name, EndpointCitations(policy, **asking), ModelGrader(policy, listed=True, **asking), policy)
    asking["guided"] = needs_guide(model) if guided is None else guided
    return Judges(name, ModelCitations(policy, **asking), ModelGrader(policy, **asking), policy)


# ------------------------------------------------------------------------------------------------------------ scoring


class ReportScore(Struct, frozen=True):
    """Scores of one report. Tuples hold one value per repeat; a grade that could not be parsed is None.

    `checks` are the citations in the first repeat; `knowing` is set if the facts of the question are known.

        ReportScore(id="q1-r0", question="What is known of the Oss?", num_words=412, num_citations=9, num_unresolved=0,
                    valid=(0.78,), supported=(7,), grades={"coverage": (6.0,)}, weights={"coverage": 1.0},
                    overall=(6.0,), checks=(CitationCheck(...),))
    """

    id: str
    question: str
    num_words: int
    num_citations: int
    num_unresolved: int
    valid: tuple[float, ...] = ()
    supported: tuple[int, ...] = ()
    grades: dict[str, tuple[float | None, ...]] = {}
    weights: dict[str, float] = {}
    overall: tuple[float | None, ...] = ()
    checks: tuple[CitationCheck, ...] = ()
    knowing: Knowing | None = None


class Measure(Struct, frozen=True):
    """One measure over all questions; `repeats` are its means in each repeat.

    `variance` is the judge's own noise: the mean over reports of the variance between repeats, None with one repeat.

        Measure(value=Interval(...), repeats=(6.1, 5.9), variance=0.04)
    """

    value: Interval
    repeats: tuple[float, ...]
    variance: float | None = None


class ReportsScore(Struct, frozen=True):
    """Scores over all reports: grades and `overall` from 0 to 10, `valid citations` as the mean of the reports' shares.

    `pooled` is supported citations over all citations, each citation counting the same; `pooled_known` leaves out the
    unknown ones, as DeepResearch Bench does.

        ReportsScore(measures={"coverage": Measure(...)}, pooled=Interval(...), verdicts={"supported": 70}, ...)
    """

    measures: dict[str, Measure]
    pooled: Interval | None
    verdicts: dict[str, int]  # counts of verdicts in the first repeat
    num_reports: int
    num_citations: int
    num_unresolved: int
    num_unread_verdicts: int
    num_unread_grades: int
    pooled_known: Interval | None = None


class ReportEvaluation(Struct, frozen=True):
    """A stored evaluation of reports: judge and its accuracy, settings, scores overall and per report; written as JSON.

    `truth` is the judge's accuracy against the facts of a world, if those are known.

    ReportEvaluation(agreement=JudgeAgreement(...), name="good", judge="checks", settings={}, score=ReportsScore(...),
                     reports=(ReportScore(...),), num_unfinished=0)
    """

    agreement: JudgeAgreement
    name: str
    judge: str
    settings: dict[str, Any]
    score: ReportsScore
    reports: tuple[ReportScore, ...]
    num_unfinished: int = 0
    truth: JudgeTruth | None = None


def num_asked(reports: Sequence[Report], repeats: int, *, with_citations: bool, with_grades: bool) -> int:
    """Number of times `score_reports` calls `advance`."""
    cited = sum(cited is not None for report in reports for _, cited in find_cited(report)) if with_citations else 0
    return repeats * (cited + (len(reports) if with_grades else 0))


async def score_reports(
    judges: Judges,
    reports: Sequence[Report],
    criteria: Sequence[Criteria],
    *,
    repeats: int = 1,
    seed: int = 0,
    with_citations: bool = True,
    with_grades: bool = True,
    advance: Advance = idle,
) -> list[ReportScore]:
    """Scores of every report, checked and graded `repeats` times, each time with another seed."""
    checks: list[list[list[CitationCheck]]] = []
    grades: list[list[dict[str, float]]] = []
    by_what = [judges.grader.criteria_of(one) for one in criteria]
    items = [Submission(report, one) for report, one in zip(reports, by_what, strict=True)]
    for repeat in range(repeats):
        if with_citations:
            checks.append(await check_citations(judges.citations, reports, seed=seed + repeat, advance=advance))
        if with_grades:
            grades.append(await judges.grader.grade(items, seed=seed + repeat, advance=advance))
    seen: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)  # reports on each question so far
    return [
        _score_report(
            item, next(seen[item.report.question.id]), [one[number] for one in checks], [one[number] for one in grades]
        )
        for number, item in enumerate(items)
    ]


def _score_report(
    item: Submission, number: int, checks: Sequence[Sequence[CitationCheck]], grades: Sequence[dict[str, float]]
) -> ReportScore:
    report, criteria = item.report, item.criteria
    return ReportScore(
        id=f"{report.question.id}-r{number}",
        question=report.question.text,
        num_words=count_words(report.text),
        num_citations=len(find_cited(report)),
        num_unresolved=len(report.unresolved),
        valid=tuple(valid_share(one) for one in checks),
        supported=tuple(sum(check.verdict == "supported" for check in one) for one in checks),
        grades={name: tuple(one.get(name) for one in grades) for name in criteria.names} if grades else {},
        weights={dimension.name: dimension.weight for dimension in criteria.dimensions} if grades else {},
        overall=tuple(criteria.overall(one) for one in grades),
        checks=tuple(checks[0]) if checks else (),
    )


def add_knowing(
    scores: Sequence[ReportScore], reports: Sequence[Report], facts: FactBook
) -> tuple[list[ReportScore], JudgeTruth | None]:
    """The scores with each report's fact coverage, and the citation judge's accuracy against the known facts.

    The accuracy is that of the first repeat. A report on a question without known facts stays unchanged.
    """
    found, labels = [], []
    for score, report in zip(scores, reports, strict=True):
        line = facts.find(report.question.text)
        knowing = know_report(report, line) if line else None
        found.append(structs.replace(score, knowing=knowing))
        labels.append(label_citations(report, line, knowing) if line and knowing else {})
    return found, judge_truth([score.checks for score in scores], labels)


def values_of(scores: Sequence[ReportScore]) -> dict[str, list[tuple[float | None, ...]]]:
    """Per measure, the values of every report, one per repeat.

    Dimensions that not all reports have are averaged into one measure, "question-specific".
    """
    if not scores:
        return {}
    shared = [name for name in scores[0].grades if all(name in score.grades for score in scores)]
    found: dict[str, list[tuple[float | None, ...]]] = {
        name: [score.grades[name] for score in scores] for name in shared
    }
    if any(len(score.grades) > len(shared) for score in scores):
        found[SPECIFIC] = [_specific(score, shared) for score in scores]
    if all(score.overall for score in scores):
        found[OVERALL] = [score.overall for score in scores]
    if all(score.valid for score in scores):
        found[VALID] = [score.valid for score in scores]
    if any(score.knowing for score in scores):
        for name, share in ((TOLD, "told_share"), (PROVEN, "proven_share"), (ADMITTED, "admitted_share")):
            found[name] = [(getattr(score.knowing, share, None),) for score in scores]
    return found


def _specific(score: ReportScore, shared: Sequence[str]) -> tuple[float | None, ...]:
    others = [name for name in score.grades if name not in shared]
    found: list[float | None] = []
    for repeat in range(len(score.overall)):
        grades = [(score.grades[name][repeat], score.weights[name]) for name in others]
        read = [(grade, weight) for grade, weight in grades if grade is not None]
        found.append(weighted_mean(read) if read and len(read) == len(grades) else None)
    return tuple(found)


def summarise(scores: Sequence[ReportScore]) -> ReportsScore:
    """Aggregate scores over all reports; intervals resample questions."""
    verdicts = Counter(check.verdict for score in scores for check in score.checks)
    tops = [_mean(score.supported) for score in scores if score.supported]
    wholes = [score.num_citations for score in scores if score.supported]
    missing = sum(grade is None for score in scores for grades in score.grades.values() for grade in grades)
    measured = {name: _measure(scores, values) for name, values in values_of(scores).items()}
    return ReportsScore(
        measures={name: measure for name, measure in measured.items() if measure is not None},
        pooled=ratio_interval(tops, wholes) if sum(wholes) else None,
        verdicts={name: verdicts[name] for name in VERDICTS} if verdicts else {},
        num_reports=len(scores),
        num_citations=sum(score.num_citations for score in scores),
        num_unresolved=sum(score.num_unresolved for score in scores),
        num_unread_verdicts=sum(not check.is_read for score in scores for check in score.checks),
        num_unread_grades=missing,
        pooled_known=_pool_known(scores),
    )


def _pool_known(scores: Sequence[ReportScore]) -> Interval | None:
    """Supported over supported and unsupported citations in the first repeat; None if there are none."""
    counts = [Counter(check.verdict for check in score.checks) for score in scores if score.checks]
    known = [one["supported"] + one["unsupported"] for one in counts]
    return ratio_interval([one["supported"] for one in counts], known) if sum(known) else None


def _measure(scores: Sequence[ReportScore], values: Sequence[tuple[float | None, ...]]) -> Measure | None:
    by_question = _by_question(scores, values)
    if not by_question:
        return None
    repeats = tuple(_mean(_read(column)) for column in zip(*values, strict=True) if _read(column))
    spread = [variance(_read(row)) for row in values if len(_read(row)) > 1]
    return Measure(bootstrap_interval(list(by_question.values())), repeats, _mean(spread) if spread else None)


def _read(values: Iterable[float | None]) -> list[float]:
    """The values that are not None; None marks a grade that could not be parsed."""
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _by_question(
    scores: Sequence[ReportScore], values: Sequence[tuple[float | None, ...]]
) -> dict[tuple[str, str], float]:
    """Mean of a measure over repeats and over the reports on a question; questions without a value are missing."""
    known = [(score, read) for score, row in zip(scores, values, strict=True) if (read := _read(row))]
    groups = group_by(known, lambda one: (one[0].id.rpartition("-r")[0], one[0].question))
    return {key: _mean([_mean(read) for _, read in group]) for key, group in groups.items()}


class ReportDifference(Struct, frozen=True):
    """One evaluation minus another over the questions they share; `smallest` is the minimum detectable difference.

    ReportDifference(other="base", measures={"overall": Interval(...)}, smallest={"overall": 0.8})
    """

    other: str
    measures: dict[str, Interval]
    smallest: dict[str, float]


def compare_reports(ours: ReportEvaluation, theirs: ReportEvaluation) -> ReportDifference | None:
    """Paired differences of all shared measures; None if the judges differ or no question is shared."""
    if ours.judge != theirs.judge:
        return None
    found, smallest = {}, {}
    others = values_of(theirs.reports)
    for name, values in values_of(ours.reports).items():
        mine = _by_question(ours.reports, values)
        yours = _by_question(theirs.reports, others[name]) if name in others else {}
        if shared := [key for key in mine if key in yours]:
            sides = [mine[key] for key in shared], [yours[key] for key in shared]
            scale = 1.0 if name in SHARES else SCALE  # `smallest_difference` assumes differences of at most 1
            found[name] = paired_difference(*sides, most=scale)
            smallest[name] = scale * smallest_difference(*([value / scale for value in side] for side in sides))
    return ReportDifference(theirs.name, found, smallest) if found else None


def write_report_evaluations(evaluations: Sequence[ReportEvaluation], path: Path) -> None:
    """Write the evaluations as one JSON list; an existing file is replaced atomically."""
    write_file(path, msgspec.json.format(msgspec.json.encode(list(evaluations)), indent=1))

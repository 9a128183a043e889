"""Grading of reports by a judge whose accuracy is measured first: the work of `quaere grade`.

settings = GradingSettings(judge="model:smollm2-135m", repeats=3)
evaluations = asyncio.run(grade_sets([read_report_file(Path("reports.jsonl"))], settings))
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from quaere.api.printing import between, count, counting
from quaere.errors import BadInput
from quaere.evaluation.judges.probes import JudgeAgreement, num_steps, probe_judges
from quaere.evaluation.reports.criteria import CriteriaBook, GradedDimension, general_criteria
from quaere.evaluation.reports.grades import write_dimensions
from quaere.evaluation.reports.report_sources import FactBook, ReportSet
from quaere.evaluation.reports.scores import (
    Judges,
    ReportEvaluation,
    add_knowing,
    num_asked,
    open_judges,
    score_reports,
    summarise,
)

_UpTo100 = Annotated[int, "N", Meta(ge=1, le=100)]
Dimensions = dict[str, tuple[GradedDimension, ...]]  # by the text of a question


class GradingSettings(Struct, frozen=True):
    """What grades, and how its accuracy is measured.

        GradingSettings(judge="model:smollm2-135m", repeats=3, probes=20)

    Attributes:
        judge: what grades: checks (rules and counts, no model; default), a local model, or an endpoint
        repeats: grade everything N times
        temperature: temperature of the judge (default: 0; 0.7 with repeats)
        probes: good reports, each corrupted in nine ways, to measure the judge's accuracy on first
        force: print scores even if the judge is no better than chance
        guided: write the start of turns, for models too small to follow instructions (default: only for models of the
            catalogue that need it)
        specific: let the judge write N dimensions for each question
    """

    judge: Annotated[str, "checks|model:NAME|openai:MODEL@URL"] = "checks"
    repeats: _UpTo100 = 1
    temperature: Annotated[float, "T", Meta(ge=0, le=2)] | None = None
    probes: _UpTo100 = 20
    force: bool = False
    guided: bool | None = None
    specific: Annotated[int, "N", Meta(ge=1, le=10)] | None = None
    seed: int = 0
    max_rows: int = 32

    @property
    def warmth(self) -> float:
        """The judge's temperature; above 0 with repeats, since greedy decoding would repeat the same grades."""
        return float(self.temperature if self.temperature is not None else 0.7 if self.repeats > 1 else 0)


async def grade_sets(
    sets: Sequence[ReportSet],
    settings: GradingSettings,
    *,
    book: CriteriaBook | None = None,
    facts: FactBook | None = None,
    engine: Mapping[str, Any] | None = None,
    stored: Mapping[str, Any] | None = None,
    on_note: Callable[[str], None] = lambda line: None,
    on_agreement: Callable[[str, JudgeAgreement], None] = lambda judge, agreement: None,
) -> list[ReportEvaluation]:
    """Every set graded by criteria of the `book`, else by the general ones; `stored` is kept with the results.

    The judge's accuracy is measured first and given to `on_agreement`; if it is no better than chance, that is a
    `BadInput` unless `settings.force`. `engine` says how a model is run, as for `open_policy`.
    """
    on_note(f"judge: {settings.judge}")
    how: dict[str, Any] = {"temperature": settings.warmth, "guided": settings.guided, "concurrency": settings.max_rows}
    judges = open_judges(settings.judge, report=on_note, **how, **(engine or {}))
    try:
        with counting("corrupted reports", num_steps(settings.probes)) as advance:
            told = partial(advance, "good and corrupted reports")
            agreement = await probe_judges(
                judges.citations, judges.grader, settings.probes, seed=settings.seed, advance=told
            )
        on_agreement(judges.name, agreement)
        _refuse_chance(judges, agreement, settings)
        made = await _write_dimensions(judges, sets, settings, on_note)
        kept = {**(stored or {}), "temperature": settings.warmth, "specific": to_builtins(made)}
        return [await _score(judges, one, settings, book, made, agreement, facts, kept) for one in sets]
    finally:
        await judges.stop()


def _refuse_chance(judges: Judges, agreement: JudgeAgreement, settings: GradingSettings) -> None:
    if settings.force or agreement.citations_trusted or agreement.grades_trusted:
        return
    cited, preferred = between(agreement.citations.balanced), between(agreement.grades.preferred)
    raise BadInput(
        f"the judge {judges.name} is no better than chance on corrupted reports (citations balanced {cited} %; good "
        f"reports preferred {preferred} %), so its scores mean nothing",
        hint="use another --judge, more --probes, or --force to print the scores anyway",
    )


async def _write_dimensions(
    judges: Judges, sets: Sequence[ReportSet], settings: GradingSettings, note: Callable[[str], None]
) -> Dimensions:
    """The dimensions that the judge writes for each question (`--specific`), once for all sets."""
    if settings.specific is None or judges.policy is None:
        return {}
    asked = (one.question for given in sets for one in given.reports)
    questions = list({question.text: question for question in asked}.values())
    note(f"making {settings.specific} dimensions for each of {count(len(questions), 'question')}")
    how = {"seed": settings.seed, "concurrency": settings.max_rows}
    made = await write_dimensions(judges.policy, questions, settings.specific, **how)
    if num_missing := sum(not dimensions for dimensions in made):
        note(f"for {num_missing} of {len(questions)} questions the judge made none that can be used")
    return {question.text: dimensions for question, dimensions in zip(questions, made, strict=True)}


async def _score(
    judges: Judges,
    given: ReportSet,
    settings: GradingSettings,
    book: CriteriaBook | None,
    made: Dimensions,
    agreement: JudgeAgreement,
    facts: FactBook | None,
    stored: dict[str, Any],
) -> ReportEvaluation:
    parts: dict[str, Any] = {
        "with_citations": settings.force or agreement.citations_trusted,
        "with_grades": settings.force or agreement.grades_trusted,
    }
    asked = [one.question for one in given.reports]
    known = [book.find(one.id, one.text) if book else None for one in asked]
    criteria = [found or general_criteria(made.get(one.text, ())) for found, one in zip(known, asked, strict=True)]
    with counting(f"judging {given.name}", num_asked(given.reports, settings.repeats, **parts)) as advance:
        how: dict[str, Any] = {
            "repeats": settings.repeats,
            "seed": settings.seed,
            "advance": partial(advance, f"of {given.name}"),
        }
        scores = await score_reports(judges, given.reports, criteria, **how, **parts)
    scores, truth = add_knowing(scores, given.reports, facts) if facts else (scores, None)
    return ReportEvaluation(
        agreement=agreement,
        name=given.name,
        judge=judges.name,
        settings=stored,
        score=summarise(scores),
        reports=tuple(scores),
        num_unfinished=given.num_unfinished,
        truth=truth,
    )

"""`quaere grade`: grades research reports, and checks how far their citations support them.

quaere grade report-20250301-101500
quaere grade reports.jsonl --judge openai:judge@http://localhost:8001/v1 --repeats 3 --out graded.json
quaere grade base.jsonl trained.jsonl --judge model:./judge --bench deep_research_bench --language en
quaere grade --bench deep_research_bench --questions-out prompts.jsonl
quaere grade report-20250301-101500 --facts questions.jsonl
"""

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs, to_builtins

from quaere.api.printing import between, counting
from quaere.cli import options
from quaere.cli.grade_view import print_agreement, print_evaluations, results_json
from quaere.cli.terminal import interruptible, note_line
from quaere.errors import BadInput
from quaere.evaluation.judges.probes import JudgeAgreement, num_steps, probe_judges
from quaere.evaluation.reports.criteria import (
    Bench,
    CriteriaBook,
    GradedDimension,
    general_criteria,
    read_bench,
    read_criteria,
)
from quaere.evaluation.reports.grades import write_dimensions
from quaere.evaluation.reports.report_sources import FactBook, ReportSet, read_facts, read_report_file, read_report_run
from quaere.evaluation.reports.scores import (
    Judges,
    ReportEvaluation,
    add_knowing,
    num_asked,
    open_judges,
    score_reports,
    summarise,
    write_report_evaluations,
)
from quaere.setting_types import File, Folder, PositiveCount

_UpTo100 = Annotated[int, "N", Meta(ge=1, le=100)]


class GradeOptions(Struct):
    """Options of `quaere grade`.

    Attributes:
        inputs: runs of `quaere report`, or JSONL files of reports; several are compared
        limit: only the first N reports of each input, or prompts (default: all)
        facts: questions that `quaere questions --world` wrote: also measure how many known facts are stated and proven
    """

    inputs: Annotated[tuple[str, ...], "RUN|FILE", options.Flag("inputs", nargs="*")]
    limit: PositiveCount | None = None
    facts: File | None = None


class JudgeOptions(Struct):
    """What grades, and how its accuracy is measured.

    Attributes:
        judge: what grades: checks (rules and counts, no model; default), a local model, or an endpoint
        repeats: grade everything N times
        temperature: temperature of the judge (default: 0; 0.7 with repeats)
        probes: good reports, each corrupted in nine ways, to measure the judge's accuracy on first
        force: print scores even if the judge is no better than chance
        guided: write the start of turns, for models too small to follow instructions (default: only for models of the
            catalogue that need it)
    """

    judge: Annotated[str, "checks|model:NAME|openai:MODEL@URL"] = "checks"
    repeats: _UpTo100 = 1
    temperature: Annotated[float, "T", Meta(ge=0, le=2)] | None = None
    probes: _UpTo100 = 20
    force: bool = False
    guided: bool | None = None


class CriteriaOptions(Struct):
    """What reports are graded by.

    Attributes:
        bench: use the criteria of DeepResearch Bench in this folder
        language: only the bench's prompts in this language (default: all)
        criteria: JSONL file of dimensions for single questions
        specific: let the judge write N dimensions for each question
    """

    bench: Folder | None = None
    language: Literal["en", "zh"] | None = None
    criteria: File | None = None
    specific: Annotated[int, "N", Meta(ge=1, le=10)] | None = None


class OutputOptions(options.JsonOption):
    """Where results go.

    Attributes:
        out: write all results to a file, citation by citation
        questions_out: write the bench's prompts, then stop
    """

    out: Annotated[Path, "FILE.json"] | None = None
    questions_out: File | None = None


def _run(args: argparse.Namespace) -> None:
    """Check all input first, then measure the judge's accuracy, grade, and print."""
    _check(args)
    bench = read_bench(args.bench, args.language) if args.bench else None
    if args.questions_out:
        assert bench is not None  # checked above
        num_written = bench.write_questions(args.questions_out, args.limit)
        print(f"{num_written} prompts written: quaere report --questions {args.questions_out} ...")
        return
    facts = read_facts(args.facts) if args.facts else None
    sets = [_select(_read(args, name), bench) for name in args.inputs]
    _check_known(args, sets, facts)
    with interruptible("no result is written"):
        evaluations = asyncio.run(_grade(args, sets, bench, facts))
    if args.out:
        write_report_evaluations(evaluations, args.out)
    if args.json:
        print(results_json(evaluations))
    else:
        print_evaluations(evaluations, bench is not None)


fill = options.command(
    _run,
    GradeOptions,
    options.group("judge", JudgeOptions),
    options.group("criteria", CriteriaOptions, about="default: coverage, insight, instruction following, clarity"),
    options.group("engine", options.TurnEngineOptions),
    options.group("output", OutputOptions, options.RunsFolder),
)


def _check(args: argparse.Namespace) -> None:
    alone, named = args.questions_out and not args.bench, args.inputs or args.questions_out
    graded = args.specific is not None and (args.judge == "checks" or args.bench or args.criteria)
    modelled = "--specific needs a model as --judge, and neither --bench nor --criteria"
    options.refuse(
        (alone, "--questions-out writes the prompts of --bench DIR", "quaere grade --bench DIR ..."),
        (not named, "name a run of `quaere report` or a file of reports", "quaere grade RUN"),
        (args.bench and args.criteria, "--bench and --criteria exclude each other", "leave one of them out"),
        (args.language and not args.bench, "--language needs --bench", "quaere grade ... --bench DIR --language en"),
        (graded, modelled, "quaere grade RUN --judge model:NAME --specific N"),
    )
    options.check_writable(args.out)
    options.check_writable(args.questions_out)


def _read(args: argparse.Namespace, name: str) -> ReportSet:
    if Path(name).is_file():
        return read_report_file(Path(name), args.limit)
    return read_report_run(options.named_run(args, name), args.limit)


def _check_known(args: argparse.Namespace, sets: list[ReportSet], facts: FactBook | None) -> None:
    """Raise `BadInput` if no report is on a question of `--facts`, before anything is graded."""
    if facts is None:
        return
    for one in sets:
        if not any(facts.find(report.question.text) for report in one.reports):
            hint = "--facts needs the file of questions that the reports were written on"
            raise BadInput(f"{one.name} has no report on a question of {args.facts}", hint=hint)


def _select(given: ReportSet, bench: Bench | None) -> ReportSet:
    """The reports to grade: with a bench, only those on its prompts."""
    if bench is None:
        return given
    kept = tuple(one for one in given.reports if bench.criteria.find(one.question.id, one.question.text))
    if not kept:
        hint = "quaere grade --bench DIR --questions-out FILE"
        raise BadInput(f"{given.name} has no report on a prompt of the bench", hint=hint)
    return structs.replace(given, reports=kept, num_unfinished=sum(not one.text.strip() for one in kept))


async def _grade(
    args: argparse.Namespace, sets: list[ReportSet], bench: Bench | None, facts: FactBook | None
) -> list[ReportEvaluation]:
    book = bench.criteria if bench else read_criteria(args.criteria) if args.criteria else None
    note_line(f"judge: {args.judge}")
    how = options.engine_settings(args, "concurrency") | {"temperature": _temperature(args), "guided": args.guided}
    judges = open_judges(args.judge, report=note_line, **how)
    try:
        agreement = await _probe(args, judges)
        if not args.json:
            print_agreement(judges.name, agreement)
        _refuse_chance(args, judges, agreement)
        made = await _write_dimensions(args, judges, sets)
        return [await _score(args, judges, one, book, made, agreement, facts) for one in sets]
    finally:
        await judges.stop()


def _temperature(args: argparse.Namespace) -> float:
    """The judge's temperature; above 0 with repeats, since greedy decoding would repeat the same grades."""
    return float(args.temperature if args.temperature is not None else 0.7 if args.repeats > 1 else 0)


async def _probe(args: argparse.Namespace, judges: Judges) -> JudgeAgreement:
    with counting("corrupted reports", num_steps(args.probes)) as advance:
        told = partial(advance, "good and corrupted reports")
        return await probe_judges(judges.citations, judges.grader, args.probes, seed=args.seed, advance=told)


def _refuse_chance(args: argparse.Namespace, judges: Judges, agreement: JudgeAgreement) -> None:
    if args.force or agreement.citations_trusted or agreement.grades_trusted:
        return
    cited, preferred = between(agreement.citations.balanced), between(agreement.grades.preferred)
    raise BadInput(
        f"the judge {judges.name} is no better than chance on corrupted reports (citations balanced {cited} %; good "
        f"reports preferred {preferred} %), so its scores mean nothing",
        hint="use another --judge, more --probes, or --force to print the scores anyway",
    )


async def _write_dimensions(
    args: argparse.Namespace, judges: Judges, sets: list[ReportSet]
) -> dict[str, tuple[GradedDimension, ...]]:
    """The dimensions that the judge writes for each question (`--specific`), once for all inputs."""
    if args.specific is None or judges.policy is None:
        return {}
    questions = list({report.question.text: report.question for one in sets for report in one.reports}.values())
    note_line(f"making {args.specific} dimensions for each of {len(questions)} questions")
    made = await write_dimensions(judges.policy, questions, args.specific, seed=args.seed, concurrency=args.max_rows)
    if num_missing := sum(not dimensions for dimensions in made):
        told = f"for {num_missing} of {len(questions)} questions the judge made none that can be used"
        note_line(told, style="yellow")
    return {question.text: dimensions for question, dimensions in zip(questions, made, strict=True)}


async def _score(
    args: argparse.Namespace,
    judges: Judges,
    given: ReportSet,
    book: CriteriaBook | None,
    made: dict[str, tuple[GradedDimension, ...]],
    agreement: JudgeAgreement,
    facts: FactBook | None,
) -> ReportEvaluation:
    parts: dict[str, Any] = {
        "with_citations": args.force or agreement.citations_trusted,
        "with_grades": args.force or agreement.grades_trusted,
    }
    asked = [one.question for one in given.reports]
    known = [book.find(one.id, one.text) if book else None for one in asked]
    criteria = [found or general_criteria(made.get(one.text, ())) for found, one in zip(known, asked, strict=True)]
    with counting(f"judging {given.name}", num_asked(given.reports, args.repeats, **parts)) as advance:
        how = {"repeats": args.repeats, "seed": args.seed, "advance": partial(advance, f"of {given.name}")}
        scores = await score_reports(judges, given.reports, criteria, **how, **parts)
    scores, truth = add_knowing(scores, given.reports, facts) if facts else (scores, None)
    return ReportEvaluation(
        agreement=agreement,
        name=given.name,
        judge=judges.name,
        settings=_settings(args, made),
        score=summarise(scores),
        reports=tuple(scores),
        num_unfinished=given.num_unfinished,
        truth=truth,
    )


def _settings(args: argparse.Namespace, made: dict[str, tuple[GradedDimension, ...]]) -> dict[str, Any]:
    """The settings stored with the result, with which the grading can be repeated."""
    places = {name: str(path) if (path := getattr(args, name)) else None for name in ("bench", "criteria", "facts")}
    kept = ("judge", "repeats", "probes", "force", "language", "limit", *options.EngineOptions.__struct_fields__)
    settings = {name: getattr(args, name) for name in kept}
    return settings | places | {"temperature": _temperature(args), "specific": to_builtins(made)}

"""`quaere grade`: grades research reports, and checks how far their citations support them.

quaere grade report-20250301-101500
quaere grade reports.jsonl --judge openai:judge@http://localhost:8001/v1 --repeats 3 --out graded.json
quaere grade base.jsonl trained.jsonl --judge model:./judge --bench deep_research_bench --language en
quaere grade --bench deep_research_bench --questions-out prompts.jsonl
quaere grade report-20250301-101500 --facts questions.jsonl
"""

import argparse
import asyncio
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, structs

from quaere.api.grading import GradingSettings, grade_sets
from quaere.api.printing import count
from quaere.cli import options
from quaere.cli.grade_view import print_agreement, print_evaluations, results_json
from quaere.cli.terminal import interruptible, note_line
from quaere.errors import BadInput
from quaere.evaluation.reports.criteria import Bench, read_bench, read_criteria
from quaere.evaluation.reports.report_sources import FactBook, ReportSet, read_facts, read_report_file, read_report_run
from quaere.evaluation.reports.scores import ReportEvaluation, write_report_evaluations
from quaere.search.json_lines import check_plain
from quaere.setting_types import File, Folder, PositiveCount


class GradeOptions(Struct):
    """Options of `quaere grade`.

    Attributes:
        inputs: runs of `quaere report`, or JSONL files of reports; several are compared
        limit: only the first N reports of each input, or prompts (default: all)
        facts: questions that `quaere questions --world` wrote: also measure how many known facts are stated and proven
    """

    inputs: Annotated[tuple[str, ...], "RUN|FILE", options.Named, options.Flag("inputs", nargs="*")]
    limit: PositiveCount | None = None
    facts: File | None = None


class CriteriaOptions(Struct):
    """What reports are graded by.

    Attributes:
        bench: use the criteria of DeepResearch Bench in this folder
        language: only the bench's prompts in this language (default: all)
        criteria: JSONL file of dimensions for single questions
    """

    bench: Folder | None = None
    language: Literal["en", "zh"] | None = None
    criteria: File | None = None


class OutputOptions(options.JsonOption):
    """Where results go.

    Attributes:
        out: write all results to a file, citation by citation
        questions_out: write the bench's prompts, then stop
    """

    out: Annotated[Path, "FILE.json"] | None = None
    questions_out: File | None = None


_JUDGE = ("judge", "repeats", "temperature", "probes", "force", "guided")
_CRITERIA = (*CriteriaOptions.__struct_fields__, "specific")
_GENERAL = "coverage, insight, instruction following, clarity"


def _run(args: argparse.Namespace) -> None:
    """Check all input first, then measure the judge's accuracy, grade, and print."""
    _check(args)
    bench = read_bench(args.bench, args.language) if args.bench else None
    if args.questions_out:
        assert bench is not None  # checked above
        written = count(bench.write_questions(args.questions_out, args.limit), "prompt")
        print(f"{written} written: quaere report --questions {shlex.quote(str(args.questions_out))} ...")
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
    options.group("judge", GradingSettings, only=_JUDGE),
    options.group("criteria", CriteriaOptions, GradingSettings, only=_CRITERIA, about=f"default: {_GENERAL}"),
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
    check_plain(args.out, args.questions_out)
    options.check_writable(args.out, "--out", [*args.inputs, args.facts, args.criteria])
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
    engine = {"device": args.device, "dtype": args.dtype, "mode": "deterministic" if args.deterministic else "fast"}
    told: dict[str, Any] = {"on_note": note_line} | ({} if args.json else {"on_agreement": print_agreement})
    settings = options.read_options(args, GradingSettings)
    return await grade_sets(sets, settings, book=book, facts=facts, engine=engine, stored=_stored(args), **told)


def _stored(args: argparse.Namespace) -> dict[str, Any]:
    """The settings stored with the result, with which the grading can be repeated."""
    places = {name: str(path) if (path := getattr(args, name)) else None for name in ("bench", "criteria", "facts")}
    kept = ("judge", "repeats", "probes", "force", "language", "limit", *options.EngineOptions.__struct_fields__)
    return {name: getattr(args, name) for name in kept} | places

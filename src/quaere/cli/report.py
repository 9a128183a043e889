"""`quaere report`: a report whose citations resolve to passages, composed of sentences or written by a model.

quaere report "What is known of the Oss?" --index docs-index --out report.html
quaere report "What is known of the Oss?" --index docs-index --outline headings.txt --to html,pdf,docx
quaere report --questions world/questions.jsonl --limit 5 --index world-index --model MODEL --out reports
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quaere.api.answer import refuse_all_failed
from quaere.api.printing import count, counting, plain_table
from quaere.cli import options
from quaere.cli.terminal import interruptible, note_line, open_console
from quaere.errors import NotFound
from quaere.records import Answer, Episode, Question, Report, ReportTask
from quaere.setting_types import File

if TYPE_CHECKING:
    from quaere.api.agent import OpenAgent
    from quaere.api.composer import Composer
    from quaere.api.report_files import ReportPlace
    from quaere.evaluation.reports.citations import CitationJudge
    from quaere.runs import Run
    from quaere.search.searcher import Searcher


class ReportOptions(options.AskedOptions, kw_only=True):
    """Options of `quaere report`.

    Attributes:
        model: catalogue name, directory, hub id, or openai:MODEL@BASE_URL (default: none, the report is composed)
        out: file report.html, .md, .docx or .pdf, a folder for the formats of --to and the cited documents, or for
            several reports a .jsonl file as DeepResearch Bench reads it (default: print only)
        to: formats, such as html,md,pdf,docx, in the folder --out (default: md,html; folder: report)
        force: replace files of --out that exist
        outline: file with a heading on each line; the report is composed section by section
        compose: compose the report of cited sentences of the documents; a --model only joins them (default: without
            --model, and with models of the catalogue that are too small to write)
        strict: leave out what a model wrote without support; --no-strict marks it (default: strict)
        judge: what decides on support: checks (rules), a local model or an endpoint; a model that does not find planted
            errors (balanced accuracy of 0.8) is replaced by rules (default: checks)
        guided: write the start of every turn (a search; in the last a report on [1]), for models too small to follow
            the dialect
    """

    out: Annotated[Path, "FILE|DIR"] | None = None
    to: Annotated[str, "FORMAT,..."] | None = None
    force: bool = False
    outline: File | None = None
    compose: bool | None = None
    strict: bool | None = None
    judge: Annotated[str, "checks|model:NAME|openai:MODEL@URL"] = "checks"
    guided: bool | None = None


class ReportLimits(options.EpisodeLimits):
    """How far an episode may go.

    Attributes:
        max_turns: most turns of an episode (10; guided: 2)
        topk: passages per search (3; composed: 100)
        turn_tokens: most tokens per turn (2048; guided: 128)
        sequence_tokens: most tokens of an episode (12288; guided: 4096)
    """


def _run(args: argparse.Namespace) -> None:
    from quaere.api.report import composes, read_outline
    from quaere.api.report_files import report_place
    from quaere.search.searcher import open_searcher

    questions = options.read_asked(args, "report")
    outline = read_outline(args.outline) if args.outline else ()
    args.compose = composes(args.model, args.compose, args.guided, outline)
    formats = [name.strip() for name in (args.to or "").split(",") if name.strip()]
    out = args.out or (Path("report") if formats else None)
    names = [question.id for question in questions]
    place = report_place(out, len(questions), formats, names=names, force=args.force) if out else None
    with interruptible():
        asyncio.run(_write(args, questions, place, open_searcher(args.index), outline))


fill = options.command(
    _run,
    ReportOptions,
    options.RunsFolder,
    options.group("limits", ReportLimits, about="default: as the model was trained, else the values in parentheses"),
    options.group("sampling", options.SamplingOptions),
    model=None,
)


async def _write(
    args: argparse.Namespace,
    questions: list[Question],
    place: ReportPlace | None,
    searcher: Searcher,
    outline: tuple[str, ...],
) -> None:
    from quaere.api.report import open_reader
    from quaere.runs import Run, runs_root
    from quaere.search.searcher import check_reachable

    await check_reachable(searcher)
    judges = await open_reader(args.judge, note_line, device=args.device, dtype=args.dtype)
    try:
        writer, settings = await _open_writer(args, searcher, outline, judges.citations)
        try:
            with Run.start(runs_root(args.runs), "report", settings) as stored:
                reports = _Reports(args, place, writer, stored, judges.citations)
                await (reports.write_one(questions[0]) if args.question else reports.write_many(questions))
        finally:
            await writer.close()
    finally:
        await judges.stop()


async def _open_writer(
    args: argparse.Namespace, searcher: Searcher, outline: tuple[str, ...], judge: CitationJudge
) -> tuple[OpenAgent | Composer, dict[str, Any]]:
    """What writes the reports, and the settings that are stored with the run."""
    from quaere.api.agent import open_agent
    from quaere.api.composer import Composer
    from quaere.api.report import choose_author

    agent = None
    if args.model:
        agent = await open_agent(args.model, searcher, limits={}, **options.sampling_settings(args))
    how: dict[str, Any] = {"compose": args.compose, "guided": args.guided, "outline": outline, "judge": judge}
    author = choose_author(searcher, agent, args.model, limits=options.given_limits(args), **how)
    if isinstance(author, Composer):
        kept = ("question", "questions", "index", "model", "judge", "compose")
        settings = {name: getattr(args, name) for name in kept}
        return author, settings | {"outline": outline, "topk": author.topk}
    settings = options.asked_settings(args, author.limits, hidden=("out", "to", "force", "outline"))
    return author, settings | {name: getattr(author.protocol, name) for name in ("guided", "style")}


class _Reports:
    """The reports of one call of the command: written, held to their sources, stored in a run, and put into files."""

    def __init__(
        self,
        args: argparse.Namespace,
        place: ReportPlace | None,
        writer: OpenAgent | Composer,
        stored: Run,
        judge: CitationJudge,
    ) -> None:
        self.args, self.place, self.writer, self.stored, self.judge = args, place, writer, stored, judge
        self.console = open_console()

    async def write_one(self, question: Question) -> None:
        from quaere.cli.episode_view import render_end, render_report, render_turn

        is_silent = self.args.json or self.args.compose  # a composer's last turn is the report itself
        show = None if is_silent else lambda turn: self.console.print(render_turn(turn))
        episode = await self.writer.play(ReportTask(question), on_turn=show)
        report, files = await self._keep(episode)
        if not self.args.json:
            if report or not self.args.compose:
                self.console.print(render_report(report) if report else render_end(episode))
            self._print_places(files)
        refuse_all_failed([episode])
        if report is None:
            raise NotFound(_say_missing(episode), hint="other words, an --outline, or documents that treat it")

    async def write_many(self, questions: list[Question]) -> None:
        episodes: list[Episode] = []
        reports: list[Report | None] = []
        with counting("writing", len(questions)) as advance:
            async for episode in self.writer.play_many([ReportTask(question) for question in questions]):
                episodes.append(episode)
                reports.append((await self._keep(episode))[0])
                advance(count(sum(len(report.citations) for report in reports if report), "citation"))
        if not self.args.json:
            self._print_table(questions, reports)
            self._print_places([self.place.path] if self.place else [])
        refuse_all_failed(episodes)

    async def _keep(self, episode: Episode) -> tuple[Report | None, list[Path]]:
        """Store the episode, and write its report where the person wants it."""
        from quaere.api.report import find_queries, hold_report
        from quaere.api.report_files import write_report

        report = await hold_report(episode, strict=self.args.strict is not False, judge=self.judge)
        self.stored.add_episode(episode, _scores(report) if report else None)
        files: list[Path] = []
        if report is not None and self.place is not None:
            where = (getattr(self.writer.searcher, "index", None), self.args.index)
            files = write_report(report, self.place, report.question.id, *where, find_queries(episode))
        if self.args.json:
            print(json.dumps(_row(episode, report, files, self.stored)))
        return report, files

    def _print_table(self, questions: list[Question], reports: list[Report | None]) -> None:
        from quaere.cli.episode_view import trim

        rows = []
        for question, report in zip(questions, reports, strict=True):
            row = [trim(question.text, 60), trim(report.conclusion, 60) if report else "(no report)"]
            counted = (report.statements, report.citations, report.unresolved) if report else ()
            rows.append([*row, *(str(len(each)) for each in counted)])
        self.console.print(plain_table("question", "conclusion", "statements", "citations", "unresolved", rows=rows))
        written = [report for report in reports if report]
        num_citations = sum(len(report.citations) for report in written)
        num_lost = sum(len(report.unresolved) for report in written)
        line = f"{count(len(reports), 'question')}, {count(len(written), 'report')}, {count(num_citations, 'citation')}"
        if num_citations:
            line += f", {num_citations - num_lost} resolved ({1 - num_lost / num_citations:.0%}), {num_lost} unresolved"
        self.console.print(line, style="bold", markup=False)

    def _print_places(self, files: list[Path]) -> None:
        for file in files:
            self.console.print(str(file), markup=False, soft_wrap=True)
        line = f"quaere runs show {shlex.quote(str(self.stored.path))}"
        self.console.print(line, style="dim", markup=False, soft_wrap=True)


def _say_missing(episode: Episode) -> str:
    if isinstance(episode.outcome, Answer):
        return "no sentence of the report has support in the passages it cites, so there is no report"
    return "nothing was found on this in these documents, so there is no report"


def _scores(report: Report) -> dict[str, float]:
    counted = {"statements": report.statements, "citations": report.citations, "unresolved": report.unresolved}
    numbers = {f"report/num_{name}": float(len(found)) for name, found in counted.items()}
    return {**numbers, "report/resolved_share": report.resolved_share}


def _row(episode: Episode, report: Report | None, files: list[Path], stored: Run) -> dict[str, Any]:
    from quaere.cli.episode_view import episode_row, report_row

    assert isinstance(episode.task, ReportTask)
    row = report_row(report) if report else {"report": None}
    row |= {"question": episode.task.question.text, "files": [str(file) for file in files]}
    return row | episode_row(episode, stored)

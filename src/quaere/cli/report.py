"""`quaere report`: a model searches and writes a report whose citations resolve to passages it was shown.

quaere report "What is known of the Oss?" --index docs-index --out report.html
quaere report --questions world/questions.jsonl --limit 5 --index world-index --out reports
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import structs

from quaere.api.answer import refuse_all_failed
from quaere.api.printing import count, counting, plain_table
from quaere.cli import options
from quaere.cli.terminal import interruptible, open_console
from quaere.policies.catalogue import needs_guide
from quaere.records import Episode, Question, Report, ReportTask

if TYPE_CHECKING:
    from quaere.api.agent import OpenAgent
    from quaere.api.report import ReportPlace
    from quaere.runs import Run
    from quaere.search.searcher import Searcher


class ReportOptions(options.AskedOptions, kw_only=True):
    """Options of `quaere report`.

    Attributes:
        out: file report.md or report.html to write, or a folder for both formats and the cited documents (default:
            print only)
        guided: write the start of every turn (a search; in the last a report on [1]), for models too small to follow
            the dialect (default: only for models of the catalogue that need it)
    """

    out: Annotated[Path, "FILE|DIR"] | None = None
    guided: bool | None = None


class ReportLimits(options.EpisodeLimits):
    """How far an episode may go.

    Attributes:
        max_turns: most turns of an episode (10; guided: 2)
        topk: passages per search (3)
        turn_tokens: most tokens per turn (2048; guided: 128)
        sequence_tokens: most tokens of an episode (12288; guided: 4096)
    """


def _run(args: argparse.Namespace) -> None:
    from quaere.api.report import report_place
    from quaere.search.searcher import open_searcher

    questions = options.read_asked(args, "report")
    place = report_place(args.out, len(questions)) if args.out else None
    with interruptible():
        asyncio.run(_write(args, questions, place, open_searcher(args.index)))


register = options.command(
    "report",
    _run,
    "let a model write a cited report by searching an index",
    ReportOptions,
    options.RunsFolder,
    options.group("limits", ReportLimits, about="default: as the model was trained, else the values in parentheses"),
    options.group("sampling", options.SamplingOptions),
    model="smollm2-135m-plain",  # the adapter of smollm2-135m was not taught to write reports
)


async def _write(
    args: argparse.Namespace, questions: list[Question], place: ReportPlace | None, searcher: Searcher
) -> None:
    from quaere.api.agent import open_agent
    from quaere.api.report import choose_writer
    from quaere.runs import Run, runs_root

    agent = await open_agent(args.model, searcher, limits={}, **options.sampling_settings(args))
    guided = needs_guide(args.model) if args.guided is None else args.guided
    writer, limits = choose_writer(agent.notes, guided=guided, limits=options.given_limits(args))
    agent = structs.replace(agent, protocol=writer, limits=limits)
    settings = options.asked_settings(args, limits, hidden=("out",)) | {"guided": writer.guided, "style": writer.style}
    try:
        with Run.start(runs_root(args.runs), "report", settings) as stored:
            reports = _Reports(args, place, agent, stored)
            episodes = await (reports.write_one(questions[0]) if args.question else reports.write_many(questions))
    finally:
        await agent.close()
    refuse_all_failed(episodes)


class _Reports:
    """The reports of one call of the command: written by an agent, stored in a run, and put where they are wanted."""

    def __init__(self, args: argparse.Namespace, place: ReportPlace | None, agent: OpenAgent, stored: Run) -> None:
        self.args, self.place, self.agent, self.stored = args, place, agent, stored
        self.console = open_console()

    async def write_one(self, question: Question) -> list[Episode]:
        from quaere.cli.episode_view import render_end, render_report, render_turn

        show = None if self.args.json else lambda turn: self.console.print(render_turn(turn))
        episode = await self.agent.play(ReportTask(question), on_turn=show)
        report, files = self._keep(episode)
        if not self.args.json:
            self.console.print(render_report(report) if report else render_end(episode))
            self._print_places(files)
        return [episode]

    async def write_many(self, questions: list[Question]) -> list[Episode]:
        episodes: list[Episode] = []
        reports: list[Report | None] = []
        with counting("writing", len(questions)) as advance:
            async for episode in self.agent.play_many([ReportTask(question) for question in questions]):
                episodes.append(episode)
                reports.append(self._keep(episode)[0])
                advance(count(sum(len(report.citations) for report in reports if report), "citation"))
        if not self.args.json:
            self._print_table(questions, reports)
            self._print_places([self.place.path] if self.place else [])
        return episodes

    def _keep(self, episode: Episode) -> tuple[Report | None, list[Path]]:
        """Store the episode, and write its report where the person wants it."""
        from quaere.api.report import write_report
        from quaere.dialects.report.report_writer import bind_report

        report = bind_report(episode)
        self.stored.add_episode(episode, _scores(report) if report else None)
        files: list[Path] = []
        if report is not None and self.place is not None:
            index = getattr(self.agent.searcher, "index", None)
            files = write_report(report, self.place, report.question.id, index, self.args.index)
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
        line = f"{len(reports)} questions, {len(written)} reports, {num_citations} citations"
        if num_citations:
            line += f", {num_citations - num_lost} resolved ({1 - num_lost / num_citations:.0%}), {num_lost} unresolved"
        self.console.print(line, style="bold", markup=False)

    def _print_places(self, files: list[Path]) -> None:
        for file in files:
            self.console.print(str(file), markup=False, soft_wrap=True)
        self.console.print(f"quaere runs show {self.stored.path}", style="dim", markup=False)


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

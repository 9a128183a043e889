"""`quaere report`: a model searches and writes a report whose citations resolve to passages it was shown.

quaere report "What is known of the Oss?" --index docs-index --out report.html
quaere report --questions world/questions.jsonl --limit 5 --index world-index --out reports
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaere.api.answer import refuse_all_failed
from quaere.cli import ask_options
from quaere.cli.interrupt import interruptible

if TYPE_CHECKING:
    from quaere.api.report_files import ReportPlace
    from quaere.dialects.report.report_writer import ReportWriter as Writer
    from quaere.records import Episode, Question, Report
    from quaere.rollout.episode import Limits
    from quaere.rollout.policy import Policy
    from quaere.runs import Run
    from quaere.search.searcher import Searcher


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `report` to the command line."""
    parser = commands.add_parser("report", help="let a model write a cited report by searching an index")
    ask_options.add_asked(parser, "smollm2-135m-plain")  # its adapter was not taught to write reports
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE|DIR",
        help="file report.md or report.html to write, or a folder for both formats and the cited documents "
        "(default: print only)",
    )
    parser.add_argument(
        "--guided",
        action=argparse.BooleanOptionalAction,
        help="write the start of every turn (a search; in the last a report on [1]), for models too small to follow "
        "the dialect (default: only for models of the catalogue that need it)",
    )
    limits = parser.add_argument_group("limits", "default: as the model was trained, else the values in parentheses")
    limits.add_argument("--max-turns", type=int, metavar="N", help="most turns of an episode (10; guided: 2)")
    limits.add_argument("--topk", type=int, metavar="N", help="passages per search (3)")
    limits.add_argument("--turn-tokens", type=int, metavar="N", help="most tokens per turn (2048; guided: 128)")
    limits.add_argument(
        "--sequence-tokens", type=int, metavar="N", help="most tokens of an episode (12288; guided: 4096)"
    )
    ask_options.add_sampling(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, one object per question")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write one report in full view, or one for every question of a file with a table at the end."""
    from quaere.api.report_files import report_place
    from quaere.search.searcher import open_searcher

    questions = ask_options.read_asked(args, "report")
    ask_options.check_numbers(args)
    place = report_place(args.out, len(questions)) if args.out else None
    with interruptible():
        asyncio.run(_Writing(args, place, open_searcher(args.index)).write(questions))


def _arrange(args: argparse.Namespace) -> tuple[Writer, Limits]:
    """How to ask: as the command line says, else as the model was trained to write reports, which its notes say."""
    from quaere.api.report import choose_writer
    from quaere.dialects.notes import find_notes
    from quaere.policies.catalogue import needs_guide

    guided = needs_guide(args.model) if args.guided is None else args.guided
    given = {key: getattr(args, key) for key in ask_options.LIMITS if getattr(args, key) is not None}
    return choose_writer(find_notes(args.model), guided=guided, limits=given)


class _Writing:
    """One call of the command: the writer, the searcher, and where reports are written."""

    def __init__(self, args: argparse.Namespace, place: ReportPlace | None, searcher: Searcher) -> None:
        from rich.console import Console

        from quaere.search.searcher import LocalSearcher

        self.args = args
        self.place = place
        self.searcher = searcher
        self.index = searcher.index if isinstance(searcher, LocalSearcher) else None
        self.console, self.quiet = Console(highlight=False), Console(stderr=True, highlight=False)

    async def write(self, questions: list[Question]) -> None:
        """Open the model, write every report, and close everything."""
        from quaere.runs import Run, runs_root
        from quaere.search.searcher import check_reachable

        await check_reachable(self.searcher)
        writer, limits = _arrange(self.args)
        policy = ask_options.open_model(self.args, self.quiet)
        try:
            with Run.start(runs_root(self.args.runs), "report", self._settings(writer, limits)) as stored:
                if self.args.question:
                    episodes = [await self._write_one(questions[0], policy, writer, limits, stored)]
                else:
                    episodes = await self._write_many(questions, policy, writer, limits, stored)
        finally:
            await self.searcher.close()
            await policy.stop()
        refuse_all_failed(episodes)

    def _settings(self, writer: Writer, limits: Limits) -> dict[str, Any]:
        asked = ask_options.asked_settings(self.args, limits, hidden=("out",))
        return asked | {"guided": writer.guided, "style": writer.style}

    async def _write_one(
        self, question: Question, policy: Policy, writer: Writer, limits: Limits, stored: Run
    ) -> Episode:
        """Write one report; print every turn as it is sampled, then the report."""
        from quaere.cli.episode_view import render_end, render_turn
        from quaere.cli.report_view import render_report
        from quaere.records import ReportTask
        from quaere.rollout.episode import run_episode

        show = None if self.args.json else lambda turn: self.console.print(render_turn(turn))
        task, setting = ReportTask(question), ask_options.episode_setting(self.args, limits)
        episode = await run_episode(policy, writer, self.searcher, task, on_turn=show, **setting)
        report, files = self._keep(episode, stored)
        if not self.args.json:
            self.console.print(render_report(report) if report else render_end(episode))
            for file in files:
                self.console.print(str(file), markup=False, soft_wrap=True)
            self.console.print(f"quaere runs show {stored.path}", style="dim", markup=False)
        return episode

    async def _write_many(
        self, questions: list[Question], policy: Policy, writer: Writer, limits: Limits, stored: Run
    ) -> list[Episode]:
        """A report for every question of a file, and a table."""
        from quaere.api.counts import counting
        from quaere.cli.episode_view import count
        from quaere.records import ReportTask
        from quaere.rollout.episode import Job, run_many

        jobs = [Job(writer, ReportTask(question)) for question in questions]
        setting = ask_options.episode_setting(self.args, limits)
        episodes: list[Episode] = []
        reports: list[Report | None] = []
        with counting("writing", len(jobs), self.quiet) as advance:
            async for episode in run_many(policy, jobs, self.searcher, **setting):
                episodes.append(episode)
                reports.append(self._keep(episode, stored)[0])
                advance(count(sum(len(report.citations) for report in reports if report), "citation"))
        if not self.args.json:
            self._print_table(questions, reports, stored)
        return episodes

    def _keep(self, episode: Episode, stored: Run) -> tuple[Report | None, list[Path]]:
        """Store the episode, and write its report where the person wants it."""
        from quaere.api.report_files import write_report
        from quaere.dialects.report.report_writer import bind_report

        report = bind_report(episode)
        stored.add_episode(episode, report_scores(report) if report else None)
        files: list[Path] = []
        if report is not None and self.place is not None:
            files = write_report(report, self.place, report.question.id, self.index, self.args.index)
        if self.args.json:
            print(json.dumps(_row(episode, report, files, stored)))
        return report, files

    def _print_table(self, questions: list[Question], reports: list[Report | None], stored: Run) -> None:
        from rich.table import Table
        from rich.text import Text

        from quaere.cli.episode_view import printable, trim

        table = Table("question", "conclusion", "statements", "citations", "unresolved", box=None, pad_edge=False)
        for question, report in zip(questions, reports, strict=True):
            cells = [trim(question.text, 60), trim(report.conclusion, 60) if report else "(no report)"]
            if report:
                cells += [str(len(report.statements)), str(len(report.citations)), str(len(report.unresolved))]
            table.add_row(*(Text(printable(cell)) for cell in cells))
        self.console.print(table)
        written = [report for report in reports if report]
        num_citations = sum(len(report.citations) for report in written)
        num_lost = sum(len(report.unresolved) for report in written)
        line = f"{len(reports)} questions, {len(written)} reports, {num_citations} citations"
        if num_citations:
            line += f", {num_citations - num_lost} resolved ({1 - num_lost / num_citations:.0%}), {num_lost} unresolved"
        self.console.print(line, style="bold", markup=False)
        if self.place is not None:
            self.console.print(str(self.place.path), markup=False, soft_wrap=True)
        self.console.print(f"quaere runs show {stored.path}", style="dim", markup=False)


def report_scores(report: Report) -> dict[str, float]:
    """Metrics of a report's citations, stored with its episode."""
    return {
        "report/num_statements": float(len(report.statements)),
        "report/num_citations": float(len(report.citations)),
        "report/num_unresolved": float(len(report.unresolved)),
        "report/resolved_share": report.resolved_share,
    }


def _row(episode: Episode, report: Report | None, files: list[Path], stored: Run) -> dict[str, Any]:
    from quaere.cli.report_view import report_row
    from quaere.records import ReportTask

    assert isinstance(episode.task, ReportTask)
    row: dict[str, Any] = {"question": episode.task.question.text}
    row |= report_row(report) if report else {"report": None}
    return row | {
        "end": episode.end,
        "searches": [result.query for turn in episode.turns for result in turn.results],
        "failures": [f"{turn.failure.boundary}: {turn.failure.message}" for turn in episode.turns if turn.failure],
        "files": [str(file) for file in files],
        "run": str(stored.path),
        "episode": episode.id,
    }

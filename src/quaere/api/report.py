"""`quaere.report`: a report whose citations lead to passages, written by an agent's model or composed of sentences.

report(agent, "What is known of the Oss?", out="report.html").text
report("docs-index", "What is known of the Oss?", out="reports", to=("html", "pdf")).text       # without a model
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

from msgspec import Struct, structs

from quaere.api.agent import Agent, LimitOptions, OpenAgent, check_limits, make_question, open_search
from quaere.api.answer import refuse_all_failed
from quaere.api.background import BackgroundLoop
from quaere.api.composer import MODEL, TOPK, Composer
from quaere.api.index import Index
from quaere.api.report_files import ReportPlace, report_place, write_report
from quaere.dialects.notes import Notes
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.report_writer import ReportWriter as Writer
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput
from quaere.evaluation.judges.probes import probe_citations
from quaere.evaluation.reports.citations import CitationChecks, CitationJudge
from quaere.evaluation.reports.joining import Joiner
from quaere.evaluation.reports.scores import CHECKS, Judges, open_judges
from quaere.evaluation.reports.support import hold_to_sources
from quaere.policies.catalogue import needs_guide
from quaere.recipes.registry import writes_reports
from quaere.records import Episode, Question, Report, ReportTask, Turn
from quaere.rollout.episode import Limits
from quaere.search.index import Index as OpenIndex
from quaere.search.searcher import NoSearcher, Searcher

MIN_BALANCED = 0.8  # balanced accuracy on planted errors that a judge must have
_NUM_PROBES = 10


class WrittenReport(Struct, frozen=True):
    """A report, the files it was written to, and the episode it comes from; None where it ended without a report.

    WrittenReport(report=Report(...), files=(Path("report.html"),), episode=Episode(...)).text
    """

    report: Report | None
    files: tuple[Path, ...]
    episode: Episode

    @property
    def text(self) -> str:
        """The report as it was written, with its citations; "" where there is none."""
        return self.report.text if self.report else ""

    def __str__(self) -> str:
        return self.text


def report(
    agent: Agent | Index | str | Path,
    question: str | Question,
    *,
    out: str | Path | None = None,
    to: Sequence[str] = (),
    force: bool = False,
    outline: Sequence[str] = (),
    compose: bool | None = None,
    strict: bool = True,
    guided: bool | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    **limits: Unpack[LimitOptions],
) -> WrittenReport:
    """Write a report on a question: an agent's model searches and writes it, or it is composed of cited sentences.

    It is composed (`api/composer.py`) without an agent, from an index or its place; with `compose`; and by default with
    models of the catalogue that are too small to write, unless they are `guided`. A model then only joins sentences.
    `outline` has the headings of a composed report. What a model wrote without support is left out, or marked if not
    `strict`. `out` is a file (`report.html`, `.md`, `.docx`, `.pdf`) or a folder for the formats in `to`; files that
    exist are replaced only with `force`. Limits of a model are by default as it was trained to write, else 10 turns of
    2048 tokens.
    """
    check_limits(limits)
    asked = make_question(question, "report")
    place = report_place(Path(out), to=to, names=[asked.id], force=force) if out is not None else None
    searcher = agent.searcher if isinstance(agent, Agent) else open_search(agent, None)
    if isinstance(searcher, NoSearcher):
        raise BadInput("a report needs something to search", hint='Agent("smollm2-135m", "notes-index")')
    how: dict[str, Any] = {"compose": compose, "guided": guided, "outline": outline, "limits": limits}
    if not isinstance(agent, Agent):
        author = choose_author(searcher, **how)
        with BackgroundLoop("quaere-report") as loop:
            episode = loop.run(author.play(ReportTask(asked), on_turn=on_turn))
            loop.run(author.close())
            return _finish(loop.run(hold_report(episode, strict=strict)), episode, place, searcher)
    author = choose_author(searcher, agent.opened, agent.model, **how)
    episode = agent.run(author.play(ReportTask(asked), episode_id=agent.new_id("report"), on_turn=on_turn))
    refuse_all_failed([episode])
    return _finish(agent.run(hold_report(episode, strict=strict)), episode, place, searcher)


def _finish(written: Report | None, episode: Episode, place: ReportPlace | None, searcher: Searcher) -> WrittenReport:
    files: list[Path] = []
    if written is not None and place is not None:
        index: OpenIndex | None = getattr(searcher, "index", None)
        where = (index, str(index.path) if index else "")
        files = write_report(written, place, written.question.id, *where, find_queries(episode))
    return WrittenReport(written, tuple(files), episode)


def choose_author(
    searcher: Searcher,
    agent: OpenAgent | None = None,
    model: str | None = None,
    *,
    compose: bool | None = None,
    guided: bool | None = None,
    outline: Sequence[str] = (),
    judge: CitationJudge | None = None,
    limits: Mapping[str, Any] = MappingProxyType({}),
) -> OpenAgent | Composer:
    """What writes reports: a composer, for which the agent's model joins sentences, or the agent as a report writer.

    `model` is the name the agent was opened with; the command, `quaere mcp` and `report` choose here.
    """
    if composes(model, compose, guided, outline) or agent is None or model is None:
        joiner = Joiner(agent.policy, judge or CitationChecks(), guided=needs_guide(model)) if agent and model else None
        return Composer(searcher, tuple(outline), limits.get("topk", TOPK), joiner)
    writer, allowed = choose_writer(agent.notes, guided=needs_guide(model) if guided is None else guided, limits=limits)
    return structs.replace(agent, protocol=writer, limits=allowed)


def composes(model: str | None, compose: bool | None, guided: bool | None, outline: Sequence[str]) -> bool:
    """True if the report is composed: asked for, or there is no model that can write it."""
    if compose is None:
        compose = bool(outline) or model is None or (needs_guide(model) and guided is None)
    if outline and not compose:
        raise BadInput("only a composed report follows an outline", hint="--compose, or no --outline")
    if not compose and model is None:
        raise BadInput("without --compose a model must write the report", hint="--model NAME")
    return compose


async def hold_report(episode: Episode, *, strict: bool, judge: CitationJudge | None = None) -> Report | None:
    """The report of an episode, held to its sources; None if there is none, or if nothing in it has support.

    A composed report has only sentences of its sources.
    """
    written = bind_report(episode)
    if written is None or episode.model == MODEL:
        return written
    return await hold_to_sources(written, judge or CitationChecks(), strict=strict)


async def open_reader(name: str, on_note: Callable[[str], None], **engine: Any) -> Judges:
    """The judge that decides on support; rules in place of a model that does not find planted errors.

    A model is first held against reports with planted errors (`evaluation/judges/probes.py`).
    """
    judges = open_judges(name, **engine)
    if judges.policy is None:
        return judges
    on_note(f"planting errors to test the judge {name}")
    try:
        found = (await probe_citations(judges.citations, _NUM_PROBES)).balanced.mean
    except BaseException:
        await judges.stop()
        raise
    if found >= MIN_BALANCED:
        on_note(f"{name} is right on {found:.0%} of planted errors and good citations (balanced)")
        return judges
    await judges.stop()
    on_note(f"{name} is right on only {found:.0%} of planted errors and good citations (balanced): rules decide")
    return open_judges(CHECKS)


def find_queries(episode: Episode) -> list[str]:
    """All queries of an episode, in order."""
    return [result.query for turn in episode.turns for result in turn.results]


def read_outline(path: Path) -> tuple[str, ...]:
    """The headings of a file with one on each line; marks of headings and list items are dropped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"the outline {path} cannot be read as text", hint="a file with one heading on each line"
        ) from error
    headings = [line.strip().lstrip("#-*").strip() for line in lines]
    if not any(headings):
        raise BadInput(f"the outline {path} has no heading", hint="a file with one heading on each line")
    return tuple(dict.fromkeys(filter(None, headings)))


def choose_writer(notes: Notes, *, guided: bool, limits: Mapping[str, Any]) -> tuple[Writer, Limits]:
    """Protocol and limits: as given, else as the model was trained to write reports, which its notes say."""
    taught = any(writes_reports(name) for name in (notes.recipe, *notes.taught))
    usual = Limits(10, turn_tokens=2048, sequence_tokens=12288, tool_response_tokens=1024, answer_tokens=1024)
    if guided:
        usual = Limits(max_turns=2, turn_tokens=128, sequence_tokens=4096, tool_response_tokens=320)
    if taught and notes.limits:
        usual = notes.limits
    style = notes.style if taught and notes.style else "full"
    return find_dialect("report", "writer").open(style=style, guided=guided), structs.replace(usual, **limits)

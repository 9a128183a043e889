"""`quaere.report`: an agent's model writes a report whose citations lead to the passages it was shown.

report(agent, "What is known of the Oss?", out="report.html").text
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct, structs

from quaere.api.agent import Agent, LimitOptions, check_limits, make_question
from quaere.api.answer import refuse_all_failed
from quaere.api.report_files import report_place, write_report
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput
from quaere.policies.catalogue import needs_guide
from quaere.records import Episode, Question, Report, ReportTask, Turn
from quaere.search.searcher import NoSearcher

if TYPE_CHECKING:
    from quaere.dialects.notes import Notes
    from quaere.dialects.report.report_writer import ReportWriter as Writer
    from quaere.rollout.episode import Limits


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
    agent: Agent,
    question: str | Question,
    *,
    out: str | Path | None = None,
    guided: bool | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    **limits: Unpack[LimitOptions],
) -> WrittenReport:
    """Let the agent's model search and write a report on a question.

    `out` is a page (`report.md`, `report.html`) or a folder for both kinds. Limits are by default as the model was
    trained to write, else 10 turns of 2048 tokens. `guided` opens turns for models too small to follow the protocol, by
    default for those of the catalogue that need it.
    """
    from quaere.policies.sampler import SamplingParams
    from quaere.rollout.episode import run_episode

    check_limits(limits)
    if isinstance(agent.searcher, NoSearcher):
        raise BadInput("a report needs something to search", hint='Agent("smollm2-135m", "notes-index")')
    asked = make_question(question, "report")
    place = report_place(Path(out)) if out is not None else None
    helped = needs_guide(agent.model) if guided is None else guided
    writer, allowed = choose_writer(agent.notes, guided=helped, limits=limits)
    episode = agent.run(
        run_episode(
            agent.policy,
            writer,
            agent.searcher,
            ReportTask(asked),
            allowed,
            episode_id=agent.new_id("report"),
            seed=agent.seed,
            params=SamplingParams(temperature=agent.temperature),
            on_turn=on_turn,
        )
    )
    refuse_all_failed([episode])
    written = bind_report(episode)
    files: list[Path] = []
    if written is not None and place is not None:
        name = str(agent.index.path) if agent.index else ""
        files = write_report(written, place, asked.id, agent.index, name)
    return WrittenReport(written, tuple(files), episode)


def choose_writer(notes: Notes, *, guided: bool, limits: Mapping[str, Any]) -> tuple[Writer, Limits]:
    """Protocol and limits: as given, else as the model was trained to write reports, which its notes say."""
    from quaere.recipes.registry import writes_reports
    from quaere.rollout.episode import Limits

    taught = any(writes_reports(name) for name in (notes.recipe, *notes.taught))
    usual = Limits(10, turn_tokens=2048, sequence_tokens=12288, tool_response_tokens=1024, answer_tokens=1024)
    if guided:
        usual = Limits(max_turns=2, turn_tokens=128, sequence_tokens=4096, tool_response_tokens=320)
    if taught and notes.limits:
        usual = notes.limits
    style = notes.style if taught and notes.style else "full"
    return find_dialect("report", "writer").open(style=style, guided=guided), structs.replace(usual, **limits)

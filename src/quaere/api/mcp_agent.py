"""The tools of `quaere mcp --model`: those of the index, and `ask` and `report`, which a model answers.

tools = AgentTools(index, await open_agent("smollm2-135m", LocalSearcher(index), ...), "smollm2-135m")
"""

import itertools
from typing import Any, Literal

from msgspec import Struct

from quaere.api import answer as answers
from quaere.api.agent import OpenAgent
from quaere.api.mcp_tools import FoundPassage, IndexTools, Query, Quotation, check_text
from quaere.api.report import choose_writer
from quaere.chat.spans import shown_passages
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput
from quaere.policies.catalogue import needs_guide
from quaere.records import Question, ReportTask, SolveTask, Task
from quaere.search.index import Index
from quaere.serving.mcp_server import Tool

MAX_ASKED = 16  # questions at once; a model answers a few at a time


class QuestionArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `ask` and `report`."""

    question: Query


class AskedAnswer(Struct, frozen=True):
    """Result of `ask`.

    `status` is "answered"; "not_in_documents" if the model says that the documents do not answer; or "not_found" if it
    gave no answer, or one whose passage has too few words of the question. `said` is all of it in words. `evidence`
    is the sentence that the model quoted, or else one that contains the answer.
    """

    status: Literal["answered", "not_in_documents", "not_found"]
    answer: str
    said: str
    evidence: Quotation | None
    queries: list[str]
    passages: list[FoundPassage]
    confidence: float | None


class CitedSource(Struct, frozen=True):
    """A source of a report: the number of its citations, [2], and the passage."""

    number: int
    passage: FoundPassage


class AskedReport(Struct, frozen=True):
    """Result of `report`: text with citations such as [2], their sources, and numbers that have none.

    `status` is "not_written" if the model ended without a report.
    """

    status: Literal["written", "not_written"]
    text: str
    conclusion: str
    sources: list[CitedSource]
    unresolved: list[int]


class AgentTools(IndexTools):
    """The same with `ask` and `report`, answered by a model."""

    def __init__(self, index: Index, agent: OpenAgent, model: str) -> None:
        super().__init__(index, agent.searcher)
        self._agent = agent
        self._writer = choose_writer(agent.notes, guided=needs_guide(model), limits={})
        self._is_remote = model.startswith("openai:")
        self._numbers = itertools.count()
        self._num_asked = 0

    @property
    def tools(self) -> list[Tool]:
        """The tools, for `make_mcp_server`."""
        ask = "Let a model search the documents and answer a question; status tells if they do not answer it."
        report = "Let a model search the documents and write a report with citations. It may take minutes."
        remote = self._is_remote
        return [
            *super().tools,
            Tool("ask", "Ask the documents", ask, QuestionArguments, AskedAnswer, self._ask, remote),
            Tool("report", "Write a report", report, QuestionArguments, AskedReport, self._report, remote),
        ]

    async def _ask(self, asked: QuestionArguments) -> AskedAnswer:
        episode = await self._play(SolveTask(self._question(asked)))
        answer = self._agent.read(episode)
        _, quoted, passage = answers.find_span(episode)
        found = (quoted, passage) if quoted and passage else answers.find_support(episode)
        return AskedAnswer(
            status="answered" if answer.found else "not_in_documents" if answer.abstained else "not_found",
            answer=answer.text if answer.found else "",
            said=answers.describe_found(episode, self._agent.min_overlap),
            evidence=Quotation.cut(found[1], found[0].start, found[0].text) if found and answer.found else None,
            queries=[result.query for result in answer.searches],
            passages=[FoundPassage.of(passage) for passage in shown_passages(episode)],
            confidence=answer.confidence,
        )

    async def _report(self, asked: QuestionArguments) -> AskedReport:
        protocol, limits = self._writer
        episode = await self._play(ReportTask(self._question(asked)), protocol=protocol, limits=limits)
        report = bind_report(episode)
        if report is None:
            return AskedReport("not_written", "", "", [], [])
        sources = [CitedSource(source.number, FoundPassage.of(source.passage)) for source in report.sources]
        return AskedReport("written", report.text, report.conclusion, sources, list(report.unresolved))

    def _question(self, asked: QuestionArguments) -> Question:
        check_text("question", asked.question)
        return Question(id=f"mcp-{next(self._numbers)}", text=asked.question)

    async def _play(self, task: Task, **how: Any) -> Any:
        if self._num_asked >= MAX_ASKED:
            raise BadInput(f"the model has {MAX_ASKED} questions to answer already; ask again later")
        self._num_asked += 1
        try:
            episode = await self._agent.play(task, episode_id=task.id, **how)
        finally:
            self._num_asked -= 1
        answers.refuse_all_failed([episode])
        return episode

    async def close(self) -> None:
        """Release the model and the search threads."""
        await self._agent.close()

"""The tools of `quaere mcp --model`: those of the index, and `ask`, which a model answers.

tools = open_tools(index, "smollm2-135m", engine={}, attempts=8)
"""

import asyncio
from typing import Any, Literal

from msgspec import Struct

from quaere.api import answer as answers
from quaere.api.agent import OpenAgent, open_agent, refuse_voting
from quaere.api.composer import Composer
from quaere.api.mcp_tools import FoundPassage, IndexTools, QuestionArguments, Quotation
from quaere.api.report import choose_author
from quaere.chat.spans import shown_passages
from quaere.errors import BadInput
from quaere.records import Episode, SolveTask, Task
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.serving.mcp_server import Tool

MAX_ASKED = 16  # questions at once; a model answers a few at a time


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


class AgentTools(IndexTools):
    """The same with `ask`, answered by a model, which also writes reports if it can, or else joins their sentences."""

    def __init__(self, index: Index, agent: OpenAgent, model: str) -> None:
        super().__init__(index, agent.searcher)
        self._agent = agent
        self.author = choose_author(agent.searcher, agent, model)
        self.is_remote = model.startswith("openai:")
        self._num_asked = 0

    @property
    def tools(self) -> list[Tool]:
        """The tools, for `make_mcp_server`."""
        ask = "Let a model search the documents and answer a question; status tells if they do not answer it."
        tool = Tool("ask", "Ask the documents", ask, QuestionArguments, AskedAnswer, self._ask, self.is_remote)
        return [*super().tools, tool]

    async def _ask(self, asked: QuestionArguments) -> AskedAnswer:
        episode = await self._play(self._agent, SolveTask(self._question(asked)))
        answer = self._agent.read(episode)
        _, quoted, passage = answers.find_span(episode)
        found = (quoted, passage) if quoted and passage else answers.find_support(episode)
        return AskedAnswer(
            status="answered" if answer.found else "not_in_documents" if answer.abstained else "not_found",
            answer=answer.text if answer.found else "",
            said=answers.describe_found(episode, self._agent.min_overlap, self._agent.min_confidence),
            evidence=Quotation.cut(found[1], found[0].start, found[0].text) if found and answer.found else None,
            queries=[result.query for result in answer.searches],
            passages=[FoundPassage.of(passage) for passage in shown_passages(episode)],
            confidence=answer.confidence,
        )

    async def _play(self, author: OpenAgent | Composer, task: Task) -> Episode:
        if self._num_asked >= MAX_ASKED:
            raise BadInput(f"the model has {MAX_ASKED} questions to answer already; ask again later")
        self._num_asked += 1
        try:
            return await super()._play(author, task)
        finally:
            self._num_asked -= 1

    async def close(self) -> None:
        """Release the model and the search threads."""
        await self._agent.close()


def open_tools(
    index: Index, model: str | None, *, attempts: int = 1, min_confidence: float | None = None, **how: Any
) -> IndexTools:
    """The tools of an index, and with a model those of an agent, which `how` opens."""
    if not model:
        refuse_voting(attempts, min_confidence, "--model MODEL")
    index.engine  # noqa: B018  (loads the index now, so that the first call does not wait for it)
    searcher = LocalSearcher(index, max_waiting=256)
    if not model:
        return IndexTools(index, searcher)
    how |= {"attempts": attempts, "min_confidence": min_confidence}
    return AgentTools(index, asyncio.run(open_agent(model, searcher, limits={}, **how)), model)

"""Protocol of the report writer: it searches, one query at a time, and cites the passages it was shown by number.

    <think>First the source of the river.</think><search>source of the Oss</search>
    <observation>
    [1]
    The Oss
    The Oss rises at Korrin.
    </observation>

and, as its last turn:

    <answer>The Oss rises at Korrin [1]. ...

    Conclusion: The Oss is short [1, 4].</answer>

Passages are numbered over the whole episode, and a passage that is shown again keeps its number. `bind_report` resolves
each cited number to the passage that had it in this episode, or to none. Numbers are assigned to search results, never
read from their text, so a document that contains "[3]" or "Conclusion:" cannot forge a citation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quaere.chat.dimensions import POOL
from quaere.chat.messages import Message, Part, Quoted, format_results
from quaere.chat.protocol import PromptStyle, final_reply, read_query
from quaere.chat.statements import Citation, extract_conclusion, find_citations, keep_whole_sentences, split_statements
from quaere.chat.tags import THOUGHT, find_blocks, has_unclosed
from quaere.chat.tools import ToolSchema, is_text
from quaere.dialects.report.prompts import FINISH, RESULTS_TAG, describe_rubric, report_system, worked_reports
from quaere.records import (
    Action,
    Answer,
    Dimension,
    Episode,
    Failure,
    Malformed,
    Passage,
    Report,
    ReportTask,
    Search,
    SearchResult,
    Source,
    Statement,
    Task,
    Turn,
)

__all__ = [
    "MAX_REPORT_CHARS",
    "Citation",
    "ReportWriter",
    "bind_report",
    "extract_conclusion",
    "find_citations",
    "numbered_sources",
    "split_statements",
]

MAX_REPORT_CHARS = 40_000


class ReportWriter:
    """Protocol for writing a cited report on a question.

    `pool` holds the meanings of the dimensions of a task's rubric. `guided` helps models too small to follow the
    protocol untrained: a shorter prompt, two worked examples, and a given start of each turn (a search; in the last
    turn a report on passage [1]). A guided turn is one line and needs no closing tag; of a report that the turn's limit
    cut off its whole sentences count, up to the first that it has written before. The policy still writes every query,
    every sentence and every further citation.

        ReportWriter().read("<answer>The Oss rises at Korrin [1].</answer>") -> Answer("The Oss rises at Korrin [1].")
    """

    tools: tuple[ToolSchema, ...] = ()
    marks: tuple[str, ...] = ()
    turns_per_search = 1

    def __init__(self, *, style: PromptStyle = "full", guided: bool = False, pool: Sequence[Dimension] = POOL) -> None:
        self.name = "report-writer"
        self.style = style
        self.guided = guided
        self.pool = tuple(pool)
        self.stop: tuple[str, ...] = ("</search>", "</answer>", "\n") if guided else ("</search>", "</answer>")

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, worked examples if guided, then the question and the rubric if there is one."""
        if not isinstance(task, ReportTask):
            raise TypeError(f"{self.name} writes reports; it got a {type(task).__name__}")
        parts: tuple[Part, ...] = ("Question:\n", Quoted(task.question.text))
        if task.rubric is not None:
            parts += describe_rubric(task.rubric, self.pool, self.style)
        system = Message("system", (report_system(self.style, guided=self.guided),))
        return [system, *(worked_reports() if self.guided else ()), Message("user", parts)]

    def prefix(self, turn: int, is_last: bool) -> str:
        """The start of a guided turn: a report in the last turn, else a search; "" if not guided."""
        if not self.guided:
            return ""
        return "<answer>[1]" if is_last else "<search>"

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first search or report outside a thought."""
        if self.guided:
            text = _closed(text)
        for block in find_blocks(text, ("think", "search", "answer")):
            if block.name == "search":
                return read_query(block)
            if block.name == "answer":
                return _read_report(block.content)
        for name, what in ((THOUGHT, "thought"), ("search", "search"), ("answer", "report")):
            if has_unclosed(text, name):
                return Malformed(reason=f"the {what} is not closed with </{name}>")
        return Malformed(reason="there is neither a search nor a report")

    def read_cut(self, answer: Answer) -> Action:
        """The whole sentences of a guided report that was cut off; one with its closing tag is as it is."""
        if not self.guided:
            return answer
        text = keep_whole_sentences(answer.text)
        return _read_report(text) if text else Malformed(reason="the turn was cut off")

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """Passages with their numbers, or what went wrong. A guided policy gets no note on its last search."""
        message = self._usual_reply(action, results, failure, earlier)
        return final_reply(message, action, failure, FINISH) if final and not self.guided else message

    def _usual_reply(
        self, action: Action, results: Sequence[SearchResult], failure: Failure | None, earlier: Sequence[Turn]
    ) -> Message:
        if failure is not None and failure.boundary == "search":
            return Message("user", ("The search could not be carried out. Nothing was looked up; you may try again.",))
        if failure is not None and failure.kind == "searches":
            return Message("user", (f"No searches are left. To finish, {FINISH}.",))
        if isinstance(action, Search):
            return Message("user", format_results(results, _number(results, earlier)), tag=RESULTS_TAG)
        reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
        # No placeholder stands between the tags: small models would copy it as their query.
        search = "put a query between <search> and </search>"
        return Message("user", (f"That turn could not be used: {reason}. To search, {search}; to finish, {FINISH}.",))


def _closed(text: str) -> str:
    """A guided turn with its closing tag added if it is missing.

    _closed("<search>the Oss\\n") -> "<search>the Oss\\n</search>"
    """
    for name in ("search", "answer"):
        if text.startswith(f"<{name}>") and f"</{name}>" not in text:
            return f"{text}</{name}>"
    return text


def _read_report(written: str) -> Answer | Malformed:
    text = written.strip()
    if not text:
        return Malformed(reason="the report is empty")
    if len(text) > MAX_REPORT_CHARS:
        return Malformed(reason=f"a report may have at most {MAX_REPORT_CHARS} characters")
    if not is_text(text):
        return Malformed(reason="the report holds half a character")
    if not Statement(text, 0, len(text)).states:
        return Malformed(reason="the report states nothing")
    return Answer(text=text)


# ------------------------------------------------------------------------------------------------ citations and sources


def numbered_sources(turns: Sequence[Turn]) -> dict[int, Source]:
    """Every passage shown in these turns, by its number: 1, 2, ... in the order of first appearance.

    Where a limit cut a reply off, the passage ends there; passages after the cut were not shown and have no number. A
    passage that was shown twice, once cut, is kept in its longer form.

        numbered_sources(episode.turns)[2].passage.title -> "The Oss"
    """
    return _collect(turns).sources


def _number(results: Sequence[SearchResult], earlier: Sequence[Turn]) -> list[int]:
    """The numbers of these passages: known passages keep theirs, new ones get the next numbers."""
    shown = _collect(earlier)
    return [shown.add(passage) for passage in _passages(results)]


def _collect(turns: Sequence[Turn]) -> _Shown:
    shown = _Shown()
    for passage in _passages(result for turn in turns if turn.failure is None for result in turn.results):
        shown.add(passage)
    return shown


class _Shown:
    """The passages that were shown, by number.

    A passage is identified by its id and by its text as far as it was shown: a remote retriever may give all passages
    of a document the same id, and a citation must not resolve to the wrong one of them.
    """

    def __init__(self) -> None:
        self.sources: dict[int, Source] = {}
        self._numbers: dict[str, list[int]] = {}

    def add(self, passage: Passage) -> int:
        """The number of a passage; the next free number if the passage is new."""
        numbers = self._numbers.setdefault(passage.id, [])
        for number in numbers:
            known = self.sources[number].passage.titled_text
            if known.startswith(passage.titled_text):
                return number
            if passage.titled_text.startswith(known):
                self.sources[number] = Source(number, passage)
                return number
        number = len(self.sources) + 1
        numbers.append(number)
        self.sources[number] = Source(number, passage)
        return number


def _passages(results: Iterable[SearchResult]) -> Iterable[Passage]:
    return (hit.passage for result in results for hit in result.hits)


def bind_report(episode: Episode) -> Report | None:
    """The report an episode ended with, each citation resolved to its passage; None if there is no report.

    bind_report(episode).unresolved -> (7,)  # it cites a seventh passage, and was shown five
    """
    if not isinstance(episode.task, ReportTask):
        raise TypeError(f"bind_report needs an episode of a ReportTask, not of a {type(episode.task).__name__}")
    if not isinstance(episode.outcome, Answer):
        return None
    text = episode.outcome.text
    statements = split_statements(text)
    cited = {number for statement in statements for number in statement.citations}
    shown = numbered_sources(episode.turns)
    return Report(
        question=episode.task.question,
        text=text,
        statements=statements,
        sources=tuple(source for number, source in shown.items() if number in cited),
        conclusion=extract_conclusion(text),
    )

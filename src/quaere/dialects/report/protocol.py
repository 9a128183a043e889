"""Research reports: a writer searches, one query at a time, and cites what it was shown by number.

    <think>First the source of the river.</think><search>source of the Oss</search>
    <observation>
    [1]
    The Oss
    The Oss rises at Korrin.
    </observation>

and, when it has seen enough:

    <answer>The Oss rises at Korrin [1]. ...

    Conclusion: The Oss is short [1, 4].</answer>

Passages are numbered over the whole episode, and one that is shown again keeps its number. `bind_report` ties what was
written to what was shown: a number leads to the passage that bore it in this episode, or nowhere. Numbers follow from
the results of the searches, never from their text: a document that holds a "[3]" or a "Conclusion:" changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quaere.chat.dimensions import POOL
from quaere.chat.last_search import final_reply
from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.prompt_style import PromptStyle
from quaere.chat.queries import read_query
from quaere.chat.results import format_results
from quaere.chat.statements import Citation, extract_conclusion, find_citations, split_statements
from quaere.chat.tags import THOUGHT, Block, find_blocks, has_unclosed
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
    """Writes a cited report on a question.

    `pool` says what the dimensions of a task's rubric mean. `guided` helps models too small to follow the protocol
    untrained: a shorter prompt, two worked examples, every turn begun as a search and the last one as a report on
    passage [1]. A turn then is one line, and needs no closing tag. The policy still writes every query, every sentence
    and every further citation.

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
        # A guided report needs no closing tag, so that only by its end can one tell whether it was cut off.
        self.needs_whole_turns = guided
        self.stop: tuple[str, ...] = ("</search>", "</answer>", "\n") if guided else ("</search>", "</answer>")

    def opening(self, task: Task) -> list[Message]:
        """System prompt, worked examples if guided, then the question and what the report will be judged by."""
        if not isinstance(task, ReportTask):
            raise TypeError(f"{self.name} writes reports; it got a {type(task).__name__}")
        parts: tuple[Part, ...] = ("Question:\n", Quoted(task.question.text))
        if task.rubric is not None:
            parts += describe_rubric(task.rubric, self.pool, self.style)
        system = Message("system", (report_system(self.style, guided=self.guided),))
        return [system, *(worked_reports() if self.guided else ()), Message("user", parts)]

    def prefix(self, turn: int, is_last: bool) -> str:
        """In a guided episode, open every turn as a search and the last as the report."""
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
                return _read_report(block)
        for name, what in ((THOUGHT, "thought"), ("search", "search"), ("answer", "report")):
            if has_unclosed(text, name):
                return Malformed(reason=f"the {what} is not closed with </{name}>")
        return Malformed(reason="there is neither a search nor a report")

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """Passages under their numbers, or what went wrong. A guided policy needs no note: its last turn is opened."""
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
        # No placeholder stands between the tags here: small models hand it in as their query.
        search = "put a query between <search> and </search>"
        return Message("user", (f"That turn could not be used: {reason}. To search, {search}; to finish, {FINISH}.",))


def _closed(text: str) -> str:
    """A guided turn, which was opened with a tag, closed with the same where it was not.

    _closed("<search>the Oss\\n") -> "<search>the Oss\\n</search>"
    """
    for name in ("search", "answer"):
        if text.startswith(f"<{name}>") and f"</{name}>" not in text:
            return f"{text}</{name}>"
    return text


def _read_report(block: Block) -> Answer | Malformed:
    text = block.content.strip()
    if not text:
        return Malformed(reason="the report is empty")
    if len(text) > MAX_REPORT_CHARS:
        return Malformed(reason=f"a report may have at most {MAX_REPORT_CHARS} characters")
    if not is_text(text):
        return Malformed(reason="the report holds half a character")
    if not Statement(text, 0, len(text)).states:
        return Malformed(reason="the report states nothing")
    return Answer(text=text)


# ------------------------------------------------------------------------------------------------ who cites what


def numbered_sources(turns: Sequence[Turn]) -> dict[int, Source]:
    """Every passage these turns were shown, by its number: 1, 2, ... in the order of first sight.

    Where a limit cut a reply off, a passage ends there, and those behind it were not shown and have no number. A
    passage that was shown cut and later with more of its text is the longer of the two.

        numbered_sources(episode.turns)[2].passage.title -> "The Oss"
    """
    return _collect(turns).sources


def _number(results: Sequence[SearchResult], earlier: Sequence[Turn]) -> list[int]:
    """The numbers of these passages: those they had, else the next ones."""
    shown = _collect(earlier)
    return [shown.add(passage) for passage in _passages(results)]


def _collect(turns: Sequence[Turn]) -> _Shown:
    shown = _Shown()
    for passage in _passages(result for turn in turns if turn.failure is None for result in turn.results):
        shown.add(passage)
    return shown


class _Shown:
    """The passages that were shown, each under its number.

    A passage is known by its id, and by its text as far as it was shown: a remote retriever may give the passages of a
    document one id, and a citation must not be tied to the wrong one of them.
    """

    def __init__(self) -> None:
        self.sources: dict[int, Source] = {}
        self._numbers: dict[str, list[int]] = {}

    def add(self, passage: Passage) -> int:
        """The number of a passage; the next one if it is new."""
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
    """The report an episode ended with, every citation tied to the passage that bore its number; None if it has none.

    bind_report(episode).unresolved -> (7,)  # it cites a seventh passage, and was shown five
    """
    if not isinstance(episode.task, ReportTask):
        raise TypeError(f"only reports can be bound, not what a {type(episode.task).__name__} ends with")
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

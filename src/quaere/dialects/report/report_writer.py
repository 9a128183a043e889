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

from collections.abc import Mapping, Sequence

from quaere.chat.dimensions import POOL
from quaere.chat.markup import THOUGHT, find_blocks, first_fault, has_unclosed, is_text
from quaere.chat.protocol import Message, Part, PromptStyle, Quoted, format_results, read_query
from quaere.chat.statements import keep_whole_sentences, make_report
from quaere.dialects.roles import PlainProtocol, RoleDialect, think
from quaere.records import (
    Action,
    Answer,
    Dimension,
    Episode,
    Malformed,
    Passage,
    Report,
    ReportTask,
    Rubric,
    SearchResult,
    Source,
    Statement,
    Task,
    Turn,
)

# ------------------------------------------------------------------------------------------------------------- prompts

RESULTS_TAG = "observation"

FULL_SYSTEM = """\
You write research reports by searching a collection of documents. The documents are right, even where they differ \
from what you remember.

Each turn, think briefly inside <think> and </think>, then do exactly one of two things:
- to search, write <search>one query in plain words</search>
- to finish, write <answer>the whole report</answer>

What a search finds comes back between <observation> and </observation>: passages, each under a number such as [1]. A \
passage keeps its number. One search is rarely enough: search again with other words, and for every side of the \
question, before you finish.

The report answers the question in full sentences, in paragraphs or short sections, and says nothing that the passages \
do not say. Every sentence that states a fact ends with the numbers of the passages it comes from, as [1] or [1, 3]. \
Cite only numbers you were shown, and write no list of sources: it is added for you. The last paragraph begins with \
"Conclusion:" and says in a few sentences what it all comes to."""

BRIEF_SYSTEM = "Write a report on the question and cite the passages. Think, then search or answer."

# Short, because every further word costs a small model more than it helps. A number before each sentence is easier for
# a small model than one after it: having copied a sentence, it goes on to the next passage.
GUIDED_SYSTEM = """\
You write short reports. First write a query between <search> and </search>. Passages with numbers come back. Then \
write a report between <answer> and </answer>: one sentence on each passage, with its number."""

FINISH = "put the report between <answer> and </answer>"


def report_system(style: PromptStyle, *, guided: bool) -> str:
    """The system prompt.

    report_system("brief", guided=False)
    -> "Write a report on the question and cite the passages. Think, then search or answer."
    """
    return GUIDED_SYSTEM if guided else FULL_SYSTEM if style == "full" else BRIEF_SYSTEM


def describe_rubric(rubric: Rubric, pool: Sequence[Dimension], style: PromptStyle) -> tuple[Part, ...]:
    """The rubric as parts of the prompt; the meaning of each dimension only in the full style.

    Names and meanings may have been written by a language model, so they are quoted.

        describe_rubric(Rubric("factuality", (Weight("coverage", 0.4),)), POOL, "brief")
        -> ("\\n\\nJudged by ", Quoted("factuality"), ", ", Quoted("coverage"), " 0.4", ".")
    """
    if style == "brief":
        others = (part for one in rubric.weights for part in (", ", Quoted(one.dimension), f" {one.weight:g}"))
        return ("\n\nJudged by ", Quoted(rubric.primary), *others, ".")
    meanings = {dimension.name: dimension.text for dimension in pool}
    counts = ["above all", *(f"weight {item.weight:g}" for item in rubric.weights)]
    parts: list[Part] = ["\n\nThe report will be judged by:"]
    for name, count in zip(rubric.dimensions, counts, strict=True):
        parts += ["\n- ", Quoted(name), f" ({count})"]
        parts += [": ", Quoted(meanings[name])] if meanings.get(name) else []
    return tuple(parts)


# Question, query, passages with their titles, report: all invented.
_EXAMPLES = (
    (
        "Who painted the ceiling of the town hall in Ferrin?",
        "Ferrin town hall ceiling painter",
        (
            "Ferrin town hall\nThe town hall of Ferrin was finished in 1811. Marta Oleen painted its ceiling over "
            "three winters.",
            "Marta Oleen\nMarta Oleen was a painter of ships. She learned her trade in the port of Sall.",
            "Sall\nSall is a port in the south. Its harbour freezes every winter.",
        ),
        "[1] Ferrin town hall: Marta Oleen painted its ceiling over three winters. [2] Marta Oleen: She was a painter "
        "of ships. [3] Sall: It is a port in the south. Conclusion: Marta Oleen painted it [1].",
    ),
    (
        "What did the ferry Blue Heron carry?",
        "Blue Heron ferry carried",
        (
            "River ferries\nThree ferries cross the river at Brum. The oldest is the Blue Heron.",
            "Blue Heron\nThe Blue Heron is a ferry built of oak. For forty years she brought the mail across.",
            "Brum\nBrum is a village of fishermen. It has no bridge.",
        ),
        "[1] River ferries: Three ferries cross the river at Brum. [2] Blue Heron: For forty years she brought the "
        "mail across. [3] Brum: It has no bridge. Conclusion: She carried the mail [2].",
    ),
)


def worked_reports() -> list[Message]:
    """Two short example episodes on invented facts, as messages for a guided prompt."""
    messages: list[Message] = []
    for question, query, passages, report in _EXAMPLES:
        shown = "\n\n".join(f"[{number}]\n{passage}" for number, passage in enumerate(passages, start=1))
        messages += [
            Message("user", (f"Question:\n{question}",)),
            Message("assistant", (f"<search>{query}</search>",)),
            Message("user", (shown,), tag=RESULTS_TAG),
            Message("assistant", (f"<answer>{report}</answer>",)),
        ]
    return messages


# ------------------------------------------------------------------------------------------------------------ protocol

MAX_REPORT_CHARS = 40_000


class ReportWriter(PlainProtocol):
    """Protocol for writing a cited report on a question.

    `pool` holds the meanings of the dimensions of a task's rubric. `guided` helps models too small to follow the
    protocol untrained: a shorter prompt, two worked examples, and a given start of each turn (a search; in the last
    turn a report on passage [1]). A guided turn is one line and needs no closing tag. If the turn's token limit cuts a
    guided report off, its whole sentences count, up to the first that repeats an earlier one. The policy still writes
    every query, every sentence and every further citation.

        ReportWriter().read("<answer>The Oss rises at Korrin [1].</answer>") -> Answer("The Oss rises at Korrin [1].")
    """

    name = "report-writer"
    finish = FINISH
    # There is no placeholder between the tags: small models would copy it as their query.
    advice = "To search, put a query between <search> and </search>; to finish,"

    def __init__(self, *, style: PromptStyle = "full", guided: bool = False, pool: Sequence[Dimension] = POOL) -> None:
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
        start = "<answer>[1]" if is_last else "<search>"
        return start if self.guided else ""

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
        """A report that the turn's limit cut off; if guided, its whole sentences, or `Malformed` if there are none."""
        if not self.guided:
            return answer
        text = keep_whole_sentences(answer.text)
        return _read_report(text) if text else Malformed(reason="the turn was cut off")

    def show(self, results: Sequence[SearchResult], earlier: Sequence[Turn]) -> Message:
        """The message with the found passages and their numbers."""
        return Message("user", format_results(results, _Shown(earlier).add(results)), tag=RESULTS_TAG)


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
    if len(text) > MAX_REPORT_CHARS:
        return Malformed(reason=f"a report may have at most {MAX_REPORT_CHARS} characters")
    fault = first_fault(
        (not text, "the report is empty"),
        (not is_text(text), "the report holds half a character"),
        (not Statement(text, 0, len(text)).states, "the report states nothing"),
    )
    return Malformed(fault) if fault else Answer(text)


# ------------------------------------------------------------------------------------------------ citations and sources


def numbered_sources(turns: Sequence[Turn]) -> dict[int, Source]:
    """Every passage shown in these turns, by its number: 1, 2, ... in the order of first appearance.

    Where a limit cut a reply off, the passage ends there; passages after the cut were not shown and have no number. A
    passage that was shown twice, once cut, is kept in its longer form.

        numbered_sources(episode.turns)[2].passage.title -> "The Oss"
    """
    return _Shown(turns).sources


class _Shown:
    """The passages that were shown in these turns, by number; further ones can be added.

    A passage is identified by its id and by its text as far as it was shown: a remote retriever may give all passages
    of a document the same id, and a citation must not resolve to the wrong one of them.
    """

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.sources: dict[int, Source] = {}
        self._numbers: dict[str, list[int]] = {}
        self.add([result for turn in turns if turn.failure is None for result in turn.results])

    def add(self, results: Sequence[SearchResult]) -> list[int]:
        """Record the passages of these results and return their numbers: known ones keep theirs."""
        return [self._add(hit.passage) for result in results for hit in result.hits]

    def _add(self, passage: Passage) -> int:
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


def bind_report(episode: Episode) -> Report | None:
    """The report an episode ended with, each citation resolved to its passage; None if there is no report.

    bind_report(episode).unresolved -> (7,)  # it cites a seventh passage, and was shown five
    """
    if not isinstance(episode.task, ReportTask):
        raise TypeError(f"bind_report needs an episode of a ReportTask, not of a {type(episode.task).__name__}")
    if not isinstance(episode.outcome, Answer):
        return None
    return make_report(episode.task.question, episode.outcome.text, numbered_sources(episode.turns).values())


# ------------------------------------------------------------------------------------------------------ demonstrations


def write_turn(thought: str, tag: str, content: str) -> str:
    """A turn of any of the three roles: a thought, then a search, a report, a rubric or an assessment.

    An assessor's query begins with a report's number in brackets, or is about all reports.

        write_turn("First the source.", "search", "source of the Oss")
        -> "<think>First the source.</think>\\n<search>source of the Oss</search>"
    """
    return f"{think(thought)}<{tag}>{content}</{tag}>"


def write_rubric(thought: str, rubric: Rubric) -> str:
    """The turn that chooses a rubric.

    write_rubric("Dates differ.", rubric)
    -> "<think>Dates differ.</think>\\n<rubric>\\nfactuality\\nbalance: 0.4\\n</rubric>"
    """
    lines = ["", rubric.primary, *(f"{item.dimension}: {item.weight:g}" for item in rubric.weights), ""]
    return write_turn(thought, "rubric", "\n".join(lines))


def write_entry(number: int, verification: str, gaps: str, scores: Mapping[str, int]) -> str:
    """The entry of one report in an assessment.

    write_entry(1, "The builder is right.", "No date.", {"factuality": 8})
    -> '<report id="1"><verification>The builder is right.</verification><gaps>No date.</gaps><score ...>8</score>...'
    """
    marks = "".join(f'<score dimension="{name}">{score}</score>' for name, score in scores.items())
    return f'<report id="{number}"><verification>{verification}</verification><gaps>{gaps}</gaps>{marks}</report>\n'


WRITER: RoleDialect[ReportWriter] = RoleDialect(ReportWriter)

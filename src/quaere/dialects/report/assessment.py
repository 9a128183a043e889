"""Protocol of the assessor: the evaluator verifies reports with its own searches, then scores them by a rubric.

    <think>Report 2 dates the bridge to 1702.</think><search>[2] Halm bridge built in</search>
    <observation>
    [1]
    Halm
    Orsolya Venn built the bridge in 1703.
    </observation>
    <assessment>
    <report id="1"><verification>The builder is right.</verification><gaps>No date.</gaps>
    <score dimension="factuality">8</score><score dimension="coverage">5</score></report>
    <report id="2">...</report>
    </assessment>

A search names the report it is about, and only executed searches count (`count_searches`). The assessment is small
markup (`chat/elements.py`); a report without a valid entry is left out, and the others keep their scores.
"""

import re
from collections.abc import Sequence

from msgspec import structs

from quaere.chat.elements import Element, read_markup
from quaere.chat.markup import Block, find_blocks, has_unclosed, is_text
from quaere.chat.protocol import Message, PromptStyle, Protocol, Quoted, format_results, read_query, was_searched
from quaere.dialects.report.evaluator_prompts import (
    Verification,
    assessment_system,
    dimension_parts,
    note_parts,
    report_parts,
)
from quaere.dialects.roles import PlainProtocol, RoleDialect, no_action
from quaere.grouping import group_by
from quaere.records import (
    Action,
    Assessment,
    AssessTask,
    Episode,
    Malformed,
    ProcessRules,
    Rubric,
    Scores,
    Search,
    SearchResult,
    Task,
    Turn,
)

MAX_ASSESSMENT_CHARS = 60_000
MAX_ELEMENTS = 2000
MAX_DEPTH = 8

_KNOWN = frozenset({"assessment", "report", "verification", "gaps", "reason", "score", "validity"})
_ABOUT = re.compile(r"\[\s{0,4}([0-9]{1,4})\s{0,4}\]")
_NUMBER = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)"
_SCORE = re.compile(rf"{_NUMBER}(?:\s{{0,4}}/\s{{0,4}}{_NUMBER})?")


class Assessor(PlainProtocol):
    """Protocol that verifies reports by searching, then scores every one of them by a rubric.

        assessor = Assessor(Rubric("factuality"), num_reports=2)
        assessor.read("<search>[2] Halm bridge</search>") -> Search(("Halm bridge",), about=2)
        assessor.read('<assessment><report id="1"><score dimension="factuality">7</score></report></assessment>')
        -> Assessment((Scores(1, {"factuality": 7.0}),))

    With `separate_validity`, it also scores how far a report is true, apart from the dimensions. `process` and
    `verification` are stated in the prompt; the reward, not this protocol, checks whether they were kept.
    """

    name = "report-assessor"
    stop: tuple[str, ...] = ("</search>", "</assessment>")
    finish = "write the assessment between <assessment> and </assessment>"
    advice = "To search, put the number of a report in brackets and a query between <search> and </search>; to finish,"

    def __init__(
        self,
        task_rubric: Rubric,
        num_reports: int,
        *,
        style: PromptStyle = "full",
        scale: float = 10.0,
        separate_validity: bool = False,
        process: ProcessRules = ProcessRules(),  # noqa: B008 (it is frozen)
        verification: Verification = "shared",
    ) -> None:
        self.rubric, self.num_reports = task_rubric, num_reports
        self.style, self.process = style, process
        self.scale, self.separate_validity, self.verification = scale, separate_validity, verification

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, then the question, the meaning of the dimensions, and the reports."""
        if not isinstance(task, AssessTask):
            raise TypeError(f"{self.name} assesses reports; it got a {type(task).__name__}")
        if task.rubric != self.rubric or len(task.reports) != self.num_reports:
            raise ValueError(
                f"{self.name} was opened for another rubric or another number of reports than its task has"
            )
        system = assessment_system(
            self.style,
            self.rubric,
            self.num_reports,
            scale=self.scale,
            separate_validity=self.separate_validity,
            process=self.process,
            verification=self.verification,
        )
        # A model that was taught the task has learned what the dimensions mean; the brief style saves these tokens.
        is_full = self.style == "full"
        meanings = dimension_parts(self.rubric, task.harness) if is_full else note_parts(task.harness)
        parts = ("Question:\n", Quoted(task.question.text), "\n", *meanings, *report_parts(task.reports))
        return [Message("system", (system,)), Message("user", parts)]

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first search or assessment outside a thought."""
        for block in find_blocks(text, ("think", "search", "assessment")):
            if block.name == "search":
                return self._read_search(block)
            if block.name == "assessment":
                whole = text[block.start : block.end]
                return read_assessment(whole, self.rubric, self.num_reports, self.scale, self.separate_validity)
        return no_action(text, ("search", "assessment"), "there is neither a search nor an assessment")

    def show(self, results: Sequence[SearchResult], earlier: Sequence[Turn]) -> Message:
        """The message with the found passages, between tags."""
        return Message("user", format_results(results), tag="observation")

    def _read_search(self, block: Block) -> Search | Malformed:
        query, about = block.content.strip(), 0
        if numbered := _ABOUT.match(query):
            query, about = query[numbered.end() :], int(numbered[1])
            if not 1 <= about <= self.num_reports:
                return Malformed("there is no report of that number")
        found = read_query(structs.replace(block, content=query))
        return structs.replace(found, about=about) if isinstance(found, Search) else found


def read_assessment(
    text: str, rubric: Rubric, num_reports: int, scale: float, separate_validity: bool
) -> Assessment | Malformed:
    """The assessment in a turn: scores of every report whose entry is complete.

    A report is left out if a score is missing, given twice, not a number or off the scale, or if it has two entries.
    Scores of dimensions that the rubric does not have are ignored. "7/10" is 7 on a scale up to 10. A reason next to a
    score or inside of it is ignored.

        read_assessment('<assessment><report id="2"><score dimension="factuality">7</score></report></assessment>',
                        Rubric("factuality"), 2, 10.0, False)
        -> Assessment((Scores(2, {"factuality": 7.0}),))
    """
    blocks = [block for block in find_blocks(text, ("think", "assessment")) if block.name == "assessment"]
    if not blocks:
        unclosed = has_unclosed(text, "assessment")
        return Malformed("the assessment block is not closed" if unclosed else "there is no assessment")
    whole = text[blocks[0].start : blocks[0].end]
    if not is_text(whole):
        return Malformed("the assessment holds half a character")
    root = read_markup(
        whole, max_chars=MAX_ASSESSMENT_CHARS, max_elements=MAX_ELEMENTS, max_depth=MAX_DEPTH, known=_KNOWN
    )
    if isinstance(root, str):
        return Malformed(f"the assessment cannot be read: {root}")
    entries = group_by(root.find_all("report"), _read_id)
    read = (
        _read_report(number, entries[number][0], rubric, scale, separate_validity)
        for number in range(1, num_reports + 1)
        if len(entries.get(number, ())) == 1
    )
    reports = tuple(scores for scores in read if scores is not None)
    return Assessment(reports) if reports else Malformed("the assessment holds no report with all its scores")


def _read_id(element: Element) -> int:
    """The number of the report that an entry is about; 0, which no report has, if the entry does not say."""
    written = element.attributes.get("id", "").strip()
    return int(written) if re.fullmatch(r"[0-9]{1,4}", written) else 0


def _read_report(number: int, element: Element, rubric: Rubric, scale: float, separate_validity: bool) -> Scores | None:
    given = group_by(element.find_all("score"), lambda child: child.attributes.get("dimension", "").strip())
    scores = {name: _read_score(given.get(name, ()), scale) for name in rubric.dimensions}
    valid = {name: score for name, score in scores.items() if score is not None}
    validity = _read_score(element.find_all("validity"), scale) if separate_validity else None
    if len(valid) < len(scores) or (separate_validity and validity is None):
        return None
    verification, gaps = (
        next((child.text for child in element.find_all(name)), "") for name in ("verification", "gaps")
    )
    return Scores(number, valid, verification, gaps, validity)


def _read_score(elements: Sequence[Element], scale: float) -> float | None:
    """The score, if exactly one is given and it is on the scale; else None."""
    # With another element inside, which was not closed, the number may belong to that element.
    is_one = len(elements) == 1 and all(child.name == "reason" for child in elements[0].children)
    written = _SCORE.fullmatch(elements[0].text) if is_one else None
    if written is None or (written[2] is not None and float(written[2]) != scale):
        return None
    score = float(written[1])
    return score if score <= scale else None


def count_searches(episode: Episode, num_reports: int, verification: Verification = "shared") -> list[int]:
    """The number of executed searches per report: those about it and, if these are `shared`, those about all reports.

    A search that failed, or whose results no longer fitted into the context, showed nothing and does not count.

        count_searches(episode, 2) -> [1, 2]       # one search about all, one about the second
        count_searches(episode, 2, "each") -> [0, 1]
    """
    about = [turn.action.about for turn in episode.turns if isinstance(turn.action, Search) and was_searched(turn)]
    counted = (0,) if verification == "shared" else ()
    return [sum(number in (*counted, report) for number in about) for report in range(1, num_reports + 1)]


ASSESSMENT: RoleDialect[Protocol] = RoleDialect(Assessor)

"""Protocol of the tag dialects Search-R1, Eval-RAR and AutoRefine: queries and results between tags, no JSON.

A turn of the solver, and what the environment puts after it:

    <think>I need the builder.</think><search>builder of the Halm bridge</search>
    <information>
    [1]
    Halm
    Orsolya Venn built the bridge.
    </information>

In Eval-RAR and AutoRefine, the turn after it opens with a note on what was found:

    <evaluate>Passage 1 names the builder: Orsolya Venn.</evaluate><answer>Orsolya Venn</answer>

Notes may earn a reward (`rewards/self_evaluation.py`). A turn without a note can still be read, and only text that the
policy itself wrote counts as a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.chat.messages import Message, Quoted, format_results
from quaere.chat.protocol import CITED_SOLVER_FINISH, SOLVER_FINISH, PromptStyle, final_reply, read_answer, read_query
from quaere.chat.tags import THOUGHT, Block, find_blocks, has_unclosed
from quaere.chat.tools import ToolSchema
from quaere.dialects.tagged.prompts import tag_system
from quaere.records import Action, Answer, Failure, Malformed, Search, SearchResult, SolveTask, Task, Turn

TagDialect = Literal["search-r1", "evalrar", "autorefine"]


class Tags(Struct, frozen=True):
    """The tags in which the dialects differ: around results, and around a note on them ("" for none)."""

    results: str
    note: str = ""


TAGS: dict[TagDialect, Tags] = {
    "search-r1": Tags("information"),
    "evalrar": Tags("information", note="evaluate"),
    "autorefine": Tags("documents", note="refine"),
}


class TagSolver:
    """Protocol of a solver in one of the tag dialects.

    With `evidence`, the prompt asks for the sentence that the answer relies on; an answer without one is still read.

        TagSolver("search-r1").read("<search>Halm bridge</search>") -> Search(("Halm bridge",))
        TagSolver("evalrar").read("<evaluate>No year.</evaluate><search>Halm year</search>")
        -> Search(("Halm year",), note="No year.")
    """

    stop: tuple[str, ...] = ("</search>", "</answer>")
    tools: tuple[ToolSchema, ...] = ()
    marks: tuple[str, ...] = ()
    turns_per_search = 1

    def __init__(self, dialect: TagDialect, *, style: PromptStyle = "full", evidence: bool = False) -> None:
        self.name = f"{dialect}-solver"
        self.style = style
        self.evidence = evidence
        self._tags = TAGS[dialect]
        optional = (self._tags.note, "evidence" if evidence else "")
        self._blocks = ("think", "search", "answer", *filter(None, optional))

    def opening(self, task: Task) -> list[Message]:
        """The system prompt and the question."""
        if not isinstance(task, SolveTask):
            raise TypeError(f"{self.name} solves questions; it got a {type(task).__name__}")
        tags = self._tags
        system = tag_system(self.style, results=tags.results, note=tags.note, evidence=self.evidence)
        return [Message("system", (system,)), Message("user", ("Question:\n", Quoted(task.question.text)))]

    def prefix(self, turn: int, is_last: bool) -> str:
        """Always "": the policy writes its turns from the first token on."""
        return ""

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first search or answer outside a thought, with all notes of the turn."""
        blocks = find_blocks(text, self._blocks)
        notes = [block.content.strip() for block in blocks if block.name == self._tags.note]
        return structs.replace(_read_action(text, blocks), note="\n".join(filter(None, notes)))

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """Passages between tags, or what went wrong."""
        finish = CITED_SOLVER_FINISH if self.evidence else SOLVER_FINISH
        message = self._usual_reply(action, results, failure, finish)
        return final_reply(message, action, failure, finish) if final else message

    def _usual_reply(
        self, action: Action, results: Sequence[SearchResult], failure: Failure | None, finish: str
    ) -> Message:
        if failure is not None and failure.boundary == "search":
            return Message("user", ("The search could not be carried out. Nothing was looked up; you may try again.",))
        if failure is not None and failure.kind == "searches":
            return Message("user", (f"No searches are left. To finish, {finish}.",))
        if isinstance(action, Search):
            return Message("user", format_results(results), tag=self._tags.results)
        reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
        # No placeholder stands between the tags: small models would copy it as their query.
        search = "put a query between <search> and </search>"
        return Message(
            "user", (f"That action was wrong: {reason}. Try again: to search, {search}; to finish, {finish}.",)
        )


def _read_action(text: str, blocks: Sequence[Block]) -> Search | Answer | Malformed:
    """The action of a turn; the evidence is the last quotation before the answer."""
    span: Block | None = None
    for block in blocks:
        if block.name == "search":
            return read_query(block)
        if block.name == "evidence":
            span = block
        if block.name == "answer":
            return read_answer(block, span)
    for name in (THOUGHT, "search", "answer"):
        if has_unclosed(text, name):
            return Malformed(reason=f"the {name} block is not closed")
    return Malformed(reason="there is neither a search nor an answer")


# -------------------------------------------------------------------------------------------------- notes of an episode


def read_note(turn: Turn) -> str:
    """The policy's note in this turn; "" if there is none.

    read_note(Turn(action=Answer("Venn", note="Passage 1 names her."), ...)) -> "Passage 1 names her."
    """
    return turn.action.note if isinstance(turn.action, Search | Answer | Malformed) else ""

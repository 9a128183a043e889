"""Interface of a dialect's protocol, and what several dialects share: prompt styles, readers of blocks, the last reply.

A protocol is a small pure state machine without a model or a search engine: prompts of a task, parser of a turn, reply
of the environment. `read` is given only the text of the policy's own turn, so no text in a document can become an
action.
"""

import typing
from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import structs

from quaere.chat.messages import Message
from quaere.chat.tags import Block
from quaere.chat.tools import ToolSchema, first_fault, query_faults
from quaere.records import Action, Answer, Failure, Malformed, Search, SearchResult, Task, Turn


class Acted(NamedTuple):
    """An action that did not end the episode, with what its searches found or why it failed.

    Acted(Search(("Halm",)), results=(SearchResult("Halm", (Hit(...),)),))
    """

    action: Action
    results: Sequence[SearchResult] = ()
    failure: Failure | None = None


class Protocol(typing.Protocol):
    """One dialect in one role.

    `stop` are the strings that end a turn; `tools` are offered to the policy in the opening. `marks` are names of
    blocks: `Turn.acts_at` is the token at which the first of them begins. `turns_per_search` is the number of turns
    that a search takes; 2 where the turn after a search must score it.
    """

    name: str
    tools: tuple[ToolSchema, ...]
    stop: tuple[str, ...]
    marks: tuple[str, ...]
    turns_per_search: int

    def opening(self, task: Task) -> list[Message]:
        """The first messages of the episode."""

    def prefix(self, turn: int, is_last: bool) -> str:
        """Text that opens the policy's turn; "" for none. Its tokens carry no loss.

        `is_last` says that the turn is for the answer: it is the last one, or no further search is possible.
        """

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The action in a turn; `Malformed` if there is none, or if it is not allowed after the `earlier` turns."""

    def reply(self, acted: Acted, earlier: Sequence[Turn] = (), *, final: bool = False) -> Message:
        """The environment's reply to an action; `earlier` are the turns before it.

        With `final`, no further search is possible and the reply says so.
        """


class OneTurn:
    """Base class of protocols for one turn without tools; `reminder` asks for another where the limits allow it."""

    tools: tuple[ToolSchema, ...] = ()
    marks: tuple[str, ...] = ()
    turns_per_search = 1
    reminder: str

    def prefix(self, turn: int, is_last: bool) -> str:
        """Always "": the policy writes its turn from the first token on."""
        return ""

    def reply(self, acted: Acted, earlier: Sequence[Turn] = (), *, final: bool = False) -> Message:
        """The reminder, whatever was written."""
        return Message("user", (self.reminder,))


@typing.runtime_checkable
class GivesTurns(typing.Protocol):
    """A protocol with turns that the environment writes in the policy's place."""

    def given_turn(self, task: Task, turn: int) -> Message | None:
        """The turn that the environment writes; None if the policy writes it, as it always does the last turn."""


@typing.runtime_checkable
class KeepsCutAnswers(typing.Protocol):
    """A protocol in which an answer needs no closing tag, so that a limit may have cut it off."""

    def read_cut(self, answer: Answer) -> Action:
        """The usable part of an answer that the token limit cut off; `Malformed` if there is none."""


@typing.runtime_checkable
class Condenses(typing.Protocol):
    """A protocol in which the policy reads what a search found in a conversation of its own, and is shown its notes.

    `note_stop` are the strings that end the turn with the notes.
    """

    note_stop: tuple[str, ...]

    def note_opening(
        self, task: Task, turn: Turn, results: Sequence[SearchResult], earlier: Sequence[Turn]
    ) -> list[Message]:
        """The messages of that conversation; the last of them ends with the passages, and is cut if it is too long."""

    def read_notes(self, text: str) -> str:
        """The notes in the turn that the policy wrote there."""


# -------------------------------------------------------------------------------------------------------------- prompts

PromptStyle = Literal["full", "brief"]

SOLVER_FINISH = "put the answer between <answer> and </answer>"
CITED_SOLVER_FINISH = (
    "copy the sentence your answer rests on between <evidence> and </evidence>, then put the answer between <answer> "
    "and </answer>"
)


def was_searched(turn: Turn) -> bool:
    """True if the turn was a search whose results the policy was shown, including an empty result."""
    return isinstance(turn.action, Search) and bool(turn.results) and turn.failure is None


# Question, query, title, passage, answer. The facts are invented.
EXAMPLES = (
    (
        "Who painted the ceiling of the town hall in Ferrin?",
        "Ferrin town hall ceiling painted by",
        "Ferrin town hall",
        "The town hall of Ferrin was finished late. Marta Oleen painted its ceiling over three winters.",
        "Marta Oleen",
    ),
    (
        "What did the ferry Blue Heron carry?",
        "Blue Heron ferry carried",
        "Blue Heron",
        "The Blue Heron is a river ferry built of oak. For forty years she brought the mail across.",
        "mail",
    ),
)


# --------------------------------------------------------------------------------------------------- what dialects read

CALL_STOP = "</tool_call>"
STOP = (CALL_STOP, "</answer>")  # stop strings of dialects with JSON tool calls
MAX_ANSWER_CHARS = 4000


def read_answer(block: Block, span: Block | None) -> Answer | Malformed:
    """The answer in a block, with the evidence in `span`; `Malformed` if the answer is empty or either is too long."""
    answer, quoted = block.content.strip(), span.content.strip() if span else ""
    fault = first_fault(
        (not answer, "the answer is empty"),
        (len(answer) > MAX_ANSWER_CHARS, "the answer is too long"),
        (len(quoted) > MAX_ANSWER_CHARS, "the evidence is too long"),
    )
    return Malformed(reason=fault) if fault else Answer(text=answer, span=quoted)


def read_query(block: Block) -> Search | Malformed:
    """The query in a block; `Malformed` if it is empty, too long or not encodable as text."""
    query = block.content.strip()
    fault = first_fault((not query, "the query is empty"), *query_faults(query))
    return Malformed(reason=fault) if fault else Search(queries=(query,))


# ------------------------------------------------------------------------------------------------------- the last reply

LAST_SEARCH = "This was the last search."
NONE_LEFT = "No searches are left."


def final_reply(message: Message, acted: Acted, finish: str) -> Message:
    """The last reply of the environment: `message` with a note that tells the policy how to finish.

    Passages are kept and followed by the note. Instructions on how to search are replaced by the note.

        final_reply(Message("tool", ("[1]\\n", Quoted("Halm"))), Acted(Search(("Halm",))), "answer").note
        -> "This was the last search. Now answer."
    """
    action, _, failure = acted
    if isinstance(action, Search) and failure is None:
        return structs.replace(message, note=f"{LAST_SEARCH} Now {finish}.")
    if failure is not None and failure.kind == "searches":
        return message  # a search that was refused: this reply already says that none are left
    reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
    is_search = isinstance(action, Search)
    happened = "The search could not be carried out." if is_search else f"That turn could not be used: {reason}."
    return structs.replace(message, parts=(happened,), note=f"{NONE_LEFT} To finish, {finish}.")

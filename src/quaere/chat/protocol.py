"""Interface of a dialect's protocol, the messages it writes, and what several dialects share.

A protocol is a small pure state machine without a model or a search engine: prompts of a task, parser of a turn, reply
of the environment. `read` is given only the text of the policy's own turn, so no text in a document can become an
action.

A message is made of parts. A plain `str` part is written by the program: control strings in it act as control tokens. A
`Quoted` part comes from outside (a document, a question, a tool result): all of it is encoded as ordinary text and can
never become a control token.

    Message("user", ("Question:\\n", Quoted("Who built the Halm bridge? <|im_end|>")))
"""

import re
import typing
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from quaere.chat.markup import Block, ToolSchema, first_fault, query_faults
from quaere.records import Action, Answer, Failure, Hit, Malformed, Search, SearchResult, Task, Turn

Role = Literal["system", "user", "tool", "assistant"]


class Quoted(Struct, frozen=True):
    """Untrusted text from outside: a document, a question or a tool result.

    Quoted("The Halm bridge </tool_response> was built by ...")
    """

    text: str


Part = str | Quoted


class Message(Struct, frozen=True):
    """One message to the policy.

    Role `tool` is a tool's answer to the policy's last turn. Role `assistant` is used only for the few-shot examples
    that open an episode, never for the policy's own turns. With a `tag`, the parts are between tags of that name;
    `note`, the program's own words, follows them. A limit on the length of a message cuts the parts, never tags or
    note.

    Message("tool", ("[1] ", Quoted("The Halm bridge was built by Orsolya Venn.")))
    Message("user", ("[1] ", Quoted("A bridge.")), tag="information").text
    -> "<information>\\n[1] A bridge.\\n</information>"
    """

    role: Role
    parts: tuple[Part, ...]
    tag: str = ""
    note: str = ""

    @property
    def frame(self) -> tuple[str, str]:
        """The text before the parts and the text after them: the tags and the note."""
        before, after = (f"<{self.tag}>\n", f"\n</{self.tag}>") if self.tag else ("", "")
        return before, f"{after}\n\n{self.note}" if self.note else after

    @property
    def text(self) -> str:
        """The whole message as plain text."""
        before, after = self.frame
        return before + "".join(part if isinstance(part, str) else part.text for part in self.parts) + after


def wrap_tool_result(text: str) -> str:
    """A tool result in `<tool_response>` tags, for templates and endpoints without a tool role.

    wrap_tool_result("[1] ...") -> "<tool_response>\\n[1] ...\\n</tool_response>"
    """
    return f"<tool_response>\n{text}\n</tool_response>"


# Control strings of common chat templates, between turns and around tool calls. An endpoint does not report those of
# its tokenizer, so these are the usual forms. Lengths are bounded, or a text of opening brackets takes quadratic time.
# Only the first character is matched, because one string may contain another: <|[INST]|>.
_CONTROL = re.compile(
    r"(?=<\|[^<>|\n]{1,64}\|>"  # <|im_end|>, <|eot_id|>, <|start_header_id|>
    r"|<｜[^<>｜\n]{1,64}｜>"  # DeepSeek's, with wide bars
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|think|tool_call|tool_calls|tool_response|tools)>"
    r"|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|ARGS|IMG)\])(.)",
    re.IGNORECASE,
)


def break_controls(text: str) -> str:
    """The text with a space inside every string that looks like a control token, so that no tokenizer reads it as one.

    break_controls("Halm <|im_end|>") == "Halm < |im_end|>"
    """
    return _CONTROL.sub(r"\1 ", text)


def as_chat(message: Message) -> dict[str, str]:
    """The message as a dict for text endpoints, with the usual control strings in quoted parts broken by a space.

    An endpoint takes text and encodes it itself, so nothing stronger is possible: unusual control strings pass
    unchanged.

    as_chat(Message("user", ("Hello",))) -> {"role": "user", "content": "Hello"}
    """
    parts: list[Part] = []
    for is_quoted, group in groupby(message.parts, key=lambda part: isinstance(part, Quoted)):
        # Adjacent quoted parts are joined first: a control string split over two of them would escape the pattern.
        said = "".join(part.text if isinstance(part, Quoted) else part for part in group)
        parts.append(break_controls(said) if is_quoted else said)
    text = structs.replace(message, parts=tuple(parts)).text
    if message.role == "tool":
        return {"role": "user", "content": wrap_tool_result(text)}
    return {"role": message.role, "content": text}


# ------------------------------------------------------------------------------------------------------- search results


def format_results(results: Sequence[SearchResult], numbers: Sequence[int] | None = None) -> tuple[Part, ...]:
    """Passages as numbered, titled paragraphs; with several queries, each gets a heading.

    `numbers` has one number per passage. Without it, numbering restarts at 1 for every query.

        format_results([SearchResult("q", (Hit(Passage(..., title="Halm", text="A bridge."), 1.0),))])
        -> ("[1]\\n", Quoted("Halm\\nA bridge."))
    """
    parts: list[Part] = []
    given = iter(numbers) if numbers is not None else None
    for number, result in enumerate(results, start=1):
        if parts:
            parts.append("\n\n")
        if len(results) > 1:
            # The heading has the query's number, not its text: text that the policy wrote is never encoded again.
            parts.append(f"Results of query {number}:\n")
        if not result.hits:
            parts.append("No passage was found.")
        for rank, hit in enumerate(result.hits, start=1):
            if rank > 1:
                parts.append("\n\n")
            parts += [f"[{rank if given is None else next(given)}]\n", Quoted(hit.passage.titled_text)]
    return tuple(parts)


def shown_results(results: Sequence[SearchResult], shown: Message) -> tuple[SearchResult, ...]:
    """The results that are visible in a message made by `format_results` and possibly cut by a limit.

    A cut passage ends where the message was cut; passages after it are dropped, because the policy cannot quote from
    text it was not shown.

        shown_results(results, Message("tool", ("[1]\\n", Quoted("Halm\\nA bri"))))[0].hits[0].passage.text -> "A bri"
    """
    texts = iter([part.text for part in shown.parts if isinstance(part, Quoted)])
    return tuple(
        structs.replace(
            result, hits=tuple(kept for hit in result.hits if (kept := _shown_hit(hit, next(texts, None))) is not None)
        )
        for result in results
    )


def _shown_hit(hit: Hit, text: str | None) -> Hit | None:
    if text is None:
        return None
    passage = hit.passage
    num_chars = len(text) - len(passage.titled_text) + len(passage.text)
    if num_chars == len(passage.text):
        return hit
    if num_chars <= 0:  # the cut is in the title or right after it
        return None
    cut = structs.replace(passage, text=passage.text[:num_chars], end=passage.start + num_chars)
    return structs.replace(hit, passage=cut)


# -------------------------------------------------------------------------------------------------------- protocols


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

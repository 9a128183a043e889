"""Messages of a conversation, and search results as messages.

A message is made of parts. A plain `str` part is written by the program: control strings in it act as control tokens. A
`Quoted` part comes from outside (a document, a question, a tool result): all of it is encoded as ordinary text and can
never become a control token.

    Message("user", ("Question:\\n", Quoted("Who built the Halm bridge? <|im_end|>")))
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct, structs

from quaere.records import Hit, SearchResult

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

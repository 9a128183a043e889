"""What is said in a conversation, and by whom.

A message is made of parts. A plain `str` part is ours: the words of a protocol, in which control strings mean what they
say. A `Quoted` part comes from outside (a document, a question, a tool result): whatever it contains, it is encoded as
ordinary text and can never become a control token.

    Message("user", ("Question:\\n", Quoted("Who built the Halm bridge? <|im_end|>")))
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Role = Literal["system", "user", "tool", "assistant"]


class Quoted(Struct, frozen=True):
    """Text from outside, never trusted.

    Quoted("The Halm bridge </tool_response> was built by ...")
    """

    text: str


Part = str | Quoted


class Message(Struct, frozen=True):
    """One message to the policy.

    Role `tool` is the answer of a tool to the policy's last turn; role `assistant` occurs only in worked examples that
    open an episode, never for what the policy itself wrote. With a `tag`, the parts stand between tags of that name;
    a `note` in our own words follows them. A limit on the length of a message cuts the parts, never tags or note.

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
        """What stands before the parts and after them."""
        before, after = (f"<{self.tag}>\n", f"\n</{self.tag}>") if self.tag else ("", "")
        return before, f"{after}\n\n{self.note}" if self.note else after

    @property
    def text(self) -> str:
        """The message as a person reads it."""
        before, after = self.frame
        return before + "".join(part if isinstance(part, str) else part.text for part in self.parts) + after


def wrap_tool_result(text: str) -> str:
    """A tool result in the dialect's tags, for templates and endpoints that know no tool role.

    wrap_tool_result("[1] ...") -> "<tool_response>\\n[1] ...\\n</tool_response>"
    """
    return f"<tool_response>\n{text}\n</tool_response>"


def as_chat(message: Message) -> dict[str, str]:
    """The message as text endpoints take it.

    as_chat(Message("user", ("Hello",))) -> {"role": "user", "content": "Hello"}
    """
    if message.role == "tool":
        return {"role": "user", "content": wrap_tool_result(message.text)}
    return {"role": message.role, "content": message.text}

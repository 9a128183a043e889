"""What a dialect is: how a task is put, how a turn is read, how the environment answers.

A protocol is a small pure state machine with no model and no search engine in it. `read` sees only what the policy
wrote in its own turn, so nothing a document says can become an action.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from quaere.chat.messages import Message
from quaere.chat.tools import ToolSchema
from quaere.records import Action, Failure, SearchResult, Task, Turn


class Protocol(typing.Protocol):
    """One dialect in one role.

    `stop` are the strings that end a turn; `tools` are offered to the policy when the episode opens. `marks` names
    blocks: a turn remembers at which token the first of them begins (`Turn.acts_at`). `turns_per_search` counts the
    turns that a search takes up, such as 2 where the turn after it must evaluate it.
    """

    name: str
    tools: tuple[ToolSchema, ...]
    stop: tuple[str, ...]
    marks: tuple[str, ...]
    turns_per_search: int

    def opening(self, task: Task) -> list[Message]:
        """The messages the policy sees first."""
        ...

    def prefix(self, turn: int, is_last: bool) -> str:
        """The words that open the policy's turn for it; "" leaves the turn to the policy. Never trained on.

        `is_last` says that the turn is for the answer: it is the last one, or no further search is possible.
        """
        ...

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The action in a turn the policy wrote; `Malformed` when there is none, or none that may come after these."""
        ...

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """What the environment says after an action that did not end the episode; `earlier` turns came before it.

        If it is `final`, no further search is possible, and the reply says so.
        """
        ...

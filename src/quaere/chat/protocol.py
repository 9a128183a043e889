"""Interface of a dialect's protocol: prompts of a task, parser of a turn, reply of the environment.

A protocol is a small pure state machine without a model or a search engine. `read` is given only the text of the
policy's own turn, so no text in a document can become an action.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from quaere.chat.messages import Message
from quaere.chat.tools import ToolSchema
from quaere.records import Action, Answer, Failure, SearchResult, Task, Turn


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
        ...

    def prefix(self, turn: int, is_last: bool) -> str:
        """Text that opens the policy's turn; "" for none. Its tokens carry no loss.

        `is_last` says that the turn is for the answer: it is the last one, or no further search is possible.
        """
        ...

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The action in a turn; `Malformed` if there is none, or if it is not allowed after the `earlier` turns."""
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
        """The environment's reply to an action that did not end the episode; `earlier` are the turns before it.

        With `final`, no further search is possible and the reply says so.
        """
        ...


@typing.runtime_checkable
class GivesTurns(typing.Protocol):
    """A protocol with turns that the environment writes in the policy's place."""

    def given_turn(self, task: Task, turn: int) -> Message | None:
        """The whole turn; None for one of the policy's own, as the last of an episode always is."""
        ...


@typing.runtime_checkable
class KeepsCutAnswers(typing.Protocol):
    """A protocol in which an answer needs no closing tag, so that a limit may have cut it off."""

    def read_cut(self, answer: Answer) -> Action:
        """What is left of an answer that ended at the limit of its turn; `Malformed` if nothing is."""
        ...

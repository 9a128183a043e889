"""The turns of a demonstration, written in the markup of a dialect.

The oracle supplies thought, note and action; the classes here put them into the dialect's tags or calls.

A dialect that can be demonstrated subclasses `SolverTurns` or `ProposerTurns` in its `demonstration.py`.

    ToolCallTurns().search("I look it up.", "Halm bridge")
    -> '<think>I look it up.</think>\\n<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}...'
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Literal

from quaere.records import Episode

Remarks = Literal["none", "note", "facts", "turn"]
"""Where a solver comments on the results of a search: nowhere (none), in a note at the start of the next turn (note),
in such a note with only the facts that help (facts), or in a separate turn (turn)."""


class SolverTurns(ABC):
    """The turns of a demonstrated solver, and the dialect's own requirements for an episode."""

    remarks: Remarks = "none"

    @abstractmethod
    def search(self, thought: str, query: str, note: str = "") -> str:
        """A turn that searches; `note`, on the previous search, comes first if the dialect has notes."""

    def answer(self, thought: str, answer: str, *, span: str = "", note: str = "") -> str:
        """The last turn: thought, the quoted sentence if there is one, and the answer."""
        return f"{think(thought)}{quote(span)}<answer>{answer}</answer>"

    def evaluation(self, thought: str, text: str, score: int) -> str:
        """The turn that evaluates the previous search, in dialects whose `remarks` are "turn"."""
        raise NotImplementedError(f"{type(self).__name__} has no turn that evaluates a search: remarks must be turn")

    def find_fault(self, episode: Episode) -> str:
        """Which format rule of the dialect an episode breaks, in a few words; "" if none."""
        return ""

    def find_flaw(self, episode: Episode) -> str:
        """Why an episode that keeps the format is still a poor demonstration; "" if it is a good one."""
        return ""


class ProposerTurns(ABC):
    """The turns of a demonstrated proposer."""

    @abstractmethod
    def search(self, thought: str, query: str) -> str:
        """A turn that searches."""

    @abstractmethod
    def proposal(self, thought: str, question: str, answer: str, span: str = "") -> str:
        """The last turn: thought, question, the quoted sentence if there is one, and the answer."""


def think(thought: str) -> str:
    """A thought between its tags, followed by a line break."""
    return f"<think>{thought}</think>\n"


def quote(span: str) -> str:
    """The evidence sentence between its tags; "" if there is none."""
    return f"<evidence>{span}</evidence>" if span else ""


def write_call(name: str, arguments: dict[str, object]) -> str:
    """A tool call as JSON between its tags."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"

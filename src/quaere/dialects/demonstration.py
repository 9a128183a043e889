"""Turns of a demonstration in the form of a dialect: thought, note and action are the oracle's, the markup is here.

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
"""Where a solver says what a search found: nowhere, in a note that opens the next turn, in one that keeps to the facts
that help, or in a turn of its own."""


class SolverTurns(ABC):
    """The turns of a demonstrated solver, and what its dialect asks of an episode besides the right answer."""

    remarks: Remarks = "none"

    @abstractmethod
    def search(self, thought: str, query: str, note: str = "") -> str:
        """A turn that searches, opened by a note on the search before where the dialect has notes."""

    def answer(self, thought: str, answer: str, *, span: str = "", note: str = "") -> str:
        """The last turn, with the sentence it quotes if it quotes one."""
        return f"{think(thought)}{quote(span)}<answer>{answer}</answer>"

    def evaluation(self, thought: str, text: str, score: int) -> str:
        """The turn after a search, where it is one of its own (`remarks` is "turn")."""
        raise NotImplementedError(f"{type(self).__name__} has no turns that evaluate")

    def find_fault(self, episode: Episode) -> str:
        """Why an episode breaks the dialect's own rules, in a few words; "" if it keeps them."""
        return ""

    def find_flaw(self, episode: Episode) -> str:
        """Why a demonstration that keeps the rules is still no model of its dialect; "" if it is one."""
        return ""


class ProposerTurns(ABC):
    """The turns of a demonstrated proposer."""

    @abstractmethod
    def search(self, thought: str, query: str) -> str:
        """A turn that searches."""

    @abstractmethod
    def proposal(self, thought: str, question: str, answer: str, span: str = "") -> str:
        """The last turn, with the sentence it quotes if it quotes one."""


def think(thought: str) -> str:
    """A thought on a line of its own."""
    return f"<think>{thought}</think>\n"


def quote(span: str) -> str:
    """The sentence an answer rests on; "" where there is none."""
    return f"<evidence>{span}</evidence>" if span else ""


def write_call(name: str, arguments: dict[str, object]) -> str:
    """A tool call as JSON between its tags."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"

"""Turns of a demonstration in EvalAct: after every search a turn that evaluates and scores it."""

from __future__ import annotations

from quaere.dialects.demonstration import Remarks, SolverTurns, think, write_call
from quaere.dialects.evalact.protocol import format_fault
from quaere.records import Episode


class EvalActTurns(SolverTurns):
    """A solver that evaluates every search.

    EvalActTurns().evaluation("", "Passage 2 names her.", 9)
    -> '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "Passage 2 names her.", "score": 9}}</tool_call>'
    """

    remarks: Remarks = "turn"

    def search(self, thought: str, query: str, note: str = "") -> str:
        """A call with its query; what is thought of the search before has a turn of its own."""
        return think(thought) + write_call("search", {"query": query})

    def evaluation(self, thought: str, text: str, score: int) -> str:
        """What a search was worth, with a thought before it or none."""
        return (think(thought) if thought else "") + write_call("evaluate", {"evaluation": text, "score": score})

    def find_fault(self, episode: Episode) -> str:
        """Whatever would break the format and so be paid nothing."""
        return format_fault(episode.turns, episode.end)

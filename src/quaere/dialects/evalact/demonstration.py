"""The turns of a demonstration in EvalAct: every search is followed by a turn that evaluates and scores it."""

from __future__ import annotations

from quaere.dialects.demonstration import Remarks, SolverTurns, think, write_call
from quaere.dialects.evalact.protocol import format_fault
from quaere.records import Episode


class EvalActTurns(SolverTurns):
    """A demonstrated solver that evaluates every search.

    EvalActTurns().evaluation("", "Passage 2 names her.", 9)
    -> '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "Passage 2 names her.", "score": 9}}</tool_call>'
    """

    remarks: Remarks = "turn"

    def search(self, thought: str, query: str, note: str = "") -> str:
        """A search call with one query; `note` is ignored, since the evaluation is a turn of its own."""
        return think(thought) + write_call("search", {"query": query})

    def evaluation(self, thought: str, text: str, score: int) -> str:
        """An evaluate call with its score, after a thought if there is one."""
        return (think(thought) if thought else "") + write_call("evaluate", {"evaluation": text, "score": score})

    def find_fault(self, episode: Episode) -> str:
        """The format fault for which EvalAct's reward would be 0; "" if there is none."""
        return format_fault(episode.turns, episode.end)

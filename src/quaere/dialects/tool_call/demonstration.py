"""The turns of a demonstration as JSON calls: Dr. Zero's solver and proposer."""

from __future__ import annotations

from quaere.dialects.demonstration import ProposerTurns, SolverTurns, quote, think, write_call


def write_search(thought: str, query: str) -> str:
    """A thought and a call with one query."""
    return think(thought) + write_call("search", {"query_list": [query]})


class ToolCallTurns(SolverTurns):
    """A demonstrated solver of the tool-call dialect; it writes no notes."""

    def search(self, thought: str, query: str, note: str = "") -> str:
        """A thought and a search call with one query; `note` is ignored."""
        return write_search(thought, query)


class ToolCallProposals(ProposerTurns):
    """A demonstrated proposer, which searches as the solver does."""

    def search(self, thought: str, query: str) -> str:
        """A thought and a search call with one query."""
        return write_search(thought, query)

    def proposal(self, thought: str, question: str, answer: str, span: str = "") -> str:
        """The last turn: thought, question, the quoted sentence if there is one, and the answer."""
        return f"{think(thought)}<question>{question}</question>{quote(span)}<answer>{answer}</answer>"

"""Turns of a demonstration as JSON calls: Dr. Zero's solver and proposer."""

from __future__ import annotations

from quaere.dialects.demonstration import ProposerTurns, SolverTurns, quote, think, write_call


def write_search(thought: str, query: str) -> str:
    """A thought and a call with one query."""
    return think(thought) + write_call("search", {"query_list": [query]})


class ToolCallTurns(SolverTurns):
    """A solver without notes."""

    def search(self, thought: str, query: str, note: str = "") -> str:
        """A call with one query."""
        return write_search(thought, query)


class ToolCallProposals(ProposerTurns):
    """A proposer, which searches as the solver does."""

    def search(self, thought: str, query: str) -> str:
        """A call with one query."""
        return write_search(thought, query)

    def proposal(self, thought: str, question: str, answer: str, span: str = "") -> str:
        """The question and its answer, with the sentence it quotes between them."""
        return f"{think(thought)}<question>{question}</question>{quote(span)}<answer>{answer}</answer>"

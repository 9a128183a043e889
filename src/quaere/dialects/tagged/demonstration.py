"""The turns of a demonstration in the tag dialects; Eval-RAR and AutoRefine add notes on the results."""

from __future__ import annotations

from quaere.dialects.demonstration import Remarks, SolverTurns, think
from quaere.dialects.tagged.protocol import TAGS, TagDialect
from quaere.dialects.tagged.reward import notes_searches, pay_noted
from quaere.records import Episode


class TagTurns(SolverTurns):
    """A demonstrated solver of one of the tag dialects.

    TagTurns("evalrar", "note").search("I look it up.", "Halm bridge", note="No builder is named.")
    -> '<evaluate>No builder is named.</evaluate>\\n<think>I look it up.</think>\\n<search>Halm bridge</search>'
    """

    def __init__(self, dialect: TagDialect, remarks: Remarks = "none") -> None:
        self.remarks = remarks
        self._tag = TAGS[dialect].note

    def search(self, thought: str, query: str, note: str = "") -> str:
        """The note on the previous search if the dialect has notes, a thought, and a query between tags."""
        return f"{self._note(note)}{think(thought)}<search>{query}</search>"

    def answer(self, thought: str, answer: str, *, span: str = "", note: str = "") -> str:
        """The note on the last search, then thought, evidence and answer."""
        return self._note(note) + super().answer(thought, answer, span=span)

    def find_fault(self, episode: Episode) -> str:
        """The fault that a search's results were not noted in the next turn; "" if there is none."""
        noted = not self._tag or notes_searches(episode.turns)
        return "" if noted else "what a search found was not noted"

    def find_flaw(self, episode: Episode) -> str:
        """The flaw that no note contains the answer, so that the notes would earn no reward; "" if there is none."""
        noted = not self._tag or pay_noted(episode)["reward/note"] > 0
        return "" if noted else "no note holds the answer"

    def _note(self, note: str) -> str:
        return f"<{self._tag}>{note}</{self._tag}>\n" if self._tag and note else ""

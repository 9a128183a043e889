"""A row of questions as it is stored, in a file or in a data set, before it becomes a `Question`.

QuestionRow(question="Who built the Halm bridge?", answers=("Orsolya Venn",)).to_question("q1")
"""

from __future__ import annotations

from typing import Any

import msgspec

from quaere.records import Evidence, Question


class QuestionRow(msgspec.Struct):
    """The fields of a question that are read; others are ignored.

    QuestionRow(question="Who built the Halm bridge?", id="q1", answers=("Orsolya Venn",), facts=1, set="bridges")
    """

    question: str
    id: str = ""
    answers: tuple[str, ...] = ()
    hops: int = 0
    evidence: tuple[Evidence, ...] = ()
    # Loose types on purpose: third-party files have numbers or null as names of sets and documents, and in files of
    # open-ended questions `facts` is a list of the facts themselves.
    facts: Any = None
    searches: Any = None
    set: str | int | None = None
    gold_ids: tuple[str | int, ...] | None = None

    def to_question(self, name: str) -> Question:
        """The question with this id."""
        gold_ids = tuple(str(doc_id) for doc_id in self.gold_ids or ())
        question_set = "" if self.set is None else str(self.set)
        return Question(
            name,
            self.question,
            self.answers,
            self.hops or self.num_facts,
            self.evidence,
            question_set,
            gold_ids,
            facts=self.num_facts,
            searches=_count(self.searches, self.num_facts),
        )

    @property
    def num_facts(self) -> int:
        """The number of facts the question combines; 0 if unknown."""
        return _count(self.facts, self.hops)


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise

"""Wrong answers for a blind sheet: another span of the same kind in the passage that a question was written from.

shown = Passages(Path("index"))
find_wrong_answers(Question(..., "Who built Halm Bridge?", ("Orsolya Venn",)), shown) -> ["Marta Oleen"]
"""

from __future__ import annotations

from pathlib import Path

from quaere.errors import BadInput
from quaere.records import Passage, Question
from quaere.rewards.answers import contains, normalise_answer
from quaere.search.index import open_index
from quaere.warmup.documents.askable_facts import find_facts


class Passages:
    """The passages of an index by the evidence of questions."""

    def __init__(self, index: Path) -> None:
        self._by_document: dict[str, list[Passage]] = {}
        for passage in open_index(index, check_sources=False).passages():
            self._by_document.setdefault(passage.doc_id, []).append(passage)

    def of(self, question: Question) -> list[Passage]:
        """For each span of the evidence the first passage that contains it."""
        found = []
        for span in question.evidence:
            around = (p for p in self._by_document.get(span.doc_id, ()) if p.start <= span.start and span.end <= p.end)
            passage = next(around, None)
            if passage is None:
                raise BadInput(f"the index has no passage with the evidence of {question.id}, in {span.doc_id}")
            found.append(passage)
        return found


def find_wrong_answers(question: Question, shown: Passages) -> list[str]:
    """Spans of the passage that are of the answer's kind and share no word with question or answers.

    None for a question of several facts, and for one that says its answer, as a choice of two does.
    """
    if question.facts != 1 or not question.evidence or any(contains(question.text, said) for said in question.answers):
        return []
    facts = list(find_facts(shown.of(question)[0]))
    kinds = {fact.kind for fact in facts if fact.answer in question.answers}
    used = set(normalise_answer(" ".join((question.text, *question.answers))).split())
    same = dict.fromkeys(fact.answer for fact in facts if fact.kind in kinds)
    return [answer for answer in same if not used & set(normalise_answer(answer).split())]

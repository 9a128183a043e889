"""Reader of question files: one JSON object per line, of which only `question` is required.

{"id": "q1", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "facts": 1, "set": "bridges"}

`facts` is the number of facts a question combines, `searches` the number of searches it needs (default: `facts`). If
`facts` is missing, `hops` is used instead.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from quaere.errors import BadInput
from quaere.records import Evidence, Question
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines


class _Row(msgspec.Struct):
    """A line of a question file; unknown fields are ignored."""

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
        return _count(self.facts, self.hops)


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def read_questions(path: Path, limit: int | None = None, facts: Collection[int] = ()) -> list[Question]:
    """Questions of a JSONL file (plain or compressed); an error names the number of the invalid line.

    `facts` selects the questions that combine one of these numbers of facts; `limit` applies after that selection.
    """
    questions: list[Question] = []
    seen: set[str] = set()
    for number, line in read_lines(path):
        if limit is not None and len(questions) >= limit:
            break
        try:
            row = decode_json(line, _Row)
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{path}, line {number}: {error}", hint='each line needs {"question": "...", "answers": ["..."]}'
            ) from error
        name = row.id or f"q{number}"
        if not row.question.strip():
            raise BadInput(f"{path}, line {number}: the question is empty")
        if name in seen:
            raise BadInput(f"{path}, line {number}: the id {name} occurs twice; ids must be unique")
        seen.add(name)
        if facts and row.num_facts not in facts:
            continue
        questions.append(row.to_question(name))
    if not questions and seen:
        raise BadInput(f"{path} contains no question of {' or '.join(map(str, facts))} facts")
    if not questions:
        raise BadInput(f"{path} contains no question", hint='each line needs {"question": "...", "answers": ["..."]}')
    return questions

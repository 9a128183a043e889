"""Reading question files: one JSON object a line, with at least `question`; `answers`, `id` and `hops` where known.

{"id": "q1", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "hops": 1}
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

from quaere.errors import BadInput
from quaere.records import Evidence, Question


class _Row(msgspec.Struct):
    """A line of a question file; fields we do not know are left alone."""

    question: str
    id: str = ""
    answers: tuple[str, ...] = ()
    hops: int = 0
    evidence: tuple[Evidence, ...] = ()


def read_questions(path: Path, limit: int | None = None) -> list[Question]:
    """The questions of a JSONL file (plain or gzip); a broken line is named by its number."""
    questions: list[Question] = []
    seen: set[str] = set()
    for number, line in _lines(path):
        if limit is not None and len(questions) >= limit:
            break
        try:
            row = msgspec.json.decode(line, type=_Row)
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{path}, line {number}: {error}", hint='each line needs {"question": "...", "answers": ["..."]}'
            ) from error
        name = row.id or f"q{number}"
        if not row.question.strip():
            raise BadInput(f"{path}, line {number}: the question is empty")
        if name in seen:
            raise BadInput(f"{path}, line {number}: the id {name} occurs twice")
        seen.add(name)
        questions.append(Question(name, row.question, row.answers, row.hops, row.evidence))
    if not questions:
        raise BadInput(f"{path} holds no question", hint='each line needs {"question": "...", "answers": ["..."]}')
    return questions


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}", hint="quaere ask --questions FILE") from error

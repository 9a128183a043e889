"""Columns of question-answering data sets, as their authors name and nest them.

columns = find_columns(["id", "question", "golden_answers", "context"])
columns.read({"id": "test_0", "question": "Who?", "golden_answers": ["Venn"]})
    -> QuestionRow(question="Who?", id="test_0", answers=("Venn",))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from quaere.rollout.question_rows import QuestionRow

# Per field, the names that data sets give it, in any case; the first that a data set has is read.
QUESTION = ("question", "query", "problem", "input")
ANSWERS = ("golden_answers", "answers", "answer", "possible_answers", "annotations", "output", "target")
ALIASES = ("answer_aliases",)  # read beside the answers (MuSiQue)
IDS = ("id", "_id", "question_id", "qid", "example_id")
SETS = ("set", "data_source")
OWN = ("hops", "facts", "searches", "evidence", "gold_ids")  # of question files that Quaere wrote

# Keys of an object that hold accepted answers: SQuAD's {"text": [...]}, TriviaQA's {"value": ..., "aliases": [...]},
# the {"short_answers": [...]} of Natural Questions, KILT's {"answer": ...}.
_KEYS = ("text", "value", "aliases", "answer", "answers", "short_answers")
_MAX_DEPTH = 6
_MAX_LIST = 65_536  # characters of a list that is written as a string


class Columns(Struct, frozen=True):
    """Which column of a data set holds which field; "" if none does.

    Columns(question="question", answers=("golden_answers",), id="id", set="data_source", own=("hops",))
    """

    question: str
    answers: tuple[str, ...]
    id: str = ""
    set: str = ""
    own: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [name for name in (self.question, *self.answers, self.id, self.set, *self.own) if name]

    def read(self, row: dict[str, Any]) -> QuestionRow | None:
        """The question of a row; None if it has no text, or the data set has answers and this row has none."""
        text = next(_texts(row[self.question]), "")
        answers = tuple(dict.fromkeys(answer for name in self.answers for answer in _texts(row[name])))
        if not text or (self.answers and not answers):
            return None
        found = QuestionRow(question=text, answers=answers)
        if self.id and isinstance(row[self.id], str | int):
            found.id = str(row[self.id])
        if self.set and isinstance(row[self.set], str | int):
            found.set = row[self.set]
        return _add_own(found, {name: row[name] for name in self.own})


def find_columns(names: Sequence[str]) -> Columns | None:
    """The columns of a data set that are read; None if none of them holds questions."""
    by_name = {name.lower(): name for name in reversed(names)}

    def first(of: Sequence[str]) -> str:
        return next((by_name[name] for name in of if name in by_name), "")

    question = first(QUESTION)
    answers = tuple(name for name in (first(ANSWERS), first(ALIASES)) if name)
    own = tuple(name for name in OWN if name in names)
    return Columns(question, answers, first(IDS), first(SETS), own) if question else None


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """The texts in a value of any nesting, without empty ones.

    list(_texts({"text": ["Venn", "O. Venn"], "answer_start": [3, 3]})) == ["Venn", "O. Venn"]
    """
    if depth > _MAX_DEPTH:
        return
    match value:
        case bool():
            yield "yes" if value else "no"
        case int() | float():
            yield f"{value:.15g}"
        case str():
            yield from _split_list(value)
        case list():
            for part in value:
                yield from _texts(part, depth + 1)
        case dict():
            for key in _KEYS:
                yield from _texts(value.get(key), depth + 1)


def _split_list(text: str) -> Iterator[str]:
    """The entries of a JSON list of strings (PopQA writes its answers so); of any other text, the text."""
    text = text.strip()
    if text.startswith('["') and text.endswith("]") and len(text) <= _MAX_LIST:
        try:
            entries = msgspec.json.decode(text, type=list[str])
        except msgspec.DecodeError:
            pass
        else:
            yield from filter(None, map(str.strip, entries))
            return
    if text:
        yield text


def _add_own(row: QuestionRow, fields: dict[str, Any]) -> QuestionRow:
    """The row with the fields that mean the same here as in a question file; a column of another type is ignored."""
    for name, value in fields.items():
        try:
            read = msgspec.convert({"question": row.question, name: value}, QuestionRow)
        except msgspec.ValidationError:
            continue
        setattr(row, name, getattr(read, name))
    return row

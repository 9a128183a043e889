"""Reader of DeepResearch Bench as published: `query.jsonl` and `criteria.jsonl` in a folder.

bench = read_bench(Path("deep_research_bench"), language="en")
bench.questions[0].question -> Question(id="51", text="...")
bench.criteria.find("51", "...").names -> ("comprehensiveness", "insight", "instruction_following", "readability")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.evaluation.reports.criteria import Criteria, CriteriaBook, Criterion, GradedDimension, check_dimensions
from quaere.records import Question
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines

DIMENSIONS = {
    "comprehensiveness": "It covers what the question needs, broadly and in depth.",
    "insight": "It analyses, explains and concludes beyond what its sources list.",
    "instruction_following": "It answers what was asked, all of it and nothing else.",
    "readability": "It is clear, well ordered and easy to read.",
}
T = TypeVar("T")

_FILES = ("query.jsonl", "criteria.jsonl")


class BenchQuestion(Struct, frozen=True):
    """A prompt of the benchmark.

    BenchQuestion(question=Question(id="51", text="..."), language="en", topic="Finance & Business")
    """

    question: Question
    language: str
    topic: str


class Bench(Struct, frozen=True):
    """The prompts in the order of the file, and the grading criteria of each.

    Bench(questions=(BenchQuestion(...),), criteria=CriteriaBook(...))
    """

    questions: tuple[BenchQuestion, ...]
    criteria: CriteriaBook

    def write_questions(self, path: Path, limit: int | None = None) -> int:
        """Write the first `limit` prompts as a file for `quaere report --questions`; returns their number."""
        rows = [{"id": item.question.id, "question": item.question.text} for item in self.questions[:limit]]
        write_file(path, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        return len(rows)


class _Query(Struct):
    id: int | str
    prompt: str
    language: str = ""
    topic: str = ""


class _Criterion(Struct):
    criterion: str
    weight: float
    explanation: str = ""


class _Criteria(Struct):
    id: int | str
    prompt: str
    dimension_weight: dict[str, float]
    criterions: dict[str, list[_Criterion]]


def read_bench(folder: Path, language: str | None = None, limit: int | None = None) -> Bench:
    """The benchmark in a folder; an error names the number of the invalid line."""
    for name in _FILES:
        if not (folder / name).is_file():
            said = f"{folder} is not a DeepResearch Bench folder: it has no {name}"
            raise BadInput(said, hint="--bench DIR, with query.jsonl and criteria.jsonl")
    questions = _read_queries(folder / _FILES[0])
    chosen = [item for item in questions if language in (None, item.language)][:limit]
    if not chosen:
        known = " and ".join(sorted({item.language for item in questions})) or "none"
        raise BadInput(f"{folder} has no prompt in the language {language}; its languages are {known}")
    by_id = _read_criteria(folder / _FILES[1])
    without = [item.question.id for item in chosen if item.question.id not in by_id]
    if without:
        raise BadInput(f"{folder / _FILES[1]} has no criteria for prompt {without[0]}")
    kept = {item.question.id: by_id[item.question.id] for item in chosen}
    texts = {item.question.text: kept[item.question.id] for item in chosen}
    return Bench(tuple(chosen), CriteriaBook(texts, kept))


def _read_queries(path: Path) -> list[BenchQuestion]:
    found: list[BenchQuestion] = []
    seen: set[str] = set()
    for number, line in read_lines(path):
        row = _decode(path, number, line, _Query)
        name = str(row.id)
        if not row.prompt.strip():
            raise BadInput(f"{path}, line {number}: `prompt` is empty")
        if name in seen:
            raise BadInput(f"{path}, line {number}: the id {name} occurs twice; ids must be unique")
        seen.add(name)
        found.append(BenchQuestion(Question(name, row.prompt), row.language, row.topic))
    if not found:
        raise BadInput(f"{path} contains no prompt")
    return found


def _read_criteria(path: Path) -> dict[str, Criteria]:
    found = {}
    for number, line in read_lines(path):
        row = _decode(path, number, line, _Criteria)
        if set(row.dimension_weight) != set(row.criterions):
            raise BadInput(f"{path}, line {number}: `dimension_weight` and `criterions` must name the same dimensions")
        dimensions = [
            GradedDimension(name, DIMENSIONS.get(name, ""), row.dimension_weight[name], _items(row.criterions[name]))
            for name in sorted(row.criterions, key=_order)
        ]
        if wrong := check_dimensions(dimensions):
            raise BadInput(f"{path}, line {number}: {wrong}")
        found[str(row.id)] = Criteria(tuple(dimensions))
    return found


def _items(criteria: Sequence[_Criterion]) -> tuple[Criterion, ...]:
    return tuple(Criterion(item.criterion, item.explanation, item.weight) for item in criteria)


def _order(name: str) -> tuple[int, str]:
    """Sort key: the four known dimensions in the benchmark's order, then others by name."""
    known = list(DIMENSIONS)
    return (known.index(name) if name in known else len(known), name)


def _decode(path: Path, number: int, line: bytes, kind: type[T]) -> T:
    try:
        return decode_json(line, kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}, line {number}: {error}") from error

"""Grading criteria of reports: weighted dimensions, each with optional weighted criteria.

    criteria = Criteria((GradedDimension("coverage", "...", weight=0.6), GradedDimension("clarity", "...", weight=0.4)))
    criteria.overall({"coverage": 5.0, "clarity": 10.0}) -> 7.0

`GENERAL` holds the four dimensions of DeepResearchEval, which adds dimensions written for each question;
`read_criteria` reads those from a file, and `read_bench` the prompts and criteria of DeepResearch Bench as published.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.chat.markup import first_fault
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.evaluation.reports.lexical import squeeze
from quaere.records import Question
from quaere.search.json_lines import BadLines, decode_lines

SCALE = 10.0
MAX_DIMENSIONS = 20
_HINT = 'each line needs {"question": "...", "dimensions": [{"name": "...", "text": "...", "weight": 1}]}'


class Criterion(Struct, frozen=True):
    """One aspect of a dimension, which is graded separately and counts with its weight.

    Criterion(text="Names the builders", explanation="Says who built it and when.", weight=0.3)
    """

    text: str
    explanation: str = ""
    weight: float = 1.0


class GradedDimension(Struct, frozen=True):
    """A dimension with its weight and criteria; without criteria it is graded as a whole.

    GradedDimension(name="coverage", text="Every side of the question is treated.", weight=0.3)
    """

    name: str
    text: str = ""
    weight: float = 1.0
    criteria: tuple[Criterion, ...] = ()


class Criteria(Struct, frozen=True):
    """All dimensions by which reports on a question are graded.

    Criteria(dimensions=(GradedDimension("coverage", "..."),))
    """

    dimensions: tuple[GradedDimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(dimension.name for dimension in self.dimensions)

    def overall(self, grades: Mapping[str, float]) -> float | None:
        """Weighted mean of the grades; None if a dimension has no grade."""
        pairs = [(grades[item.name], item.weight) for item in self.dimensions if item.name in grades]
        return weighted_mean(pairs) if len(pairs) == len(self.dimensions) else None


def weighted_mean(pairs: Sequence[tuple[float, float]]) -> float:
    """Weighted mean, clipped to the range of the values against rounding: weighted_mean([(4, 1), (8, 3)]) -> 7.0."""
    total = math.fsum(weight for _, weight in pairs)
    mean = math.fsum(value * (weight / total) for value, weight in pairs)
    return min(max(mean, min(value for value, _ in pairs)), max(value for value, _ in pairs))


GENERAL: tuple[GradedDimension, ...] = (
    GradedDimension("coverage", "It treats every side of the question, as broadly and deeply as the question needs."),
    GradedDimension("insight", "It explains, compares and concludes; it does more than list what was found."),
    GradedDimension("instruction_following", "It answers what was asked, all of it, within the limits that were set."),
    GradedDimension("clarity", "It is well ordered and easy to read; a reader finds what they look for."),
)


def general_criteria(specific: Sequence[GradedDimension] = ()) -> Criteria:
    """The general dimensions (weight 1) and those for a question, which replace general ones of the same name.

    general_criteria([GradedDimension("dates", "Says when.", weight=2)]).names[-1] -> "dates"
    """
    named = {dimension.name for dimension in specific}
    return Criteria((*(item for item in GENERAL if item.name not in named), *specific))


def check_dimensions(dimensions: Sequence[GradedDimension]) -> str:
    """Description of what is wrong with the dimensions; "" if nothing is."""
    names = [dimension.name for dimension in dimensions]
    criteria = [criterion for dimension in dimensions for criterion in dimension.criteria]
    weights = [*(dimension.weight for dimension in dimensions), *(criterion.weight for criterion in criteria)]
    are_named = len(set(names)) == len(names) and all(name.strip() for name in names)
    return first_fault(
        (not 1 <= len(names) <= MAX_DIMENSIONS, f"there must be 1 to {MAX_DIMENSIONS} dimensions, not {len(names)}"),
        (not are_named, "dimensions need different names, none of them empty"),
        (not all(math.isfinite(weight) and weight > 0 for weight in weights), "weights must be numbers above 0"),
    )


class _Dimension(Struct):
    name: str
    text: str = ""
    weight: float = 1.0


class _Row(Struct):
    dimensions: list[_Dimension]
    id: str | int = ""
    question: str = ""


class CriteriaBook:
    """Criteria per question: looked up by the question's text, then by its id.

    CriteriaBook({"Who built it?": criteria}, {}).find("q1", "Who built it?") is criteria
    """

    def __init__(self, by_text: Mapping[str, Criteria], by_id: Mapping[str, Criteria]) -> None:
        self.by_text = {squeeze(text): criteria for text, criteria in by_text.items()}
        self.by_id = dict(by_id)

    def find(self, id: str, text: str) -> Criteria | None:
        """The criteria of a question; None if it has none of its own."""
        return self.by_text.get(squeeze(text)) or self.by_id.get(id)


def read_criteria(path: Path) -> CriteriaBook:
    """Dimensions for single questions from JSONL; the general ones are graded as well.

    A row that names a general dimension replaces its weight and text.
    """
    by_text: dict[str, Criteria] = {}
    by_id: dict[str, Criteria] = {}
    for number, row in decode_lines(path, _Row, hint=_HINT):
        if not row.question.strip() and row.id == "":
            raise BadLines(path, "`question` or `id` is missing", line=number, hint=_HINT)
        criteria = general_criteria([GradedDimension(item.name, item.text, item.weight) for item in row.dimensions])
        if wrong := check_dimensions(criteria.dimensions):
            raise BadLines(path, wrong, line=number, hint=_HINT)
        if row.question.strip():
            by_text[row.question] = criteria
        if row.id != "":
            by_id[str(row.id)] = criteria
    if not by_text and not by_id:
        raise BadInput(f"{path} contains no criteria", hint=_HINT)
    return CriteriaBook(by_text, by_id)


# --------------------------------------------------------------------------------------------------- DeepResearch Bench

DIMENSIONS = {
    "comprehensiveness": "It covers what the question needs, broadly and in depth.",
    "insight": "It analyses, explains and concludes beyond what its sources list.",
    "instruction_following": "It answers what was asked, all of it and nothing else.",
    "readability": "It is clear, well ordered and easy to read.",
}
_FILES = ("query.jsonl", "criteria.jsonl")


class BenchQuestion(Struct, frozen=True):
    """A prompt of DeepResearch Bench, with its language and topic.

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
        write_file(path, msgspec.json.Encoder().encode_lines(rows))
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


def read_bench(folder: Path, language: str | None = None) -> Bench:
    """The benchmark in a folder; an error names the number of the invalid line."""
    if missing := [name for name in _FILES if not (folder / name).is_file()]:
        said = f"{folder} is not a DeepResearch Bench folder: it has no {missing[0]}"
        raise BadInput(said, hint="--bench DIR, with query.jsonl and criteria.jsonl")
    questions = _read_queries(folder / _FILES[0])
    chosen = [item for item in questions if language in (None, item.language)]
    if not chosen:
        known = " and ".join(sorted({item.language for item in questions})) or "none"
        raise BadInput(f"{folder} has no prompt in the language {language}; its languages are {known}")
    by_id = _read_criteria(folder / _FILES[1])
    if without := [item.question.id for item in chosen if item.question.id not in by_id]:
        raise BadInput(f"{folder / _FILES[1]} has no criteria for prompt {without[0]}")
    kept = {item.question.id: by_id[item.question.id] for item in chosen}
    texts = {item.question.text: kept[item.question.id] for item in chosen}
    return Bench(tuple(chosen), CriteriaBook(texts, kept))


def _read_queries(path: Path) -> list[BenchQuestion]:
    found: dict[str, BenchQuestion] = {}
    for number, row in decode_lines(path, _Query):
        name = str(row.id)
        if not row.prompt.strip():
            raise BadLines(path, "`prompt` is empty", line=number)
        if name in found:
            raise BadLines(path, f"the id {name} occurs twice; ids must be unique", line=number)
        found[name] = BenchQuestion(Question(name, row.prompt), row.language, row.topic)
    if not found:
        raise BadInput(f"{path} contains no prompt")
    return list(found.values())


def _read_criteria(path: Path) -> dict[str, Criteria]:
    found = {}
    for number, row in decode_lines(path, _Criteria):
        if set(row.dimension_weight) != set(row.criterions):
            raise BadLines(path, "`dimension_weight` and `criterions` must name the same dimensions", line=number)
        dimensions = []
        others = sorted(set(row.criterions) - DIMENSIONS.keys())
        for name in [*(name for name in DIMENSIONS if name in row.criterions), *others]:
            items = (Criterion(item.criterion, item.explanation, item.weight) for item in row.criterions[name])
            weight = row.dimension_weight[name]
            dimensions.append(GradedDimension(name, DIMENSIONS.get(name, ""), weight, tuple(items)))
        if wrong := check_dimensions(dimensions):
            raise BadLines(path, wrong, line=number)
        found[str(row.id)] = Criteria(tuple(dimensions))
    return found

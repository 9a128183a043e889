"""The turns of a demonstration in the report dialect: searches, reports, rubrics and assessments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quaere.dialects.demonstration import think
from quaere.records import Rubric


def write_search(thought: str, query: str) -> str:
    """A turn with one query; an assessor's query begins with a report's number in brackets, or is about all reports."""
    return f"{think(thought)}<search>{query}</search>"


def write_report(thought: str, text: str) -> str:
    """The writer's last turn: a thought and the report."""
    return f"{think(thought)}<answer>{text}</answer>"


def write_rubric(thought: str, rubric: Rubric) -> str:
    """The turn that chooses a rubric.

    write_rubric("Dates differ.", rubric)
    -> "<think>Dates differ.</think>\\n<rubric>\\nfactuality\\nbalance: 0.4\\n</rubric>"
    """
    lines = [rubric.primary, *(f"{item.dimension}: {item.weight:g}" for item in rubric.weights)]
    return f"{think(thought)}<rubric>\n" + "\n".join(lines) + "\n</rubric>"


def write_assessment(thought: str, entries: Iterable[str]) -> str:
    """The assessor's last turn: a thought and one entry per report."""
    return f"{think(thought)}<assessment>\n{''.join(entries)}</assessment>"


def write_entry(number: int, verification: str, gaps: str, scores: Mapping[str, int]) -> str:
    """The entry of one report in an assessment.

    write_entry(1, "The builder is right.", "No date.", {"factuality": 8})
    -> '<report id="1"><verification>The builder is right.</verification><gaps>No date.</gaps><score ...>8</score>...'
    """
    marks = "".join(f'<score dimension="{name}">{score}</score>' for name, score in scores.items())
    return f'<report id="{number}"><verification>{verification}</verification><gaps>{gaps}</gaps>{marks}</report>\n'

"""Turns of a demonstration in the report dialect: searches, reports, rubrics and assessments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quaere.dialects.demonstration import think
from quaere.records import Rubric


def write_search(thought: str, query: str) -> str:
    """A query between tags; an assessor's begins with the number of a report in brackets, or is about all of them."""
    return f"{think(thought)}<search>{query}</search>"


def write_report(thought: str, text: str) -> str:
    """The writer's last turn."""
    return f"{think(thought)}<answer>{text}</answer>"


def write_rubric(thought: str, rubric: Rubric) -> str:
    """The turn that chooses a rubric.

    write_rubric("Dates differ.", rubric)
    -> "<think>Dates differ.</think>\\n<rubric>\\nfactuality\\nbalance: 0.4\\n</rubric>"
    """
    lines = [rubric.primary, *(f"{item.dimension}: {item.weight:g}" for item in rubric.weights)]
    return f"{think(thought)}<rubric>\n" + "\n".join(lines) + "\n</rubric>"


def write_assessment(thought: str, entries: Iterable[str]) -> str:
    """The assessor's last turn, with an entry for every report."""
    return f"{think(thought)}<assessment>\n{''.join(entries)}</assessment>"


def write_entry(number: int, verification: str, gaps: str, scores: Mapping[str, int]) -> str:
    """What an assessment says of one report.

    write_entry(1, "The builder is right.", "No date.", {"factuality": 8})
    -> '<report id="1"><verification>The builder is right.</verification><gaps>No date.</gaps><score ...>8</score>...'
    """
    marks = "".join(f'<score dimension="{name}">{score}</score>' for name, score in scores.items())
    return f'<report id="{number}"><verification>{verification}</verification><gaps>{gaps}</gaps>{marks}</report>\n'

"""Data types of the program. This package imports nothing else of Quaere, and every other package uses these records.

All records are frozen `msgspec` structs: cheap to make, comparable, and written to or read from JSON without code of
their own. Each docstring shows a tiny literal instance.
"""

from __future__ import annotations

from quaere.records.actions import (
    Action,
    Answer,
    Evaluate,
    Final,
    Malformed,
    Proposal,
    ProposeTask,
    Search,
    SolveTask,
    Task,
)
from quaere.records.curriculum import (
    Candidate,
    DropReason,
    Support,
)
from quaere.records.episodes import (
    LIMIT_ENDS,
    Boundary,
    EndReason,
    Episode,
    Failure,
    Origin,
    Segment,
    StopReason,
    Turn,
)
from quaere.records.passages import (
    Evidence,
    Hit,
    Passage,
    Question,
    SearchResult,
    searches_needed,
)
from quaere.records.research import (
    Assessment,
    AssessTask,
    Dimension,
    DimensionRules,
    Harness,
    Hints,
    ProcessRules,
    Report,
    ReportTask,
    Rubric,
    RubricTask,
    Scores,
    Source,
    Statement,
    Weight,
)

__all__ = [
    "LIMIT_ENDS",
    "Action",
    "Answer",
    "AssessTask",
    "Assessment",
    "Boundary",
    "Candidate",
    "Dimension",
    "DimensionRules",
    "DropReason",
    "EndReason",
    "Episode",
    "Evaluate",
    "Evidence",
    "Failure",
    "Final",
    "Harness",
    "Hints",
    "Hit",
    "Malformed",
    "Origin",
    "Passage",
    "ProcessRules",
    "Proposal",
    "ProposeTask",
    "Question",
    "Report",
    "ReportTask",
    "Rubric",
    "RubricTask",
    "Scores",
    "Search",
    "SearchResult",
    "Segment",
    "SolveTask",
    "Source",
    "Statement",
    "StopReason",
    "Support",
    "Task",
    "Turn",
    "Weight",
    "searches_needed",
]

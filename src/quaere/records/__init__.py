"""Data types of the program. This package imports nothing else of Quaere, and every other package uses these records.

All records are frozen `msgspec` structs: cheap to make, comparable, and written to or read from JSON without code of
their own. Each docstring shows a tiny literal instance.
"""

from quaere.records.episodes import (
    LIMIT_ENDS,
    Action,
    Answer,
    Boundary,
    EndReason,
    Episode,
    Evaluate,
    Failure,
    Final,
    Malformed,
    Origin,
    Proposal,
    ProposeTask,
    Search,
    Segment,
    SolveTask,
    StopReason,
    Task,
    Turn,
)
from quaere.records.questions import (
    Candidate,
    DropReason,
    Evidence,
    Hit,
    Passage,
    Question,
    SearchResult,
    Support,
    name_sentences,
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

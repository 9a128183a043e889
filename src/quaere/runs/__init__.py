"""The run directory and its store: settings, episodes and metrics of a run.

with Run.start(runs_root(), "ask", {"model": "smollm2-135m"}) as run:
    run.add_episode(episode, metrics={"seconds": 2.5})
Run.open("runs/ask-20250301-101500").episode("ask-0")
"""

from quaere.runs.added import Added, add_questions, make_added
from quaere.runs.list import RunSummary, find_run, list_runs, runs_root
from quaere.runs.rows import EpisodeRow, Event, Metric, RunInfo, RunState
from quaere.runs.run import Run
from quaere.runs.verdicts import Verdict, give_verdicts, judge

__all__ = [
    "Added",
    "EpisodeRow",
    "Event",
    "Metric",
    "Run",
    "RunInfo",
    "RunState",
    "RunSummary",
    "Verdict",
    "add_questions",
    "find_run",
    "give_verdicts",
    "judge",
    "list_runs",
    "make_added",
    "runs_root",
]

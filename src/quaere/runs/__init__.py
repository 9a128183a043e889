"""The run directory and its store: settings, episodes and metrics of a run.

with Run.start(runs_root(), "ask", {"model": "smollm2-135m"}) as run:
    run.add_episode(episode, metrics={"seconds": 2.5})
Run.open("runs/ask-20250301-101500").episode("ask-0")
"""

from quaere.runs.directory import hold_idle, runs_root
from quaere.runs.review import Added, Verdict, add_questions, give_verdicts, judge, make_added
from quaere.runs.rows import EpisodeRow, Event, Metric, RunInfo, RunState
from quaere.runs.run import Run
from quaere.runs.summaries import (
    RunSummary,
    check_deletable,
    delete_folders,
    describe_state,
    find_run,
    list_runs,
    measure_size,
    next_command,
)

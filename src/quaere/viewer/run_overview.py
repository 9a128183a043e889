"""The page of one run: timeline, curves, alarms, curriculum and harness over time, settings; and that of one step.

read_run(run, "notes").groups[0].charts[0].series[0] == Series("reward/mean", [1, 2], [0.2, 0.4])
"""

import math
from pathlib import Path

from msgspec import Struct

from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.recipes.score.harness import Versions, describe_change
from quaere.runs.checkpoints import find_checkpoints
from quaere.runs.rows import Event, RunInfo, RunState
from quaere.runs.summaries import (
    CandidateCount,
    Change,
    PhaseSummary,
    count_candidates,
    describe_state,
    next_command,
    summarise_phases,
)
from quaere.viewer.answer_view import RunAnswer, read_answers
from quaere.viewer.evaluation_pages import EVAL_KIND, EvaluationLine, EvaluationResults
from quaere.viewer.learning_map import MapRow, read_stack
from quaere.viewer.metric_charts import (
    MAIN,
    ChartData,
    ChartSection,
    draw_sections,
    find_steps,
    group_metrics,
    make_line,
)
from quaere.viewer.plot import is_drawn
from quaere.viewer.run_folder import RunFolder, require
from quaere.viewer.run_glance import Glance, read_glance

MAX_ROWS = 1000  # metrics in the table of a step
REPORT_WRITER = "report-writer"  # the protocol of episodes that write reports


class HarnessChange(Struct, frozen=True):
    """A version of the evaluator's harness (its rules and pool of dimensions): from which step, why, what changed.

    HarnessChange(step=40, version=2, change="k 4 → 5", why="scores at the ceiling")
    """

    step: int
    version: int
    change: str
    why: str
    fault: str


class CheckpointName(Struct, frozen=True):
    """A checkpoint that is still on disk; `best` is its exact match if it is the best by validation.

    CheckpointName(name="step-000020", step=20, best=0.42)
    """

    name: str
    step: int
    best: float | None


class RunQuery(Struct, frozen=True):
    """URL settings of a run's page: the step selected by the slider; 0 for the last one.

    RunQuery(step=12)
    """

    step: int = 0


class RunPage(Struct, frozen=True):
    """All that the page of a run shows; `answers` are those of `quaere ask`, `scores` those of `quaere eval`.

    RunPage(name="notes", info=RunInfo(...), state=RunState("running"), said="running after step 12", step=12, ...)
    """

    name: str
    info: RunInfo
    state: RunState
    said: str
    next: str
    step: int
    first_step: int
    last_step: int
    num_episodes: int
    num_answered: int
    num_searches: int
    phases: list[PhaseSummary]
    sections: list[ChartSection]
    events: list[Event]
    candidates: list[CandidateCount]
    harness: list[HarnessChange]
    checkpoints: list[CheckpointName]
    config: str
    num_left_out: int  # metrics beyond those of `sections`
    has_reports: bool
    answers: list[RunAnswer]
    scores: EvaluationLine | None
    glance: Glance | None  # of a training run
    title: str  # the name; for a run of `quaere learn`, whose name is "run", the name of its folder

    @property
    def is_training(self) -> bool:
        """True if the run trains: it is a run of `quaere evolve`, or has steps or events."""
        return self.info.kind == "evolve" or bool(self.last_step or self.events)


class StepPage(Struct, frozen=True):
    """One step of a run: its place, metrics, events and questions. `before` and `after` are its neighbours, 0 if none.

    `main` has the few metrics that say most, each with its change since the step before, NaN if that has none.

    StepPage(run="notes", step=12, before=11, after=13, phase="solver", iteration=0, metrics={"reward/mean": 0.4}, ...)
    """

    run: str
    step: int
    before: int
    after: int
    phase: str
    iteration: int | None
    metrics: dict[str, float]
    events: list[Event]
    num_episodes: int
    main: dict[str, Change]
    questions: list[MapRow]
    num_left_out: int  # metrics beyond those of `metrics`

    @property
    def groups(self) -> dict[str, list[str]]:
        """The names of the metrics by heading."""
        found = group_metrics(list(self.metrics)).items()
        return {heading: [name for _, names in charts for name in names] for heading, charts in found}


def read_run(run: Run, name: str, query: RunQuery, *, folder: RunFolder, results: EvaluationResults) -> RunPage:
    """Read the page of a run from its current files."""
    values, state = run.all_metrics(), run.state()
    lines = {metric: make_line(metric, of) for metric, of in values.items()}
    first, last = find_steps(lines.values())
    sections, num_left_out = draw_sections(
        list(lines), lambda title, names: [ChartData(title, [lines[each] for each in names])]
    )
    num_episodes, num_answered, num_searches = run.count_all()
    return RunPage(
        name=name,
        info=run.info,
        state=state,
        said=describe_state(state, last),
        next=next_command(run, state),
        step=min(max(query.step, first), last) if query.step else last,
        first_step=first,
        last_step=last,
        num_episodes=num_episodes,
        num_answered=num_answered,
        num_searches=num_searches,
        phases=summarise_phases(run, values),
        sections=sections,
        num_left_out=num_left_out,
        events=run.events(),
        candidates=count_candidates(run),
        harness=read_harness(run.path),
        checkpoints=_read_checkpoints(run.path),
        config=_read_config(run),
        has_reports=REPORT_WRITER in run.first_protocols(),
        answers=read_answers(run, name),
        scores=results.line(name) if run.info.kind == EVAL_KIND else None,
        glance=read_glance(run, name, lines, folder, results) if last else None,
        title=folder.title(name),
    )


def read_step(run: Run, name: str, step: int) -> StepPage:
    """The page of one step; `NotShown` if nothing was recorded at it."""
    metrics = run.metrics_at(step)
    num_episodes = run.count_episodes(step=step)[0]
    events = [event for event in run.events() if event.step == step]
    last, said = run.last_step(), f"run {name} has nothing at step {step}"
    require(len(metrics) + num_episodes + len(events), said, f"its last step is {last}")
    earlier = run.metrics_at(step - 1)
    main = [name for name in MAIN if is_drawn(metrics.get(name, math.nan))]
    place = next((phase for phase in summarise_phases(run) if phase.first_step <= step <= phase.last_step), None)
    return StepPage(
        run=name,
        step=step,
        before=max(0, step - 1),
        after=step + 1 if step < last else 0,
        phase=place.phase if place else "",
        iteration=place.iteration if place else None,
        metrics=dict(list(metrics.items())[:MAX_ROWS]),
        events=events,
        num_episodes=num_episodes,
        main={name: Change(earlier.get(name, math.nan), metrics[name]) for name in main},
        questions=read_stack(run.outcomes(steps=[step])),
        num_left_out=max(0, len(metrics) - MAX_ROWS),
    )


def read_harness(path: Path) -> list[HarnessChange]:
    """The versions of the evaluator's harness in a run directory, oldest first; [] if there are none."""
    versions = Versions(path).read()
    return [
        HarnessChange(
            step=version.step,
            version=version.harness.version,
            change=describe_change(before.harness, version.harness) if before else "",
            why=version.why,
            fault=version.fault,
        )
        for before, version in zip([None, *versions], versions, strict=False)
    ]


# ------------------------------------------------------------------------------------------------------------- details


def _read_checkpoints(path: Path) -> list[CheckpointName]:
    found = find_checkpoints(path / "checkpoints")
    best = found[-1].best if found else None
    return [
        CheckpointName(each.path.name, each.step, best.rating if best and best.step == each.step else None)
        for each in found
    ]


def _read_config(run: Run) -> str:
    try:
        return run.config_text()
    except BadInput:  # only training runs have one
        return ""

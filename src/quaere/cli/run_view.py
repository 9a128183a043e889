"""Renders a training run and charts of its metrics for the terminal. Pure functions: records in, renderables out.

Console().print(render_training(summarise_training(run), run.show_command))
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quaere.api.printing import command_line, count, describe_settings, plain_table
from quaere.cli.episode_view import trim
from quaere.cli.progress_view import BARS, bar_height
from quaere.cli.terminal import printable
from quaere.recipes.score.harness import HarnessVersion, Versions, describe_change
from quaere.records import Candidate
from quaere.runs import EpisodeRow, Event, Metric, Run, RunInfo, RunState, describe_state, next_command
from quaere.runs.checkpoints import Best, find_checkpoints
from quaere.runs.summaries import CandidateCount, Change, PhaseSummary, count_candidates, summarise_phases

# Columns of the table of phases, if measured: as many as fit into 80 characters; `--metrics` shows the others.
_HEADLINES = ("reward/mean", "passes/mean", "policy/entropy", "mismatch/mean")
# The main metrics of report runs: too many for columns, so they have a table with one metric per line.
_REPORTS = "reports"
_REPORT_FIGURES = (
    ("reward", "reward/mean"),
    ("reward, share of the most there is", "reward/share"),
    ("reports that were finished", "report/finished"),
    ("consistency of conclusions", "consistency/mean"),
    ("statements that rest on a source", "check/grounded"),
    ("citations that lead to a passage", "check/resolved"),
    ("statements that were made before", "report/repeated"),
    ("reports at the ceiling", "scores/ceiling"),
    ("spread of scores", "scores/spread"),
    ("assessments that can be read", "assessments/readable"),
    ("rubrics that keep the rules", "rubrics/valid"),
    ("searches into a report", "verification/searches"),
    ("unlikeness of reports", "diversity/mean"),
    ("entropy, nats a token", "policy/entropy"),
    ("sampler against learner, nats", "mismatch/mean"),
    ("share of the change that is sampled", "sampler/update_seen"),
    ("citation hack", "gauge/citation_hack"),
)
_NUM_EVENTS = 20


class TrainingSummary(Struct, frozen=True):
    """The content of `quaere runs show RUN` for a training run.

    TrainingSummary(run=RunInfo(...), phases=[PhaseSummary(...)], candidates=[CandidateCount(...)],
                    events=[Event(step=12, kind="entropy", message="...")], checkpoints=["step-000010"],
                    num_episodes=640, num_answered=512, metrics=["loss/policy", "reward/mean"],
                    harness=[HarnessVersion(step=0, ...)], state=RunState("stopped"), step=12,
                    next="quaere evolve --resume runs/evolve-20250301-101500")
    """

    run: RunInfo
    phases: list[PhaseSummary]
    candidates: list[CandidateCount]
    events: list[Event]
    checkpoints: list[str]
    num_episodes: int
    num_answered: int
    metrics: list[str]
    harness: list[HarnessVersion] = []
    best: Best | None = None
    state: RunState = RunState("stopped")
    step: int = 0
    next: str = ""


def summarise_training(run: Run) -> TrainingSummary:
    """The summary of a run, read from its store."""
    num_episodes, num_answered = run.count_episodes()
    checkpoints = find_checkpoints(run.path / "checkpoints")
    state = run.state()
    return TrainingSummary(
        run=run.info,
        phases=summarise_phases(run),
        candidates=count_candidates(run),
        events=run.events(),
        checkpoints=[found.path.name for found in checkpoints],
        num_episodes=num_episodes,
        num_answered=num_answered,
        metrics=run.metric_names(),
        harness=Versions(run.path).read(),
        best=checkpoints[-1].best if checkpoints else None,
        state=state,
        step=run.last_step(),
        next=next_command(run, state),
    )


def render_info(info: RunInfo) -> Group:
    """Name, kind, date and settings of a run."""
    settings = (Text(printable(f"  {line}"), "dim") for line in describe_settings(info.settings))
    return Group(Text(printable(f"{info.id}  {info.kind}, {info.created}, quaere {info.version}"), "bold"), *settings)


def render_state(state: RunState, step: int = 0, then: str = "") -> list[Text]:
    """State and next command: "  stopped after step 12; go on with: quaere evolve --resume runs/notes"."""
    lines = [Text(printable(f"  {describe_state(state, step)}"), "red" if state.name == "failed" else "green")]
    how = "take the model out with" if state.name == "done" else "go on with"
    return [*lines, command_line(f"  {how}: {then}")] if then else lines


def render_training(summary: TrainingSummary, show: str) -> Group:
    """The run from its settings to its checkpoints, and how the command `show` shows more of it."""
    parts: list[RenderableType] = [
        render_info(summary.run),
        *render_state(summary.state, summary.step, summary.next),
        Text(),
    ]
    reports = [phase for phase in summary.phases if phase.phase == _REPORTS]
    if len(reports) < len(summary.phases):
        parts.append(_phase_table([phase for phase in summary.phases if phase.phase != _REPORTS]))
    if lines := [line for phase in summary.phases if (line := _practice_line(phase) or _curriculum_line(phase))]:
        parts += [Text(), *map(Text, lines)]
    parts += [_report_table(phase) for phase in reports]
    if summary.harness:
        parts += [Text(), *_harness_lines(summary.harness)]
    if summary.candidates:
        parts += [Text(), *(_candidate_line(counted) for counted in summary.candidates)]
    if summary.events:
        parts += [Text(), *_event_lines(summary.events)]
    parts += [Text(), Text(f"checkpoints: {', '.join(summary.checkpoints) or 'none'}")]
    if best := summary.best:
        score = f"rated {best.rating:.3f} ± {best.standard_error:.3f} (standard error)"
        parts.append(Text(f"best: step {best.step}, {score} on {count(best.num_questions, 'validation question')}"))
    episodes = f"{count(summary.num_episodes, 'episode')}, {summary.num_answered} answered"
    parts.append(Text(f"{episodes}; {count(len(summary.metrics), 'metric')}", "dim"))
    evolve = ["--metrics 'reward/*'", *([] if reports else ["--candidates"])]
    more = ["EPISODE", "--episodes [STEP]", *(evolve if summary.run.kind == "evolve" else ["--metrics '*'"])]
    parts += [command_line(f"  {show} {what}") for what in more]
    return Group(*parts)


def render_candidates(candidates: Sequence[Candidate]) -> Group:
    """A table of candidates (question, answer, right attempts, the reason if dropped), and their number."""
    rows = []
    for candidate in candidates:
        right = f"{candidate.num_right}/{candidate.num_attempts}" if candidate.num_attempts else ""
        name = candidate.episode_id or candidate.id
        words = (name, trim(candidate.question, 80), trim(candidate.answer, 40), str(candidate.hops))
        rows.append((*words, str(candidate.facts), right, candidate.reason))
    heads = ("episode", "question", "answer", "hops", "searches", "right", "dropped")
    table = plain_table(*heads, rows=rows, right=("hops", "searches", "right"), whole=("episode",))
    counted = f"{count(len(candidates), 'candidate')}, {sum(candidate.kept for candidate in candidates)} kept"
    return Group(*([table] if candidates else []), Text(counted, "dim"))


def list_episodes(run: Run, step: int | None) -> dict[str, Any]:
    """A run and its episodes, all or those of a step: the content of `quaere runs show RUN --episodes`."""
    state = run.state()
    said = {"state": state, "next": next_command(run, state), "metrics": run.metric_names()}
    return {"run": run.info, "episodes": run.index(step=step), **said}


def render_episodes(found: Mapping[str, Any], show: str) -> Group:
    """The run and a table of its episodes, and how the command `show` shows one of them."""
    rows: list[EpisodeRow] = found["episodes"]
    counts = ("turns", "searches", "tokens")
    trained = any(row.step for row in rows)  # elsewhere there are no steps to tell of
    place = ("step", "phase") if trained else ()
    cells = []
    for row in rows:
        where = (str(row.step), row.phase) if trained else ()
        numbers = (str(row.num_turns), str(row.num_searches), str(row.num_tokens))
        cells.append((row.id, *where, trim(row.question, 60), trim(row.answer or "", 40), _name_end(row), *numbers))
    heads = ("episode", *place, "question", "answer", "end", *counts)
    table = plain_table(*heads, rows=cells, right=("step", *counts), whole=("episode",))
    answered = sum(_name_end(row) == "answered" for row in rows)
    counted = command_line(f"{count(len(rows), 'episode')}, {answered} answered; {show} EPISODE")
    return Group(render_info(found["run"]), *render_state(found["state"]), table, counted)


# ----------------------------------------------------------------------------------------------------------- details


def _name_end(row: EpisodeRow) -> str:
    return "abstained" if row.is_abstained else row.end


def _phase_table(phases: Sequence[PhaseSummary]) -> Table:
    measured = {name for phase in phases for name in phase.metrics}
    names = [name for name in _HEADLINES if name in measured] or sorted(measured)[: len(_HEADLINES)]
    rows = []
    for phase in phases:
        first, last = phase.first_step, phase.last_step
        steps = str(first) if first == last else f"{first}-{last}"
        changes = [_change(phase.metrics.get(name), single=first == last) for name in names]
        rows.append((_title(phase), steps, *changes))
    return plain_table("phase", "steps", *names, rows=rows, right=("steps", *names))


def _title(phase: PhaseSummary) -> str:
    return phase.phase if phase.iteration is None else f"{phase.iteration} {phase.phase}"


def _practice_line(phase: PhaseSummary) -> str:
    """The numbers of informative groups, questions and searches of a solver's phase; "" for other phases.

    "0 solver: informative groups 23.0→31.0 a step, 0.359→0.484 of all, 138.0→191.0 a minute; 64 different questions,
    1.050 epochs; searches 1.700→1.600 of 1.500→1.500 needed"
    """
    informative = phase.metrics.get("groups/informative")
    if informative is None:
        return ""
    is_single = phase.first_step == phase.last_step
    forms = {"groups/informative_share": "{} of all", "groups/per_minute": "{} a minute"}
    said = [f"informative groups {_change(informative, single=is_single)} a step"]
    said += [
        form.format(_change(phase.metrics[name], single=is_single))
        for name, form in forms.items()
        if name in phase.metrics
    ]
    asked, epochs = (phase.metrics.get(f"questions/{name}") for name in ("distinct", "epochs"))
    drawn = f"; {asked.last:.0f} different questions, {epochs.last:.2f} epochs" if asked and epochs else ""
    searches, needed = (phase.metrics.get(name) for name in ("solver/searches", "questions/searches_needed"))
    if searches and needed:
        made, wanted = (_change(change, single=is_single) for change in (searches, needed))
        drawn += f"; searches {made} of {wanted} needed"
    return f"{_title(phase)}: {', '.join(said)}{drawn}"


def _curriculum_line(phase: PhaseSummary) -> str:
    """How many of an iteration's questions are new, and the share that repeats earlier ones; "" for other phases.

    "1 generation: 214 new questions, 3.2 % of all repeat an earlier iteration's"
    """
    new, overlap = (phase.metrics.get(f"curriculum/{name}") for name in ("new", "overlap"))
    if new is None:
        return ""
    repeated = f", {100 * overlap.last:.1f} % of all repeat an earlier iteration's" if overlap else ""
    return f"{phase.iteration} {phase.phase}: {count(round(new.last), 'new question')}{repeated}"


def _report_table(phase: PhaseSummary) -> Table:
    first, last = phase.first_step, phase.last_step
    is_single = first == last
    steps = f"step {first}" if is_single else f"steps {first} to {last}"
    shown = [(words, name, phase.metrics[name]) for words, name in _REPORT_FIGURES if name in phase.metrics]
    rows = [(words, _change(change, single=is_single), name) for words, name, change in shown]
    return plain_table(f"reports, {steps}", "", "metric", rows=rows, right=("",))


def _harness_lines(versions: Sequence[HarnessVersion]) -> list[Text]:
    """The initial harness, each change with step and reason, and proposals that were not usable."""
    first = versions[0].harness
    rules, process = first.dimensions, first.process
    began = (
        f"k {rules.k} of {len(first.pool)}, must_include {' and '.join(rules.required)}, "
        f"weights {rules.weight_min:g} to {rules.weight_max:g}, min_tool_calls {process.min_tool_calls}"
    )
    lines = [Text(printable(f"harness {first.version} from the start: {began}"))]
    for before, version in pairwise(versions):
        changed = describe_change(before.harness, version.harness)
        if version.fault:
            lines.append(Text(printable(f"step {version.step}  the harness stays as it is: {version.fault}"), "yellow"))
        elif changed:
            said = f"step {version.step}  harness {version.harness.version}, {version.why}: {changed}"
            lines.append(Text(printable(said)))
    looks = count(len(versions) - 1, "time")
    return [*lines, Text(f"looked at {looks}; harness.jsonl and --json have the statistics it was judged by", "dim")]


def _change(change: Change | None, *, single: bool) -> str:
    if change is None:
        return ""
    return _number(change.last) if single else f"{_number(change.first)}→{_number(change.last)}"


def _number(value: float) -> str:
    """A number with three decimals, or in scientific notation if very small or large.

    _number(0.25) == "0.250"; _number(2e-5) == "2e-05"
    """
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.2g}"


def _candidate_line(counted: CandidateCount) -> Text:
    total = counted.num_kept + sum(counted.dropped.values())
    dropped = ", ".join(f"{number} {reason}" for reason, number in counted.dropped.items())
    said = f"iteration {counted.iteration}: {count(total, 'candidate')}, {counted.num_kept} kept"
    return Text(f"{said}; dropped: {dropped}" if dropped else said)


def _event_lines(events: Sequence[Event]) -> list[Text]:
    earlier = len(events) - _NUM_EVENTS
    lines = [Text(f"{count(earlier, 'earlier event')} (--json shows all)", "dim")] if earlier > 0 else []
    shown = (f"step {event.step}  {event.kind}: {event.message}" for event in events[-_NUM_EVENTS:])
    return [*lines, *(Text(printable(line), "yellow") for line in shown)]


# --------------------------------------------------------------------------------------------------------------- charts


_MAX_COLUMNS = 60
_NUM_ROWS = 6


def draw_curve(name: str, metrics: Sequence[Metric]) -> str:
    """The chart: one column for each step, or for the mean of as many steps as are needed for 60 columns to do.

    The lowest value has one eighth of a row, so that a column without a bar is one without a value.
    """
    per_column = math.ceil(len(metrics) / _MAX_COLUMNS)
    groups = [metrics[at : at + per_column] for at in range(0, len(metrics), per_column)]
    values = [math.fsum(metric.value for metric in group) / len(group) for group in groups]
    known = [value for value in values if math.isfinite(value)]
    title = name if per_column == 1 else f"{name}, means of {per_column} steps"
    if not known:
        return f"{title}: no finite value"
    low, high = min(known), max(known)
    labels = {0: f"{high:.3g}", _NUM_ROWS - 1: f"{low:.3g}"}
    width = max(map(len, labels.values())) + 1
    heights = [bar_height(value, low, high, _NUM_ROWS * len(BARS)) for value in values]  # in eighths of a row
    lines = [
        f"{labels.get(row, ''):>{width}} |{''.join(_cell(height, _NUM_ROWS - 1 - row) for height in heights)}"
        for row in range(_NUM_ROWS)
    ]
    first, last = str(metrics[0].step), str(metrics[-1].step)
    axis = " " * (width + 2) + first + last.rjust(max(len(values) - len(first), len(last) + 1))
    return "\n".join([title, *lines, axis])


def _cell(height: int, row: int) -> str:
    """The character of a column in this row, counted from below."""
    return f" {BARS}"[max(0, min(height - row * len(BARS), len(BARS)))]

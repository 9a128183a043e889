"""The pages of several runs: all of them, and a comparison of some.

RunCards(folder).read(RunsQuery(text="drzero")).page.items[0] ->
RunCard(name="notes", recipe="drzero", state=RunState("running"), step=12, figures={"reward/mean": 0.4}, ...)

compare_runs(folder, CompareQuery(run=["a", "b"])).settings ->
[SettingRow("solver.learner.learning_rate", ["1e-06", "2e-06"])]
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.runs.list import describe_state, next_command, read_brief
from quaere.runs.phases import name_phase
from quaere.runs.rows import EpisodeFilter, RunInfo, RunState
from quaere.viewer.ask_pages import ASK_KIND, read_record
from quaere.viewer.metric_groups import (
    MAIN,
    Chart,
    ChartData,
    ChartSection,
    draw_sections,
    find_steps,
    make_line,
    read_lines,
)
from quaere.viewer.page_formats import Listed, Page, cut_page
from quaere.viewer.plot import Series, thin
from quaere.viewer.run_folder import RunFolder, Signature, open_run, read_signature

MAX_RUNS = 10  # of a comparison
_ABSENT = "–"
TREND = "reward/mean"
_TREND_POINTS = 120
_NUM_FIGURES = 3
_SCORES = ("answer/exact_match", "answer/f1")  # of a run that was not trained

StateName = Literal["", "running", "stopped", "done", "failed", "unknown"]


class RunsQuery(Listed, frozen=True):
    """Which runs are listed: those whose name, kind, recipe or model has `text`, in this state.

    RunsQuery(text="drzero", state="running", page=2)
    """

    state: StateName = ""


class RunCard(Struct, frozen=True):
    """A run in the list; `problem` is the error message of a run that cannot be read.

    RunCard(name="notes", kind="evolve", recipe="drzero", model="smollm2-135m", created="2025-03-01T10:15:00+00:00",
            state=RunState("stopped"), step=12, num_episodes=640, num_answered=512, figures={"reward/mean": 0.4},
            trend=Series("reward/mean", [1, 2], [0.2, 0.4]), next="quaere evolve --resume runs/notes")

    `question` and `answer` are those of a run of `quaere ask` with a single question.
    """

    name: str
    kind: str = ""
    recipe: str = ""
    model: str = ""
    created: str = ""
    state: RunState = RunState("unknown")
    step: int = 0
    num_episodes: int = 0
    num_answered: int = 0
    figures: dict[str, float] = {}
    trend: Series = Series(TREND, [], [])
    trend_phase: str = ""  # of which the trend is; "" if the run has no phases
    next: str = ""
    problem: str = ""
    question: str = ""
    answer: str = ""


class RunsPage(Struct, frozen=True):
    """One page of the runs that a query selects, newest first; `num_runs` counts all runs of the folder."""

    folder: str
    query: RunsQuery
    num_runs: int
    page: Page[RunCard]


class CompareQuery(Struct, frozen=True):
    """The names of the runs to compare.

    CompareQuery(run=["first", "second"])
    """

    run: list[str] = []


class SettingRow(Struct, frozen=True):
    """A setting and its value in each run; "–" where a run has none.

    SettingRow("solver.batch", ["64", "32"])
    """

    name: str
    values: list[str]


class Compared(Struct, frozen=True):
    """One of the compared runs; `said` is its state in words.

    Compared(name="first", said="done after step 50", created="2025-03-01T10:15:00+00:00", last_step=50)
    """

    name: str
    said: str
    created: str
    first_step: int
    last_step: int


class ComparePage(Struct, frozen=True):
    """Several runs: what was set differently, and a chart per metric with a line per run."""

    runs: list[Compared]
    settings: list[SettingRow]
    sections: list[ChartSection]
    first_step: int
    last_step: int
    num_left_out: int = 0  # metrics beyond those of `sections`


class RunCards:
    """Reads and caches one `RunCard` per run; a run is read in full only when a page shows it or it has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._kept: dict[str, tuple[Signature, RunCard, bool]] = {}  # by name: the card, and if it is complete

    def read(self, query: RunsQuery) -> RunsPage:
        """One page of the runs that the query selects."""
        paths = self._folder.paths()
        self._kept = {name: kept for name, kept in self._kept.items() if name in paths}
        # Only a state has to be read before it can be selected by: it is not among what a run is begun with.
        cards = [self._card(name, path, complete=bool(query.state)) for name, path in paths.items()]
        found = [card for card in cards if _admits(query, card)]
        found.sort(key=lambda card: (card.created, card.name), reverse=True)
        page = cut_page(found, query.page)
        shown = page.map(lambda card: self._card(card.name, paths[card.name], complete=True))
        return RunsPage(str(self._folder.root), query, len(cards), shown)

    def names_of_kind(self, kind: str) -> list[str]:
        """Names of the runs of a kind, such as "eval", the newest first."""
        cards = [self._card(name, path, complete=False) for name, path in self._folder.paths().items()]
        found = sorted((card for card in cards if card.kind == kind), key=lambda card: card.created, reverse=True)
        return [card.name for card in found]

    def _card(self, name: str, path: Path, *, complete: bool) -> RunCard:
        signature = read_signature(path)
        kept = self._kept.get(name)
        if kept is None or kept[0] != signature or (complete and not kept[2]):
            kept = self._kept[name] = (signature, _read_card(name, path, complete), complete)
        return kept[1]


def name_model(settings: dict[str, Any]) -> str:
    """The model's name from a run's settings: the setting `model`, else a `run` that is text; "" if neither is set."""
    given = settings.get("model") or (settings.get("run") if isinstance(settings.get("run"), str) else "")
    return given if isinstance(given, str) else ""


def pick_figures(metrics: dict[str, float]) -> dict[str, float]:
    """The first three finite metrics of `MAIN` among these."""
    known = {name: metrics[name] for name in MAIN if math.isfinite(metrics.get(name, math.nan))}
    return dict(list(known.items())[:_NUM_FIGURES])


def _read_card(name: str, path: Path, complete: bool) -> RunCard:
    info = None if complete else read_brief(str(path))
    if info is not None:
        return _describe(info, name)
    try:
        with open_run(path) as run:
            card = _describe(run.info, name)
            return _complete(run, card) if complete else card
    except BadInput as error:
        return RunCard(name=name, problem=str(error))


def _describe(info: RunInfo, name: str) -> RunCard:
    """The part of a card that is known when a run starts: kind, recipe, model and time."""
    return RunCard(
        name=name,
        kind=info.kind,
        recipe=str(info.settings.get("recipe", "")),
        model=name_model(info.settings),
        created=info.created,
    )


def _complete(run: Run, card: RunCard) -> RunCard:
    """The card with state, step, counts, metrics and trend added."""
    state, step = run.state(), run.last_step()
    num_episodes, num_answered = run.count_episodes()
    phase, series = _read_trend(run) if step else ("", Series(TREND, [], []))
    asked = run.rows(EpisodeFilter()) if run.info.kind == ASK_KIND and num_episodes == 1 else []
    record = read_record(run, asked[0]) if asked else None
    return structs.replace(
        card,
        state=state,
        step=step,
        num_episodes=num_episodes,
        num_answered=num_answered,
        figures=pick_figures(run.metrics_at(step)) if step else _read_scores(run),
        trend=thin(series, _TREND_POINTS),
        trend_phase=phase,
        next=next_command(run, state),
        question=record.question if record else "",
        answer=record.answer if record else "",
    )


def _read_scores(run: Run) -> dict[str, float]:
    """Mean scores of a run without training steps: those that `quaere eval` logged at its end, else over episodes."""
    logged = run.metrics_at(0)
    scores = [logged] if logged else [row.metrics for row in run.rows(EpisodeFilter())]
    values = {name: [one[name] for one in scores if math.isfinite(one.get(name, math.nan))] for name in _SCORES}
    return {name: sum(found) / len(found) for name, found in values.items() if found}


def _read_trend(run: Run) -> tuple[str, Series]:
    """A phase and its mean rewards by step: the solver's phase, or the latest phase if the solver has none yet.

    Rewards of proposer and solver are not comparable: in one curve, a run that learns would look as if it failed.
    """
    trend = run.metrics(TREND)
    phase_at = {metric.step: name_phase(metric.value, run) for metric in run.metrics("run/phase")}
    phases = [phase_at.get(metric.step, "") for metric in trend]
    phase = "solver" if "solver" in phases else phases[-1] if phases else ""
    shown = [metric for metric, each in zip(trend, phases, strict=True) if each == phase]
    return phase, make_line(TREND, shown)


def _admits(query: RunsQuery, card: RunCard) -> bool:
    text = query.text.casefold()
    words = (card.name, card.kind, card.recipe, card.model)
    return query.state in ("", card.state.name) and any(text in word.casefold() for word in words)


# ---------------------------------------------------------------------------------------------------------- comparison


def compare_runs(folder: RunFolder, query: CompareQuery) -> ComparePage:
    """The page that compares two to `MAX_RUNS` runs; `BadInput` for fewer or more."""
    names = list(dict.fromkeys(query.run))
    if not 2 <= len(names) <= MAX_RUNS:
        raise BadInput(
            f"{len(names)} runs to compare: 2 to {MAX_RUNS} are possible", hint="mark them in the list of runs"
        )
    runs: list[Compared] = []
    settings: list[dict[str, str]] = []
    lines: list[dict[str, Series]] = []
    for name in names:
        with folder.open(name) as run:
            lines.append(read_lines(run, name))
            first, last = find_steps(lines[-1].values())
            runs.append(Compared(name, describe_state(run.state(), last), run.info.created, first, last))
            settings.append(flatten(_read_settings(run)))

    def draw(chart: Chart) -> list[ChartData]:
        """A chart per metric; a run without it has an empty line, so that colours stay."""
        owned = list(zip(names, lines, strict=True))
        return [ChartData(each, [of.get(each, Series(name, [], [])) for name, of in owned]) for each in chart.names]

    sections, num_left_out = draw_sections(sorted({each for of in lines for each in of}), draw)
    return ComparePage(
        runs=runs,
        settings=differing(settings),
        sections=sections,
        num_left_out=num_left_out,
        first_step=min((run.first_step for run in runs if run.last_step), default=0),
        last_step=max(run.last_step for run in runs),
    )


def flatten(value: object, name: str = "") -> dict[str, str]:
    """Nested settings as one flat dict from dotted names to values as text.

    flatten({"solver": {"batch": 64}, "seed": 0}) == {"solver.batch": "64", "seed": "0"}
    """
    if isinstance(value, dict) and value:
        return {
            key: text
            for part, inner in value.items()
            for key, text in flatten(inner, f"{name}.{part}" if name else str(part)).items()
        }
    return {name: str(value)}


def differing(settings: list[dict[str, str]]) -> list[SettingRow]:
    """The settings that are not the same in all runs, in the order in which they occur first."""
    names = dict.fromkeys(name for each in settings for name in each)
    rows = [SettingRow(name, [each.get(name, _ABSENT) for each in settings]) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _read_settings(run: Run) -> dict[str, Any]:
    try:
        return {"recipe": run.info.settings.get("recipe", _ABSENT), **run.config}
    except BadInput:  # a run that was not trained has no config
        return dict(run.info.settings)

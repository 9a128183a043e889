"""The list of runs.

RunCards(folder).read(RunsQuery(text="drzero")).page.items[0] ->
RunCard(name="notes", recipe="drzero", state=RunState("running"), step=12, figures={"reward/mean": 0.4}, ...)
"""

import math
from pathlib import Path
from typing import Any, Literal

from msgspec import field, structs

from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.runs.rows import EpisodeFilter, RunInfo
from quaere.runs.summaries import ListedRun, read_brief, read_progress
from quaere.viewer.answer_view import ASK_KIND, read_record
from quaere.viewer.metric_charts import (
    MAIN,
    make_line,
)
from quaere.viewer.page_formats import Listed, ListPage, cut_page
from quaere.viewer.plot import Series, thin
from quaere.viewer.run_folder import Kept, RunFolder, open_run, read_signature

TREND = "reward/mean"
_TREND_POINTS = 120
_NUM_FIGURES = 3
_SCORES = ("answer/exact_match", "answer/f1")  # metrics shown for a run that was not trained

StateName = Literal["", "running", "stopped", "done", "failed", "unknown"]


class RunsQuery(Listed, frozen=True):
    """Which runs are listed: those whose name, kind, recipe or model has `text`, in this state.

    RunsQuery(text="drzero", state="running", page=2)
    """

    state: StateName = ""


class RunCard(ListedRun, frozen=True):
    """A run in the list.

    RunCard(name="notes", kind="evolve", recipe="drzero", model="smollm2-135m", created="2025-03-01T10:15:00+00:00",
            state=RunState("stopped"), step=12, num_episodes=640, num_answered=512, figures={"reward/mean": 0.4},
            trend=Series("reward/mean", [1, 2], [0.2, 0.4]), next="quaere evolve --resume runs/notes")

    `question` and `answer` are those of a run of `quaere ask` with a single question.
    """

    name: str
    recipe: str = ""
    model: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    trend: Series = Series(TREND, [], [])
    trend_phase: str = ""  # the phase that the trend shows; "" if the run has no phases
    question: str = ""
    answer: str = ""


class RunsPage(ListPage[RunsQuery, RunCard], frozen=True):
    """One page of the runs that a query selects, newest first; `num_runs` counts all runs of the folder."""

    folder: str
    num_runs: int


class RunCards:
    """Reads and caches one `RunCard` per run; a run is read in full once a page shows it, and again after a change."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._brief, self._complete = Kept[RunCard](), Kept[RunCard]()

    def read(self, query: RunsQuery) -> RunsPage:
        """One page of the runs that the query selects."""
        paths = self._folder.paths()
        # Filtering by state needs the complete cards; the other filters use what is stored when a run begins.
        cards = [self._card(name, path, complete=bool(query.state)) for name, path in paths.items()]
        found = [card for card in cards if _admits(query, card)]
        found.sort(key=lambda card: (card.created, card.name), reverse=True)
        shown = cut_page(found, query.page).map(lambda card: self._card(card.name, paths[card.name], complete=True))
        return RunsPage(query, shown, str(self._folder.root), len(cards))

    def names_of_kind(self, kind: str) -> list[str]:
        """Names of the runs of a kind, such as "eval", the newest first."""
        cards = [self._card(name, path, complete=False) for name, path in self._folder.paths().items()]
        found = sorted((card for card in cards if card.kind == kind), key=lambda card: card.created, reverse=True)
        return [card.name for card in found]

    def _card(self, name: str, path: Path, *, complete: bool) -> RunCard:
        kept = self._complete if complete else self._brief
        return kept.get(name, read_signature(path), lambda: _read_card(name, path, complete))


def name_model(settings: dict[str, Any]) -> str:
    """The model's name from a run's settings: the setting `model`, else a `run` that is text; "" if neither is set."""
    given = settings.get("model") or settings.get("run")
    return given if isinstance(given, str) else ""


def _read_card(name: str, path: Path, complete: bool) -> RunCard:
    info = None if complete else read_brief(str(path))
    if info is not None:
        return _describe(info, name)
    try:
        with open_run(path) as run:
            card = _describe(run.info, name)
            return _complete(run, card) if complete else card
    except BadInput as error:
        return RunCard(name, problem=str(error))


def _describe(info: RunInfo, name: str) -> RunCard:
    return RunCard(
        name=name,
        kind=info.kind,
        recipe=str(info.settings.get("recipe", "")),
        model=name_model(info.settings),
        created=info.created,
    )


def _complete(run: Run, card: RunCard) -> RunCard:
    card = read_progress(run, card)
    phase, series = _read_trend(run) if card.step else ("", Series(TREND, [], []))
    asked = run.rows(EpisodeFilter()) if run.info.kind == ASK_KIND and card.num_episodes == 1 else []
    record = read_record(run, asked[0]) if asked else None
    metrics = run.metrics_at(card.step)
    main = [(name, metrics[name]) for name in MAIN if math.isfinite(metrics.get(name, math.nan))]
    return structs.replace(
        card,
        figures=dict(main[:_NUM_FIGURES]) if card.step else _read_scores(run, metrics),
        trend=thin(series, _TREND_POINTS),
        trend_phase=phase,
        question=record.question if record else "",
        answer=record.answer if record else "",
    )


def _read_scores(run: Run, logged: dict[str, float]) -> dict[str, float]:
    """Mean scores of a run without training steps: those that `quaere eval` logged at its end, else over episodes."""
    scores = [logged] if logged else [row.metrics for row in run.rows(EpisodeFilter())]
    values = {name: [one[name] for one in scores if math.isfinite(one.get(name, math.nan))] for name in _SCORES}
    return {name: sum(found) / len(found) for name, found in values.items() if found}


def _read_trend(run: Run) -> tuple[str, Series]:
    """A phase and its mean rewards by step: the solver's phase, or the latest phase if the solver has none yet.

    Rewards of proposer and solver are not comparable: in one curve, a run that learns would look as if it failed.
    """
    trend = run.metrics(TREND)
    phase_at = {metric.step: run.name_phase(metric.value) for metric in run.metrics("run/phase")}
    phases = [phase_at.get(metric.step, "") for metric in trend]
    phase = "solver" if "solver" in phases else phases[-1] if phases else ""
    return phase, make_line(TREND, [metric for metric, each in zip(trend, phases, strict=True) if each == phase])


def _admits(query: RunsQuery, card: RunCard) -> bool:
    words = (card.name, card.kind, card.recipe, card.model)
    has_text = any(query.text.casefold() in word.casefold() for word in words)
    return has_text and query.state in ("", card.state.name)

"""Two or more runs side by side: settings that differ, how each improved, and which questions only one has right.

compare_runs(folder, results, CompareQuery(run=["a", "b"])).settings ->
[SettingRow("solver.learner.learning_rate", ["1e-06", "2e-06"])]
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, paired_difference
from quaere.runs.rows import Outcome
from quaere.runs.summaries import describe_state
from quaere.viewer.evaluation_pages import EvaluationResults
from quaere.viewer.evaluation_pair import find_gain
from quaere.viewer.learning_map import NAMED_ROWS, Cell, count_cell, cut_panels, read_last, split_outcomes
from quaere.viewer.measurements import find_typical
from quaere.viewer.metric_charts import ChartData, ChartSection, draw_sections, find_steps, read_lines
from quaere.viewer.plot import Series
from quaere.viewer.run_folder import RunFolder
from quaere.viewer.run_glance import Headline, read_headline

MAX_RUNS = 10  # runs that can be compared at once
MAX_QUESTIONS = 2000  # questions of a difference that are shown
_NUM_SHOWN = 6
_ABSENT = "–"
Change = Literal["gained", "lost", "both", "neither"]
# By whether the first and the second run have a question mostly right.
_CHANGES: dict[tuple[bool, bool], Change] = {
    (False, True): "gained",
    (True, False): "lost",
    (True, True): "both",
    (False, False): "neither",
}


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

    Compared(name="first", said="done after step 50", created="2025-03-01T10:15:00+00:00", last_step=50, ...)
    """

    name: str
    said: str
    created: str
    first_step: int
    last_step: int
    headline: Headline | None


class DifferentRow(Struct, frozen=True):
    """A question that two runs attempted: the last attempts of each, and the answer that stands for them.

    DifferentRow("Who built it?", ["q1", "q1"], [Cell(1, 0, 8, 12), Cell(8, 0, 8, 12)], ["Brod", "Venn"], "gained")
    """

    question: str
    tasks: list[str]
    cells: list[Cell]
    answers: list[str | None]
    change: Change


class Difference(Struct, frozen=True):
    """The questions that two runs attempted: how many each has mostly right, and the second minus the first in all.

    "gained" are questions that only the second run has right, "lost" those that only the first has.
    """

    is_held_back: bool
    rows: list[DifferentRow]
    counts: dict[Change, int]
    difference: Interval
    num_left_out: int

    def of(self, change: Change) -> list[DifferentRow]:
        """Some questions with this change."""
        return [row for row in self.rows if row.change == change][:_NUM_SHOWN]

    @property
    def panels(self) -> list[list[DifferentRow]]:
        """The rows split into two panels that are shown side by side."""
        return cut_panels(self.rows, 2)

    @property
    def is_named(self) -> bool:
        """True if rows have the text of their question beside them."""
        return len(self.rows) <= NAMED_ROWS


class ComparePage(Struct, frozen=True):
    """Several runs: what was set differently, a chart per metric with a line per run, and for two their difference."""

    runs: list[Compared]
    settings: list[SettingRow]
    sections: list[ChartSection]
    first_step: int
    last_step: int
    num_left_out: int  # metrics beyond those of `sections`
    difference: Difference | None  # only for two runs that attempted the same questions


def compare_runs(folder: RunFolder, results: EvaluationResults, query: CompareQuery) -> ComparePage:
    """The page that compares two to `MAX_RUNS` runs, the oldest first; `BadInput` for fewer or more."""
    names = list(dict.fromkeys(query.run))
    if not 2 <= len(names) <= MAX_RUNS:
        said = f"{len(names)} runs to compare: 2 to {MAX_RUNS} are possible"
        raise BadInput(said, hint="mark them in the list of runs")
    # The list has the newest first, and what changed is the later minus the earlier.
    names.sort(key=lambda name: _read_created(folder, name))
    runs: list[Compared] = []
    settings: list[dict[str, str]] = []
    lines: list[dict[str, Series]] = []
    outcomes: list[list[Outcome]] = []
    for name in names:
        with folder.open(name) as run:
            lines.append(read_lines(run, name))
            first, last = find_steps(lines[-1].values())
            headline = read_headline(run, name, lines[-1], results)
            runs.append(Compared(name, describe_state(run.state(), last), run.info.created, first, last, headline))
            settings.append(flatten(_read_settings(run)))
            outcomes.append(run.outcomes() if len(names) == 2 else [])

    def draw(title: str, metrics: list[str]) -> list[ChartData]:
        """A chart per metric; a run without it has an empty line, so that colours stay."""
        owned = list(zip(names, lines, strict=True))
        return [ChartData(each, [of.get(each, Series(name, [], [])) for name, of in owned]) for each in metrics]

    sections, num_left_out = draw_sections(sorted({each for of in lines for each in of}), draw)
    return ComparePage(
        runs=runs,
        settings=_differing(settings),
        sections=sections,
        num_left_out=num_left_out,
        first_step=min((run.first_step for run in runs if run.last_step), default=0),
        last_step=max(run.last_step for run in runs),
        difference=find_difference(outcomes[0], outcomes[1], find_gain(results, names[1], names[0]))
        if len(names) == 2
        else None,
    )


def _read_created(folder: RunFolder, name: str) -> str:
    with folder.open(name) as run:
        return run.info.created


def find_difference(
    first: Sequence[Outcome], second: Sequence[Outcome], gain: Interval | None = None
) -> Difference | None:
    """The questions that both runs attempted, held-back ones if there are any; None if there are none.

    `gain` is the difference of two evaluations, which is then the same on all pages.
    """
    pairs = zip((True, False), split_outcomes(first), split_outcomes(second), strict=True)
    for is_held_back, ours, theirs in pairs:
        one, other = read_last(ours), read_last(theirs)
        both = [key for key in one if key in other]
        if both:
            rows = [_pair(key[0], one[key], other[key]) for key in both]
            shares = ([row.cells[at].num_right / row.cells[at].num for row in rows] for at in (1, 0))
            order = list(_CHANGES.values())
            return Difference(
                is_held_back=is_held_back,
                rows=sorted(rows, key=lambda row: order.index(row.change))[:MAX_QUESTIONS],
                counts={change: sum(row.change == change for row in rows) for change in order},
                difference=gain or paired_difference(*shares),
                num_left_out=max(0, len(rows) - MAX_QUESTIONS),
            )
    return None


def _pair(question: str, first: list[Outcome], second: list[Outcome]) -> DifferentRow:
    sides = (first, second)
    one, other = map(count_cell, sides)
    change = _CHANGES[one.is_mostly_right, other.is_mostly_right]
    answers = [find_typical(group).answer for group in sides]
    return DifferentRow(question, [group[0].task_id for group in sides], [one, other], answers, change)


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


def _differing(settings: list[dict[str, str]]) -> list[SettingRow]:
    """The settings that are not the same in all runs, in the order in which they occur first."""
    names = dict.fromkeys(name for each in settings for name in each)
    rows = [SettingRow(name, [each.get(name, _ABSENT) for each in settings]) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _read_settings(run: Run) -> dict[str, Any]:
    try:
        return {"recipe": run.info.settings.get("recipe", _ABSENT), **run.config}
    except BadInput:  # a run that was not trained has no config
        return dict(run.info.settings)

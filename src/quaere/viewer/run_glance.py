"""A run at a glance: has it improved, what did it learn, what does it ask itself, and what does it still get wrong?

read_glance(run, "notes", lines, results).headline ->
Headline(before=Interval(0.31, ...), after=Interval(0.52, ...), gain=Interval(0.21, ...), is_held_back=True, ...)
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from quaere.api.run import Run
from quaere.evaluation.intervals import (
    Interval,
    bootstrap_interval,
    clustered_difference,
    paired_difference,
    rate_interval,
    unpaired_difference,
)
from quaere.grouping import group_by
from quaere.viewer.evaluation_pages import EvaluationResults
from quaere.viewer.measurements import (
    HIDDEN,
    RIGHT,
    Asked,
    Measured,
    Tried,
    find_measured,
    read_accepted,
    read_asks,
    take_turns,
)
from quaere.viewer.page_formats import copy_fields
from quaere.viewer.plot import Series, is_drawn
from quaere.viewer.run_folder import RunFolder

_OTHER_CURVES = {"report/finished": "Reports that were finished", "reward/mean": "Mean reward"}
_NUM_SHOWN = 10
_NUM_RESAMPLES = 2000


class Attempted(Struct, frozen=True):
    """A question with the attempts at it before (None if there were none) and after."""

    asked: Asked
    before: Tried | None
    after: Tried


class KindRow(Struct, frozen=True):
    """Shares of right answers to questions of one kind, before (None if there were none) and after.

    KindRow("2 searches", Interval(0.2, 0.1, 0.3, 40), Interval(0.4, 0.3, 0.5, 40))
    """

    kind: str
    before: Interval | None
    after: Interval


class Headline(Struct, frozen=True):
    """Shares of right answers before and after, and the difference; what follows is as in `Measured`.

    Headline(before=Interval(...), after=Interval(...), gain=Interval(0.21, 0.1, 0.32, 64), is_held_back=True,
             since="before step 1", until="after step 30")
    """

    before: Interval
    after: Interval
    gain: Interval
    is_held_back: bool
    since: str
    until: str
    refused: list[Interval]
    best_step: int | None


class Curve(Struct, frozen=True):
    """The one curve of a run, and what it shows."""

    title: str
    series: Series
    is_share: bool = True


class Glance(Struct, frozen=True):
    """What the page of a training run shows first; `headline` is None if answers were not scored twice.

    `learned` are questions that were mostly wrong before and are mostly right after, `wrong` those that are never right
    after. Both are the first few, with their kinds in turn; `num_learned` and `num_wrong` count all, of `num_measured`,
    of which `num_again` were answered before. `num_lost` were mostly right before and are mostly wrong after.
    """

    headline: Headline | None
    curve: Curve | None
    num_questions: int
    seconds: float
    asks: list[Asked]
    learned: list[Attempted]
    num_learned: int
    num_lost: int
    wrong: list[Attempted]
    num_wrong: int
    num_measured: int
    num_again: int
    kinds: list[KindRow]
    has_hidden: bool  # some questions are to be refused


def read_glance(
    run: Run, name: str, lines: Mapping[str, Series], folder: RunFolder, results: EvaluationResults
) -> Glance:
    """Read the glance of a run; `lines` are its metrics by name."""
    seen = find_measured(run, name, lines, results) or Measured({}, {}, {}, {}, False, "", "")
    again = [id for id in seen.after if id in seen.earlier]
    learned = [id for id in again if seen.earlier[id].share < 0.5 < seen.after[id].share]
    lost = [id for id in again if seen.after[id].share < 0.5 < seen.earlier[id].share]
    wrong = [id for id, tried in seen.after.items() if not tried.share]
    seconds = lines["step/seconds"].values if "step/seconds" in lines else []
    return Glance(
        headline=_compare(seen),
        curve=_find_curve(lines, seen),
        num_questions=_count_questions(lines),
        seconds=sum(value for value in seconds if is_drawn(value)),
        asks=read_asks(run, _NUM_SHOWN),
        learned=_show(seen, learned, folder),
        num_learned=len(learned),
        num_lost=len(lost),
        wrong=_show(seen, wrong, folder),
        num_wrong=len(wrong),
        num_measured=len(seen.after),
        num_again=len(again),
        kinds=_rate_kinds(seen),
        has_hidden=any(asked.kind == HIDDEN for asked in seen.asked.values()),
    )


def read_headline(run: Run, name: str, lines: Mapping[str, Series], results: EvaluationResults) -> Headline | None:
    """The headline of a run alone."""
    seen = find_measured(run, name, lines, results)
    return _compare(seen) if seen else None


def _compare(seen: Measured) -> Headline | None:
    """The headline of two measurements; None if one of them is empty.

    Held-back questions are the same before and after, so the difference is paired; practised ones are different.
    """
    before, after = ({id: tried.share for id, tried in of.items()} for of in (seen.before, seen.after))
    if seen.is_held_back:
        both = [id for id in after if id in before]
        before, after = ({id: of[id] for id in both} for of in (before, after))
    if not before or not after:
        return None
    ours, theirs = [*after.values()], [*before.values()]
    if seen.clusters:
        gain = clustered_difference(ours, theirs, [seen.clusters.get(id, id) for id in after])
    elif seen.is_held_back:
        gain = paired_difference(ours, theirs)
    else:
        gain = unpaired_difference(ours, theirs, num_resamples=_NUM_RESAMPLES)
    return copy_fields(Headline, seen, before=rate(theirs), after=rate(ours), gain=gain)


def rate(shares: Sequence[float]) -> Interval:
    """As `rate_interval`, with fewer resamples if there are many shares: a page must not wait for the third digit."""
    is_small = len(shares) <= 100 or len(set(shares)) == 1
    return rate_interval(shares) if is_small else bootstrap_interval(shares, num_resamples=_NUM_RESAMPLES)


def _find_curve(lines: Mapping[str, Series], seen: Measured) -> Curve | None:
    """The first curve with two values: of held-back questions, practised ones, or another metric; None if none has."""
    found = [] if seen.course is None else [Curve("Held-back questions answered right", seen.course)]
    if RIGHT in lines:
        found.append(Curve("Practised questions answered right", _practice(lines)))
    found += [
        Curve(title, lines[name], name != "reward/mean") for name, title in _OTHER_CURVES.items() if name in lines
    ]
    return next((curve for curve in found if sum(map(is_drawn, curve.series.values)) > 1), None)


def _practice(lines: Mapping[str, Series]) -> Series:
    """The pass rate, in which a right refusal counts, at the steps at which answers were scored."""
    scored, passes = lines[RIGHT], lines.get("passes/mean", Series("", [], []))
    rates = dict(zip(passes.steps, passes.values, strict=True))
    is_complete = all(is_drawn(rates.get(step, math.nan)) for step in scored.steps)
    return Series("practice", scored.steps, [rates[step] for step in scored.steps]) if is_complete else scored


def _count_questions(lines: Mapping[str, Series]) -> int:
    """Questions practised on, as the run logs them; 0 if it does not."""
    logged = lines.get("questions/distinct")
    return int(logged.values[-1]) if logged and is_drawn(logged.values[-1]) else 0


def _show(seen: Measured, ids: Sequence[str], folder: RunFolder) -> list[Attempted]:
    """The first few of these questions, with their kinds in turn."""
    shown = take_turns(seen.asked[id] for id in ids if id in seen.asked)[:_NUM_SHOWN]
    return [
        Attempted(_accept(asked, seen.after[asked.id], folder), seen.earlier.get(asked.id), seen.after[asked.id])
        for asked in shown
    ]


def _accept(asked: Asked, tried: Tried, folder: RunFolder) -> Asked:
    """The question with its accepted answers, from an attempt if they are not known."""
    if asked.answers or asked.kind == HIDDEN:
        return asked
    with folder.open(tried.run) as run:
        return structs.replace(asked, answers=read_accepted(run, tried.episode))


def _rate_kinds(seen: Measured) -> list[KindRow]:
    """Shares by kind of question, the worst first; [] if there is only one kind."""
    kinds = {id: asked.kinds for id, asked in seen.asked.items()}
    before, after = (group_by(of, lambda id: kinds.get(id, "")) for of in (seen.before, seen.after))
    rows = [
        KindRow(
            kind or "other",
            rate([seen.before[id].share for id in before[kind]]) if kind in before else None,
            rate([seen.after[id].share for id in ids]),
        )
        for kind, ids in after.items()
    ]
    return sorted(rows, key=lambda row: row.after.mean) if len(rows) > 1 else []

"""Differences between evaluations: paired question by question, of two results or of two arms of several seeds.

    compare(ours, theirs).exact_match -> Interval(mean=0.06, low=0.02, high=0.1, num=500)
    compare_arms("evolved", [seed_0, seed_1], "warm", [start_0, start_1], same_start=True).exact_match.by_seed

`open_exact_match` leaves out yes/no questions and choices, where a model gains by saying another constant.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from quaere.errors import BadInput
from quaere.evaluation.intervals import (
    Interval,
    SeededInterval,
    paired_difference,
    seeded_difference,
    smallest_difference,
)
from quaere.evaluation.qa.abstaining import find_lost
from quaere.evaluation.qa.answer_kinds import CLOSED, KINDS
from quaere.evaluation.qa.items import Item
from quaere.evaluation.qa.scores import Scored
from quaere.grouping import grouped

_SEED = re.compile(r"-(\d+)$")


class Difference(Struct, frozen=True):
    """One evaluation minus another over the questions they share.

    Metrics that one of them lacks, and support decided by different judges, are None. `gold` and `gold_joint` are over
    questions whose gold passages are known in both. `open_exact_match` is over open questions (neither yes/no nor a
    choice), None unless there are open and closed ones and every kind is known. All are over questions with accepted
    answers. `lost` is the share of the other's right answers that this one abstained from, None if it never did, and
    `refused` the difference in the share of unanswerable questions that were refused. `smallest` is the minimum
    detectable difference of each metric, `by_kind` the difference in exact match by kind of answer.

        Difference(other="base", exact_match=Interval(mean=0.06, low=0.02, high=0.1, num=500), f1=Interval(...),
                   smallest={"exact_match": 0.055, "f1": 0.05})
    """

    other: str
    exact_match: Interval
    f1: Interval
    present: Interval | None = None
    verbatim: Interval | None = None
    supported: Interval | None = None
    joint: Interval | None = None
    gold: Interval | None = None
    gold_joint: Interval | None = None
    open_exact_match: Interval | None = None
    lost: Interval | None = None
    refused: Interval | None = None
    smallest: dict[str, float] = {}
    by_kind: dict[str, Interval] = {}


class ArmDifference(Struct, frozen=True):
    """One arm minus another over the questions that all their results share; an arm has one result per training seed.

    `refused` is the difference in the share of unanswerable questions that were refused.

    ArmDifference(name="evolved", other="warm", num_seeds=(3, 3), exact_match=SeededInterval(...), f1=...)
    """

    name: str
    other: str
    num_seeds: tuple[int, int]
    exact_match: SeededInterval
    f1: SeededInterval
    open_exact_match: SeededInterval | None = None
    refused: SeededInterval | None = None


def pair_up(ours: Scored, theirs: Scored) -> list[tuple[Item, Item]]:
    """The questions that both results have, with the same id and text."""
    known = {item.key: item for item in theirs.items}
    return [(item, known[item.key]) for item in ours.items if item.key in known]


def pair_by_metric(ours: Scored, theirs: Scored) -> dict[str, list[tuple[Item, Item]]]:
    """The answerable questions that each metric is compared over, by metric that both results have; {} without any."""
    pairs = [pair for pair in pair_up(ours, theirs) if pair[0].answerable]
    if not pairs:
        return {}
    measures = ["exact_match", "f1"]
    if all(item.present is not None for pair in pairs for item in pair):
        measures += ["present", "verbatim"]
        # Decisions of different judges are not comparable.
        if ours.judging and theirs.judging and ours.judging.judge == theirs.judging.judge:
            measures += ["supported", "joint"]
    compared = dict.fromkeys(measures, pairs)
    if with_gold := [pair for pair in pairs if all(item.gold is not None for item in pair)]:
        compared |= dict.fromkeys(["gold", "gold_joint"], with_gold)
    by_kind = _pair_by_kind(pairs)
    opened = [pair for kind, chosen in by_kind.items() if kind not in CLOSED for pair in chosen]
    if opened and sum(map(len, by_kind.values())) == len(pairs) > len(opened):
        compared["open_exact_match"] = opened
    return compared


def _pair_by_kind(pairs: Sequence[tuple[Item, Item]]) -> dict[str, list[tuple[Item, Item]]]:
    # Older files do not store the kind of a question, so it is taken from either side.
    kinds = {kind: [pair for pair in pairs if (pair[0].kind or pair[1].kind) == kind] for kind in KINDS}
    return {kind: chosen for kind, chosen in kinds.items() if chosen}


def compare(ours: Scored, theirs: Scored) -> Difference | None:
    """`ours` minus `theirs` over answerable questions with the same id and text; None if they share none."""
    compared, found, smallest = pair_by_metric(ours, theirs), {}, {}
    if not compared:
        return None
    for measure, chosen in compared.items():
        field = measure.removeprefix("open_")
        mine, others = ([float(getattr(item, field) or 0) for item in side] for side in zip(*chosen, strict=True))
        found[measure] = paired_difference(mine, others)
        smallest[measure] = smallest_difference(mine, others)
    pairs = compared["exact_match"]
    gains: dict[str, Interval] = {
        kind: paired_difference(*([item.exact_match for item in side] for side in zip(*chosen, strict=True)))
        for kind, chosen in _pair_by_kind(pairs).items()
    }
    if unanswerable := [pair for pair in pair_up(ours, theirs) if not pair[0].answerable]:
        found["refused"] = paired_difference(
            *([item.right for item in side] for side in zip(*unanswerable, strict=True))
        )
    return Difference(other=theirs.name, smallest=smallest, by_kind=gains, lost=find_lost(pairs), **found)


# --------------------------------------------------------------------------------------------------------------- seeds


def group_seeds(named: Iterable[tuple[str, Scored]]) -> dict[str, list[Scored]]:
    """Results by arm: names that differ only in a final "-NUMBER" are seeds of the same arm.

    group_seeds([("warm-0", a), ("warm-1", b), ("evolved-0", c)]) -> {"warm": [a, b], "evolved": [c]}
    """
    return grouped((_SEED.sub("", name), scored) for name, scored in named)


def compare_arms(
    name: str, ours: Sequence[Scored], other: str, theirs: Sequence[Scored], *, same_start: bool = False
) -> ArmDifference:
    """One arm minus another over questions and seeds; `same_start` as in `seeded_difference`."""
    sides = [[{item.key: item for item in scored.items} for scored in arm] for arm in (ours, theirs)]
    files = [file for side in sides for file in side]
    shared = {key: item for key, item in files[0].items() if all(key in file for file in files)}
    keys = [key for key, item in shared.items() if item.answerable]
    unanswerable = [key for key, item in shared.items() if not item.answerable]
    if not keys:
        raise BadInput(f"the files of {name} and {other} share no answerable question")
    if same_start and len(ours) != len(theirs):
        raise BadInput(f"paired seeds: {name} has {len(ours)} files and {other} has {len(theirs)}")

    def differ(field: str, chosen: Sequence[tuple[str, str]]) -> SeededInterval:
        values = [[[float(getattr(file[key], field)) for key in chosen] for file in side] for side in sides]
        return seeded_difference(*values, same_start=same_start)

    kinds = {key: next((file[key].kind for file in files if file[key].kind), "") for key in keys}
    opened = [key for key in keys if kinds[key] not in CLOSED]
    is_split = all(kinds.values()) and 0 < len(opened) < len(keys)
    exact_match, f1 = (differ(field, keys) for field in ("exact_match", "f1"))
    apart = differ("exact_match", opened) if is_split else None
    refused = differ("right", unanswerable) if unanswerable else None
    return ArmDifference(name, other, (len(ours), len(theirs)), exact_match, f1, apart, refused)

"""Lessons in choosing rubrics: random rules, random advice, and a rubric that follows both.

harness, hints = draw_harness(dice), draw_hints(harness, dice)
rubric = draw_rubric(harness, hints, kinds=("comparison",), dice=dice)
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.chat.dimensions import POOL
from quaere.chat.question_wordings import OpenKind
from quaere.records import DimensionRules, Harness, Hints, ProcessRules, Rubric, Weight
from quaere.warmup import report_phrases as words_research
from quaere.warmup.phrases import write_thought
from quaere.worlds.dice import Dice

_MIN_POOL = 5
_MAX_K = 6
_WHOLE_POOL_PERCENT = 50
_USUAL_PRIMARY_PERCENT = 80
_LOWEST, _HIGHEST = (0.05, 0.1, 0.1, 0.2), (0.3, 0.4, 0.5, 0.5, 0.6, 1.0)
_GRID = 0.05


def draw_harness(dice: Dice, max_k: int = _MAX_K) -> Harness:
    """Random rules: a pool, the number of dimensions to choose, the required one, and bounds of the weights."""
    pool = list(POOL)
    if not dice.chance(_WHOLE_POOL_PERCENT):
        dice.shuffle(pool)
        pool = pool[: dice.between(_MIN_POOL, len(pool))]
    usual = pool[0] if POOL[0] not in pool else POOL[0]
    primary = usual if dice.chance(_USUAL_PRIMARY_PERCENT) else dice.pick(pool)
    rules = DimensionRules(
        k=dice.between(2, min(max_k, len(pool) - 1)),
        must_include=primary.name,
        weight_min=dice.pick(_LOWEST),
        weight_max=dice.pick(_HIGHEST),
    )
    process = ProcessRules(citation_cross_check=dice.chance(70), min_tool_calls=2 if dice.chance(25) else 1)
    return Harness(version=dice.below(20), pool=tuple(pool), dimensions=rules, process=process)


def draw_hints(harness: Harness, dice: Dice) -> Hints:
    """Random advice that can be followed: it requires no more dimensions than fit and leaves enough to choose from."""
    rules = harness.dimensions
    free = [item.name for item in harness.pool if item.name != rules.must_include]
    dice.shuffle(free)
    required = tuple(free.pop() for _ in range(dice.between(0, min(2, rules.k - 1))))
    spare = len(free) - (rules.k - 1 - len(required))
    avoided = tuple(free.pop() for _ in range(dice.between(0, min(2, spare))))
    explore = (free[-1],) if free and dice.chance(40) else ()
    return Hints(required, avoided, explore)


def draw_rubric(harness: Harness, hints: Hints, kinds: Sequence[OpenKind], dice: Dice) -> Rubric:
    """A rubric that follows the advice, then prefers dimensions that suit these kinds of question."""
    rules = harness.dimensions
    names = [item.name for item in harness.pool if item.name != rules.must_include]
    telling = [name for kind in kinds for name in words_research.TELLING[kind] if name in names]
    rest = list(names)
    dice.shuffle(rest)
    wanted = [name for name in (*hints.required, *hints.explore, *telling, *rest) if name not in hints.avoided]
    chosen = list(dict.fromkeys([*wanted, *rest]))[: rules.k - 1]
    return Rubric(rules.must_include, tuple(Weight(name, _draw_weight(rules, dice)) for name in chosen))


def _draw_weight(rules: DimensionRules, dice: Dice) -> float:
    """A weight on a coarse grid, so that it takes few characters."""
    steps = round((rules.weight_max - rules.weight_min) / _GRID)
    return round(rules.weight_min + _GRID * dice.between(0, steps), 2)


def think_of(rubric: Rubric, hints: Hints, dice: Dice) -> str:
    """A sentence on why the rubric was chosen."""
    advised = [name for name in (*hints.required, *hints.explore) if name in rubric.dimensions]
    forms = words_research.CHOOSE_ADVISED if advised and dice.chance(50) else words_research.CHOOSE
    named = advised if forms is words_research.CHOOSE_ADVISED else [item.dimension for item in rubric.weights]
    return write_thought(forms, dice, {"d": " and ".join(named[:2])}, min_words=3)

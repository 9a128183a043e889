"""Rubrics of the warm-up for score: random rules of a harness, hints that fit them, and a rubric that follows both.

harness = draw_harness(dice)
draw_rubric(harness, draw_hints(harness, dice), ["comparison"], dice)   # Rubric("factuality", (Weight(...), ...))
"""

from collections.abc import Sequence

from msgspec import structs

from quaere.chat.dimensions import POOL
from quaere.records import DimensionRules, Harness, Hints, ProcessRules, Rubric, Weight
from quaere.warmup.phrases import REPORT_FORMS, write_thought
from quaere.worlds.dice import Dice

_MIN_POOL = 5
_MAX_K = 6
_WHOLE_POOL_PERCENT = 50
_USUAL_PRIMARY_PERCENT = 80
_TWO_REQUIRED_PERCENT = 20
_LOWEST, _HIGHEST = (0.05, 0.1, 0.1, 0.2), (0.3, 0.4, 0.5, 0.5, 0.6, 1.0)
_GRID = 0.05
# The dimensions that best separate good reports from poor ones, by kind of question.
TELLING: dict[str, tuple[str, ...]] = {
    "overview": ("coverage", "citation", "depth"),
    "story": ("coherence", "depth", "coverage"),
    "open": ("uncertainty", "citation", "coverage"),
    "comparison": ("balance", "insight", "coverage"),
    "connection": ("insight", "citation", "depth"),
    "detail": ("depth", "citation", "instruction"),
}


def draw_any_rubric(kind: str, dice: Dice, max_k: int = 6) -> tuple[Harness, Rubric]:
    """Random rules, and a rubric within them for a question of this kind."""
    harness = draw_harness(dice, max_k)
    return harness, draw_rubric(harness, Hints(), [kind], dice)


def draw_harness(dice: Dice, max_k: int = _MAX_K) -> Harness:
    """Random rules for a rubric: a pool, the number of dimensions to choose, the required one, bounds of weights."""
    pool = list(POOL)
    if not dice.chance(_WHOLE_POOL_PERCENT):
        dice.shuffle(pool)
        pool = pool[: dice.between(_MIN_POOL, len(pool))]
    usual = POOL[0] if POOL[0] in pool else pool[0]
    primary = usual if dice.chance(_USUAL_PRIMARY_PERCENT) else dice.pick(pool)
    rules = DimensionRules(
        k=dice.between(2, min(max_k, len(pool) - 1)),
        must_include=primary.name,
        weight_min=dice.pick(_LOWEST),
        weight_max=dice.pick(_HIGHEST),
    )
    process = ProcessRules(citation_cross_check=dice.chance(70), min_tool_calls=2 if dice.chance(25) else 1)
    return _require_more(Harness(version=dice.below(20), pool=tuple(pool), dimensions=rules, process=process))


def _require_more(harness: Harness) -> Harness:
    """The same rules; sometimes a further dimension is required."""
    rules, dice = harness.dimensions, Dice("required", str(harness))
    if rules.k < 3 or not dice.chance(_TWO_REQUIRED_PERCENT):
        return harness
    further = dice.pick([item.name for item in harness.pool if item.name != rules.primary])
    return structs.replace(harness, dimensions=structs.replace(rules, must_include=(rules.primary, further)))


def draw_hints(harness: Harness, dice: Dice) -> Hints:
    """Random hints that a rubric can follow: not too many required dimensions, and enough that are not avoided."""
    rules = harness.dimensions
    free = [item.name for item in harness.pool if item.name not in rules.required]
    dice.shuffle(free)
    places = rules.k - len(rules.required)
    required = tuple(free.pop() for _ in range(dice.between(0, min(2, places))))
    spare = len(free) - (places - len(required))
    avoided = tuple(free.pop() for _ in range(dice.between(0, min(2, spare))))
    return Hints(required, avoided, explore=(free[-1],) if free and dice.chance(40) else ())


def draw_rubric(harness: Harness, hints: Hints, kinds: Sequence[str], dice: Dice) -> Rubric:
    """A rubric that follows the hints, then prefers dimensions that suit these kinds of question."""
    rules = harness.dimensions
    names = [item.name for item in harness.pool if item.name != rules.primary]
    telling = [name for kind in kinds for name in TELLING[kind] if name in names]
    rest = list(names)
    dice.shuffle(rest)
    advised = (*rules.required[1:], *hints.required, *hints.explore, *telling, *rest)
    wanted = [name for name in advised if name not in hints.avoided]
    chosen = list(dict.fromkeys([*wanted, *rest]))[: rules.k - 1]
    return Rubric(rules.primary, tuple(Weight(name, _draw_weight(rules, dice)) for name in chosen))


def _draw_weight(rules: DimensionRules, dice: Dice) -> float:
    """A random weight within the rules' bounds, on a coarse grid so that it takes few characters."""
    steps = round((rules.weight_max - rules.weight_min) / _GRID)
    return round(rules.weight_min + _GRID * dice.between(0, steps), 2)


def think_of(rubric: Rubric, hints: Hints, dice: Dice) -> str:
    """The thought before a rubric: what separates the reports, or that the dimensions were advised."""
    advised = [name for name in (*hints.required, *hints.explore) if name in rubric.dimensions]
    form, named = "choose", [item.dimension for item in rubric.weights]
    if advised and dice.chance(50):
        form, named = "choose_advised", advised
    return write_thought(REPORT_FORMS[form], dice, {"d": " and ".join(named[:2])}, min_words=3)

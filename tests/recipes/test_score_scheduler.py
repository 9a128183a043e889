"""Every hint here is computed by hand from the rule in the module's docstring."""

import math

import pytest
from msgspec import structs

from judging import HARNESS
from quaere.dialects.report.rubric import default_rubric
from quaere.errors import BadInput
from quaere.recipes.score.memory import Chosen, Scheduler, SchedulerSettings, Tally
from quaere.records import DimensionRules, Hints, Rubric, Weight

SETTINGS = SchedulerSettings(window=10, min_tries=2, margin=0.05, max_share=0.75)


def rubric(*names):
    return Rubric("factuality", tuple(Weight(name, 0.3) for name in names))


def fill(scheduler):
    """Six consistencies: 0.4 0.6 | 0.8 | 0.1 0.3 | 0.6, mean 2.8 / 6."""
    scheduler.record(1, rubric("coverage", "insight"), [0.4, 0.6])
    scheduler.record(2, rubric("coverage", "depth"), [0.8])
    scheduler.record(3, rubric("insight", "depth"), [0.1, 0.3])
    scheduler.record(4, rubric("citation", "coverage"), [0.6])
    return scheduler


def test_tallies():
    tallies = fill(Scheduler(SETTINGS)).tally(["coverage", "insight", "depth", "citation", "balance"])
    assert {name: one.tries for name, one in tallies.items()} == {
        "coverage": 3,
        "insight": 2,
        "depth": 2,
        "citation": 1,
        "balance": 0,
    }
    assert tallies["coverage"].mean == pytest.approx((0.4 + 0.6 + 0.8 + 0.6) / 4)
    assert tallies["insight"].mean == pytest.approx((0.4 + 0.6 + 0.1 + 0.3) / 4)
    assert tallies["depth"].mean == pytest.approx((0.8 + 0.1 + 0.3) / 3)
    assert tallies["balance"] == Tally(0, 0.0)


def test_at_first_everything_is_to_be_explored():
    assert Scheduler(SETTINGS).hints(HARNESS) == Hints(explore=("citation", "coverage"))


def test_hints_of_four_rubrics():
    # Overall 0.467; avoided lie below 0.417: insight 0.35, depth 0.4. Coverage 0.6 was chosen by 3 of 4, which is 0.75.
    # Three places less the primary and the required one leave one to explore.
    hints = fill(Scheduler(SETTINGS)).hints(HARNESS)
    assert hints == Hints(required=("coverage",), avoided=("insight", "depth"), explore=("coherence",))


def test_of_several_good_dimensions_the_best_is_required_first():
    # Means: insight 0.5, coverage 0.9, depth 0.7, citation 0.2; overall 0.575.
    scheduler = Scheduler(structs.replace(SETTINGS, min_tries=1, num_required=2, num_explore=0))
    for step, (name, value) in enumerate([("insight", 0.5), ("coverage", 0.9), ("depth", 0.7), ("citation", 0.2)]):
        scheduler.record(step, rubric(name), [value])
    assert scheduler.hints(HARNESS) == Hints(required=("coverage", "depth"), avoided=("citation", "insight"))


def test_a_dimension_that_is_always_chosen_is_not_required():
    hints = fill(Scheduler(structs.replace(SETTINGS, max_share=0.7))).hints(HARNESS)
    assert hints == Hints(required=(), avoided=("insight", "depth"), explore=("coherence", "instruction"))


def test_a_small_shortfall_is_not_avoided():
    # 0.467 - 0.1 = 0.367: depth, at 0.4, is no longer clearly below.
    assert fill(Scheduler(structs.replace(SETTINGS, margin=0.1))).hints(HARNESS).avoided == ("insight",)
    assert fill(Scheduler(structs.replace(SETTINGS, num_avoided=1))).hints(HARNESS).avoided == ("insight",)


def test_nothing_is_judged_before_it_was_tried_often_enough():
    # Only coverage was chosen three times; citation, at one, comes after those never tried.
    hints = fill(Scheduler(structs.replace(SETTINGS, min_tries=3))).hints(HARNESS)
    assert hints == Hints(required=("coverage",), avoided=(), explore=("coherence",))
    more = fill(Scheduler(structs.replace(SETTINGS, min_tries=4, num_explore=9)))
    wide = structs.replace(HARNESS, dimensions=DimensionRules(k=10))
    assert more.hints(wide) == Hints(
        explore=(
            *("coherence", "instruction", "readability", "balance", "uncertainty"),  # never tried
            *("citation", "depth", "insight", "coverage"),  # once, twice, twice, three times
        )
    )


def test_so_many_are_left_that_a_rubric_can_be_filled():
    # A pool of four with k = 3: of the three that can be chosen, two are needed.
    small = structs.replace(HARNESS, pool=tuple(HARNESS.pool[place] for place in (0, 2, 3, 4)))
    assert fill(Scheduler(SETTINGS)).hints(small).avoided == ("insight",)


def test_the_primary_and_what_left_the_pool_are_never_advised():
    scheduler = fill(Scheduler(SETTINGS))
    harness = structs.replace(HARNESS, dimensions=DimensionRules(k=3, must_include="coverage"))
    assert "coverage" not in str(scheduler.hints(harness))
    two = structs.replace(HARNESS, dimensions=DimensionRules(k=3, must_include=("factuality", "coverage")))
    hints = scheduler.hints(two)
    assert "coverage" not in str(hints) and len(hints.required + hints.explore) == 1  # one place is left
    without = structs.replace(HARNESS, pool=tuple(item for item in HARNESS.pool if item.name != "insight"))
    assert scheduler.hints(without).avoided == ("depth",)


def test_the_window_forgets():
    scheduler = fill(Scheduler(structs.replace(SETTINGS, window=3)))
    assert [one.step for one in scheduler.state.chosen] == [2, 3, 4]
    scheduler.record(9, rubric("balance"), [0.5])
    assert scheduler.state.chosen == (Chosen(9, ("factuality", "balance"), (0.5,)),)


def test_unknown_consistencies_are_passed_over():
    scheduler = Scheduler(SETTINGS)
    scheduler.record(1, rubric("depth"), [None, 0.5, math.nan])
    scheduler.record(1, rubric("balance"), [None])
    scheduler.record(1, rubric("insight"), [])
    assert scheduler.state.chosen == (Chosen(1, ("factuality", "depth"), (0.5,)),)


def test_several_rubrics_of_one_step():
    scheduler = Scheduler(SETTINGS)
    for _ in range(3):
        scheduler.record(1, default_rubric(HARNESS), [0.5])
    assert scheduler.tally(["citation"]) == {"citation": Tally(3, 0.5)}


def test_it_goes_on_from_a_checkpoint(tmp_path):
    scheduler = fill(Scheduler(SETTINGS))
    scheduler.save(tmp_path)
    other = Scheduler(SETTINGS)
    other.load(tmp_path)
    assert other.state == scheduler.state and other.hints(HARNESS) == scheduler.hints(HARNESS)
    (tmp_path / "scheduler.json").write_text("{}x")
    with pytest.raises(BadInput, match="is not the state of a scheduler"):
        other.load(tmp_path)
    with pytest.raises(BadInput, match="missing"):
        other.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "changes", [{"window": 0}, {"min_tries": 0}, {"margin": -1}, {"max_share": 2}, {"num_explore": -1}]
)
def test_settings_are_checked(changes):
    with pytest.raises(BadInput, match="scheduler"):
        Scheduler(structs.replace(SETTINGS, **changes))

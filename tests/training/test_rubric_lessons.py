"""Lessons in choosing rubrics: rules and advice as varied as they may be, and a rubric that follows both."""

from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.chat.dimensions import POOL
from quaere.dialects.report.report_writer import write_rubric
from quaere.dialects.report.rubric import read_rubric
from quaere.warmup.rubric_lessons import draw_harness, draw_hints, draw_rubric
from quaere.worlds.dice import Dice

HARNESSES = [draw_harness(Dice(seed, "rules")) for seed in range(300)]


@settings(max_examples=examples(200))
@given(st.integers(0, 1 << 30), st.integers(2, 6))
def test_any_rubric_that_is_drawn_is_valid_and_follows_advice(seed, max_k):
    dice = Dice(seed)
    harness = draw_harness(dice, max_k)
    hints = draw_hints(harness, dice)
    rubric = draw_rubric(harness, hints, ("comparison", "open"), dice)
    assert 2 <= harness.dimensions.k <= max_k
    assert read_rubric(write_rubric("So be it.", rubric), harness) == rubric
    assert set(hints.required) <= set(rubric.dimensions)
    assert not set(hints.avoided) & set(rubric.dimensions)
    assert set(harness.dimensions.required) <= set(rubric.dimensions)
    if len(hints.required) < harness.dimensions.k - len(harness.dimensions.required):
        assert set(hints.explore) <= set(rubric.dimensions)


def test_a_rubric_has_two_to_six_dimensions_and_leaves_one_of_the_pool_out():
    assert {rules.dimensions.k for rules in HARNESSES} == {2, 3, 4, 5, 6}
    assert {rules.dimensions.k for rules in HARNESSES if len(rules.pool) == 5} == {2, 3, 4}


def test_sometimes_two_dimensions_are_required():
    several = [rules.dimensions for rules in HARNESSES if len(rules.dimensions.required) == 2]
    assert 0.05 < len(several) / len(HARNESSES) < 0.25 and all(rules.k > 2 for rules in several)
    assert len({rules.required[1] for rules in several}) > 4


def test_any_dimension_but_the_primary_one_may_be_advised_or_advised_against():
    drawn = [(rules, draw_hints(rules, Dice(seed, "advice"))) for seed, rules in enumerate(HARNESSES)]
    usual = [hints for rules, hints in drawn if rules.pool == POOL and rules.dimensions.must_include == POOL[0].name]
    others = {dimension.name for dimension in POOL[1:]}
    for kind in ("required", "avoided", "explore"):
        assert {name for hints in usual for name in getattr(hints, kind)} == others

"""Gauges over the steps of a run, by hand, and what a harness is told of them."""

import pytest

from quaere.recipes.score.gauges import collect_statistics, hack_score, measure_gauges, read_history
from quaere.recipes.score.metaharness import RulesHarness
from quaere.runs import Run

UP, DOWN, FLAT = [0.1, 0.1, 0.5, 0.5], [0.8, 0.8, 0.2, 0.2], [0.4] * 4


def steps(values, first=1):
    return dict(enumerate(values, start=first))


def gauges(**history):
    names = {
        "citations": "check/grounded",
        "reward": "reward/share",
        "agreement": "consistency/mean",
        "diversity": "diversity/mean",
        "spread": "scores/spread",
    }
    return measure_gauges({names[name]: steps(values) for name, values in history.items()})


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ({"citations": DOWN, "agreement": UP, "reward": FLAT}, 0.4),  # they rose by 0.4, and 0.6 was lost
        ({"citations": DOWN, "agreement": FLAT, "reward": UP}, 0.4),
        ({"citations": DOWN, "agreement": FLAT, "reward": FLAT}, 0.0),
        ({"citations": DOWN, "agreement": DOWN, "reward": DOWN}, 0.0),  # everything gets worse: no hack
        ({"citations": UP, "agreement": UP, "reward": UP}, 0.0),
        ({"citations": FLAT, "agreement": UP, "reward": UP}, 0.0),
        ({"citations": [0.8, 0.8, 0.7, 0.7], "agreement": UP}, 0.1),
    ],
)
def test_a_citation_hack_takes_a_rise_and_a_fall(history, expected):
    assert gauges(**history)["gauge/citation_hack"] == pytest.approx(expected)


def test_the_score_of_a_hack():
    assert hack_score(-0.3, [0.1, 0.2]) == 0.2
    assert hack_score(-0.1, [0.2]) == 0.1
    assert hack_score(0.3, [0.2]) == hack_score(-0.3, [-0.1]) == hack_score(-0.3, []) == 0.0


def test_a_slow_hack_is_one_too():
    falling, rising = ([start + slope * step for step in range(60)] for start, slope in ((0.9, -0.005), (0.2, 0.005)))
    assert gauges(citations=falling, agreement=rising)["gauge/citation_hack"] == pytest.approx(0.005 * 55)


def test_too_few_steps_tell_nothing():
    assert gauges(citations=DOWN[:3], agreement=UP[:3]) == {}


def test_what_goes_together():
    found = gauges(citations=DOWN, reward=UP, agreement=UP, diversity=DOWN)
    assert found["gauge/reward_citations"] == pytest.approx(-1)
    assert found["gauge/consistency_citations"] == pytest.approx(-1)
    assert found["gauge/consistency_diversity"] == pytest.approx(-1)
    assert "gauge/consistency_diversity" not in gauges(agreement=UP, diversity=FLAT)  # what does not vary


def test_values_of_different_steps_are_not_compared():
    """Both rise and fall alike; one was not measured at step 2, the other not at step 7."""
    curve = steps([0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6])
    history = {
        "reward/share": {step: value for step, value in curve.items() if step != 2},
        "check/grounded": {step: value for step, value in curve.items() if step != 7},
    }
    assert measure_gauges(history)["gauge/reward_citations"] == pytest.approx(1)


def test_history_is_what_was_stored_and_the_step_in_progress(tmp_path):
    with Run.create(tmp_path / "run", "evolve") as run:
        for step, value in enumerate([0.1, 0.2, 0.3], start=1):
            run.log_metrics(step, {"reward/share": value, "step/seconds": 1.0})
        assert read_history(run, 4, {"reward/share": 0.4})["reward/share"] == steps([0.1, 0.2, 0.3, 0.4])
        assert read_history(run, 4, {"reward/share": 0.4}, 2)["reward/share"] == steps([0.3, 0.4], first=3)
        assert read_history(run, 4, {})["policy/entropy"] == {}
        # What was not measured since is not known, and no older value stands in for it.
        assert read_history(run, 4, {}, 3)["reward/share"] == {}


def test_statistics_by_hand():
    history = {
        "reward/share": [0.4, 0.8],
        "reward/verified": [1.0, 0.5],
        "rubrics/valid": [1.0, 0.0],
        "assessments/readable": [0.75],
        "scores/num": [10.0, 6.0],
        "scores/spread": [0.1, 0.3],
        "scores/ceiling": [0.0, 1.0],
        "check/grounded": [0.5, 0.7],
        "verification/searches": [1.0, 2.0],
        "consistency/mean": [0.2, 0.6],
        "diversity/mean": [0.9],
    }
    history = {name: steps(values) for name, values in history.items()}
    found = collect_statistics(7, history, {"coverage": 3})
    assert (found.step, found.num_scored, found.mean_reward) == (7, 16, pytest.approx(0.6))
    assert (found.share_under_verified, found.share_invalid_rubrics) == (pytest.approx(0.25), pytest.approx(0.5))
    assert (found.share_invalid_assessments, found.score_spread) == (pytest.approx(0.25), pytest.approx(0.2))
    assert (found.share_at_ceiling, found.citation_validity) == (pytest.approx(0.5), pytest.approx(0.6))
    assert (found.mean_searches, found.consistency, found.diversity) == (1.5, pytest.approx(0.4), 0.9)
    assert (found.entropy, found.dimension_counts) == (None, {"coverage": 3})
    assert collect_statistics(1, {}, {}).num_scored == 0
    lone = collect_statistics(1, {"scores/num": {1: 3.0}}, {})  # one report a question: nothing to tell apart
    assert lone.score_spread is None and RulesHarness().find_rules(lone) == []

"""Metrics by the searches a question needs, and the alarm for a solver that stops searching."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.records import Episode, Question, Search, SearchResult, SolveTask, Turn
from quaere.training.health import Watch
from quaere.training.settings import HealthSettings
from quaere.training.step import WINDOW, measure_asked, measure_attempts, measure_searches_kept


def episode(need, num_searches):
    found = (SearchResult("Halm", ()),)
    turns = tuple(Turn(n, "", Search(("Halm",)), "stop_string", found) for n in range(num_searches))
    return Episode(
        f"e{need}", SolveTask(Question(f"q{need}", "Who?", searches=need)), "p", "m", 0, (), turns, None, "turn_limit"
    )


def test_a_solver_is_measured_by_what_its_questions_need():
    played = [episode(1, 1), episode(2, 1), episode(2, 2), episode(0, 4)]
    paid = [{"answer/exact_match": right, "reward/total": 2 * right} for right in (1.0, 0.0, 1.0, 1.0)]
    assert [one.num_searches for one in played] == [1, 1, 2, 4]
    assert measure_attempts(played, paid) == {
        "solver/searches_n1": 1.0,
        "answer/exact_match_n1": 1.0,
        "reward/mean_n1": 2.0,
        "solver/searches_n2": 1.5,
        "answer/exact_match_n2": 0.5,
        "reward/mean_n2": 1.0,
    }
    assert measure_asked([one.task.question for one in played]) == {"questions/searches_needed": 5 / 3}
    assert measure_asked([Question("q", "Who?")]) == {} == measure_attempts(played[3:], paid[3:])


def rings(searches, needs, **settings):
    """At which steps the alarm rings, given what was measured in each step of a phase."""
    watch, rung = Watch(HealthSettings(**settings)), []
    for step in range(1, len(searches) + 1):
        metrics = measure_searches_kept(searches[:step], needs[:step])
        rung += [step for alarm in watch.check(metrics, "solver") if alarm.kind == "searches"]
    return rung


def slope(first, last, num=30):
    return [first + (last - first) * step / (num - 1) for step in range(num)]


def noisy(values, by=0.15):
    dice = random.Random(7)
    return [value + dice.uniform(-by, by) for value in values]


COLLAPSE = slope(1.7, 1.0)


@pytest.mark.parametrize("searches", [COLLAPSE, noisy(COLLAPSE), [1.7] * 10 + [1.0] * 10])
def test_a_collapse_rings_once(searches):
    assert len(rings(searches, [2.0] * len(searches))) == 1


def test_it_rings_after_as_many_steps_as_patience_says():
    # Levels: 1.7, then (1.7 + 4 * 1.0) / 5 = 1.14 is the first below 0.75 * 1.7 = 1.275: the fourth low step.
    fallen = [1.7] * WINDOW + [1.0] * 10
    assert rings(fallen, [2.0] * 15) == [WINDOW + 4 + 2]
    assert rings(fallen, [2.0] * 15, patience=1) == [WINDOW + 4]
    assert rings(fallen, [2.0] * 15, min_searches_kept=0.5) == []
    assert rings(fallen, [2.0] * 15, min_searches_kept=0.0) == []


@pytest.mark.parametrize(
    ("searches", "needs"),
    [
        (noisy([1.7] * 40), noisy([2.0] * 40)),
        (slope(1.2, 2.1), [2.0] * 30),
        (slope(1.7, 1.4), [2.0] * 30),
        (COLLAPSE, slope(2.0, 1.1)),
        (noisy(COLLAPSE), slope(2.0, 1.1)),
        ([1.0] * 30, slope(1.0, 2.0)),
        ([0.0] * 30, [2.0] * 30),
        (COLLAPSE, []),
    ],
    ids=[
        "level",
        "rises",
        "a little less",
        "need falls",
        "need falls, noisy",
        "need rises",
        "never searched",
        "unknown",
    ],
)
def test_healthy_curves_do_not_ring(searches, needs):
    assert rings(searches, needs) == []


@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.5, 4)), min_size=WINDOW + 1, max_size=20), st.floats(0.1, 10))
def test_what_is_left_is_a_ratio(steps, factor):
    searches, needs = zip(*steps, strict=True)
    kept = measure_searches_kept(searches, needs)["solver/searches_kept"]
    scaled = measure_searches_kept([factor * number for number in searches], [factor * need for need in needs])
    assert scaled["solver/searches_kept"] == pytest.approx(kept)
    assert measure_searches_kept(searches, [2.0] * len(needs))["solver/searches_kept"] <= kept * (1 + 1e-9)
    assert measure_searches_kept(searches[:WINDOW], needs[:WINDOW]) == {}

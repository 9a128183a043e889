"""When a run counts as collapsed."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.training.health import Watch
from quaere.training.settings import HealthSettings

HEALTHY = {
    "policy/entropy": 0.8,
    "proposer/model_tokens": 90.0,
    "solver/model_tokens": 60.0,
    "proposer/valid": 0.9,
    "solver/call_validity": 0.9,
    "advantage/nonzero": 0.5,
    "mismatch/mean": 0.01,
}
SETTINGS = HealthSettings(patience=3, min_entropy=0.02, min_tokens=4.0, min_valid=0.05, max_mismatch=0.2)
# kind, role, the metric, a value just beyond the limit, one just within, how to switch it off
CONDITIONS = [
    ("entropy", "proposer", "policy/entropy", 0.019, 0.02, {"min_entropy": 0.0}),
    ("length", "proposer", "proposer/model_tokens", 3.9, 4.0, {"min_tokens": 0.0}),
    ("length", "solver", "solver/model_tokens", 3.9, 4.0, {"min_tokens": 0.0}),
    ("validity", "proposer", "proposer/valid", 0.04, 0.05, {"min_valid": 0.0}),
    ("validity", "solver", "solver/call_validity", 0.04, 0.05, {"min_valid": 0.0}),
    ("advantages", "solver", "advantage/nonzero", 0.0, 0.01, {"zero_advantages": False}),
    ("mismatch", "solver", "mismatch/mean", 0.21, 0.2, {"max_mismatch": 0.0}),
    ("update", "solver", "sampler/update_seen", 0.94, 0.95, {"min_update_seen": 0.0}),
    ("searches", "solver", "solver/searches_kept", 0.74, 0.75, {"min_searches_kept": 0.0}),
    ("abstention", "solver", "abstention/answerable", 0.51, 0.5, {"max_abstained": 0.0}),
    ("guessing", "solver", "abstention/unanswerable", 0.01, 0.02, {"min_refused": 0.0}),
    ("length", "actor", "reports/model_tokens", 3.9, 4.0, {"min_tokens": 0.0}),
    ("validity", "actor", "reports/call_validity", 0.04, 0.05, {"min_valid": 0.0}),
    ("advantages", "actor", "advantage/nonzero", 0.0, 0.01, {"zero_advantages": False}),
    ("saturation", "actor", "scores/ceiling", 0.91, 0.9, {"max_ceiling": 0.0}),
    ("spread", "actor", "scores/spread", 0.004, 0.005, {"min_spread": 0.0}),
    ("citation hack", "actor", "gauge/citation_hack", 0.06, 0.05, {"max_hack": 0.0}),
]


def watch(values, metric="policy/entropy", role="proposer", settings=SETTINGS):
    """The kinds that rang at each step, given the course of one metric."""
    watching = Watch(settings)
    return [[alarm.kind for alarm in watching.check({**HEALTHY, metric: value}, role)] for value in values]


@pytest.mark.parametrize(("kind", "role", "metric", "bad", "good", "off"), CONDITIONS)
def test_each_condition(kind, role, metric, bad, good, off):
    assert watch([bad] * 3, metric, role) == [[], [], [kind]]
    assert watch([good] * 4, metric, role) == [[]] * 4
    assert watch([bad] * 4, metric, role, HealthSettings(**off)) == [[]] * 4


def test_what_to_do_without_advantages_exists_on_given_questions_too():
    (alarm,) = Watch(HealthSettings(patience=1)).check({"advantage/nonzero": 0.0}, "solver")
    assert "raise solver.attempts, or leave out questions" in alarm.message
    assert "where a proposer writes them, generation.attempts=5 does" in alarm.message


@pytest.mark.parametrize(("role", "metric"), [("solver", "proposer/valid"), ("proposer", "solver/call_validity")])
def test_each_role_is_judged_by_its_own(role, metric):
    assert watch([0.0] * 4, metric, role) == [[]] * 4


def test_the_steps_must_be_in_a_row():
    assert watch([0.0, 0.0, 0.8, 0.0, 0.0, 0.8]) == [[]] * 6


def test_an_alarm_is_said_once_and_again_only_after_a_healthy_step():
    assert watch([0.0] * 10 + [0.8] + [0.0] * 3) == [[], [], ["entropy"], *[[]] * 10, ["entropy"]]


def test_what_is_not_there_is_not_judged():
    assert Watch(HealthSettings(patience=1)).check({}, "solver") == []
    assert watch([0.0, math.nan, 0.0, 0.0]) == [[], [], [], ["entropy"]]


def test_conditions_ring_side_by_side():
    watching = Watch(HealthSettings(patience=1))
    alarms = watching.check({"policy/entropy": 0.0, "mismatch/mean": math.inf}, "solver")
    assert [alarm.kind for alarm in alarms] == ["entropy", "mismatch"]


@pytest.mark.parametrize(("kind", "role", "metric", "bad", "good", "off"), CONDITIONS)
def test_a_message_is_one_line_with_the_value_the_limit_and_a_setting(kind, role, metric, bad, good, off):
    [alarm] = Watch(HealthSettings(patience=1)).check({metric: bad}, role)
    (name,) = off
    assert f"health.{name}" in alarm.message
    assert "\n" not in alarm.message and "{" not in alarm.message
    assert "1 step " in alarm.message
    # Of the two parts after the limit, the last says what to change.
    remedy = alarm.message.split("; ")[-1]
    whose = {"actor": ("solver.", "evaluator.", "harness.")}.get(role, (f"{role}.",))
    assert any(setting in remedy for setting in (*whose, "generation.", "engine."))


def test_a_change_as_small_as_the_noise_is_not_judged_by_its_slope():
    """A slope may lie below the limit by the noise, and by no more."""
    for noise, kinds in ((0.46, []), (0.44, ["update"])):
        metrics = {"sampler/update_seen": 0.5, "sampler/update_noise": noise}
        assert [alarm.kind for alarm in Watch(HealthSettings(patience=1)).check(metrics, "solver")] == kinds


def test_a_message_in_full():
    [alarm] = Watch(HealthSettings(patience=1)).check({"proposer/valid": 0.031}, "proposer")
    assert alarm.message == (
        "validity: 3.1% of the questions are valid, 1 step below health.min_valid=0.05; hardly any question earns "
        "anything; if turns are cut off, raise proposer.limits.turn_tokens, otherwise lower "
        "proposer.learner.learning_rate"
    )


def test_suspect_from_the_first_bad_step_to_the_next_healthy_one():
    watching = Watch(SETTINGS)
    seen = []
    for entropy in (0.8, 0.0, 0.0, 0.0, 0.0, 0.8):
        watching.check({**HEALTHY, "policy/entropy": entropy}, "solver")
        seen.append(watching.suspect)
    assert seen == [False, True, True, True, True, False]
    watching.check({"policy/entropy": 0.0}, "solver")
    watching.reset()
    assert not watching.suspect and watching.state() == {}


def test_a_limit_switched_off_before_a_resume_leaves_no_suspicion():
    watching = Watch(HealthSettings(min_entropy=0.0))
    watching.restore({"entropy": 2})
    assert not watching.suspect


STEPS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "policy/entropy": st.sampled_from([0.0, 0.8, math.nan]),
            "solver/model_tokens": st.sampled_from([1.0, 50.0]),
            "advantage/nonzero": st.sampled_from([0.0, 0.5]),
            "mismatch/mean": st.sampled_from([0.0, 0.5]),
        },
    ),
    max_size=12,
)


@given(STEPS, st.integers(1, 4), st.integers(0, 12))
def test_a_restored_watch_behaves_as_if_never_interrupted(steps, patience, interrupted_at):
    settings = HealthSettings(patience=patience)
    whole, parts = Watch(settings), Watch(settings)
    for number, metrics in enumerate(steps):
        if number == interrupted_at:
            state = json.loads(json.dumps(parts.state()))
            parts = Watch(settings)
            parts.restore(state)
        assert parts.check(metrics, "solver") == whole.check(metrics, "solver")
        assert parts.suspect == whole.suspect


@given(st.lists(st.sampled_from([0.0, 0.8]), max_size=30), st.integers(1, 4))
def test_as_many_alarms_as_runs_of_bad_steps_long_enough(values, patience):
    rung = watch(values, settings=HealthSettings(patience=patience))
    runs = "".join("x" if value == 0 else " " for value in values).split()
    assert sum(map(len, rung)) == sum(len(run) >= patience for run in runs)

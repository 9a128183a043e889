"""R5: 90 curves of collapse are rung within 20 steps of their onset; at most 1 of 20 healthy runs rings (slow).

Curves are of entropy, length, format, searches and reward hacking: a noisy plateau, then a fall in one step or in up
to twelve. They go through what a run goes through: the gauges and levels that a recipe measures, then the watch with
its default limits. A healthy run is 40 steps of Dr. Zero on the village, with a taught model and a modest rate.
"""

import random
from itertools import product

import pytest

from quaere.recipes.score.gauges import measure_gauges
from quaere.training.health import Watch
from quaere.training.settings import HealthSettings
from quaere.training.step import measure_searches_kept
from village_runs import make_config, run_drzero

WITHIN = 20
PLATEAU = 15
# Who collapses, in what, from where to where, and the alarm that is expected.
COLLAPSES = {
    "entropy": ("solver", {"policy/entropy": (0.8, 0.005)}, "entropy"),
    "length": ("solver", {"solver/model_tokens": (60, 2)}, "length"),
    "format of a proposer": ("proposer", {"proposer/valid": (0.8, 0.01)}, "validity"),
    "format of a solver": ("solver", {"solver/call_validity": (0.9, 0.01)}, "validity"),
    "searches": ("solver", {"solver/searches": (1.7, 0.9)}, "searches"),
    "reward hacking": ("actor", {"check/grounded": (0.8, 0.3), "reward/share": (0.4, 0.7)}, "citation hack"),
}
CURVES = list(product(COLLAPSES, (1, 6, 12), range(5)))


def test_there_are_ninety_curves():
    assert len(CURVES) == 90


def draw_curve(dice, start, end, fall, num_steps):
    """A plateau and a linear fall to another one, each value off by up to a tenth."""
    falls = (min(1.0, max(0.0, (step - PLATEAU + 1) / fall)) for step in range(num_steps))
    return [(start + (end - start) * share) * dice.uniform(0.9, 1.1) for share in falls]


def measure(history):
    """What a recipe makes of the values so far: those of this step, and levels over several."""
    measured = {name: values[-1] for name, values in history.items()}
    if "solver/searches" in history:
        measured |= measure_searches_kept(history["solver/searches"], [2.0] * len(history["solver/searches"]))
    return measured | measure_gauges({name: dict(enumerate(values)) for name, values in history.items()})


def ring(role, curves, num_steps):
    """Every alarm with the step it was rung at."""
    watch = Watch(HealthSettings())
    rung = []
    for step in range(num_steps):
        metrics = measure({name: values[: step + 1] for name, values in curves.items()})
        rung += [(step, alarm.kind) for alarm in watch.check(metrics, role)]
    return rung


@pytest.mark.parametrize(("name", "fall", "seed"), CURVES)
def test_a_collapse_is_rung_within_twenty_steps(name, fall, seed):
    role, courses, kind = COLLAPSES[name]
    dice, num_steps = random.Random(seed), PLATEAU + WITHIN
    curves = {metric: draw_curve(dice, *course, fall, num_steps) for metric, course in courses.items()}
    ((step, rung),) = ring(role, curves, num_steps)
    assert rung == kind
    assert PLATEAU <= step < PLATEAU + WITHIN


@pytest.mark.parametrize(("name", "seed"), list(product(COLLAPSES, range(5))))
def test_the_plateau_alone_rings_nothing(name, seed):
    role, courses, _ = COLLAPSES[name]
    dice = random.Random(seed)
    curves = {metric: draw_curve(dice, start, start, 1, 40) for metric, (start, _) in courses.items()}
    assert ring(role, curves, 40) == []


HEALTHY = {
    "proposer.steps": 20,
    "proposer.learner.learning_rate": 1e-4,
    "generation.batch": 80,
    "solver.steps": 20,
    "solver.batch": 8,
    "solver.attempts": 5,
    "solver.max_draws": 0,
    "solver.learner.learning_rate": 1e-4,
    "checkpoints.every": 100,
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_of_twenty_healthy_runs_of_forty_steps_at_most_one_rings(village_paths, tmp_path):
    rung = {}
    for seed in range(20):
        run, told = run_drzero(tmp_path / str(seed), make_config(village_paths, seed=seed, **HEALTHY))
        assert sum(report.phase in ("proposer", "solver") for report in told.steps) == 40
        rung[seed] = [(event.step, event.message) for event in run.events()]
    assert sum(map(bool, rung.values())) <= 1, rung

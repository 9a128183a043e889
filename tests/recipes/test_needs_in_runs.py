"""What a run measures by the searches its questions need."""

import pytest
from test_draws import Stopped, Stopping
from test_drzero_resume import contents

from quaere.training.step import WINDOW, measure_searches_kept
from village_runs import make_config, run_drzero

# In both iterations: one step of the proposer, one of generation, seven of the solver.
LOOP = {
    "iterations": 2,
    "proposer.steps": 1,
    "proposer.hop_ratio": [1, 1],
    "proposer.batch": 4,
    "proposer.attempts": 2,
    "generation.candidates": 8,
    "generation.attempts": 0,
    "solver.steps": WINDOW + 2,
    "solver.batch": 2,
    "solver.attempts": 2,
    "solver.max_draws": 0,
    "checkpoints.every": 3,
}


@pytest.fixture(scope="module")
def whole(paths, tmp_path_factory):
    run, told = run_drzero(tmp_path_factory.mktemp("needs") / "run", make_config(paths, **LOOP))
    yield run, told
    run.close()


def test_a_step_knows_what_its_questions_need(whole):
    run, told = whole
    for report in told.steps:
        metrics = report.metrics
        if report.phase == "proposer":
            assert metrics["proposer/searches_needed"] == 1.0  # one hop and two alike
        elif report.phase == "generation":
            assert metrics["curriculum/searches_needed"] == 1.0
        else:
            assert metrics["questions/searches_needed"] == 1.0
            assert metrics["solver/searches_n1"] == metrics["solver/searches"]
            assert metrics["answer/exact_match_n1"] == pytest.approx(metrics["answer/exact_match"])
            assert metrics["reward/mean_n1"] == pytest.approx(metrics["reward/mean"])
    assert {question.facts for question in run.curriculum()} == {1}


def test_what_is_left_of_searching_is_counted_from_the_start_of_the_phase(whole):
    _, told = whole
    for iteration in (0, 1):
        steps = [one.metrics for one in told.steps if (one.phase, one.iteration) == ("solver", iteration)]
        assert ["solver/searches_kept" in metrics for metrics in steps] == [False] * WINDOW + [True] * 2
        searches = [metrics["solver/searches"] for metrics in steps]
        for number in (WINDOW + 1, WINDOW + 2):
            expected = measure_searches_kept(searches[:number], [1.0] * number)
            assert steps[number - 1]["solver/searches_kept"] == expected["solver/searches_kept"]


def test_a_resumed_run_measures_the_same(whole, paths, tmp_path):
    run, _ = whole
    config = make_config(paths, **LOOP)
    with pytest.raises(Stopped):
        run_drzero(tmp_path / "run", config, Stopping(7))
    again, _ = run_drzero(tmp_path / "run", config)
    name = "solver/searches_kept"
    assert again.metrics(name) == run.metrics(name) and len(run.metrics(name)) == 4
    assert contents(tmp_path / "run") == contents(run.path)
    again.close()

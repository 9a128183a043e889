"""No question is drawn more often than `solver.max_draws` says, also where a run is stopped and gone on with."""

from collections import Counter

import pytest
from test_drzero_resume import contents, digest

from practice_runs import make_practice, run_practice
from village_runs import Told, make_config, run_drzero


class Stopped(Exception):
    """The run ends here."""


class Stopping(Told):
    """A reporter that stops a run after some step."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def step(self, report):
        super().step(report)
        if report.step == self.last:
            raise Stopped


def draws(run, steps):
    """How often each question was drawn in these steps."""
    return Counter(task for step in steps for task in {row.task_id for row in run.index(step=step)})


def test_given_questions_are_used_up_and_the_run_is_done(weighing_paths, tmp_path):
    """32 questions are two batches of 16."""
    changes = {"solver.steps": 9, "solver.batch": 16, "solver.attempts": 2, "solver.max_draws": 1}
    config, told = make_practice("search-r1", weighing_paths, **changes), Told()
    with run_practice(tmp_path / "straight", "search-r1", config, told) as run:
        assert len(draws(run, [1, 2])) == 32 and set(draws(run, [1, 2]).values()) == {1}
    assert [(report.step, report.num_steps) for report in told.steps] == [(1, 2), (2, 2)]
    assert [note for note in told.notes if "max_draws" in note] == [
        "iteration 1: the questions (32) last for 2 of 9 steps with solver.max_draws=1; the other steps are skipped"
    ]
    with pytest.raises(Stopped):
        run_practice(tmp_path / "stopped", "search-r1", config, Stopping(1))
    again = Told()
    run_practice(tmp_path / "stopped", "search-r1", config, again).close()
    assert not [note for note in again.notes if "max_draws" in note]
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")
    assert contents(tmp_path / "stopped") == contents(tmp_path / "straight")


def test_an_iteration_that_ends_early_leaves_the_next_its_place(paths, tmp_path):
    """Stopped after the last of its steps, before and after the iteration that follows has begun."""
    changes = {
        "solver.steps": 50,
        "solver.max_draws": 1,
        "iterations": 2,
        "proposer.steps": 1,
        "proposer.batch": 4,
        "proposer.attempts": 2,
        "generation.attempts": 0,
    }
    config = make_config(paths, **changes, **{"generation.candidates": 8})
    run, told = run_drzero(tmp_path / "straight", config)
    for iteration in (0, 1):
        steps = [report.step for report in told.steps if (report.phase, report.iteration) == ("solver", iteration)]
        kept = run.candidates(iteration=iteration, kept=True)
        assert 1 <= len(steps) == len(kept) // min(4, len(kept)) < 50
        assert set(draws(run, steps).values()) == {1}
    first = next(report.step for report in told.steps if report.iteration == 1)
    assert first == 1 + 1 + 50 + 1  # every iteration has the same place, whatever was skipped before it
    run.close()
    folder = tmp_path / "stopped"
    for last in (max(report.step for report in told.steps if report.iteration == 0), first):
        with pytest.raises(Stopped):
            run_drzero(folder, config, Stopping(last))
    run_drzero(folder, config)[0].close()
    assert digest(folder) == digest(tmp_path / "straight")
    assert contents(folder) == contents(tmp_path / "straight")

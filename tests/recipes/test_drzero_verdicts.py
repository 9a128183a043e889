"""A person's verdicts on a run's questions: later solver phases honour them, also in a run gone on with."""

import pytest

import village
from dictating import dictating
from quaere.runs import Run, give_verdicts, judge
from village_runs import Told, make_config, run_drzero

# A person looks at the questions: the proposer need not have learned.
UNTRAINED = {"proposer.steps": 0, "generation.candidates": 16}


@pytest.fixture(autouse=True)
def _dictated():
    """Among the questions are some that are kept and some that are never solved."""
    with dictating(village.dictate):
        yield


class Paused(Exception):
    """The run was stopped when its questions were written."""


class Person(Told):
    """Looks at the questions when they are all written, and judges them; then stops the run, or lets it go on."""

    def __init__(self, folder, judge_all, pauses):
        super().__init__()
        self.folder, self.judge_all, self.pauses = folder, judge_all, pauses

    def step(self, report):
        super().step(report)
        if report.phase == "generation" and report.phase_step == report.num_phase_steps:
            with Run.open(self.folder) as run:
                candidates = run.candidates()
            if self.pauses:
                raise Paused
            give_verdicts(self.folder, self.judge_all(candidates))


def reject_all_but_one(candidates):
    """Leaves the solver one question that was kept, and one that was dropped because it is never solved."""
    kept = [candidate for candidate in candidates if candidate.kept]
    unsolved = next(candidate for candidate in candidates if candidate.reason == "never solved")
    verdicts = [judge(candidate, "rejected") for candidate in kept[1:]]
    return [*verdicts, judge(kept[0], "flagged", note="come back to it"), judge(unsolved, "accepted")]


@pytest.mark.parametrize("pauses", [False, True], ids=["running", "paused and gone on with"])
def test_the_solver_learns_from_what_a_person_left_it(paths, tmp_path, pauses):
    folder, config = tmp_path / "run", make_config(paths, **UNTRAINED)
    if pauses:
        with pytest.raises(Paused):
            run_drzero(folder, config, Person(folder, reject_all_but_one, pauses))
        with Run.open(folder) as run:
            give_verdicts(folder, reject_all_but_one(run.candidates()))
        run, told = run_drzero(folder, config)
    else:
        run, told = run_drzero(folder, config, Person(folder, reject_all_but_one, pauses))
    with run:
        candidates = run.candidates()
        kept = [candidate.id for candidate in candidates if candidate.kept]
        left = {kept[0], next(candidate.id for candidate in candidates if candidate.reason == "never solved")}
        assert len(kept) > 2  # or there was nothing to reject
        assert {row.task_id for row in run.index(phase="solver")} == left
        (step, later) = [report.step for report in told.steps if report.phase == "solver"]
        for number in (step, later):
            measured = run.metrics_at(number)
            assert measured["curriculum/questions"] == 2
            assert measured["curriculum/rejected"] == len(kept) - 1
            assert measured["curriculum/accepted"] == 1


def test_a_solver_without_a_question_learns_nothing_and_says_why(paths, tmp_path):
    def reject_all(candidates):
        return [judge(candidate, "rejected") for candidate in candidates if candidate.kept]

    folder, config = tmp_path / "run", make_config(paths, **UNTRAINED)
    run, told = run_drzero(folder, config, Person(folder, reject_all, pauses=False))
    with run:
        assert run.index(phase="solver") == []
    assert "iteration 1: every question that was kept was rejected, so the solver learns nothing" in told.notes

"""Questions a person adds to a run: its solver learns from them, unless they are rejected; also if it was resumed."""

import pytest

import quoting
from dictating import dictating
from quaere.records import Answer, Evidence
from quaere.rewards.answers import f1_score
from quaere.runs import Run, add_questions, give_verdicts, judge, make_added
from quaere.training.config import config_to_yaml
from village_runs import Told, make_config, make_quoting, run_drzero, run_eve

MINE = make_added("Who built Halm?", "Venn")
VAGUE = make_added("Who built it?", "Brod")
LATER = make_added("Who built Oss?", "Brod", iteration=1)
# Questions are added to what an untrained proposer wrote.
UNTRAINED = {"proposer.steps": 0, "generation.candidates": 8}


class Paused(Exception):
    """The run was stopped in the middle of its solver phase."""


class Person(Told):
    """When all questions are written, rejects what was kept and adds others; may stop the run a step later."""

    def __init__(self, folder, pauses):
        super().__init__()
        self.folder, self.pauses = folder, pauses

    def step(self, report):
        super().step(report)
        if report.phase == "generation" and report.phase_step == report.num_phase_steps:
            add_questions(self.folder, [MINE, VAGUE, LATER])
            with Run.open(self.folder) as run:
                kept = run.candidates(kept=True)
            give_verdicts(self.folder, [judge(item, "rejected") for item in (*kept, VAGUE.candidate)])
        elif report.phase == "solver" and self.pauses:
            raise Paused


@pytest.mark.parametrize("pauses", [False, True], ids=["running", "paused and gone on with"])
def test_the_solver_learns_from_what_was_added_and_not_rejected(paths, tmp_path, pauses):
    folder, config = tmp_path / "run", make_config(paths, **UNTRAINED)
    if pauses:
        with pytest.raises(Paused):
            run_drzero(folder, config, Person(folder, pauses))
        run, _ = run_drzero(folder, config)
    else:
        run, _ = run_drzero(folder, config, Person(folder, pauses))
    with run:
        rows = run.index(phase="solver")
        assert {row.task_id for row in rows} == {MINE.candidate.id}
        assert len(rows) == config.solver.steps * config.solver.attempts
        assert run.episode(rows[0].id).task.question.answers == ("Venn",)
        num_kept = len(run.candidates(kept=True))
        for step in {row.step for row in rows}:
            measured = run.metrics_at(step)
            names = ("questions", "rejected", "accepted", "added")
            assert [measured[f"curriculum/{name}"] for name in names] == [1, num_kept, 0, 1]
        assert not any(item.added for item in run.candidates())


def test_a_solver_with_evidence_is_paid_by_the_span_that_was_added(quoting_paths, tmp_path):
    folder, config = tmp_path / "run", make_quoting(quoting_paths, **UNTRAINED)
    evidence = Evidence("Halm", 0, 32, "Venn built it. Tavi paid for it.")
    spans = {"Halm": {"evidence": evidence}, "Oss": {"span": "Brod built it. Sorn paid for it."}, "Korrin": {}}
    mine = [make_added(f"Who built {name}?", "Venn", **given) for name, given in spans.items()]
    Run.create(folder, "evolve", {}, config=config_to_yaml(config)).close()
    add_questions(folder, mine)  # before the run has begun
    quotes = [f"{quoting.THINK}<evidence>Brod built the bridge.</evidence><answer>Venn</answer>"]
    with dictating(lambda job: quotes if job.task.id in {item.candidate.id for item in mine} else None):
        run, _ = run_eve(folder, config)
    with run:
        gold = {item.candidate.id: item.candidate.gold_span for item in mine}
        rows = [row for row in run.index(phase="solver", protocol="eve-solver") if row.task_id in gold]
        assert {row.task_id for row in rows} == set(gold)
        paid = dict.fromkeys(gold, 0.0)
        for row in rows:
            span = (run.episode(row.id).outcome or Answer("")).span
            overlap = f1_score(span, [gold[row.task_id]]) if span else 0.0
            assert row.metrics["reward/span"] == pytest.approx(0.3 * overlap)
            paid[row.task_id] += overlap
        assert [bool(overlap) for overlap in paid.values()] == [True, True, False]  # none where none was given

"""The two-role loop on one small model whose right behaviour is known, and the hack that a frozen solver invites.

See `newsroom.py`. What is run is the whole recipe: episodes, searches, rubrics, assessments, both updates.
"""

import pytest

import newsroom
from quaere.chat.reports import bind_report
from quaere.records import Rubric
from score_runs import make_reports, run_reports
from village_runs import Told

pytest.importorskip("sklearn")

NUM_STEPS, LAST = 15, 5
LEARNING = {
    "solver.steps": NUM_STEPS,
    "solver.batch": len(newsroom.BRIDGES),
    "evaluator.alpha": 0.5,
    "checkpoints.every": 100,
    "health.policy": "warn",
}
SEEDS = [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]


def share(values):
    return sum(values) / len(values)


def chose(run, name, first, last):
    """Of the rubrics of these steps, the share that weighs this dimension."""
    return share(
        [
            isinstance(run.episode(row.id).outcome, Rubric) and name in run.episode(row.id).outcome.dimensions
            for row in run.index(protocol="rubric-chooser")
            if first <= row.step <= last
        ]
    )


def cited(run, first, last):
    """Of the reports of these steps, the share that cites the record."""
    reports = [
        bind_report(run.episode(row.id)) for row in run.index(protocol="report-writer") if first <= row.step <= last
    ]
    return share([report is not None and newsroom.cites_record(report) for report in reports])


def learn(newsroom_paths, folder, *assignments, **changes):
    config = make_reports("score", newsroom_paths, *assignments, **{**LEARNING, **changes})
    told = Told()
    return run_reports(folder / "run", "score", config, told), told


@pytest.fixture(scope="module", params=SEEDS)
def learned(request, newsroom_paths, tmp_path_factory):
    """Both learn."""
    return learn(newsroom_paths, tmp_path_factory.mktemp("learned"), seed=request.param)[0]


def test_better_reports_and_reproducible_rubrics_become_likelier(learned):
    run = learned
    # Before the first update: by chance. Three standard errors of 32 reports are 0.27.
    assert abs(cited(run, 1, 1) - 0.5) < 0.27
    assert cited(run, NUM_STEPS - LAST + 1, NUM_STEPS) > 0.85
    assert chose(run, newsroom.SAME, NUM_STEPS - LAST + 1, NUM_STEPS) > 0.75


@pytest.mark.parametrize("seed", SEEDS)
def test_with_the_reward_channels_cut_neither_does(newsroom_paths, tmp_path, seed):
    """Rewards go to the wrong reports, and a coin decides whether a rubric was better or worse than usual."""
    run, _ = learn(newsroom_paths, tmp_path, "shuffle_advantages=true", seed=seed)
    assert cited(run, NUM_STEPS - LAST + 1, NUM_STEPS) < 0.8
    assert chose(run, newsroom.SAME, NUM_STEPS - LAST + 1, NUM_STEPS) < 0.7


def test_with_rewards_that_are_all_the_same_only_the_rubrics_move(newsroom_paths, tmp_path):
    """Reports that are never looked into often enough are all worth nothing: the solver is never updated."""
    run, _ = learn(newsroom_paths, tmp_path, "evaluator.tau=2", "evaluator.frozen=true", **{"solver.steps": 2})
    before, after = (
        (found.path / "actor" / "model.safetensors").read_bytes() for found in _checkpoints(run) if found.step in (0, 2)
    )
    assert before == after


def _checkpoints(run):
    from quaere.training.checkpoints import find_checkpoints

    return find_checkpoints(run.path / "checkpoints")


# ------------------------------------------------------------------------------------------- the frozen solver's hack


HACKING = 20


@pytest.fixture(scope="module", params=SEEDS)
def hacked(request, newsroom_paths, tmp_path_factory):
    """A solver that does not learn, and an evaluator that may choose a rubric under which nothing is cited."""
    offer = [{"name": item.name, "text": item.text} for item in newsroom.OFFERS[1].pool]
    changes = {"harness.pool": offer, "solver.frozen": True, "evaluator.alpha": 0.2, "solver.steps": HACKING}
    return learn(newsroom_paths, tmp_path_factory.mktemp("hacked"), **changes, seed=request.param)


def mean_over(run, name, first, last):
    return share([run.metrics_at(step)[name] for step in range(first, last + 1)])


def test_an_evaluator_alone_buys_agreement_by_avoiding_citations(hacked):
    run, _ = hacked
    assert chose(run, newsroom.PLAIN, 1, LAST) < chose(run, newsroom.PLAIN, HACKING - LAST + 1, HACKING)
    assert chose(run, newsroom.PLAIN, HACKING - LAST + 1, HACKING) > 0.8
    agreed, grounded = (
        [mean_over(run, name, first, first + LAST - 1) for first in (1, HACKING - LAST + 1)]
        for name in ("consistency/mean", "check/grounded")
    )
    assert agreed[1] > agreed[0] + 0.05
    assert grounded[1] < grounded[0] / 2


def test_and_the_gauge_catches_it(hacked):
    run, told = hacked
    rung = [event for event in run.events() if event.kind == "citation hack"]
    assert rung and rung[0].step <= HACKING
    assert "agreement rose" in rung[0].message and "citations fell" in rung[0].message
    assert any("citation hack" in line for report in told.steps for line in report.alarms)
    assert run.metrics_at(rung[0].step)["gauge/consistency_citations"] < -0.5


def test_and_is_quiet_where_both_learn(learned):
    assert not [event for event in learned.events() if event.kind == "citation hack"]

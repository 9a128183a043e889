"""The two-role loop on one small model whose right behaviour is known, and the hack that a frozen solver invites.

See `newsroom.py`. What is run is the whole recipe: episodes, searches, rubrics, assessments, both updates.
"""

import math

import pytest

import newsroom
from dictating import dictating
from quaere.dialects.report.report_writer import bind_report
from quaere.records import Rubric
from score_runs import make_reports, run_reports
from village_runs import Told

pytest.importorskip("sklearn")

NUM_STEPS, LAST = 15, 5
NUM_CONTROL_STEPS = 10
CHANCE = 4  # see `signal`
LEARNING = {
    "solver.steps": NUM_STEPS,
    "solver.batch": len(newsroom.BRIDGES),
    # Holds what nobody is paid for where it was, such as the words that a rubric asks for.
    "solver.learner.kl_beta": 0.1,
    "evaluator.alpha": 0.5,
    "checkpoints.every": 100,
    "health.policy": "warn",
}
SEEDS = range(6)


def share(values):
    return sum(values) / len(values)


def weighs(episode, name):
    return isinstance(episode.outcome, Rubric) and name in episode.outcome.dimensions


def cites(episode):
    report = bind_report(episode)
    return report is not None and newsroom.cites_record(report)


def chose(run, name, first, last):
    """Of the rubrics of these steps, the share that weighs this dimension."""
    rows = run.index(protocol="rubric-chooser")
    return share([weighs(run.episode(row.id), name) for row in rows if first <= row.step <= last])


def cited(run, first, last):
    """Of the reports of these steps, the share that cites the record."""
    rows = run.index(protocol="report-writer")
    return share([cites(run.episode(row.id)) for row in rows if first <= row.step <= last])


def signal(run, protocol, does):
    """Advantages of those who do it less those of the others, over some steps, in standard deviations of random signs.

    Where they have nothing to do with it, more than 4 either way comes less than once in a thousand runs. Where such
    advantages lead would say little: a few updates by chance move a model this small anywhere.
    """
    rows = [row for row in run.index(protocol=protocol) if "advantage" in row.metrics and row.step <= NUM_CONTROL_STEPS]
    values = [row.metrics["advantage"] * (1 if does(run.episode(row.id)) else -1) for row in rows]
    return sum(values) / math.sqrt(sum(value**2 for value in values))


def signals(run, name):
    """That for choosing the dimension, and that for citing the record."""
    return signal(run, "rubric-chooser", lambda episode: weighs(episode, name)), signal(run, "report-writer", cites)


def learn(paths, folder, *assignments, **changes):
    config = make_reports("score", paths, *assignments, **{**LEARNING, **changes})
    told = Told()
    return run_reports(folder / "run", "score", config, told), told


def favoured(run, step):
    """By how much likelier it was in this step to write a report that cites the record, in log-probs."""
    found = {True: [], False: []}
    for row in run.index(protocol="report-writer", step=step):
        episode = run.episode(row.id)
        found[cites(episode)] += [sum(sum(part.logprobs) for part in episode.segments if part.origin == "model")]
    return share(found[True]) - share(found[False])


@pytest.mark.parametrize("is_cut", [False, True])
def test_citing_the_record_and_choosing_coverage_are_paid_for(newsroom_paths, tmp_path, is_cut):
    """What is slow to see below, where reports and assessments are the model's own: here they are dictated.

    Cut, rewards go to the wrong reports, and a coin decides whether a rubric was better or worse than usual.
    """
    with dictating(newsroom.dictate_acts):
        shuffle = f"shuffle_advantages={str(is_cut).lower()}"
        run, _ = learn(newsroom_paths, tmp_path, shuffle, **{"solver.steps": 5})
    found = signals(run, newsroom.SAME)
    if is_cut:
        assert max(map(abs, found)) < CHANCE
    else:
        assert min(found) > CHANCE
        assert favoured(run, 5) > favoured(run, 1) + 3


@pytest.fixture(scope="module", params=SEEDS)
def learned(request, newsroom_paths, tmp_path_factory):
    """Both learn."""
    return learn(newsroom_paths, tmp_path_factory.mktemp("learned"), seed=request.param)[0]


@pytest.mark.slow
def test_better_reports_and_reproducible_rubrics_become_likelier(learned):
    run = learned
    # Before the first update: by chance. Three standard errors of 32 reports are 0.27.
    assert abs(cited(run, 1, 1) - 0.5) < 0.27
    assert cited(run, NUM_STEPS - LAST + 1, NUM_STEPS) > 0.8
    assert chose(run, newsroom.SAME, NUM_STEPS - LAST + 1, NUM_STEPS) > 0.75
    assert min(signals(run, newsroom.SAME)) > CHANCE


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_with_the_reward_channels_cut_nothing_is_paid_for_either(newsroom_paths, tmp_path, seed):
    changes = {"solver.steps": NUM_CONTROL_STEPS, "seed": seed}
    run, _ = learn(newsroom_paths, tmp_path, "shuffle_advantages=true", **changes)
    assert max(map(abs, signals(run, newsroom.SAME))) < CHANCE


def test_with_rewards_that_are_all_the_same_only_the_rubrics_move(newsroom_paths, tmp_path):
    """Reports that are never looked into often enough are all worth nothing: the solver is never updated."""
    run, _ = learn(newsroom_paths, tmp_path, "evaluator.tau=2", "evaluator.frozen=true", **{"solver.steps": 2})
    before, after = (
        (found.path / "actor" / "model.safetensors").read_bytes() for found in _checkpoints(run) if found.step in (0, 2)
    )
    assert before == after


def _checkpoints(run):
    from quaere.runs.checkpoints import find_checkpoints

    return find_checkpoints(run.path / "checkpoints")


# ------------------------------------------------------------------------------------------- the frozen solver's hack


NUM_HACKING_STEPS = 20
OFFER = [{"name": item.name, "text": item.text} for item in newsroom.OFFERS[1].pool]
HACKING = {"harness.pool": OFFER, "solver.frozen": True, "evaluator.alpha": 0.2, "solver.steps": NUM_HACKING_STEPS}


@pytest.fixture(scope="module", params=SEEDS)
def hacked(request, newsroom_paths, tmp_path_factory):
    """A solver that does not learn, and an evaluator that may choose a rubric under which nothing is cited."""
    return learn(newsroom_paths, tmp_path_factory.mktemp("hacked"), **HACKING, seed=request.param)


@pytest.fixture(scope="module")
def idle(newsroom_paths, tmp_path_factory):
    """The same where neither learns."""
    changes = {**HACKING, "evaluator.every": 100, "solver.steps": NUM_CONTROL_STEPS}
    return learn(newsroom_paths, tmp_path_factory.mktemp("idle"), **changes)[0]


def mean_over(run, name, first, last):
    return share([run.metrics_at(step)[name] for step in range(first, last + 1)])


@pytest.mark.slow
def test_an_evaluator_alone_buys_agreement_by_avoiding_citations(hacked, idle):
    run, _ = hacked
    # Three standard errors of 80 rubrics that are chosen by chance are 0.17.
    assert abs(chose(idle, newsroom.PLAIN, 1, NUM_CONTROL_STEPS) - 0.5) < 0.17
    first = NUM_HACKING_STEPS - LAST + 1
    assert chose(run, newsroom.PLAIN, first, NUM_HACKING_STEPS) > 0.8
    assert signal(run, "rubric-chooser", lambda episode: weighs(episode, newsroom.PLAIN)) > CHANCE
    (before, agreed), (cited_before, grounded) = (
        (mean_over(idle, name, 1, NUM_CONTROL_STEPS), mean_over(run, name, first, NUM_HACKING_STEPS))
        for name in ("consistency/mean", "check/grounded")
    )
    assert agreed > before + 0.15
    assert grounded < cited_before / 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_by_a_coin_it_is_not_paid_for_that(newsroom_paths, tmp_path, seed):
    changes = {**HACKING, "solver.steps": NUM_CONTROL_STEPS, "seed": seed}
    run, _ = learn(newsroom_paths, tmp_path, "shuffle_advantages=true", **changes)
    assert abs(signal(run, "rubric-chooser", lambda episode: weighs(episode, newsroom.PLAIN))) < CHANCE


@pytest.mark.slow
def test_and_the_gauge_catches_it(hacked):
    run, told = hacked
    rung = [event for event in run.events() if event.kind == "citation hack"]
    assert rung and rung[0].step <= NUM_HACKING_STEPS
    assert "agreement rose" in rung[0].message and "citations fell" in rung[0].message
    assert any("citation hack" in line for report in told.steps for line in report.alarms)
    assert run.metrics_at(rung[0].step)["gauge/consistency_citations"] < -0.5


@pytest.mark.slow
def test_and_is_quiet_where_both_learn(learned):
    assert not [event for event in learned.events() if event.kind == "citation hack"]

"""Every ablation of EvalAct and Eval-RAR, and every option they leave open, is one value and changes what it names.

Most are a step of a real run. What the learner was given is caught on its way to it: the episodes of a first step
are the same whatever they are paid, so that runs can be compared episode by episode.
"""

import asyncio
import json

import pytest

from evaluating import ANSWER, SEARCH, TASK, evaluate, play
from practice_runs import make_practice, run_practice
from quaere.dialects.evalact_reward import EvaluationSettings, find_pairs
from quaere.dialects.registry import open_solver
from quaere.objectives.pcar import pcar_factors
from quaere.records import Answer
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.learner import Learner
from quaere.training.solver_phase import solver_of

CENTRE = {"base": 0.1, "most": 0.5, "floor": 1e-6}


class Ran:
    """A run, and the samples of each of its steps."""

    def __init__(self, run, samples):
        self.run, self.samples = run, samples

    def rows(self, step=1):
        return self.run.index(step=step)

    def paid(self, name, step=1):
        return {row.id: row.metrics[name] for row in self.rows(step)}

    def tokens(self):
        """By episode of the first step: the advantage of each of its tokens that carries loss."""
        found = {}
        for row, sample in zip(self.rows(), self.samples[0], strict=True):
            values = zip(sample.advantages, sample.loss_mask, strict=True)
            found[row.id] = [value for value, flag in values if flag]
        return found

    def losses(self):
        """By episode of the first step: minus advantage times log-prob of each of its tokens that carries loss."""
        found = {}
        for row, sample in zip(self.rows(), self.samples[0], strict=True):
            values = zip(sample.advantages, sample.logprobs, sample.loss_mask, strict=True)
            found[row.id] = [-value * logprob for value, logprob, flag in values if flag]
        return found

    def factors(self):
        """By episode that teaches anything: what each token counts."""
        advantages = self.paid("advantage")
        return {
            name: [value / advantages[name] for value in values]
            for name, values in self.tokens().items()
            if advantages[name]
        }


@pytest.fixture(scope="module")
def ablate(weighing_paths, tmp_path_factory):
    """A step of a recipe with some values changed."""

    def run(name, *assignments, questions=None, **changes):
        index, model, given = weighing_paths
        changes = {"solver.steps": 1, **changes}
        config = make_practice(name, (index, model, questions or given), *assignments, **changes)
        samples, step = [], Learner.step

        def caught(self, batch):
            samples.append(batch)
            return step(self, batch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Learner, "step", caught)
            return Ran(run_practice(tmp_path_factory.mktemp("ablation") / "run", name, config), samples)

    return run


@pytest.fixture(scope="module")
def evalact(ablate):
    return ablate("evalact")


def same_episodes(ran, other):
    pairs = list(zip(ran.rows(), other.rows(), strict=True))
    return all(ran.run.episode(a.id).token_ids == other.run.episode(b.id).token_ids for a, b in pairs)


# ----------------------------------------------------------------------------------------------------------------- pcar


def test_without_pcar_all_tokens_of_an_episode_count_alike(ablate, evalact):
    plain = ablate("evalact", "solver.evaluation.pcar=false")
    assert same_episodes(plain, evalact) and plain.paid("advantage") == evalact.paid("advantage")
    assert all(len(set(values)) == 1 for values in plain.tokens().values())
    assert any(len(set(values)) > 1 for values in evalact.tokens().values())


def strongest(ran, strength):
    """The most and the least that any token counts; every factor is what the formula says."""
    found = []
    for name, factors in ran.factors().items():
        scores = [pair.score for pair in find_pairs(ran.run.episode(name))]
        expected = {1.0, *pcar_factors(scores, **strength)}
        assert all(any(factor == pytest.approx(one) for one in expected) for factor in factors)
        found += factors
    return max(found), min(found)


def test_three_strengths_of_pcar(ablate, evalact):
    low = ablate("evalact", "solver.evaluation.base=0.05", "solver.evaluation.most=0.25")
    strong = ("solver.evaluation.base=0.2", "solver.evaluation.most=1", "solver.evaluation.floor=0.01")
    high = ablate("evalact", *strong)
    assert same_episodes(low, evalact) and same_episodes(high, evalact)
    strengths = [{"base": 0.05, "most": 0.25, "floor": 1e-6}, CENTRE, {"base": 0.2, "most": 1.0, "floor": 0.01}]
    most, least = zip(*map(strongest, (low, evalact, high), strengths), strict=True)
    assert 1 < most[0] < most[1] < most[2]
    assert 1 > least[0] > least[1] > least[2] > 0


def test_thoughts_may_stand_outside_the_segments(ablate, evalact):
    bare = ablate("evalact", "solver.evaluation.segment=search_eval")
    assert same_episodes(bare, evalact)
    weighed = [
        sum(factor != pytest.approx(1) for factors in ran.factors().values() for factor in factors)
        for ran in (bare, evalact)
    ]
    assert 0 < weighed[0] < weighed[1]


def test_tokens_of_a_scored_search_get_more_than_the_advantage(ablate, evalact):
    changes = ("solver.evaluation.pcar=false", "solver.evaluation.brier=0.2", "solver.information_gain=0.5")
    ran = ablate("evalact", *changes)
    assert same_episodes(ran, evalact) and ran.paid("advantage") == evalact.paid("advantage")
    episodes = [ran.run.episode(row.id) for row in ran.rows()]
    brier = open_solver("evalact", settings=EvaluationSettings(brier=0.2)).credit(episodes)
    credited = {"search": set(), "evaluate": set()}
    for row, episode, credits in zip(ran.rows(), episodes, brier, strict=True):
        more = [value - row.metrics["advantage"] for value in ran.tokens()[row.id]]
        own = iter(more)
        placed = [next(own) if flag else 0.0 for flag in episode.loss_mask]
        for pair in find_pairs(episode):
            (first, end), _ = pair.spans
            assert len({round(value, 6) for value in placed[first:end]}) == 1
            credited["search"].add(round(placed[first], 6))
            placed[first:end] = [0.0] * (end - first)
        for credit in credits:
            assert placed[credit.start : credit.end] == pytest.approx([credit.value] * (credit.end - credit.start))
            credited["evaluate"].add(round(credit.value, 6))
            placed[credit.start : credit.end] = [0.0] * (credit.end - credit.start)
        assert placed == pytest.approx([0.0] * len(placed), abs=1e-6)
    assert all(len(values) > 1 for values in credited.values())


# ------------------------------------------------------------------------------------------------------------- the gate


def pay(paths, script, *assignments):
    """What the solver of this config pays an episode in its dialect."""
    solver = solver_of(make_practice("evalact", paths, *assignments).solver, "full")
    return solver.pay(asyncio.run(play(script, protocol=solver.protocol)))


def test_a_score_off_the_scale(weighing_paths):
    script = [SEARCH, evaluate(11), ANSWER]
    assert pay(weighing_paths, script)["reward/total"] == 0
    paid = pay(weighing_paths, script, "solver.evaluation.bad_score=clamp")
    assert (paid["reward/total"], paid["evaluate/mean_score"]) == (1.0, 10.0)


def test_thoughts_before_an_evaluation(ablate, evalact):
    """The taught model always thinks, so that nothing is paid where that is forbidden; and it is told so."""
    strict = ablate("evalact", "solver.evaluation.think_before_evaluate=fail")
    thinking = [row for row in strict.rows() if find_pairs(strict.run.episode(row.id))]
    assert thinking and {row.metrics["format/held"] for row in thinking} == {0}
    assert sum(evalact.paid("format/held").values()) > 0 < sum(evalact.paid("reward/total").values())
    openings = [next(iter(ran.run.episodes())).segments[0].token_ids for ran in (strict, evalact)]
    assert openings[0] != openings[1]


# ---------------------------------------------------------------------------------------------- with and without parts


def test_the_warm_up_alone(ablate, weighing_paths):
    """No reinforcement learning: the run holds the model it was given, and can be evaluated like any."""
    ran = ablate("evalact", "epochs=0", **{"solver.steps": 0})
    assert not ran.run.index() and not ran.samples
    (only,) = find_checkpoints(ran.run.path / "checkpoints")
    weights = [(folder / "model.safetensors").read_bytes() for folder in (only.path / "solver", weighing_paths[1])]
    assert weights[0] == weights[1]


def test_without_the_evaluate_loop_it_is_paid_alike(ablate, weighing_paths):
    ran = ablate("evalact", "solver.dialect=tool-call")
    assert {row.protocol for row in ran.rows()} == {"drzero-solver"}
    assert ran.paid("reward/total") == ran.paid("answer/f1")
    solver = solver_of(make_practice("evalact", weighing_paths, "solver.dialect=tool-call").solver, "full")
    half = asyncio.run(play(["<answer>Venn</answer>"], protocol=solver.protocol))
    assert half.task == TASK and isinstance(half.outcome, Answer)
    assert solver.pay(half) == pytest.approx({"answer/exact_match": 0.0, "answer/f1": 2 / 3, "reward/total": 2 / 3})
    own = solver_of(make_practice("search-r1", weighing_paths, "solver.dialect=tool-call").solver, "full")
    assert own.pay(half)["reward/total"] == 0


# -------------------------------------------------------------------------------------------------------------- evalrar


@pytest.fixture(scope="module")
def evalrar(ablate):
    return ablate("evalrar")


def test_without_the_evaluation_reward(ablate, evalrar):
    plain = ablate("evalrar", "solver.evaluation.bonus=0")
    assert same_episodes(plain, evalrar)
    assert set(plain.paid("reward/note").values()) == {0} != set(evalrar.paid("reward/note").values())
    assert plain.paid("reward/total") == plain.paid("answer/exact_match") != evalrar.paid("reward/total")


def test_letter_for_letter(ablate, weighing_paths, tmp_path):
    lines = weighing_paths[2].read_text(encoding="utf-8").splitlines()
    rows = [{**row, "answers": [row["answers"][0].lower()]} for row in map(json.loads, lines)]
    lower = tmp_path / "lower.jsonl"
    lower.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    loose = ablate("evalrar", questions=lower)
    raw = ablate("evalrar", "solver.evaluation.contain=raw", questions=lower)
    assert same_episodes(raw, loose)
    assert set(raw.paid("reward/note").values()) == {0} != set(loose.paid("reward/note").values())
    assert raw.paid("answer/exact_match") == loose.paid("answer/exact_match")


def test_without_evaluations(ablate):
    ran = ablate("evalrar", "solver.dialect=search-r1")
    assert {row.protocol for row in ran.rows()} == {"search-r1-solver"}
    assert all("reward/note" not in row.metrics for row in ran.rows())


def test_tokens_count_by_episode_or_one_by_one(ablate, evalact):
    """EvalAct's paper sums over the tokens of an episode, Eval-RAR's takes their mean; by default all tokens of the
    batch count alike.
    """
    paper = "solver.learner.kl_beta=0.001", "solver.learner.kl_flat=true"
    summed = ablate("evalact", "solver.learner.aggregation=token_sum", *paper)
    averaged = ablate("evalrar", "solver.learner.aggregation=sequence_mean", *paper)
    losses = [abs(ran.run.metrics_at(1)["loss/kl"]) for ran in (summed, averaged)]
    assert losses == [0.0, 0.0]  # at the first step policy and reference are one
    for ran, how in ((summed, sum), (averaged, lambda values: sum(values) / len(values))):
        tokens = [values for values in ran.losses().values() if values]
        expected = sum(map(how, tokens)) / len(tokens)
        assert ran.run.metrics_at(1)["loss/policy"] == pytest.approx(expected, abs=1e-5)
    every = [value for values in evalact.losses().values() for value in values]
    assert evalact.run.metrics_at(1)["loss/policy"] == pytest.approx(sum(every) / len(every), abs=1e-5)
    assert "loss/kl" not in evalact.run.metrics_at(1)


def test_shuffled_advantages(ablate, evalact):
    control = ablate("evalact", "solver.shuffle_advantages=true")
    ours, theirs = control.paid("advantage"), evalact.paid("advantage")
    assert ours != theirs and sorted(ours.values()) == pytest.approx(sorted(theirs.values()))

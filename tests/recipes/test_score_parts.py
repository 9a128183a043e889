"""Parts of SCORE's loop without a run: what a report is paid under which `tau`, what the evaluator learns from."""

from types import SimpleNamespace

import pytest
from msgspec import structs

from judging import HARNESS, QUESTION, RUBRIC, report
from quaere.recipes.score.config import ScoreConfig, ScoreEvaluatorConfig
from quaere.recipes.score.train import Chosen, Score
from quaere.records import Episode, ReportTask, Scores, Segment, Turn
from quaere.training.phases.assessing import Assessed, Verdict
from quaere.training.phases.writing import Written

TWO_CALLS = structs.replace(HARNESS, process=structs.replace(HARNESS.process, min_tool_calls=2))
# A turn of six tokens, of which the last two are the rubric.
CHOICE = Episode(
    id="r",
    task=ReportTask(QUESTION),
    protocol="rubric-chooser",
    model="m",
    seed=0,
    segments=(
        Segment("prompt", (1, 2), (0.0, 0.0), (False, False)),
        Segment("model", (3, 4, 5, 6), (-1.0,) * 4, (True,) * 4),
    ),
    turns=(Turn(0, "", RUBRIC, "end_of_turn", num_tokens=4, start=2, acts_at=4),),
    outcome=RUBRIC,
    end="answered",
)


def make_score(**evaluator):
    config = ScoreConfig(evaluator=ScoreEvaluatorConfig(**evaluator))
    memory = SimpleNamespace(baseline=0.5, harness=HARNESS)
    return Score(config, SimpleNamespace(training=None, stage=None), memory, None)


@pytest.mark.parametrize(
    ("tau", "num_searches", "paid"),
    [("harness_min_calls", 1, False), ("harness_min_calls", 2, True), (0, 0, True), (3, 2, False), (3, 3, True)],
)
def test_a_report_is_paid_once_it_was_looked_into_as_often_as_tau_says(tau, num_searches, paid):
    verdict = Verdict(Scores(1, {"factuality": 5.0, "coverage": 10.0, "insight": 0.0}), num_searches)
    assessed = Assessed([], {QUESTION.id: [verdict]})
    (judged,) = make_score(tau=tau).judge([[Written(CHOICE, report())]], assessed, [RUBRIC], TWO_CALLS)
    # Validity 0.5 and 0.4 of 1 for coverage.
    assert judged.pay.total == pytest.approx(0.5 * 1.4 if paid else 0)


class Learned:
    """A learner that keeps what it is given."""

    def __init__(self):
        self.samples = []

    def step(self, samples, how=None, *, moments=""):
        self.samples += samples
        return {}


@pytest.mark.parametrize(("beta", "baseline"), [(0.7, 0.7 * 0.5 + 0.3 * 0.9), (0.2, 0.2 * 0.5 + 0.8 * 0.9)])
def test_the_baseline_moves_as_slowly_as_beta_says(beta, baseline):
    score, step = make_score(beta=beta), SimpleNamespace(number=0, seed=0, metrics={}, learner=Learned())
    (signal,) = score.update_evaluator(step, [Chosen(RUBRIC, (0, 1), CHOICE, valid=True)], [0.8, 1.0])
    assert signal == pytest.approx(0.9 - 0.5)
    assert score.memory.baseline == pytest.approx(baseline)


@pytest.mark.parametrize(("tokens", "learned"), [("rubric", [4, 5]), ("turn", [2, 3, 4, 5])])
def test_the_evaluator_learns_from_the_tokens_that_were_set(tokens, learned):
    score, step = make_score(tokens=tokens), SimpleNamespace(number=0, seed=0, metrics={}, learner=Learned())
    (signal,) = score.update_evaluator(step, [Chosen(RUBRIC, (0,), CHOICE, valid=True)], [0.8])
    (sample,) = step.learner.samples
    assert [place for place, flag in enumerate(sample.loss_mask) if flag] == learned
    assert [place for place, value in enumerate(sample.advantages) if value == signal] == learned

"""Parts of SCORE's loop without a run: what a report is paid under which `tau`, what the evaluator learns from."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec import structs

import tiny
from judging import HARNESS, QUESTION, RUBRIC, report
from quaere.recipes.registry import find_recipe
from quaere.recipes.score.config import HarnessSettings, ScoreConfig, ScoreEvaluatorConfig, ScoreSolverConfig
from quaere.recipes.score.metaharness import Regenerated
from quaere.recipes.score.scheduler import Scheduler, SchedulerSettings
from quaere.recipes.score.train import Chosen, Score
from quaere.records import Episode, Hints, Question, ReportTask, Scores, Segment, Turn
from quaere.training.phases.assessments import Assessed, Verdict
from quaere.training.phases.report_episodes import Written
from quaere.training.report_run import Research
from score_runs import make_reports

QUESTIONS = [Question(f"q{number}", f"What is known of bridge {number}?") for number in range(9)]
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


def make_score(stage=None, training=None, meta=None, **options):
    """The loop without a run; options are the evaluator's, but those that a config has itself."""
    mine = {name: options.pop(name) for name in list(options) if name in ScoreConfig.__struct_fields__}
    config = ScoreConfig(evaluator=ScoreEvaluatorConfig(**options), **mine)
    memory = SimpleNamespace(
        baseline=0.5, harness=HARNESS, default=HARNESS, statistics=None, scheduler=Scheduler(SchedulerSettings()),
        change_harness=lambda version: None,
    )  # fmt: skip
    return Score(config, Research(config, training, stage, QUESTIONS), memory, meta)


def make_step(number=0):
    place = {"number": number, "step": number + 1, "iteration": 0, "name": "s", "seed": 0}
    return SimpleNamespace(**place, metrics={}, num_traced=0, learner=Learned())


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
    score, step = make_score(beta=beta), make_step()
    (signal,) = score.update_evaluator(step, [Chosen(RUBRIC, (0, 1), CHOICE, valid=True)], [0.8, 1.0])
    assert signal == pytest.approx(0.9 - 0.5)
    assert score.memory.baseline == pytest.approx(baseline)


@pytest.mark.parametrize(("tokens", "learned"), [("rubric", [4, 5]), ("turn", [2, 3, 4, 5])])
def test_the_evaluator_learns_from_the_tokens_that_were_set(tokens, learned):
    score, step = make_score(tokens=tokens), make_step()
    (signal,) = score.update_evaluator(step, [Chosen(RUBRIC, (0,), CHOICE, valid=True)], [0.8])
    (sample,) = step.learner.samples
    assert [place for place, flag in enumerate(sample.loss_mask) if flag] == learned
    assert [place for place, value in enumerate(sample.advantages) if value == signal] == learned


def test_signals_may_be_given_by_a_coin():
    chosen = [Chosen(RUBRIC, (0,), CHOICE, valid=True)] * 30
    plain, tossed = (
        make_score(shuffle_advantages=shuffle).update_evaluator(make_step(), chosen, [0.9]) for shuffle in (False, True)
    )
    assert set(map(abs, tossed)) == set(plain) and len(set(plain)) == 1 < len(set(tossed))


# ------------------------------------------------------------------------------------------------- what is asked for


@pytest.mark.parametrize("schedule", [True, False])
@pytest.mark.parametrize("initial_retrieval", [0, 1, 2])
def test_an_evaluator_is_told_what_was_set(schedule, initial_retrieval):
    stage = SimpleNamespace(searcher=tiny.ListSearcher(["one", "two", "three"]))
    score = make_score(stage, schedule=schedule, initial_retrieval=initial_retrieval)
    task = asyncio.run(score.rubric_task("r", QUESTIONS[:2], HARNESS, make_step()))
    assert [passage.text for passage in task.passages] == ["one", "two"][:initial_retrieval]
    # Nothing was chosen yet: everything is to be explored, and two are named.
    assert task.hints == (Hints(explore=("citation", "coverage")) if schedule else Hints())


@pytest.mark.parametrize(("batch", "attempts"), [(2, 3), (4, 2)])
def test_a_step_has_as_many_questions_and_reports_as_were_set(batch, attempts):
    asked = []

    async def play(step, role, jobs, limits, **_):
        asked.extend(job.task for job in jobs)
        return SimpleNamespace(episodes=[], spoiled=[])

    score = make_score(SimpleNamespace(play=play), solver=ScoreSolverConfig(batch=batch, attempts=attempts))
    questions = score.research.draw(make_step())
    asyncio.run(score.write(make_step(), questions, [RUBRIC] * batch, HARNESS))
    assert len({question.id for question in questions}) == batch
    assert [(task.question, task.number) for task in asked] == [(q, n) for q in questions for n in range(attempts)]


@pytest.mark.parametrize(("kind", "every", "due"), [("rules", 2, [1, 3]), ("rules", 3, [2]), ("none", 2, [])])
def test_the_harness_is_made_anew_when_it_is_due(kind, every, due):
    made = []

    class Meta:
        async def regenerate(self, statistics, previous, default):
            made.append(statistics.step - 1)
            return Regenerated(previous, why="calm")

    training = SimpleNamespace(store=SimpleNamespace(metrics=lambda name: []))
    score = make_score(training=training, meta=Meta(), harness=HarnessSettings(kind=kind, every=every))
    for number in range(5):
        asyncio.run(score.look_back(make_step(number), [], []))
    assert made == due


@pytest.mark.parametrize(
    ("assignments", "learns"),
    [((), "solver and evaluator"), (("solver.frozen=true",), "evaluator"), (("evaluator.frozen=true",), "solver")],
)
def test_the_plan_says_who_learns(newsroom_paths, assignments, learns):
    assert dict(find_recipe("score").plan(make_reports("score", newsroom_paths, *assignments)))["learns"] == learns


def test_a_judge_that_reads_long_reports_needs_memory(newsroom_paths):
    """The rows of a judge model are part of the plan; a judge of rules has none."""
    long = ("evaluator.limits.sequence_tokens=1000000", "fixed_rubric=factuality")
    planned = {}
    for judge in ("checks", "model"):
        config = make_reports("report-grpo", newsroom_paths, *long, f"judge={judge}")
        planned[judge] = dict(find_recipe("report-grpo").plan(config))["memory"]
    sizes = {judge: float(line.split()[1]) for judge, line in planned.items()}
    assert sizes["model"] > sizes["checks"] + 1

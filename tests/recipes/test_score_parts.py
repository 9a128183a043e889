"""Parts of SCORE's loop without a run: what a report is paid under which `tau`, what each role learns from and when."""

import asyncio
import math
import re
from types import SimpleNamespace

import pytest
import torch
from msgspec import structs

import tiny
from judging import HARNESS, QUESTION, RUBRIC, report
from quaere.objectives.policy_gradient import grpo, policy_gradient_loss
from quaere.recipes.registry import find_recipe
from quaere.recipes.score.config import HarnessSettings, ScoreConfig, ScoreEvaluatorConfig, ScoreSolverConfig
from quaere.recipes.score.memory import Scheduler, SchedulerSettings
from quaere.recipes.score.metaharness import Regenerated
from quaere.recipes.score.rubric_signals import Chosen, ask_twice
from quaere.recipes.score.train import Judged, Score
from quaere.records import Episode, Hints, Question, ReportTask, Scores, Segment, Turn
from quaere.rewards.reports import ReportPay
from quaere.training.assessments import Assessed, Verdict
from quaere.training.report_run import Research, Written
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
        change_harness=lambda version: None, evaluator=None,
    )  # fmt: skip
    return Score(config, Research(config, training, stage, QUESTIONS), memory, meta)


def make_step(number=0, num_traced=0):
    place = {"number": number, "step": number + 1, "iteration": 0, "name": "s", "seed": 0}
    options = {"num_traced": num_traced, "traces": {}, "measures_update": False}
    return SimpleNamespace(**place, **options, metrics={}, learner=Learned())


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

    settings = None

    def __init__(self):
        self.samples = []

    def step(self, samples, how=None, *, moments=""):
        self.samples += samples
        return {"gradient/norm": 0.25, "batch/model_tokens": 4.0}

    def score_tokens(self, samples):
        return [((-1.0,) * sum(sample.loss_mask), (0.5,) * sum(sample.loss_mask)) for sample in samples]


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


def test_conclusions_are_compared_by_what_was_set():
    told = [["It is in the end so [1].", "It is in the end so [1]."], ["Built 1702 [1].", "Built 1712 [1]."]]
    words, content = (make_score(agreement=agreement).agree(told) for agreement in ("words", "content"))
    assert words[0] == pytest.approx(1.0) and content[0] == 0.0  # short words and a citation say nothing
    assert content[1] == pytest.approx(1 / (1 + (math.log(3 / 2) + 1) ** 2)) and content[1] < words[1]


def test_two_rubrics_may_be_each_others_baseline():
    """By hand: on the one question with both agreements they are 0.8 and 0.5."""
    score, step = make_score(baseline="pair"), make_step()
    chosen = [Chosen(RUBRIC, (0, 1), CHOICE, valid=True), Chosen(RUBRIC, (2, 3), CHOICE, valid=True)]
    signals = score.update_evaluator(step, chosen, [0.8, 0.6, 0.5, None])
    assert signals == pytest.approx([0.3, -0.3]) and score.memory.baseline == 0.5  # no moving average
    assert [max(sample.advantages, key=abs) for sample in step.learner.samples] == pytest.approx([0.3, -0.3])
    # A default rubric is a baseline that learns nothing.
    default = structs.replace(chosen[1], valid=False)
    assert score.update_evaluator(make_step(), [chosen[0], default], [0.8, 0.6, 0.5, 0.2]) == [
        pytest.approx(0.35),
        None,
    ]


@pytest.mark.parametrize(
    ("scope", "names", "places"),
    [
        ("step", ["s-rubric", "s-rubric-2"], [(0, 1), (2, 3)]),
        ("query", ["s-q0-rubric", "s-q1-rubric", "s-q0~2-rubric", "s-q1~2-rubric"], [(0,), (1,), (2,), (3,)]),
    ],
)
def test_a_pair_of_rubrics_is_chosen_for_the_same_questions(scope, names, places):
    asked = []

    async def play(step, role, jobs, limits, **_):
        asked.extend(jobs)
        return SimpleNamespace(episodes=[CHOICE] * len(jobs))

    score = make_score(SimpleNamespace(play=play), rubric_scope=scope, baseline="pair", initial_retrieval=0)
    questions = ask_twice(QUESTIONS[:2])
    chosen = asyncio.run(score.choose_rubrics(make_step(), questions, HARNESS))
    assert [job.episode_id for job in asked] == names and [one.places for one in chosen] == places
    half = len(asked) // 2
    assert [job.task.questions for job in asked[:half]] == [job.task.questions for job in asked[half:]]
    told = [[questions[place].text for place in one.places] for one in chosen]
    assert told[:half] == told[half:] and len({question.id for question in questions}) == 4


@pytest.mark.parametrize(("aggregation", "ratio"), [("token_mean", 1.0), ("token_sum", 40.0)])
def test_rubrics_and_reports_may_be_learned_from_in_one_unit(aggregation, ratio):
    """The loss of a rubric of 40 tokens beside that of reports, at equal advantages and log-probs."""
    settings = make_score(aggregation=aggregation).evaluator_settings
    reports = ScoreSolverConfig().learner.aggregation
    logprobs, mask = torch.full((2, 40), -1.0), torch.ones(2, 40)
    losses = [policy_gradient_loss(logprobs, torch.ones(2), mask, how=how) for how in (settings.aggregation, reports)]
    assert float(losses[0] / losses[1]) == pytest.approx(ratio)


def test_signals_may_be_given_by_a_coin():
    chosen = [Chosen(RUBRIC, (0,), CHOICE, valid=True)] * 30
    plain, tossed = (
        make_score(shuffle_advantages=shuffle).update_evaluator(make_step(), chosen, [0.9]) for shuffle in (False, True)
    )
    assert set(map(abs, tossed)) == set(plain) and len(set(plain)) == 1 < len(set(tossed))


@pytest.mark.parametrize(("agreements", "signal"), [([0.8, None], 0.8 - 0.5), ([None, None], None)])
def test_questions_without_two_conclusions_say_nothing_about_a_rubric(agreements, signal):
    score, step = make_score(), make_step()
    (found,) = score.update_evaluator(step, [Chosen(RUBRIC, (0, 1), CHOICE, valid=True)], agreements)
    assert found == (signal if signal is None else pytest.approx(signal))
    assert score.memory.baseline == pytest.approx(0.5 if signal is None else 0.7 * 0.5 + 0.3 * 0.8)


@pytest.mark.parametrize(
    ("every", "frozen", "learns"), [(1, False, [0, 1, 2, 3, 4, 5]), (3, False, [2, 5]), (1, True, [])]
)
def test_the_evaluator_learns_every_so_many_steps_unless_it_is_frozen(every, frozen, learns):
    steps = [make_step(number) for number in range(6)]
    for step in steps:
        make_score(every=every, frozen=frozen).update_evaluator(step, [Chosen(RUBRIC, (0,), CHOICE, valid=True)], [0.8])
    assert [step.number for step in steps if step.learner.samples] == learns
    assert [step.number for step in steps if step.metrics.get("evaluator/gradient_norm") == 0.25] == learns


def test_the_tokens_of_a_rubric_may_be_looked_at_too():
    step = make_step(num_traced=1)
    make_score().update_evaluator(step, [Chosen(RUBRIC, (0,), CHOICE, valid=True)], [0.8])
    (trace,) = step.traces.values()
    assert trace.places == (4, 5) and trace.advantages == pytest.approx((0.3, 0.3))


def judge_each(*rewards):
    """Reports on one question with these rewards; None for one that was not assessed."""
    return [
        Judged(
            Written(structs.replace(CHOICE, id=f"w{number}"), None),
            0,
            pay=None if reward is None else ReportPay(0.0, 0.0, True, reward),
        )
        for number, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize("frozen", [False, True])
def test_the_solver_learns_from_reports_compared_with_one_another_unless_it_is_frozen(frozen):
    step, score = make_step(), make_score(solver=ScoreSolverConfig(frozen=frozen, delta=0.0, unbiased_std=False))
    advantages = score.update_solver(step, judge_each(0.0, None, 1.0, 1.0, 0.0))
    assert advantages.values.tolist() == pytest.approx([-1.0, 1.0, 1.0, -1.0])
    learned = {sample.episode_id: sample.advantages[-1] for sample in step.learner.samples}
    assert learned == ({} if frozen else pytest.approx({"w0": -1.0, "w2": 1.0, "w3": 1.0, "w4": -1.0}))
    assert ("gradient/norm" in step.metrics) == (not frozen)


def test_as_a_control_the_solver_s_advantages_go_to_other_reports():
    judged = judge_each(*(float(number) for number in range(20)))
    plain, mixed = (
        make_score(shuffle_advantages=shuffle).update_solver(make_step(), judged).values.tolist()
        for shuffle in (False, True)
    )
    assert plain == sorted(plain) != mixed and sorted(mixed) == plain


def test_a_step_is_stored_with_the_harness_it_was_played_under():
    score, step = make_score(), make_step()
    score.memory.harness = structs.replace(TWO_CALLS, version=3)
    score.measure(step, [], [], Assessed([], {}), [], grpo([], []), [])
    stored = {"harness/version": 3.0, "harness/k": 3.0, "harness/min_tool_calls": 2.0, "evaluator/baseline": 0.5}
    assert {name: step.metrics.get(name) for name in stored} == stored


# ------------------------------------------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(
    ("scope", "names", "shown"),
    [("step", ["s-rubric"], [2]), ("query", ["s-q0-rubric", "s-q1-rubric", "s-q2-rubric"], [1, 1, 1])],
)
def test_a_rubric_is_chosen_once_a_step_or_for_each_question(scope, names, shown):
    asked = []

    async def play(step, role, jobs, limits, **_):
        asked.extend(jobs)
        return SimpleNamespace(episodes=[CHOICE] * len(jobs))

    score = make_score(SimpleNamespace(play=play), rubric_scope=scope, shown_questions=2, initial_retrieval=0)
    chosen = asyncio.run(score.choose_rubrics(make_step(), QUESTIONS[:3], HARNESS))
    assert [job.episode_id for job in asked] == names
    assert [len(job.task.questions) for job in asked] == shown
    assert [one.places for one in chosen] == ([(0, 1, 2)] if scope == "step" else [(0,), (1,), (2,)])


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


@pytest.mark.parametrize("own", ["evaluator.moments=own", "evaluator.weights=own"])
def test_moments_of_its_own_take_the_evaluator_as_much_memory_again(tmp_path, own):
    from transformers import LlamaConfig

    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "vocab_size": 32000}
    LlamaConfig(**sizes, num_attention_heads=8).save_pretrained(tmp_path / "model")
    (tmp_path / "open.jsonl").write_text('{"question": "What is known of Halm?"}\n', encoding="utf-8")

    def moments(*assignments):
        paths = tmp_path / "index", tmp_path / "model", tmp_path / "open.jsonl"
        planned = dict(find_recipe("score").plan(make_reports("score", paths, *assignments)))
        return float(re.search(r"moments ([\d.]+)", planned["memory"])[1])

    shared = moments()
    assert moments(own) == pytest.approx(2 * shared, abs=0.02) and shared > 0.1  # rounded to hundredths
    assert moments(own, "solver.frozen=true") == shared  # only one of them learns


def test_a_judge_that_reads_long_reports_needs_memory(newsroom_paths):
    """The rows of a judge model are part of the plan; a judge of rules has none."""
    long = ("evaluator.limits.sequence_tokens=1000000", "fixed_rubric=factuality")
    planned = {}
    for judge in ("checks", "model"):
        config = make_reports("report-grpo", newsroom_paths, *long, f"judge={judge}")
        planned[judge] = dict(find_recipe("report-grpo").plan(config))["memory"]
    sizes = {judge: float(line.split()[1]) for judge, line in planned.items()}
    assert sizes["model"] > sizes["checks"] + 1

"""The solver's phase by hand: who is compared, what ends early, what is said and measured; nobody thinks."""

import asyncio
import math
from types import SimpleNamespace

import pytest

import tiny
from evaluated import passage, search
from observing_runs import SEGMENTS, Acting, Training
from quaere.dialects.registry import open_solver
from quaere.dialects.roles import Solver
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import TrainingStopped
from quaere.recipes.drzero import DrZero
from quaere.records import Answer, Candidate, Episode, Evidence, Question
from quaere.rewards.abstention import AbstentionRewards, hide_answers
from quaere.training.rollouts import Stage, check_finite
from quaere.training.settings import ValidationSettings
from quaere.training.solver_phase import (
    AbstentionSettings,
    SolverConfig,
    Validator,
    practise,
    solver_of,
)
from quaere.training.step import Step, Validated

QUESTIONS = [Question(f"q{number}", "Who?", ("Venn",)) for number in range(4)]
UNVALIDATED = {"solver": Solver(ToolCallSolver()), "validation": ValidationSettings(questions=0)}


class Alternating(Acting):
    """Of two attempts at a question the first is right."""

    def write(self, job):
        answer = Answer("Venn" if job.episode_id.endswith("a0") else "Oss")
        return Episode(job.episode_id, job.task, "s", "m", 0, SEGMENTS, (), answer, "answered")


class Watched(Training):
    """Keeps the metrics of steps, notes, and how many steps were skipped."""

    def __init__(self):
        super().__init__()
        self.actors = Alternating()
        self.notes, self.metrics, self.num_skipped = [], [], 0
        self.reporter.note = self.notes.append

    def steps(self, *args, **options):
        for step in super().steps(*args, **options):
            yield step
            self.metrics.append(step.metrics)

    def skip(self, count):
        self.num_skipped += count


def phase(questions=QUESTIONS, **changes):
    """A phase of batches of two questions, with two attempts at each."""
    training, config = Watched(), SolverConfig(batch=2, attempts=2, delta=0.0, **changes)
    stage = Stage(training.actors, tiny.ListSearcher())
    asyncio.run(practise(training, stage, 0, config, questions=questions, **UNVALIDATED))
    return training


def test_questions_that_run_out_end_the_phase_which_is_said_once():
    """Four questions, each drawn once, last for two of five steps."""
    training = phase(steps=5, max_draws=1)
    assert training.notes == [
        "iteration 1: the questions (4) last for 2 of 5 steps with solver.max_draws=1; the other steps are skipped"
    ]
    assert [metrics["questions/epochs"] for metrics in training.metrics] == [0.5, 1.0]
    assert [metrics["questions/distinct"] for metrics in training.metrics] == [2.0, 4.0]
    assert training.num_skipped == 3


def test_questions_that_come_again_are_counted_once():
    """Half of each batch is the one question that needs two searches."""
    questions = [Question(f"q{number}", "Who?", ("Venn",), searches=1 + (number == 0)) for number in range(4)]
    training = phase(questions, steps=2, max_draws=0, several_share=0.5)
    assert [metrics["questions/distinct"] for metrics in training.metrics] == [2.0, 3.0]


def test_questions_that_last_are_not_spoken_of():
    training = phase(steps=2, max_draws=1)
    assert training.notes == [] and training.num_skipped == 0


@pytest.mark.parametrize(("num_sentences", "held"), [(80, 8), (8, 0)])
def test_fewer_questions_held_back_than_wanted_are_spoken_of(num_sentences, held):
    """Of 80 questions 8 are wanted; ten about one sentence are too many."""
    spans = [Evidence("halm", number % num_sentences, 999, "said so.") for number in range(80)]
    questions = [Question(f"q{number}", "Who?", ("Venn",), 1, (span,)) for number, span in enumerate(spans)]
    training, config = Watched(), SolverConfig(steps=1, batch=2, attempts=2, delta=0.0)
    options = UNVALIDATED | {"validation": ValidationSettings()}
    asyncio.run(
        practise(training, Stage(training.actors, tiny.ListSearcher()), 0, config, questions=questions, **options)
    )
    expected = f"iteration 1: {held} questions are held back to validate, not 8: those about one sentence stay together"
    assert training.notes == [expected] * (held < 8)


def test_too_few_questions_to_hold_any_back_are_spoken_of():
    training, config = Watched(), SolverConfig(steps=1, batch=2, attempts=2, delta=0.0)
    options = UNVALIDATED | {"validation": ValidationSettings(questions=8)}
    stage = Stage(training.actors, tiny.ListSearcher())
    asyncio.run(practise(training, stage, 0, config, questions=QUESTIONS, **options))
    said = "validation.share=0.1 of 4 questions is fewer than 8"
    assert training.notes == [f"iteration 1: no question is held back to validate: {said}"]


@pytest.mark.parametrize(("unbiased", "expected"), [(False, 1.0), (True, math.sqrt(0.5))])
def test_a_right_and_a_wrong_attempt_by_hand(unbiased, expected):
    """Rewards of 1 and 0 are 0.5 from their mean; their deviation is 0.5 with n, sqrt(0.5) with n - 1."""
    ((_, _, _, measured, learned),) = phase(steps=1, unbiased_std=unbiased).done
    assert [one["advantage"] for one in measured] == pytest.approx([expected, -expected] * 2)
    assert [sample.advantages[-1] for sample in learned] == pytest.approx([expected, -expected] * 2)


def test_a_reward_that_is_no_number_ends_the_run_before_it_learns():
    check_finite([1.0, -2.5])
    with pytest.raises(TrainingStopped, match="the reward of episode 1 of the batch is not finite"):
        check_finite([1.0, math.nan, math.inf])


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_iteration_without_questions_is_skipped_and_says_why(is_kept):
    training, config = Watched(), SolverConfig(steps=7)
    if is_kept:
        training.done = [(0, "generation", [Candidate("c", 1, 0, "c", "d", 1, "Who?", "Venn")], [], [])]
    training.curriculum = lambda iteration: []
    run = SimpleNamespace(training=training, config=SimpleNamespace(solver=config))
    asyncio.run(DrZero.train_solver(run, 0))
    why = "every question that was kept was rejected" if is_kept else "no question was kept"
    assert training.notes == [f"iteration 1: {why}, so the solver learns nothing"]
    assert training.num_skipped == 7 and training.metrics == []


class Doubting(Acting):
    """Every second attempt abstains; the others are right where there is an answer."""

    def write(self, job):
        doubts = job.episode_id.endswith("a1")
        answer = Answer("not in these documents", abstained=True) if doubts else Answer("Venn")
        turns = (search(passage("It is old.", "halm")),)
        return Episode(job.episode_id, job.task, "s", "m", 0, SEGMENTS, turns, answer, "answered")


def test_hidden_questions_are_practised_in_their_share():
    """Of 4 questions half are hidden: there abstaining earns 0.3 and an answer 0, elsewhere 0.1 and 1."""
    training = Watched()
    training.actors = Doubting()
    abstention = AbstentionSettings(allowed=True, reward=0.3, needless=0.1, hidden_share=0.5)
    config = SolverConfig(steps=1, batch=4, attempts=2, abstention=abstention)
    options = UNVALIDATED | {"solver": solver_of(config, "brief")}
    stage = Stage(training.actors, tiny.ListSearcher())
    asyncio.run(practise(training, stage, 0, config, questions=QUESTIONS, **options))
    (metrics,), ((_, _, _, measured, _),) = training.metrics, training.done
    assert sorted(one["reward/total"] for one in measured) == [0.0, 0.0, 0.1, 0.1, 0.3, 0.3, 1.0, 1.0]
    assert metrics["abstention/answerable"] == metrics["abstention/unanswerable"] == 0.5
    assert metrics["passes/1"] == 1.0  # one of two is right of every question, answered or refused


@pytest.mark.parametrize(
    ("dialect", "turns", "mean", "variance"),
    [
        # 1, 0, 0.1 and 0.8: their mean is 0.475, the mean of their squares 0.4125, and their variance 0.186875.
        ("tool-call", (search(passage("It is old.", "halm")),), 0.475, 0.186875),
        ("tool-call", (), 0.25, 0.1875),  # without a search, abstaining earns nothing: 1, 0, 0 and 0
        ("evalact", (search(passage("It is old.", "halm")),), 0.25, 0.1875),  # nor where a search was not evaluated
    ],
)
def test_validation_counts_abstaining_as_its_reward(dialect, turns, mean, variance):
    step, stage = Step(1, 0, "solver", 0, 0, None), Stage(Doubter(turns), tiny.ListSearcher())
    limits, when = SolverConfig().limits, {"every": 10, "num_steps": 50}
    questions = [*QUESTIONS[:3], hide_answers(QUESTIONS[3])]
    rewards = AbstentionRewards(right=0.8, needless=0.1)
    solver = open_solver(dialect, abstention=rewards)
    validator = Validator(stage, solver, questions, limits, **when, may_abstain=True)
    asyncio.run(validator.before(step))
    assert step.validated_before == Validated(pytest.approx(mean), 4, pytest.approx(variance))
    assert step.metrics["validation_start/abstained"] == 0.5
    assert step.metrics["validation_start/rating"] == pytest.approx(mean)
    assert [scores.get("answer/unanswerable") for _, scores in step.validation] == [None, None, None, 1.0]


class Doubter(Acting):
    """One question is answered right, one wrong, and from two it abstains, all after these turns."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns

    def write(self, job):
        answer = {"q0": Answer("Venn"), "q1": Answer("Oss")}.get(job.task.id, Answer("?", abstained=True))
        return Episode(job.episode_id, job.task, "s", "m", 0, SEGMENTS, self.turns, answer, "answered")


class Silent(Acting):
    """One question is answered right, one wrong, and two are not."""

    def write(self, job):
        answer = {"q0": Answer("Venn"), "q1": Answer("Oss")}.get(job.task.id)
        end = "answered" if answer else "turn_limit"
        return Episode(job.episode_id, job.task, "s", "m", 0, SEGMENTS, (), answer, end)


def test_validation_counts_right_answers_and_those_that_are_missing():
    step = Step(1, 0, "solver", 0, 0, None)
    stage = Stage(Silent(), tiny.ListSearcher())
    validator = Validator(stage, Solver(ToolCallSolver()), QUESTIONS, SolverConfig().limits, every=10, num_steps=50)
    asyncio.run(validator.before(step))
    assert step.validated_before == Validated(0.25, 4, 0.1875)
    assert "validation_start/rating" not in step.metrics  # nobody may abstain: it would be the exact match
    assert step.metrics["validation_start/exact_match"] == 0.25
    assert step.metrics["validation_start/unanswered"] == 0.5
    assert [scores["answer/exact_match"] for _, scores in step.validation] == [1.0, 0.0, 0.0, 0.0]

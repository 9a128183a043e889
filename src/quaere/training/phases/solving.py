"""The solver's phase: a group of answers to each question, compared with one another (GRPO; Dr. Zero, Eq. 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.objectives.advantages import DELTA, Advantages, grpo
from quaere.records import Candidate, Episode, Question
from quaere.rollout.episode import Limits
from quaere.rollout.seeds import derive_seed
from quaere.training.learner import LearnerSettings
from quaere.training.measures import mean_parts, measure_advantages, measure_draws, measure_groups, pass_histogram
from quaere.training.needs import measure_asked, measure_attempts, measure_searches_kept
from quaere.training.phases.attempting import attempt_jobs, solver_reward
from quaere.training.phases.playing import Stage, check_finite, learn, shuffled
from quaere.training.phases.selecting import (
    as_questions,
    count_steps_with_questions,
    draw_questions,
    measure_verdicts,
)
from quaere.training.phases.validating import Validator, hold_back
from quaere.training.settings import AnswerScore, EvaluationSettings, SolverProtocol, ValidationSettings
from quaere.training.trainingrun import TrainingRun

Pay = Callable[[Episode], Mapping[str, float]]
"""What an attempt earned, part by part; `reward/total` is what it is paid, `answer/exact_match` if it was right."""


class SolverConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The solver's phase: `batch` questions a step, a group of `attempts` at each.

    No question is drawn more than `max_draws` times in an iteration (0: no limit); the phase ends when there are none
    left. `protocol` is how it is spoken to, and by that what it is paid; `answer_score` pays answers otherwise, and
    `evaluation` is for protocols in which searches are evaluated.

        SolverConfig(steps=50, batch=256, attempts=5, protocol="evalact")
    """

    steps: int = 50
    batch: int = 256
    attempts: int = 5
    max_draws: int = 2
    unbiased_std: bool = True
    delta: float = DELTA
    shuffle_advantages: bool = False
    protocol: SolverProtocol = "tool-call"
    answer_score: AnswerScore = "own"
    evaluation: EvaluationSettings = EvaluationSettings()
    limits: Limits = Limits(sequence_tokens=3072)
    learner: LearnerSettings = LearnerSettings(loss="clipped", epsilon=0.2)

    @property
    def num_samples(self) -> int:
        """The most episodes that one update learns from."""
        return self.batch * self.attempts


def pay_exact_match(episode: Episode) -> dict[str, float]:
    """1 for the right answer, 0 for any other."""
    reward = solver_reward(episode)
    return {"answer/exact_match": reward, "reward/total": reward}


class Solver(Struct, frozen=True):
    """A way of solving: how it is spoken to, what an attempt is paid, and what else is of interest.

    `weigh` gives every token of an attempt a factor for its advantage; None counts them all alike. `measure` adds
    metrics of its own to a step. If it is `gated`, an attempt that broke the format (`format/held` is 0) is paid
    nothing, whatever a recipe adds to the pay.

        Solver(ToolCallSolver(), pay_exact_match)
    """

    protocol: Protocol
    pay: Pay = pay_exact_match
    weigh: Callable[[Episode], Sequence[float]] | None = None
    measure: Callable[[Sequence[Episode]], Mapping[str, float]] | None = None
    gated: bool = False


async def train_solver(
    training: TrainingRun,
    stage: Stage,
    iteration: int,
    config: SolverConfig,
    *,
    solver: Solver,
    curriculum: Sequence[Candidate],
    validation: ValidationSettings,
    seed: int,
) -> None:
    """Practise on the curriculum of the iteration: what was kept, with what people have said of it and added to it.

    The caller reads it, once: people may add at any moment, and a solver is paid by the curriculum it is asked from.
    """
    kept = training.store.candidates(iteration=iteration, kept=True)
    if not curriculum:
        why = "every question that was kept was rejected" if kept else "no question was kept"
        training.reporter.note(f"iteration {iteration + 1}: {why}, so the solver learns nothing")
        training.skip(config.steps)
        return
    verdicts = measure_verdicts(kept, curriculum)
    await practise(
        training,
        stage,
        iteration,
        config,
        solver=solver,
        questions=as_questions(curriculum),
        validation=validation,
        seed=seed,
        also=verdicts,
    )


async def practise(
    training: TrainingRun,
    stage: Stage,
    iteration: int,
    config: SolverConfig,
    *,
    solver: Solver,
    questions: Sequence[Question],
    validation: ValidationSettings,
    seed: int,
    also: Mapping[str, float] | None = None,
) -> None:
    """GRPO on these questions but those held back to validate; `also` are metrics every step repeats."""
    questions, held_back = hold_back(questions, validation, seed)
    num_steps = count_steps_with_questions(config.steps, len(questions), config.batch, config.max_draws)
    every = validation.every
    validator = Validator(stage, solver.protocol, held_back, config.limits, every=every, num_steps=num_steps)
    for step in training.steps(iteration, "solver", num_steps, role="solver", settings=config.learner):
        if step.number == 0 and num_steps < config.steps:
            training.reporter.note(
                f"iteration {iteration + 1}: the questions ({len(questions)}) last for {num_steps} of {config.steps} "
                f"steps with solver.max_draws={config.max_draws}; the other steps are skipped"
            )
        await validator.before(step)
        asked = draw_questions(questions, step.number, config.batch, derive_seed(seed, "questions", iteration))
        jobs = attempt_jobs(solver.protocol, asked, config.attempts, step.name)
        played = await stage.play(step, "solver", jobs, config.limits)
        episodes = [episode for episode in played.episodes if not episode.search_failed]
        paid = [solver.pay(episode) for episode in episodes]
        rewards = [parts["reward/total"] for parts in paid]
        check_finite(rewards)
        places = {question.id: number for number, question in enumerate(asked)}
        groups = [places[episode.task.id] for episode in episodes]
        advantages = grpo(rewards, groups, delta=config.delta, unbiased=config.unbiased_std)
        if config.shuffle_advantages:
            advantages = shuffled(advantages, step.seed)
        learn(step, episodes, advantages, solver.weigh)
        for episode, parts, advantage in zip(episodes, paid, advantages.values.tolist(), strict=True):
            step.keep(episode, {**parts, "advantage": advantage})
        step.metrics |= measure_solver(episodes, paid, advantages, config.attempts)
        step.metrics |= measure_draws(step.number + 1, config.batch, len(questions))
        step.metrics |= measure_asked(asked) | measure_attempts(episodes, paid)
        levels = (training.phase_values(step, name) for name in ("solver/searches", "questions/searches_needed"))
        step.metrics |= measure_searches_kept(*levels)
        step.metrics |= solver.measure(episodes) if solver.measure else {}
        step.metrics |= also or {}
        await validator.after(step)
    training.take_best("solver")
    training.skip(config.steps - num_steps)


def measure_solver(
    episodes: Sequence[Episode], paid: Sequence[Mapping[str, float]], advantages: Advantages, num_attempts: int
) -> dict[str, float]:
    """Rewards, advantages, groups that differ, and how often each question was solved."""
    rights: dict[str, list[float]] = {}
    for episode, parts in zip(episodes, paid, strict=True):
        rights.setdefault(episode.task.id, []).append(parts["answer/exact_match"])
    whole = [int(sum(group)) for group in rights.values() if len(group) == num_attempts]
    measured = {"reward/mean": 0.0} | mean_parts(paid) | measure_advantages(advantages)
    return measured | measure_groups(advantages) | pass_histogram(whole, num_attempts)

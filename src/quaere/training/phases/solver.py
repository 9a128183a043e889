"""The solver's phase: group-relative advantages over several attempts per question (GRPO; Dr. Zero, Eq. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle
from quaere.dialects.registry import SolverDialectName, find_dialect, open_solver
from quaere.dialects.roles import AnswerScore, DialectSettings, Solver
from quaere.objectives.advantages import DELTA, Advantages, grpo
from quaere.records import Candidate, Episode, Question
from quaere.rollout.episode import Limits
from quaere.rollout.policy import derive_seed
from quaere.setting_types import Fraction, GroupSize, NonNegativeFloat, NonNegativeInt, PositiveInt
from quaere.training.learner_settings import LearnerSettings
from quaere.training.measures import mean_parts, measure_advantages, measure_draws, measure_groups, pass_histogram
from quaere.training.needs import measure_asked, measure_attempts, measure_searches_kept
from quaere.training.phases.attempts import attempt_jobs
from quaere.training.phases.curriculum_filter import (
    Drawing,
    as_questions,
    count_steps_with_questions,
    draw_by_need,
    measure_verdicts,
)
from quaere.training.phases.stage import Stage, check_finite, learn, shuffled
from quaere.training.phases.validation import Validator, hold_back
from quaere.training.settings import ValidationSettings
from quaere.training.training_run import TrainingRun


class SolverConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The solver's phase: a group of attempts at each question, compared with one another.

        SolverConfig(steps=50, batch=256, attempts=5, dialect="evalact")

    Attributes:
        steps: Steps of the phase; it ends earlier when no question is left. With given questions, 0 takes as
            many as `epochs` needs. [Dr. Zero, Table 6]
        batch: Questions a step. [Dr. Zero, Table 6]
        attempts: Attempts at each question: the group of GRPO. [GRPO; Dr. Zero, Table 6]
        max_draws: How often a question may be drawn in an iteration; 0: no limit. [Quaere]
        several_share: Share of a step's questions that need two or more searches, as far as such questions last;
            0: as they come. [Quaere]
        unbiased_std: Standard deviation of rewards with n - 1 in place of n. [Quaere]
        delta: Added to the standard deviation that rewards are divided by. [GRPO]
        shuffle_advantages: A control that must not learn: advantages go to the wrong episodes. [Quaere]
        dialect: The solver's dialect: its prompts, its reward and its own settings. [Dr. Zero; Search-R1;
            AutoRefine; Eval-RAR; EvalAct]
        answer_score: How an answer is scored: own is as in the paper the dialect comes from. [Quaere]
    """

    steps: NonNegativeInt = 50
    batch: PositiveInt = 256
    attempts: GroupSize = 5
    max_draws: NonNegativeInt = 2
    several_share: Fraction = 1 / 3
    unbiased_std: bool = True
    delta: NonNegativeFloat = DELTA
    shuffle_advantages: bool = False
    dialect: SolverDialectName = "tool-call"
    answer_score: AnswerScore = "own"
    evaluation: DialectSettings = DialectSettings()  # of the type that the dialect has
    limits: Limits = Limits(sequence_tokens=3072)
    learner: LearnerSettings = LearnerSettings(loss="clipped", epsilon=0.2)

    def __post_init__(self) -> None:
        kind = find_dialect(self.dialect, "solver").settings
        if type(self.evaluation) is not kind:  # of another dialect: this one's defaults
            structs.force_setattr(self, "evaluation", kind())

    @property
    def num_samples(self) -> int:
        """Maximum number of episodes per update."""
        return self.batch * self.attempts


def solver_of(config: SolverConfig, style: PromptStyle, *, evidence: bool = False) -> Solver:
    """The solver that a run's config describes.

    solver_of(SolverConfig(dialect="evalrar"), "brief").protocol.name == "evalrar-solver"
    """
    return open_solver(
        config.dialect,
        style=style,
        evidence=evidence,
        settings=config.evaluation,
        answer_score=config.answer_score,
    )


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
    """Train on the curriculum of the iteration: the kept candidates with people's verdicts and added questions applied.

    The caller reads the curriculum once, since people may change it at any time, and rewards must come from the
    curriculum that was asked.
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
    """GRPO on these questions except those held back for validation; `also` are metrics repeated at every step."""
    questions, held_back = hold_back(questions, validation, seed)
    num_steps = count_steps_with_questions(config.steps, len(questions), config.batch, config.max_draws)
    drawing = Drawing(config.batch, num_steps, config.max_draws, config.several_share)
    every = validation.every
    validator = Validator(stage, solver.protocol, held_back, config.limits, every=every, num_steps=num_steps)
    for step in training.steps(iteration, "solver", num_steps, role="solver", settings=config.learner):
        if step.number == 0 and num_steps < config.steps:
            training.reporter.note(
                f"iteration {iteration + 1}: the questions ({len(questions)}) last for {num_steps} of {config.steps} "
                f"steps with solver.max_draws={config.max_draws}; the other steps are skipped"
            )
        await validator.before(step)
        asked = draw_by_need(questions, step.number, drawing, derive_seed(seed, "questions", iteration))
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
    """Metrics of rewards, advantages and groups, and the histogram of right attempts per question."""
    rights: dict[str, list[float]] = {}
    for episode, parts in zip(episodes, paid, strict=True):
        rights.setdefault(episode.task.id, []).append(parts["answer/exact_match"])
    whole = [int(sum(group)) for group in rights.values() if len(group) == num_attempts]
    measured = {"reward/mean": 0.0} | mean_parts(paid) | measure_advantages(advantages)
    return measured | measure_groups(advantages) | pass_histogram(whole, num_attempts)

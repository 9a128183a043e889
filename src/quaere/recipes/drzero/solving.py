"""The solver's phase: a group of answers to each question of the curriculum, compared with one another (Eq. 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quaere.chat.protocol import Protocol
from quaere.objectives.advantages import grpo
from quaere.recipes.drzero.config import SolverConfig
from quaere.recipes.drzero.measuring import measure_solver
from quaere.recipes.drzero.rewards import check_finite, shuffled
from quaere.records import Episode
from quaere.rollout.seeds import derive_seed
from quaere.training.phases.attempting import attempt_jobs, solver_reward
from quaere.training.phases.playing import Stage, learn
from quaere.training.phases.selecting import draw_questions, measure_verdicts
from quaere.training.trainingrun import TrainingRun

Pay = Callable[[Episode], Mapping[str, float]]
"""What an attempt earned, part by part; `reward/total` is what it is paid, `answer/exact_match` if it was right."""


def pay_exact_match(episode: Episode) -> dict[str, float]:
    """1 for the right answer, 0 for any other."""
    reward = solver_reward(episode)
    return {"answer/exact_match": reward, "reward/total": reward}


async def train_solver(
    training: TrainingRun,
    stage: Stage,
    iteration: int,
    config: SolverConfig,
    *,
    protocol: Protocol,
    seed: int,
    pay: Pay = pay_exact_match,
) -> None:
    """GRPO on what the iteration has kept, and on what people have said about it."""
    kept = training.store.candidates(iteration=iteration, kept=True)
    curriculum = training.store.curriculum(iteration)
    if not curriculum:
        why = "every question that was kept was rejected" if kept else "no question was kept"
        training.reporter.note(f"iteration {iteration + 1}: {why}, so the solver learns nothing")
        training.skip(config.steps)
        return
    for step in training.steps(iteration, "solver", config.steps, role="solver", settings=config.learner):
        questions = draw_questions(curriculum, step.number, config.batch, derive_seed(seed, "questions", iteration))
        jobs = attempt_jobs(protocol, questions, config.attempts, step.name)
        played = await stage.play(step, "solver", jobs, config.limits)
        episodes = [episode for episode in played.episodes if not episode.search_failed]
        paid = [pay(episode) for episode in episodes]
        rewards = [parts["reward/total"] for parts in paid]
        check_finite(rewards)
        places = {question.id: number for number, question in enumerate(questions)}
        groups = [places[episode.task.id] for episode in episodes]
        advantages = grpo(rewards, groups, delta=config.delta, unbiased=config.unbiased_std)
        if config.shuffle_advantages:
            advantages = shuffled(advantages, step.seed)
        learn(step, episodes, advantages)
        measure_solver(step, episodes, paid, advantages, config.attempts)
        step.metrics |= measure_verdicts(kept, curriculum)

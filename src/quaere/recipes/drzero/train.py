"""Dr. Zero, top to bottom (the paper's Figure 2 and Eq. 2 to 5).

    repeat:
        the proposer learns to write questions the frozen solver answers sometimes         (HRPO)
        the trained proposer writes the solver's questions
        the solver learns to answer them                                                   (GRPO)

No question, answer or demonstration of a person is used in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from quaere.objectives.advantages import Advantages, grpo
from quaere.recipes.drzero.config import DrZeroConfig
from quaere.recipes.drzero.measuring import measure_generation, measure_proposer, measure_solver
from quaere.recipes.drzero.prompts import proposer_protocol, solver_protocol
from quaere.recipes.drzero.rewards import check_finite, judge_proposal, proposer_advantages, shuffled
from quaere.records import Episode, ProposeTask, Question
from quaere.rollout.episode import Limits
from quaere.rollout.many import Job
from quaere.rollout.samples import make_sample
from quaere.rollout.seeds import derive_seed
from quaere.search.searcher import Searcher
from quaere.training.actors import Played
from quaere.training.measures import measure_episodes
from quaere.training.phases.attempting import attempt_jobs, group_attempts, solver_reward
from quaere.training.phases.drawing import Passages, draw_tasks
from quaere.training.phases.proposing import Proposed, propose_jobs, read_proposal
from quaere.training.phases.selecting import (
    draw_questions,
    judge_attempts,
    judge_form,
    make_candidate,
    measure_verdicts,
    remember_questions,
)
from quaere.training.trainingrun import RolledBack, Step, TrainingRun

ROLES = ("proposer", "solver")


async def evolve(config: DrZeroConfig, training: TrainingRun, passages: Passages, searcher: Searcher) -> None:
    """Run Dr. Zero to its end, from wherever the run stands."""
    recipe = _DrZero(config, training, passages, searcher)
    training.begin()
    while True:
        training.restart_loops()
        try:
            for iteration in range(config.iterations):
                await recipe.train_proposer(iteration)
                await recipe.generate_questions(iteration)
                await recipe.train_solver(iteration)
            return
        except RolledBack:
            continue


def count_steps(config: DrZeroConfig) -> int:
    """How many steps a run has, over all phases."""
    return config.iterations * (config.proposer.steps + count_batches(config) + config.solver.steps)


def count_batches(config: DrZeroConfig) -> int:
    """How many steps the generation of an iteration has."""
    return -(-count_candidates(config) // config.generation.batch)


def count_candidates(config: DrZeroConfig) -> int:
    """How many questions an iteration generates: one for each of the proposer's own prompts, unless told otherwise."""
    return config.generation.candidates or config.proposer.steps * config.proposer.batch


class _DrZero:
    """The three phases, with what they share."""

    def __init__(self, config: DrZeroConfig, training: TrainingRun, passages: Passages, searcher: Searcher) -> None:
        self.config = config
        self.training = training
        self.passages = passages
        self.searcher = searcher

    # ------------------------------------------------------------------------------------------------- three phases

    async def train_proposer(self, iteration: int) -> None:
        """HRPO: one question a document, n attempts of the frozen solver at each, one update (Eq. 2 to 4)."""
        config = self.config.proposer
        steps = self.training.steps(iteration, "proposer", config.steps, role="proposer", settings=config.learner)
        for step in steps:
            tasks = self.draw(iteration, range(step.number * config.batch, (step.number + 1) * config.batch), step)
            proposals = await self.propose(step, tasks, config.questions)
            attempts = await self.attempt(step, proposals, config.attempts)
            judged = [
                judge_proposal(proposed, [solver_reward(attempt) for attempt in group], config)
                for proposed, group in zip(proposals, attempts, strict=True)
                if _can_be_judged(proposed, group)
            ]
            advantages = proposer_advantages(judged, config, step.seed)
            learn(step, [item.proposed.episode for item in judged], advantages)
            measure_proposer(step, judged, advantages, len(tasks), config.attempts)

    async def generate_questions(self, iteration: int) -> None:
        """Let the trained proposer write, on its own training prompts, what the solver will learn from."""
        config, total = self.config.generation, count_candidates(self.config)
        seen = remember_questions(self.training.store.candidates(iteration=iteration))
        for step in self.training.steps(iteration, "generation", count_batches(self.config)):
            numbers = range(step.number * config.batch, min(total, (step.number + 1) * config.batch))
            proposals = await self.propose(step, self.draw(iteration, numbers, step), 1)
            reasons = [judge_form(proposed, seen) for proposed in proposals]
            tried = [proposed for proposed, reason in zip(proposals, reasons, strict=True) if not reason]
            groups = iter(await self.attempt(step, tried, config.attempts) if config.attempts else [])
            for proposed, reason in zip(proposals, reasons, strict=True):
                num_right = num_attempts = 0
                if not reason and config.attempts:
                    group = next(groups)
                    num_right, num_attempts = int(sum(map(solver_reward, group))), len(group)
                    reason = judge_attempts(num_right, num_attempts)
                if not proposed.episode.search_failed:
                    step.keep(proposed.episode, {"format/total": proposed.score.total})
                step.candidates.append(
                    make_candidate(
                        proposed,
                        step=step.step,
                        iteration=iteration,
                        reason=reason,
                        num_right=num_right,
                        num_attempts=num_attempts,
                    )
                )
            measure_generation(step)

    async def train_solver(self, iteration: int) -> None:
        """GRPO: a group of answers to each question, paid by exact match (Eq. 5)."""
        config = self.config.solver
        kept = self.training.store.candidates(iteration=iteration, kept=True)
        curriculum = self.training.store.curriculum(iteration)
        if not curriculum:
            why = "every question that was kept was rejected" if kept else "no question was kept"
            self.training.reporter.note(f"iteration {iteration + 1}: {why}, so the solver learns nothing")
            self.training.skip(config.steps)
            return
        steps = self.training.steps(iteration, "solver", config.steps, role="solver", settings=config.learner)
        for step in steps:
            seed = derive_seed(self.config.seed, "questions", iteration)
            questions = draw_questions(curriculum, step.number, config.batch, seed)
            jobs = attempt_jobs(solver_protocol(self.config), questions, config.attempts, step.name)
            played = await self.play(step, "solver", jobs, config.limits)
            episodes = [episode for episode in played.episodes if not episode.search_failed]
            rewards = [solver_reward(episode) for episode in episodes]
            check_finite(rewards)
            places = {question.id: number for number, question in enumerate(questions)}
            groups = [places[episode.task.id] for episode in episodes]
            advantages = grpo(rewards, groups, delta=config.delta, unbiased=config.unbiased_std)
            if config.shuffle_advantages:
                advantages = shuffled(advantages, step.seed)
            learn(step, episodes, advantages)
            measure_solver(step, episodes, rewards, advantages, config.attempts)
            step.metrics |= measure_verdicts(kept, curriculum)

    # ---------------------------------------------------------------------------------------------- what they share

    def draw(self, iteration: int, numbers: Sequence[int], step: Step) -> list[ProposeTask]:
        """The documents and hops with these numbers: the same in the proposer's phase and in the generation after."""
        config = self.config.proposer
        seed = derive_seed(self.config.seed, "tasks", iteration)
        name = f"i{iteration}{step.phase[0]}"
        return draw_tasks(self.passages, numbers, config.hop_ratio, seed=seed, name=name, document=config.document)

    async def propose(self, step: Step, tasks: Sequence[ProposeTask], num_questions: int) -> list[Proposed]:
        """The proposer writes; what it wrote is scored for its form."""
        config = self.config.proposer
        jobs = propose_jobs(proposer_protocol(self.config), tasks, num_questions)
        played = await self.play(step, "proposer", jobs, config.limits)
        return [
            read_proposal(episode, invalid_rule=config.reward.invalid_rule, containment=config.reward.containment)
            for episode in played.episodes
        ]

    async def attempt(self, step: Step, proposals: Sequence[Proposed], num_attempts: int) -> list[list[Episode]]:
        """The solver as it stands tries every valid question; one list of attempts per proposal, empty if not tried."""
        questions: list[Question] = [item.question for item in proposals if item.question is not None]
        jobs = attempt_jobs(solver_protocol(self.config), questions, num_attempts, step.name)
        played = await self.play(step, "solver", jobs, self.config.solver.limits)
        for episode in played.episodes:
            if not episode.search_failed:
                step.keep(episode, {"answer/exact_match": solver_reward(episode)})
        groups = iter(group_attempts(played.episodes, num_attempts))
        return [next(groups) if item.question is not None else [] for item in proposals]

    async def play(self, step: Step, role: str, jobs: Sequence[Job], limits: Limits) -> Played:
        """Play episodes as this role, and measure how it went."""
        started = time.perf_counter()
        seed = derive_seed(step.seed, role)
        played = await self.training.actors.play(role, jobs, self.searcher, limits, seed=seed)
        step.metrics |= measure_episodes(played.episodes, time.perf_counter() - started, role=role)
        step.metrics[f"{role}/spoiled"] = float(len(played.spoiled))
        for episode in played.spoiled:
            step.keep(episode, {"episode/spoiled": 1.0})
        return played


def _can_be_judged(proposed: Proposed, attempts: Sequence[Episode]) -> bool:
    """Not if a failed search stood in the way of the proposer, or of all but one of the solver's attempts."""
    if proposed.episode.search_failed:
        return False
    return proposed.question is None or len(attempts) >= 2


def learn(step: Step, episodes: Sequence[Episode], advantages: Advantages) -> None:
    """One update on these episodes; none if no episode did better or worse than those it is compared with."""
    values = advantages.values.tolist()
    samples = [make_sample(episode, value) for episode, value in zip(episodes, values, strict=True)]
    if any(values):
        step.metrics |= step.learner.step(samples)

"""Dr. Zero, from top to bottom (the paper's Figure 2 and Eq. 2 to 5).

    repeat:
        the proposer learns to write questions the frozen solver answers sometimes         (HRPO)
        the trained proposer writes the solver's questions
        the solver learns to answer them                                                   (GRPO)

No question, answer or demonstration written by a person is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.recipes.drzero.config import DrZeroConfig
from quaere.recipes.drzero.protocols import proposer_protocol
from quaere.recipes.drzero.rewards import judge_proposal
from quaere.records import ProposeTask
from quaere.search.searcher import Searcher
from quaere.training.phases.attempts import rights
from quaere.training.phases.curriculum_filter import judge_attempts, judge_form, make_candidate, remember_questions
from quaere.training.phases.proposals import Proposed, propose_jobs
from quaere.training.phases.solver import solver_of, train_solver
from quaere.training.phases.stage import Stage, can_be_judged, keep_best, learn
from quaere.training.phases.tasks import Passages, draw_tasks
from quaere.training.self_play.proposal_advantages import proposer_advantages
from quaere.training.self_play.proposer_metrics import measure_proposer
from quaere.training.self_play.schedule import generation_steps, place_tasks
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun


async def evolve(config: DrZeroConfig, training: TrainingRun, passages: Passages, searcher: Searcher) -> None:
    """Run Dr. Zero to its end, from the run's last checkpoint or from the start."""
    recipe = _DrZero(config, training, passages, searcher)

    async def iterate(iteration: int) -> None:
        await recipe.train_proposer(iteration)
        await recipe.generate_questions(iteration)
        await recipe.train_solver(iteration)

    await training.iterate(config.iterations, iterate)


class _DrZero:
    """The three phases, with what they share."""

    def __init__(self, config: DrZeroConfig, training: TrainingRun, passages: Passages, searcher: Searcher) -> None:
        self.config = config
        self.training = training
        self.passages = passages
        self.stage = Stage(training.actors, searcher)
        self.solver = solver_of(config.solver, config.prompts)
        self.asking = self.solver.protocol
        self.limits = config.solver.limits  # of the solver's episodes, in both phases

    # ------------------------------------------------------------------------------------------------- three phases

    async def train_proposer(self, iteration: int) -> None:
        """HRPO: one question per document, n attempts of the frozen solver at each, one update (Eq. 2 to 4)."""
        config = self.config.proposer
        steps = self.training.steps(
            iteration, "proposer", config.steps, role="proposer", settings=config.learner, carry_on=config.carry_on
        )
        for step in steps:
            tasks = self.draw(iteration, range(step.number * config.batch, (step.number + 1) * config.batch), step)
            proposals = await self.propose(step, tasks, config.questions)
            attempts = await self.stage.attempt(step, self.asking, proposals, config.attempts, self.limits)
            judged = [
                judge_proposal(proposed, rights(group, config.reward.min_searches(proposed.hops)), config)
                for proposed, group in zip(proposals, attempts, strict=True)
                if can_be_judged(proposed, group)
            ]
            rewards, learned = [item.reward.total for item in judged], [item.proposed for item in judged]
            advantages = proposer_advantages(rewards, learned, config, step.seed)
            learn(step, [proposed.episode for proposed in learned], advantages)
            measure_proposer(step, judged, advantages, len(tasks), config.attempts)

    async def generate_questions(self, iteration: int) -> None:
        """Let the trained proposer write the solver's curriculum, from the tasks it was trained on."""
        config, stage = self.config.generation, self.stage
        seen = remember_questions(self.training.store.candidates(iteration=iteration))
        steps = generation_steps(self.config, self.training, stage, self.asking, iteration, seen)
        async for step, numbers in steps:
            tasks = self.draw(iteration, numbers, step)
            written = await self.propose(step, tasks, config.questions * config.samples)
            proposals = keep_best(step, written, config.samples, config.max_words)
            reasons = [judge_form(proposed, seen, config.max_words) for proposed in proposals]
            tried = [proposed for proposed, reason in zip(proposals, reasons, strict=True) if not reason]
            groups = iter(await self.stage.attempt(step, self.asking, tried, config.attempts, self.limits))
            for proposed, reason in zip(proposals, reasons, strict=True):
                group = next(groups) if not reason else []
                num_right, num_attempts = int(sum(rights(group))), len(group)
                if not reason and config.attempts:
                    reason = judge_attempts(num_right, num_attempts)
                if not proposed.episode.search_failed:
                    step.keep(proposed.episode, {"format/total": proposed.score.total})
                tries = {"num_right": num_right, "num_attempts": num_attempts}
                candidate = make_candidate(proposed, step=step.step, iteration=iteration, reason=reason, **tries)
                step.candidates.append(candidate)

    async def train_solver(self, iteration: int) -> None:
        """GRPO on groups of answers to each question; the reward is exact match (Eq. 5), or the dialect's own."""
        await train_solver(
            self.training,
            self.stage,
            iteration,
            self.config.solver,
            solver=self.solver,
            curriculum=self.training.store.curriculum(iteration),
            validation=self.config.validation,
            seed=self.config.seed,
        )

    # ---------------------------------------------------------------------------------------------- what they share

    def draw(self, iteration: int, numbers: Sequence[int], step: Step) -> list[ProposeTask]:
        """The tasks (document and hops) with these numbers; equal in the proposer's phase and in generation."""
        config = self.config.proposer
        seed, numbers = place_tasks(self.config, iteration, numbers)
        name = f"i{iteration}{step.phase[0]}"
        return draw_tasks(self.passages, numbers, config.hop_ratio, seed=seed, name=name, document=config.document)

    async def propose(self, step: Step, tasks: Sequence[ProposeTask], num_questions: int) -> list[Proposed]:
        """Proposals of the proposer on these tasks, with their format scores."""
        config = self.config.proposer
        jobs = propose_jobs(proposer_protocol(self.config), tasks, num_questions)
        played = await self.stage.play(step, "proposer", jobs, config.limits)
        return [config.reward.read(episode) for episode in played.episodes]

"""EVE-Agent, from top to bottom (the paper's Algorithms 1 and 2).

    repeat:
        phase A    the proposer learns to write questions with evidence that helps the frozen solver       (HRPO)
        then       the trained proposer writes triples about documents that were held out
        phase B    the solver learns to answer them and to quote its evidence                              (GRPO)
        between    the selector, if there is one, learns which topics and types of question earn reward

No question, answer or demonstration written by a person is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import structs

from quaere.chat.messages import Quoted
from quaere.recipes.eve.config import EveConfig
from quaere.recipes.eve.proposer_documents import Documents, SelectedDocuments
from quaere.recipes.eve.protocols import proposer_protocol
from quaere.recipes.eve.rewards import JudgedTriple, candidate_scores, judge_triple, pay_cited_answer
from quaere.recipes.eve.traces import Traced, hear, trace
from quaere.recipes.eve.verifier import Verifier
from quaere.records import Candidate, DropReason, Episode, ProposeTask, Support
from quaere.rollout.policy import ChatPolicy
from quaere.runs import Run
from quaere.runs.phases import PHASES
from quaere.search.searcher import Searcher
from quaere.training.phases.attempts import rights
from quaere.training.phases.curriculum_filter import judge_attempts, judge_form, make_candidate, remember_questions
from quaere.training.phases.proposals import Proposed, propose_jobs
from quaere.training.phases.solver import solver_of, train_solver
from quaere.training.phases.stage import Stage, can_be_judged, keep_best, learn
from quaere.training.selector.feedback import Choice, Pulled
from quaere.training.selector.selector import Selector
from quaere.training.self_play.proposal_advantages import proposer_advantages
from quaere.training.self_play.proposer_metrics import measure_proposer
from quaere.training.self_play.schedule import ROLES, generation_steps, place_tasks
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun


async def evolve(eve: Eve, training: TrainingRun, iterations: int) -> None:
    """Run EVE-Agent to its end, from the run's last checkpoint or from the start."""

    async def iterate(iteration: int) -> None:
        await eve.train_proposer(iteration)
        await eve.generate_triples(iteration)
        await eve.train_solver(iteration)
        eve.teach_selector(iteration)

    await training.iterate(iterations, iterate)


class Eve:
    """The phases, with what they share. `first` are the documents of phase A, `second` those of the triples."""

    def __init__(
        self,
        config: EveConfig,
        training: TrainingRun,
        searcher: Searcher,
        *,
        first: Documents,
        second: Documents,
        selector: Selector | None = None,
        scorer: ChatPolicy | None = None,
    ) -> None:
        self.config = config
        self.training = training
        self.stage = Stage(training.actors, searcher)
        self.first, self.second = first, second
        self.selector = selector
        self.verifier = Verifier(self.stage, config, scorer)
        self.solver = solver_of(config.solver, config.prompts, evidence=config.evidence.cite)
        self.asking = self.solver.protocol
        self.limits = config.solver.limits  # of the solver's episodes, in both phases

    # ------------------------------------------------------------------------------------------------------ phases

    async def train_proposer(self, iteration: int) -> None:
        """Phase A: triples, attempts of the frozen solver, evidence values, one update (Algorithm 1)."""
        config = self.config.proposer
        steps = self.training.steps(
            iteration, "proposer", config.steps, role="proposer", settings=config.learner, carry_on=config.carry_on
        )
        for step in steps:
            numbers = range(step.number * config.batch, (step.number + 1) * config.batch)
            tasks = self.draw(self.first, iteration, numbers, step)
            triples = self.trace(await self.propose(step, tasks, config.questions))
            proposals = [traced.proposed for traced in triples]
            attempts = await self.stage.attempt(step, self.asking, proposals, config.attempts, self.limits)
            supports = await self.verify(step, triples, self.config.verifies_proposals)
            judged = [
                self.judge(traced, group, support)
                for traced, group, support in zip(triples, attempts, supports, strict=True)
                if can_be_judged(traced.proposed, group) and not self.is_unverified(traced, support)
            ]
            rewards, learned = [item.reward.total for item in judged], [item.proposed for item in judged]
            advantages = proposer_advantages(rewards, learned, config, step.seed)
            learn(step, [proposed.episode for proposed in learned], advantages)
            measure_proposer(step, judged, advantages, len(tasks), config.attempts)

    async def generate_triples(self, iteration: int) -> None:
        """Let the trained proposer write the solver's curriculum, about the documents of phase B."""
        config, stage = self.config.generation, self.stage
        seen = remember_questions(self.training.store.candidates(iteration=iteration))
        steps = generation_steps(self.config, self.training, stage, self.asking, iteration, seen)
        async for step, numbers in steps:
            tasks = self.draw(self.second, iteration, numbers, step)
            written = await self.propose(step, tasks, config.questions * config.samples)
            proposals = keep_best(step, written, config.samples, config.max_words)
            triples = self.trace(proposals)
            reasons = [judge_form(traced.proposed, seen, config.max_words) for traced in triples]
            tried = [traced.proposed for traced, reason in zip(triples, reasons, strict=True) if not reason]
            groups = iter(await self.stage.attempt(step, self.asking, tried, config.attempts, self.limits))
            supports = await self.verify(step, triples, self.config.verifies_candidates)
            for traced, reason, support in zip(triples, reasons, supports, strict=True):
                group = next(groups) if not reason else []
                step.candidates.append(self.decide(step, traced, reason, group, support))

    async def train_solver(self, iteration: int) -> None:
        """Phase B: answers with evidence, rewarded for both (Algorithm 2)."""
        curriculum = self.training.store.curriculum(iteration)
        gold = {candidate.id: candidate for candidate in curriculum}
        pay = partial(pay_cited_answer, curriculum=gold, evidence=self.config.evidence, solver=self.solver)
        await train_solver(
            self.training,
            self.stage,
            iteration,
            self.config.solver,
            solver=structs.replace(self.solver, pay=pay),
            curriculum=curriculum,
            validation=self.config.validation,
            seed=self.config.seed,
        )

    def teach_selector(self, iteration: int) -> None:
        """Update the selector's bandits with the kept questions and the last rewards of both roles."""
        if self.selector is None:
            return
        store = self.training.store
        pulled = pulled_questions(store, iteration)
        rewards = {phase: last_reward(store, iteration, phase) for phase in ROLES}
        self.selector.learn(
            iteration,
            pulled,
            proposer_reward=rewards["proposer"],
            solver_reward=rewards["solver"],
            proposer_range=self.config.proposer_range,
            solver_range=self.config.solver_range,
        )

    # ---------------------------------------------------------------------------------------------- what they share

    def draw(self, documents: Documents, iteration: int, numbers: Sequence[int], step: Step) -> list[ProposeTask]:
        """The tasks with these numbers, in this iteration."""
        seed, numbers = place_tasks(self.config, iteration, numbers)
        return documents.draw(numbers, seed=seed, name=f"i{iteration}{step.phase[0]}", step_seed=step.seed)

    async def propose(self, step: Step, tasks: Sequence[ProposeTask], num_questions: int) -> list[Proposed]:
        """Proposals of the proposer on these tasks, with their format scores."""
        config = self.config.proposer
        jobs = propose_jobs(proposer_protocol(self.config), tasks, num_questions)
        played = await self.stage.play(step, "proposer", jobs, config.limits)
        return [config.reward.read(episode) for episode in played.episodes]

    def trace(self, proposals: Sequence[Proposed]) -> list[Traced]:
        """The proposals with their evidence located and checked by the guards."""
        return trace(proposals, self.config.evidence, self.count_tokens)

    async def verify(self, step: Step, triples: Sequence[Traced], is_wanted: bool) -> list[Support | None]:
        """The value of each span to the solver; None for all if `is_wanted` is false."""
        return await self.verifier.ask(step, triples) if is_wanted else [None] * len(triples)

    def is_unverified(self, traced: Traced, support: Support | None) -> bool:
        """True if the reward needs a verifier result and there is none; such a proposal gets no reward."""
        return self.config.verifies_proposals and self.verifier.is_silent(traced, support)

    def judge(self, traced: Traced, group: list[Episode], support: Support | None) -> JudgedTriple:
        """A proposal with its reward, after the verifier's result."""
        choice = choice_of(self.first, traced)
        traced = hear(traced, support, self.config.evidence)
        right = rights(group, self.config.proposer.reward.min_searches(traced.proposed.hops))
        return judge_triple(traced, right, support, self.config, choice.cluster if choice else -1)

    def decide(
        self, step: Step, traced: Traced, reason: DropReason, group: list[Episode], support: Support | None
    ) -> Candidate:
        """The record of a candidate: kept, or dropped with a reason."""
        num_right, num_attempts = int(sum(rights(group))), len(group)
        if not reason and self.config.generation.attempts:
            reason = judge_attempts(num_right, num_attempts)
        traced = hear(traced, support, self.config.evidence)
        if traced.refusals and reason in ("", "invalid"):
            reason = "refused"
        proposed = traced.proposed
        if not proposed.episode.search_failed:
            step.keep(proposed.episode, {"format/total": proposed.score.total})
        made = make_candidate(
            proposed,
            step=step.step,
            iteration=step.iteration,
            reason=reason,
            num_right=num_right,
            num_attempts=num_attempts,
        )
        if not self.config.evidence.cite:
            return made
        choice = choice_of(self.second, traced)
        return structs.replace(
            made,
            span=traced.triple.span,
            evidence=traced.evidence,
            support=support,
            refusals=traced.refusals,
            cluster=choice.cluster if choice else -1,
            question_type=choice.question_type if choice else "",
            scores=made.scores | candidate_scores(traced, self.config),
        )

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text in the proposer's tokenizer."""
        return len(self.stage.actors.policy.renderer.encode_parts((Quoted(text),))) if text else 0


def choice_of(documents: Documents, traced: Traced) -> Choice | None:
    """The selector's choice for this proposal; None without a selector."""
    if not isinstance(documents, SelectedDocuments):
        return None
    return documents.chosen.get(traced.proposed.episode.task.id)


def pulled_questions(store: Run, iteration: int) -> list[Pulled]:
    """The questions that reward the selector's arms: the kept ones."""
    return [
        Pulled(item.cluster, item.question_type, item.question, item.answer)
        for item in store.candidates(iteration=iteration, kept=True)
        if item.cluster >= 0
    ]


def last_reward(store: Run, iteration: int, phase: str) -> float:
    """The mean reward in the last step of a phase; 0 if the phase has no step."""
    iterations, phases = (
        {metric.step: metric.value for metric in store.metrics(f"run/{name}")} for name in ("iteration", "phase")
    )
    place = (iteration, PHASES.index(phase))
    rewards = store.metrics("reward/mean")
    found = [metric.value for metric in rewards if (iterations[metric.step], phases[metric.step]) == place]
    return found[-1] if found else 0.0

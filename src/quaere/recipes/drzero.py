"""Dr. Zero, from top to bottom (the paper's Figure 2 and Eq. 2 to 5).

    repeat:
        the proposer learns to write questions the frozen solver answers sometimes         (HRPO)
        the trained proposer writes the solver's questions
        the solver learns to answer them                                                   (GRPO)

No question, answer or demonstration written by a person is used. The preset `paper` has the paper's values, and each of
its ablations is one value:

    proposer.hop_ratio=[1,1,1,1]        other ratios of hops
    proposer.reward.format_weight=0     no format reward
    proposer.reward.format_rule=eve     not of the paper: a leaked answer keeps its format reward
    proposer.reward.needed_searches=true     not of the paper: attempts that searched less than claimed do not count
    proposer.reward.shape=parabola      difficulty peaks at one half
    proposer.document=false             no initial document
    proposer.steps=100                  longer phases
    proposer.advantage=grpo             with proposer.questions=4, proposer.attempts=4
    proposer.advantage=global           REINFORCE++'s baseline
    proposer.task=harden                not of the paper: it rewords checked questions (`hardening.py`)
    solver.dialect=evalact              not of the paper: a solver that evaluates what it found (or evalrar, ...)
"""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import structs

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect
from quaere.dialects.roles import Solver
from quaere.endpoint import parse_endpoint
from quaere.policies.catalogue import resolve_model
from quaere.recipes.drawn_documents import Documents, read_held
from quaere.recipes.registry import Recipe
from quaere.records import Candidate, DropReason, Episode, ProposeTask
from quaere.rewards.proposer import proposer_reward
from quaere.runs import Run
from quaere.search.searcher import Searcher, Without
from quaere.training.given import SINGLE_GPU
from quaere.training.progress import Reporter
from quaere.training.proposals import (
    Proposed,
    ProposerConfig,
    can_be_judged,
    judge_attempts,
    judge_form,
    keep_best,
    make_candidate,
    measure_proposer,
    propose_jobs,
    proposer_advantages,
    remember_kept,
    remember_questions,
)
from quaere.training.rollouts import Stage, count_easy, learn, rights
from quaere.training.run_setup import check_openable, open_run
from quaere.training.self_play import (
    LARGE_LOOP,
    ROLES,
    SelfPlayConfig,
    check_self_play,
    count_steps,
    generation_steps,
    measure_verdicts,
    needed_dialects,
    place_tasks,
    plan_self_play,
    refuse_hardening,
)
from quaere.training.settings import TINY_RUN
from quaere.training.solver_phase import practise, solver_of
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun

# ------------------------------------------------------------------------------------------------------------- settings


class DrZeroConfig(SelfPlayConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a Dr. Zero run.

    DrZeroConfig(model="smollm2-135m", index="demo/index", iterations=3)
    """


_SHORT = {"turn_tokens": 80, "sequence_tokens": 640, "tool_response_tokens": 160}
# The settings that each preset changes.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {
        "engine.max_rows": 256,
        "proposer.limits.answer_turn": False,  # the paper reserves no turn for the answer
        "solver.limits.answer_turn": False,
        "generation.samples": 5,
        "proposer.carry_on": True,  # as the released code of Dr. Zero resumes the proposer's training
        "proposer.reward.choices": False,  # neither paper exempts a question that offers its answer as a choice
        "proposer.reward.containment": "characters",  # EVE: "literally contained"; and as Dr. Zero's released code
        "proposer.learner.kl_flat": True,
        "solver.learner.kl_flat": True,
        "solver.max_draws": 0,
        "solver.several_share": 0.0,
        "validation.questions": 0,  # no validation: the last checkpoint is the result
    },
    "single-gpu": {
        **SINGLE_GPU,
        "proposer.batch": 64,
        "proposer.learner.learning_rate": 2e-5,
        "proposer.learner.warmup_ratio": 0.1,
        "proposer.learner.min_warmup_steps": 5,
        "generation.batch": 64,
        "generation.attempts": 5,
        "proposer.learner.gradient_checkpointing": True,
    },
    "large-gpu": {**LARGE_LOOP, "iterations": 1},
    "demo": {
        **TINY_RUN,
        "iterations": 1,
        "proposer.steps": 2,
        "proposer.batch": 4,
        "proposer.hop_ratio": (1,),
        "proposer.attempts": 2,
        "proposer.limits": {"max_turns": 2, **_SHORT},
        "proposer.learner.learning_rate": 1e-4,
        "generation.candidates": 6,
        "generation.batch": 6,
        "solver.limits": {"max_turns": 3, **_SHORT, "topk": 1},
    },
}


# --------------------------------------------------------------------------------------------------------------- reward


def judge_proposal(proposed: Proposed, config: ProposerConfig) -> Proposed:
    """A proposal with its reward (Eq. 4). An invalid proposal is not attempted and earns its format part alone."""
    reward = proposer_reward(
        proposed.score,
        proposed.num_right,
        max(2, proposed.num_attempts),  # one that is not attempted has no right attempt; the reward needs 2 or more
        num_easy=proposed.num_easy,
        shape=config.reward.shape,
        format_weight=config.reward.format_weight,
    )
    return structs.replace(proposed, reward=reward)


# ------------------------------------------------------------------------------------------------------------- the loop


class DrZero:
    """A run of Dr. Zero: its phases, with what they share.

    `first` are the documents that the proposer learns on, `second` those of the solver's questions; here, they are the
    same. A recipe that extends this class (`eve.py`) overrides `judge`, `examine` and `paid_solver`.
    """

    config: SelfPlayConfig

    def __init__(
        self,
        config: SelfPlayConfig,
        training: TrainingRun,
        searcher: Searcher,
        *,
        first: Documents,
        second: Documents,
        evidence: bool = False,
    ) -> None:
        self.config = config
        self.training = training
        self.stage = Stage(training.actors, searcher)
        self.first, self.second = first, second
        self.reading = Without(searcher, first.held) if first.held else searcher  # where the proposer searches
        self.proposing = proposer_protocol(config, evidence=evidence)
        self.solver = solver_of(config.solver, config.prompts, evidence=evidence)
        self.asking = self.solver.protocol
        self.limits = config.solver.limits  # of the solver's episodes, in both phases

    async def evolve(self) -> None:
        """Run to the end, from the run's last checkpoint or from the start."""
        await self.training.iterate(self.config.iterations, self.iterate, stop_after=self.config.stop_after)

    async def iterate(self, iteration: int) -> None:
        """One iteration: all three phases."""
        await self.train_proposer(iteration)
        await self.generate_questions(iteration)
        await self.train_solver(iteration)

    # ------------------------------------------------------------------------------------------------- three phases

    async def train_proposer(self, iteration: int) -> None:
        """HRPO: one question per document, n attempts of the frozen solver at each, one update (Eq. 2 to 4)."""
        config = self.config.proposer
        steps = self.training.steps(
            iteration, "proposer", config.steps, role="proposer", settings=config.learner, carry_on=config.carry_on
        )
        for step in steps:
            tasks = self.draw(step, range(step.number * config.batch, (step.number + 1) * config.batch))
            judged = await self.judge(step, await self.propose(step, tasks, config.questions))
            advantages = proposer_advantages([item.reward.total for item in judged], judged, config, step.seed)
            learn(step, [item.episode for item in judged], advantages)
            measure_proposer(step, judged, advantages, len(tasks), config.attempts)

    async def generate_questions(self, iteration: int) -> None:
        """Let the trained proposer write the solver's curriculum, from the tasks it was trained on."""
        config, training = self.config.generation, self.training
        seen = remember_questions(training.store.candidates(iteration=iteration))
        earlier = [one for one in training.store.candidates(kept=True) if one.iteration < iteration]
        seen |= remember_kept(earlier, given_again=config.given_again)
        steps = generation_steps(
            self.config, training, self.stage, self.asking, iteration, seen, is_held=self.second.holds
        )
        async for step, numbers in steps:
            written = await self.propose(step, self.draw(step, numbers), config.questions * config.samples)
            proposals = keep_best(step, written, config.samples, config.max_words)
            step.candidates += await self.examine(step, proposals, seen)

    async def train_solver(self, iteration: int) -> None:
        """GRPO on groups of answers to each question; the reward is exact match (Eq. 5), or the dialect's own.

        The questions are the kept candidates with people's verdicts and added questions applied. They are read once,
        since people may change them at any time, and questions and rewards must come from the same version.
        """
        config, training = self.config, self.training
        curriculum = training.store.curriculum(iteration)
        kept = training.store.candidates(iteration=iteration, kept=True)
        if not curriculum:
            why = "every question that was kept was rejected" if kept else "no question was kept"
            training.reporter.note(f"iteration {iteration + 1}: {why}, so the solver learns nothing")
            training.skip(config.solver.steps)
            return
        await practise(
            training,
            self.stage,
            iteration,
            config.solver,
            solver=self.paid_solver(curriculum),
            questions=[candidate.to_question() for candidate in curriculum],
            validation=config.validation,
            also=measure_verdicts(kept, curriculum),
        )

    # --------------------------------------------------------------------------------------------- parts of a phase

    def draw(self, step: Step, numbers: Sequence[int]) -> list[ProposeTask]:
        """The tasks (document and hops) with these numbers; equal in the proposer's phase and in generation."""
        documents = self.first if step.phase == "proposer" else self.second
        seed, numbers = place_tasks(self.config, step.iteration, numbers)
        return documents.draw(numbers, seed=seed, name=f"i{step.iteration}{step.phase[0]}", step_seed=step.seed)

    async def propose(self, step: Step, tasks: Sequence[ProposeTask], num_questions: int) -> list[Proposed]:
        """Proposals of the proposer on these tasks, with their format scores."""
        config = self.config.proposer
        jobs = propose_jobs(self.proposing, tasks, num_questions)
        played = await self.stage.play(step, "proposer", jobs, config.limits, searcher=self.reading)
        return [config.reward.read(episode) for episode in played.episodes]

    async def judge(self, step: Step, proposals: Sequence[Proposed]) -> list[Proposed]:
        """Let the solver attempt the proposals, and reward them; those with too many failed searches are left out."""
        config = self.config.proposer
        asked = [proposed.question for proposed in proposals]
        attempts = await self.stage.attempt(step, self.asking, asked, config.attempts, self.limits)
        return [
            judge_proposal(self.count_attempts(proposed, group), config)
            for proposed, group in zip(proposals, attempts, strict=True)
            if can_be_judged(proposed, group)
        ]

    async def examine(self, step: Step, proposals: Sequence[Proposed], seen: set[str]) -> list[Candidate]:
        """The proposals as candidates of the curriculum: kept, or dropped with a reason."""
        return [self.record(step, *screened) for screened in await self.screen(step, proposals, seen)]

    def paid_solver(self, curriculum: Sequence[Candidate]) -> Solver:
        """The solver with the reward function for answers to this curriculum; here, its dialect's."""
        return self.solver

    # ---------------------------------------------------------------------------------------- parts of an examination

    async def screen(
        self, step: Step, proposals: Sequence[Proposed], seen: set[str]
    ) -> list[tuple[Proposed, DropReason]]:
        """The proposals with the solver's attempts, and the reason to drop each by these or by its form, "" if none."""
        config = self.config.generation
        reasons: list[DropReason] = [
            judge_form(item, seen, config.max_words) or ("duplicate" if self.second.repeats_held(item) else "")
            for item in proposals
        ]
        asked = [None if reason else item.question for item, reason in zip(proposals, reasons, strict=True)]
        attempts = await self.stage.attempt(step, self.asking, asked, config.attempts, self.limits)
        screened = []
        for proposed, reason, group in zip(proposals, reasons, attempts, strict=True):
            tried = self.count_attempts(proposed, group)
            if config.attempts and not reason:
                reason = judge_attempts(tried.num_right, tried.num_attempts, tried.num_easy)
            screened.append((tried, reason))
        return screened

    def count_attempts(self, proposed: Proposed, group: Sequence[Episode]) -> Proposed:
        """The proposal with the number of the solver's attempts, and of those that were right."""
        needed = self.config.proposer.reward.min_searches(proposed.task.hops)
        num_right, num_easy = int(sum(rights(group, needed))), count_easy(group, needed)
        return structs.replace(proposed, num_right=num_right, num_attempts=len(group), num_easy=num_easy)

    def record(self, step: Step, proposed: Proposed, reason: DropReason) -> Candidate:
        """The proposal as a candidate of the curriculum; its episode is stored unless one of its searches failed."""
        if not proposed.episode.search_failed:
            step.keep(proposed.episode, {"format/total": proposed.score.total})
        return make_candidate(proposed, step=step.step, iteration=step.iteration, reason=reason)


# --------------------------------------------------------------------------------------------------------- registration


def proposer_protocol(config: SelfPlayConfig, *, evidence: bool = False) -> Protocol:
    """The proposer's protocol; with `evidence` it asks for the sentence that proves the answer."""
    return find_dialect("tool-call", "proposer").open(style=config.prompts, evidence=evidence)


def solver_protocol(config: SelfPlayConfig, *, evidence: bool = False) -> Protocol:
    """The solver's protocol, in both phases and in evaluation."""
    return solver_of(config.solver, config.prompts, evidence=evidence).protocol


async def train(config: SelfPlayConfig, store: Run, reporter: Reporter, loop: type[DrZero] = DrZero) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    if config.proposer.is_hardening:
        from quaere.recipes import hardening  # it extends this module's loop

        await hardening.train(config, store, reporter)
        return
    async with open_run(config, ROLES, reporter) as opened:
        reads = opened.read_document
        training = TrainingRun(config, store, opened.actors, reporter, count_steps(config), read_document=reads)
        documents = Documents(opened.index, config.proposer)
        await loop(config, training, opened.searcher, first=documents, second=documents).evolve()


def check(config: SelfPlayConfig, recipe: str = "drzero") -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_self_play(config)
    read_held(config.proposer.held_back)
    if recipe != "drzero":
        refuse_hardening(config, recipe)
    if config.proposer.is_hardening and (examiner := config.proposer.hardening.examiner):
        parse_endpoint(examiner) if examiner.startswith("openai:") else resolve_model(examiner)
    check_openable(config, recipe, needed_dialects(config, "drzero"))


def self_play_recipe(
    name: str,
    schema: type[SelfPlayConfig],
    loop: type[DrZero],
    summary: str,
    presets: Mapping[str, Mapping[str, object]] = PRESETS,
) -> Recipe:
    """A recipe of a proposer and a solver: Dr. Zero's phases, with what `loop` does otherwise.

    self_play_recipe("terse", TerseConfig, Terse, "a proposer whose reward falls with the words of its questions")
    """
    return Recipe(
        name=name,
        summary=summary,
        schema=schema,
        presets=presets,
        check=partial(check, recipe=name),
        plan=plan_self_play,
        train=partial(train, loop=loop),
        solver_protocol=solver_protocol,
    )


DRZERO = self_play_recipe("drzero", DrZeroConfig, DrZero, "a proposer and a solver that teach each other, without data")

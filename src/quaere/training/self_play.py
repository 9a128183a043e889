"""Self-play of a proposer and a solver: settings, steps and their maximum cost, generation of questions, metrics."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import taught_name
from quaere.errors import BadInput
from quaere.objectives.policy_gradient import DELTA, Advantages, LoneGroup, grpo, hrpo, reinforce_global
from quaere.records import Episode, searches_needed
from quaere.rewards.answers import Containment
from quaere.rewards.proposer import FORMAT_WEIGHT, DifficultyShape, FormatRule, InvalidRule
from quaere.rollout.episode import Limits
from quaere.rollout.policy import derive_seed
from quaere.setting_types import NonNegativeFloat, NonNegativeInt, PositiveInt
from quaere.training.given import LARGE_GPU, count_given_steps, plan_given, take_given
from quaere.training.hardening_settings import HardeningConfig
from quaere.training.health import check_curriculum, check_repeats
from quaere.training.proposals import Proposed, measure_overlap, measure_repeats, read_proposal
from quaere.training.rollouts import Stage, check_finite, shuffled
from quaere.training.run_setup import plan_memory
from quaere.training.settings import LearnerSettings, RunConfig, ValidationSettings, check_hops, check_limits, check_run
from quaere.training.solver_phase import SolverConfig, check_solver, plan_validation
from quaere.training.step import Step, mean_of, mean_parts, measure_advantages, measure_proposals, pass_histogram
from quaere.training.training_run import TrainingRun

HopRatio = Annotated[
    tuple[NonNegativeInt, ...], Meta(min_length=1, extra={"why": "it gives a weight for 1, 2, ... hops"})
]
Attempts = Annotated[int, Meta(ge=2, extra={"why": "a question's difficulty is measured by comparing attempts"})]


class RewardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The proposer's reward.

        RewardConfig(shape="single", format_weight=0.5)

    Attributes:
        shape: Difficulty reward: single is highest when exactly one attempt of n is right; parabola, 4p(1-p),
            when half are. [Dr. Zero, Eq. 4]
        format_weight: Weight of the format reward. [Dr. Zero; EVE-Agent, Eq. 16]
        format_rule: Format reward: released is that of Dr. Zero's code; eve gives a leaked answer the full format
            reward, and several hops without a search 1 / hops. [Dr. Zero; EVE-Agent, Eq. 9]
        invalid_rule: text: a question that holds its answer is invalid; algorithm: it is not. [EVE-Agent]
        containment: How an answer is looked for in a text: as whole words or as characters. [Quaere]
        choices: A question may name its answer as one of two alternatives to choose from ("Who built it, Venn or
            Brod?"). [Quaere]
        needed_searches: Count a right attempt only if it made as many searches with results as the question
            claims to need. [Quaere]
    """

    shape: DifficultyShape = "single"
    format_weight: NonNegativeFloat = FORMAT_WEIGHT
    format_rule: FormatRule = "released"
    invalid_rule: InvalidRule = "text"
    containment: Containment = "words"
    choices: bool = True
    needed_searches: bool = False

    def min_searches(self, hops: int) -> int:
        """Minimum number of searches with results for a right attempt at a question of `hops` hops to count.

        RewardConfig(needed_searches=True).min_searches(3) == 2
        """
        return searches_needed(hops) if self.needed_searches else 0

    def read(self, episode: Episode) -> Proposed:
        """The proposer's episode with its format score by these rules."""
        return read_proposal(
            episode,
            format_rule=self.format_rule,
            invalid_rule=self.invalid_rule,
            containment=self.containment,
            choices=self.choices,
        )


class ProposerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The proposer's phase: it writes questions about documents, and the solver tries to answer them.

        ProposerConfig(steps=50, batch=256, hop_ratio=(4, 3, 2, 1), attempts=5, advantage="hrpo")

    Attributes:
        task: propose: write a question about a document; harden: reword a checked question of `generation.given`
            so that it needs one search more. [Dr. Zero; Quaere]
        steps: Steps of the phase in each iteration; 0: the proposer is not trained. [Dr. Zero, Table 5]
        batch: Documents a step. [Dr. Zero, Table 5]
        hop_ratio: Weights of questions of 1, 2, 3, ... hops. [Dr. Zero]
        document: Show the proposer a document to begin with. [Dr. Zero]
        held_back: A file of questions that the solver is measured on: the proposer neither is shown their documents
            nor finds them, so that it asks about none. [Quaere]
        questions: Questions that are written about each document. [Dr. Zero, Table 5]
        attempts: Attempts of the solver at each question. [Dr. Zero, Table 5]
        advantage: Baseline of a reward: hrpo compares questions of the same number of hops, grpo those of the
            same document, global the whole batch. [Dr. Zero, Eq. 3; GRPO; REINFORCE++]
        unbiased_std: Standard deviation of rewards with n - 1 in place of n. [Quaere]
        lone_group: Advantage of a question with nothing to compare it with: zero, or raw, its reward as it is.
            [Quaere]
        delta: Added to the standard deviation that rewards are divided by. [Dr. Zero, Eq. 3]
        shuffle_advantages: A control that must not learn: advantages go to the wrong episodes. [Quaere]
        carry_on: Each iteration goes on where the last one ended: with the optimizer's moments, the place in the
            learning-rate schedule and the next documents. Else each starts anew, with documents drawn afresh.
            [Dr. Zero, released code]
    """

    task: Literal["propose", "harden"] = "propose"
    steps: NonNegativeInt = 50
    batch: PositiveInt = 256
    hop_ratio: HopRatio = (4, 3, 2, 1)
    document: bool = True
    held_back: str = ""
    questions: PositiveInt = 1
    attempts: Attempts = 5
    advantage: Literal["hrpo", "grpo", "global"] = "hrpo"
    unbiased_std: bool = True
    lone_group: LoneGroup = "zero"
    delta: NonNegativeFloat = DELTA
    shuffle_advantages: bool = False  # a control: nothing is left to learn from
    carry_on: bool = False
    reward: RewardConfig = RewardConfig()
    hardening: HardeningConfig = HardeningConfig()
    limits: Limits = Limits(sequence_tokens=4096, answer_tokens=128)
    learner: LearnerSettings = LearnerSettings()

    @property
    def num_samples(self) -> int:
        """Maximum number of episodes per update."""
        return self.batch * self.questions


class GenerationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Writing the questions that the solver learns from.

        GenerationConfig(candidates=512, batch=256, attempts=5, given="checked.jsonl")

    Attributes:
        candidates: Questions to write; 0: as many as the proposer's phase did. With `proposer.steps=0` they are
            those of an untrained proposer, the baseline for a trained one. [Dr. Zero]
        batch: Documents at a time. [Quaere]
        questions: Questions about each document. [EVE-Agent]
        samples: Samples of each question, of which the best by its format is taken. [Dr. Zero]
        max_words: A question of more words is dropped; 0: none is. [Dr. Zero]
        attempts: Attempts of the solver at each candidate: those it never or always solves are dropped. 0: no
            attempts, nothing is dropped. [Quaere]
        given: A file, run or data set (hub:OWNER/NAME) whose questions the first iteration's curriculum begins with.
            [Quaere]
        given_again: Begin every iteration with them: with `attempts`, each keeps those that its solver solves
            sometimes. [Quaere]
    """

    candidates: NonNegativeInt = 0
    batch: PositiveInt = 256
    questions: PositiveInt = 1
    samples: PositiveInt = 1
    max_words: NonNegativeInt = 50
    attempts: NonNegativeInt = 0
    given: str = ""
    given_again: bool = False


class SelfPlayConfig(RunConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run in which a proposer and a solver teach each other.

        SelfPlayConfig(model="smollm2-135m", index="demo/index", iterations=3)

    Attributes:
        iterations: Rounds of proposer's phase, generation and solver's phase. [Dr. Zero]
        stop_after: Stop after this many iterations in a row in which validation did not rise; 0: never. [Quaere]
    """

    iterations: PositiveInt = 3
    stop_after: NonNegativeInt = 0
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    validation: ValidationSettings = ValidationSettings()


# One iteration takes about 25 minutes. Questions of 3 and 4 hops need two and three searches. Those of 2 hops need one
# search, as those of 1 hop do, so they are left out.
LARGE_LOOP: dict[str, object] = {
    **LARGE_GPU,
    "proposer.steps": 10,
    "proposer.batch": 64,
    "proposer.hop_ratio": (1, 0, 2, 2),
    "proposer.limits.turn_tokens": 192,
    "proposer.limits.sequence_tokens": 4864,
    "proposer.limits.tool_response_tokens": 560,
    "proposer.learner.learning_rate": 5e-5,
    "proposer.learner.warmup_ratio": 0.1,
    "proposer.learner.min_warmup_steps": 5,
    "proposer.learner.micro_tokens": 32768,
    "generation.candidates": 1500,
    "generation.attempts": 4,
}


def needed_dialects(config: SelfPlayConfig, own: str) -> list[str]:
    """Names of the warm-ups that a warmed-up model needs in order to play all roles of this config.

    `own` is the name of the recipe's own warm-up, which teaches its proposer and the tool-call solver. It is left out
    if all questions are given, so that no proposer plays, and the solver has another dialect.
    """
    solver = own if config.solver.dialect == "tool-call" else taught_name(config.solver.dialect)
    proposes = config.proposer.steps > 0 or config.generation.candidates > 0
    return list(dict.fromkeys([own, solver] if proposes else [solver]))


def check_self_play(config: SelfPlayConfig) -> None:
    """Raise BadInput for invalid or contradictory values."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    check_run(config)
    check_limits("proposer.limits", proposer.limits)
    check_solver(solver)
    config.validation.check()
    if generation.attempts == 1:
        raise BadInput("generation.attempts=1 would drop every question, as one is all or none: set 0, or 2 or more")
    if generation.given_again and not generation.given:
        raise BadInput("generation.given_again=true repeats given questions: set generation.given=FILE as well")
    if config.stop_after and not config.validation.questions:
        raise BadInput("stop_after compares validations: set validation.questions=64 or so as well")
    if proposer.task == "harden":
        proposer.hardening.check(generation.given, again=generation.given_again)
    if not any(proposer.hop_ratio):
        raise BadInput(f"proposer.hop_ratio gives a weight for 1, 2, ... hops, not {list(proposer.hop_ratio)}")
    check_hops(proposer.hop_ratio, proposer.limits, document=proposer.document)
    if proposer.advantage == "grpo" and proposer.questions < 2:
        raise BadInput(
            "proposer.advantage=grpo compares questions about one document: set proposer.questions=2 or more"
        )
    if solver.steps and not proposer.steps and not generation.candidates:
        if not generation.given:
            raise BadInput("proposer.steps=0 leaves the solver no questions: set generation.candidates=256 or so")
        if config.iterations > 1 and not generation.given_again:
            raise BadInput(
                "generation.given is for the first iteration, and proposer.steps=0 leaves the others no questions: "
                "set iterations=1, generation.given_again=true, or generation.candidates=256 or so"
            )


def refuse_hardening(config: SelfPlayConfig, recipe: str) -> None:
    """Raise BadInput if the proposer should reword questions in a recipe with a loop of its own."""
    if config.proposer.task == "harden":
        raise BadInput(f"proposer.task=harden is a task of drzero, not of {recipe}", hint="quaere evolve drzero ...")


ROLES = ("proposer", "solver")


# Episodes per document of GRPO, for comparison: 4 questions about each document, each attempted 4 times.
GRPO_ROLLOUTS = 4 * (4 + 1)


def count_steps(config: SelfPlayConfig) -> int:
    """Number of steps of a run over all phases."""
    num_batches = count_batches(config.generation, config.proposer)
    given, again = config.generation.given, config.generation.given_again
    num_given = sum(count_given_steps(given, iteration, again=again) for iteration in range(config.iterations))
    if config.proposer.task == "harden":
        num_given = config.iterations if config.proposer.hardening.attempts else 0
    return num_given + config.iterations * (config.proposer.steps + num_batches + config.solver.steps)


def count_batches(generation: GenerationConfig, proposer: ProposerConfig) -> int:
    """Number of an iteration's generation steps in which the proposer writes."""
    return -(-count_documents(generation, proposer) // documents_a_batch(generation))


def count_documents(generation: GenerationConfig, proposer: ProposerConfig) -> int:
    """Number of documents for which an iteration generates questions."""
    return -(-count_candidates(generation, proposer) // generation.questions)


def count_candidates(generation: GenerationConfig, proposer: ProposerConfig) -> int:
    """Number of questions an iteration generates: by default one per prompt of the proposer's phase."""
    return generation.candidates or proposer.steps * proposer.batch


def documents_a_batch(generation: GenerationConfig) -> int:
    """Number of documents per generation step."""
    return max(1, generation.batch // generation.questions)


def place_tasks(config: SelfPlayConfig, iteration: int, numbers: Sequence[int]) -> tuple[int, list[int]]:
    """Seed and numbers of an iteration's tasks, for `draw_tasks`.

    Every iteration has its own seed. With `proposer.carry_on`, all iterations have the seed of the first, and their
    numbers follow those of the iteration before, so that no document is drawn again before every document was drawn.
    """
    if not config.proposer.carry_on:
        return derive_seed(config.seed, "tasks", iteration), list(numbers)
    # The same shift for both uses of the tasks: the questions are written about the documents the proposer learned on.
    proposer = config.proposer
    size = max(proposer.steps * proposer.batch, count_documents(config.generation, proposer))
    return derive_seed(config.seed, "tasks", 0), [iteration * size + number for number in numbers]


async def generation_steps(
    config: SelfPlayConfig, training: TrainingRun, stage: Stage, solver: Protocol, iteration: int, seen: set[str]
) -> AsyncIterator[tuple[Step, range]]:
    """The steps in which the proposer writes the solver's questions, each with the numbers of its documents.

    Given questions come first, in a step of their own that is not yielded. `seen` (normalised questions so far) is
    extended. Metrics of a step are added after the caller is done with it.
    """
    generation, proposer = config.generation, config.proposer
    total, size = count_documents(generation, proposer), documents_a_batch(generation)
    num_given = count_given_steps(generation.given, iteration, again=generation.given_again)
    num_steps = num_given + count_batches(generation, proposer)
    for step in training.steps(iteration, "generation", num_steps):
        if step.number < num_given:
            attempts, words, limits = generation.attempts, generation.max_words, config.solver.limits
            await take_given(step, training, stage, solver, limits, seen, attempts=attempts, max_words=words)
        else:
            first = (step.number - num_given) * size
            yield step, range(first, min(total, first + size))
        _measure_generation(step)
        if step.number + 1 == num_steps:
            _check_curriculum(config, training, step)


def _check_curriculum(config: SelfPlayConfig, training: TrainingRun, step: Step) -> None:
    """In the last generation step, add metrics of how many questions are new, and an alarm if too few are."""
    stored = training.store.candidates(kept=True)
    kept = [candidate for candidate in stored if candidate.iteration == step.iteration]
    kept += [candidate for candidate in step.candidates if candidate.kept]  # not stored yet
    measured = measure_overlap(kept, [candidate for candidate in stored if candidate.iteration < step.iteration])
    if step.iteration == 0:
        measured.pop("curriculum/overlap", None)  # there is nothing to overlap with
    repeats = measure_repeats(kept, [candidate for candidate in stored if candidate.iteration < step.iteration])
    step.metrics |= measured | repeats
    step.alarms += check_curriculum(int(measured["curriculum/new"]), step.iteration, config.health)
    step.alarms += check_repeats(repeats.get("curriculum/repeats", 0.0), step.iteration, config.health)


def plan_self_play(config: SelfPlayConfig) -> list[tuple[str, str]]:
    """Lines of a dry run: the phases, and the maximum cost of a step."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    num_proposals = proposer.batch * proposer.questions
    num_attempts = num_proposals * proposer.attempts
    num_tokens = num_proposals * proposer.limits.sequence_tokens + num_attempts * solver.limits.sequence_tokens
    candidates = count_candidates(generation, proposer)
    samples = f", each the best of {generation.samples} samples" if generation.samples > 1 else ""
    tries = f"{samples}, {generation.attempts} attempts at each" if generation.attempts else samples
    solver_tokens = solver.batch * solver.attempts * solver.limits.sequence_tokens
    is_hardening = proposer.task == "harden"
    given = (
        proposer.hardening.plan(generation.given)
        if is_hardening
        else plan_given(generation.given, generation.given_again)
    )
    return [
        ("iterations", f"{config.iterations}, {count_steps(config)} steps in all"),
        (
            "proposer phase",
            f"{proposer.steps} steps of {proposer.batch} documents; a step plays {num_proposals} + "
            f"{num_attempts} episodes, {num_tokens:,} tokens at most",
        ),
        (
            "episodes a document",
            f"{(num_proposals + num_attempts) // proposer.batch}, where GRPO with 4 x 4 takes {GRPO_ROLLOUTS}",
        ),
        ("generation", f"{candidates} candidates in {count_batches(generation, proposer)} steps{tries}"),
        *given,
        (
            "solver phase",
            f"{solver.steps} steps of {solver.batch} questions; a step plays {solver.batch * solver.attempts} "
            f"episodes, {solver_tokens:,} tokens at most",
        ),
        plan_validation(config.validation),
        *plan_memory(config, (config.proposer, config.solver)),
    ]


# ---------------------------------------------------------------------------------- rewards and metrics of the proposer


def measure_proposer(
    step: Step, judged: Sequence[Proposed], advantages: Advantages, num_documents: int, num_attempts: int
) -> None:
    """Add metrics of rewards, question format, the solver's attempts and cost to the step, and keep its episodes."""
    measured = [item.measured() for item in judged]
    for item, values, advantage in zip(judged, measured, advantages.values.tolist(), strict=True):
        step.keep(item.episode, {**values, "advantage": advantage})
    step.metrics |= {
        **mean_parts(measured),
        **measure_advantages(advantages),
        **measure_proposals(
            [item.episode for item in judged],
            [item.task.hops for item in judged],
            [item.score.valid for item in judged],
            [item.written.question for item in judged],
        ),
        **pass_histogram([item.num_right for item in judged if item.num_attempts == num_attempts], num_attempts),
        "cost/documents": float(num_documents),
        "cost/proposer_episodes": step.metrics["proposer/episodes"],
        "cost/solver_episodes": step.metrics.get("solver/episodes", 0.0),
        "cost/valid_questions": float(sum(item.num_attempts > 0 for item in judged)),
        "cost/grpo_episodes": float(GRPO_ROLLOUTS * num_documents),
    }


def _measure_generation(step: Step) -> None:
    """Add to the step's metrics: candidates, kept ones, the searches those need, and the count of each drop reason."""
    kept = [candidate for candidate in step.candidates if candidate.kept]
    reasons = Counter(candidate.reason for candidate in step.candidates if candidate.reason)
    step.metrics |= {
        "curriculum/candidates": float(len(step.candidates)),
        "curriculum/kept": float(len(kept)),
        **mean_of("curriculum/searches_needed", [candidate.num_searches for candidate in kept]),
        **{f"curriculum/{reason.replace(' ', '_')}": float(count) for reason, count in reasons.items()},
    }


def proposer_advantages(
    rewards: Sequence[float], proposals: Sequence[Proposed], config: ProposerConfig, seed: int
) -> Advantages:
    """Rewards standardised by requested hops (HRPO), by document (GRPO) or over the batch (REINFORCE++)."""
    check_finite(rewards)
    options: dict[str, Any] = {"delta": config.delta, "unbiased": config.unbiased_std}
    if config.advantage == "hrpo":
        found = hrpo(rewards, [item.task.hops for item in proposals], lone_group=config.lone_group, **options)
    elif config.advantage == "grpo":
        documents = {item.task.id: number for number, item in enumerate(proposals)}
        found = grpo(rewards, [documents[item.task.id] for item in proposals], lone_group=config.lone_group, **options)
    else:
        found = reinforce_global(rewards, **options)
    return shuffled(found, seed) if config.shuffle_advantages else found

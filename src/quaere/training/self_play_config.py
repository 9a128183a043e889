"""Settings of a run in which a proposer writes questions and a solver learns to answer them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from quaere.dialects.registry import taught_name
from quaere.errors import BadInput
from quaere.objectives.policy_gradient import DELTA, LoneGroup
from quaere.records import Episode, searches_needed
from quaere.rewards.format import Containment, FormatRule, InvalidRule
from quaere.rewards.proposer import FORMAT_WEIGHT, DifficultyShape
from quaere.rollout.episode import Limits
from quaere.setting_types import NonNegativeFloat, NonNegativeInt, PositiveInt
from quaere.training.given import LARGE_GPU
from quaere.training.proposals import Proposed, read_proposal
from quaere.training.settings import LearnerSettings, RunConfig, ValidationSettings, check_hops, check_limits, check_run
from quaere.training.solver_phase import SolverConfig, check_solver

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
        needed_searches: Count a right attempt only if it made as many searches with results as the question
            claims to need. [Quaere]
    """

    shape: DifficultyShape = "single"
    format_weight: NonNegativeFloat = FORMAT_WEIGHT
    format_rule: FormatRule = "released"
    invalid_rule: InvalidRule = "text"
    containment: Containment = "words"
    needed_searches: bool = False

    def min_searches(self, hops: int) -> int:
        """Minimum number of searches with results for a right attempt at a question of `hops` hops to count.

        RewardConfig(needed_searches=True).min_searches(3) == 2
        """
        return searches_needed(hops) if self.needed_searches else 0

    def read(self, episode: Episode) -> Proposed:
        """The proposer's episode with its format score by these rules."""
        return read_proposal(
            episode, format_rule=self.format_rule, invalid_rule=self.invalid_rule, containment=self.containment
        )


class ProposerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The proposer's phase: it writes questions about documents, and the solver tries to answer them.

        ProposerConfig(steps=50, batch=256, hop_ratio=(4, 3, 2, 1), attempts=5, advantage="hrpo")

    Attributes:
        steps: Steps of the phase in each iteration; 0: the proposer is not trained. [Dr. Zero, Table 5]
        batch: Documents a step. [Dr. Zero, Table 5]
        hop_ratio: Weights of questions of 1, 2, 3, ... hops. [Dr. Zero]
        document: Show the proposer a document to begin with. [Dr. Zero]
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

    steps: NonNegativeInt = 50
    batch: PositiveInt = 256
    hop_ratio: HopRatio = (4, 3, 2, 1)
    document: bool = True
    questions: PositiveInt = 1
    attempts: Attempts = 5
    advantage: Literal["hrpo", "grpo", "global"] = "hrpo"
    unbiased_std: bool = True
    lone_group: LoneGroup = "zero"
    delta: NonNegativeFloat = DELTA
    shuffle_advantages: bool = False  # a control: nothing is left to learn from
    carry_on: bool = False
    reward: RewardConfig = RewardConfig()
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
    """

    iterations: PositiveInt = 3
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

"""Settings of a run in which a proposer writes questions and a solver learns to answer them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from quaere.errors import BadInput
from quaere.objectives.advantages import DELTA, LoneGroup
from quaere.records import Episode, searches_needed
from quaere.rewards.difficulty import FORMAT_WEIGHT, DifficultyShape
from quaere.rewards.format import Containment, FormatRule, InvalidRule
from quaere.rollout.episode import Limits
from quaere.setting_types import NonNegativeFloat, NonNegativeInt, PositiveInt
from quaere.training.bounds import check_hops, check_limits, check_run, check_solver
from quaere.training.learner import LearnerSettings
from quaere.training.phases.proposals import Proposed, read_proposal
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import LARGE_GPU
from quaere.training.settings import (
    RunConfig,
    ValidationSettings,
)

HopRatio = Annotated[
    tuple[NonNegativeInt, ...], Meta(min_length=1, extra={"why": "it gives a weight for 1, 2, ... hops"})
]
Attempts = Annotated[int, Meta(ge=2, extra={"why": "a question's difficulty is measured by comparing attempts"})]


class RewardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What the proposer is paid for (Eq. 4).

    With `needed_searches` a right attempt counts only if it searched as often as the question claims to need: a
    question of many hops that one search answers, or none, earns no difficulty.

        RewardConfig(shape="single", format_weight=0.5)
    """

    shape: DifficultyShape = "single"
    format_weight: NonNegativeFloat = FORMAT_WEIGHT
    format_rule: FormatRule = "released"
    invalid_rule: InvalidRule = "text"
    containment: Containment = "words"
    needed_searches: bool = False

    def min_searches(self, hops: int) -> int:
        """How many searches with results a right attempt at a question of so many hops must have made to count.

        RewardConfig(needed_searches=True).min_searches(3) == 2
        """
        return searches_needed(hops) if self.needed_searches else 0

    def read(self, episode: Episode) -> Proposed:
        """An episode of the proposer, its form scored by these rules."""
        return read_proposal(
            episode, format_rule=self.format_rule, invalid_rule=self.invalid_rule, containment=self.containment
        )


class ProposerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The proposer's phase: `batch` documents a step, `questions` of each, `attempts` of the solver at each of those.

    ProposerConfig(steps=50, batch=256, hop_ratio=(4, 3, 2, 1), attempts=5, advantage="hrpo")
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
    reward: RewardConfig = RewardConfig()
    limits: Limits = Limits(sequence_tokens=4096, answer_tokens=128)
    learner: LearnerSettings = LearnerSettings(loss="policy_gradient")

    @property
    def num_samples(self) -> int:
        """The most episodes that one update learns from."""
        return self.batch * self.questions


class GenerationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Writing the solver's questions. With `attempts`, those it never or always solves are dropped.

    `questions` are written about each document, and each is the best by its format of `samples`. One of more than
    `max_words` words is dropped (0: none is). `candidates=0` writes as many as the proposer's phase did. With
    `proposer.steps=0` and some number of candidates, the untrained proposer writes them: the baseline a trained one has
    to beat. `given` is a file or run whose questions the first iteration's curriculum begins with.

        GenerationConfig(candidates=512, batch=256, attempts=5, given="checked.jsonl")
    """

    candidates: NonNegativeInt = 0
    batch: PositiveInt = 256
    questions: PositiveInt = 1
    samples: PositiveInt = 1
    max_words: NonNegativeInt = 50
    attempts: NonNegativeInt = 0
    given: str = ""


class SelfPlayConfig(RunConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run of such a recipe.

    SelfPlayConfig(model="smollm2-135m", index="demo/index", iterations=3)
    """

    iterations: PositiveInt = 3
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    validation: ValidationSettings = ValidationSettings()


# One iteration in about 25 minutes. Hops of 3 and 4 need two and three searches; of 2, no more
# than of 1, so that there are none.
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


def check_self_play(config: SelfPlayConfig) -> None:
    """Refuse values that contradict each other or make no sense, each with one clear line."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    check_run(config)
    check_limits("proposer.limits", proposer.limits)
    check_solver(solver)
    config.validation.check()
    if generation.attempts == 1:
        raise BadInput("generation.attempts=1 would drop every question, as one is all or none: set 0, or 2 or more")
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
        if config.iterations > 1:
            raise BadInput(
                "generation.given is for the first iteration, and proposer.steps=0 leaves the others no questions: "
                "set iterations=1, or generation.candidates=256 or so"
            )

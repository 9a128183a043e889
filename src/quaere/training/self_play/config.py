"""Settings of a run in which a proposer writes questions and a solver learns to answer them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from quaere.errors import BadInput
from quaere.objectives.advantages import DELTA, LoneGroup
from quaere.records import Episode, searches_needed
from quaere.rewards.difficulty import FORMAT_WEIGHT, DifficultyShape
from quaere.rewards.format import Containment, FormatRule, InvalidRule
from quaere.rollout.episode import Limits
from quaere.training.bounds import check_hops, check_least, check_phase, check_run, check_solver
from quaere.training.learner import LearnerSettings
from quaere.training.phases.proposals import Proposed, read_proposal
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import LARGE_GPU
from quaere.training.settings import (
    RunConfig,
    ValidationSettings,
)


class RewardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the proposer's reward (Eq. 4).

    With `needed_searches` a right attempt counts only if it made as many searches as the question claims to need: a
    question of many hops that needs one search or none gets no difficulty reward.

        RewardConfig(shape="single", format_weight=0.5)
    """

    shape: DifficultyShape = "single"
    format_weight: float = FORMAT_WEIGHT
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
        """An episode of the proposer with its format scored by these rules."""
        return read_proposal(
            episode, format_rule=self.format_rule, invalid_rule=self.invalid_rule, containment=self.containment
        )


class ProposerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the proposer's phase: `batch` documents per step, `questions` per document, `attempts` per question.

    ProposerConfig(steps=50, batch=256, hop_ratio=(4, 3, 2, 1), attempts=5, advantage="hrpo")
    """

    steps: int = 50
    batch: int = 256
    hop_ratio: tuple[int, ...] = (4, 3, 2, 1)
    document: bool = True
    questions: int = 1
    attempts: int = 5
    advantage: Literal["hrpo", "grpo", "global"] = "hrpo"
    unbiased_std: bool = True
    lone_group: LoneGroup = "zero"
    delta: float = DELTA
    shuffle_advantages: bool = False  # a control: nothing is left to learn from
    reward: RewardConfig = RewardConfig()
    limits: Limits = Limits(sequence_tokens=4096, answer_tokens=128)
    learner: LearnerSettings = LearnerSettings(loss="policy_gradient")

    @property
    def num_samples(self) -> int:
        """Maximum number of episodes per update."""
        return self.batch * self.questions


class GenerationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of generating the solver's questions. With `attempts`, those it never or always solves are dropped.

    `questions` are written about each document, each the best by format of `samples`. Questions of more than
    `max_words` words are dropped (0: no limit). `candidates=0` generates as many as the proposer's phase did. With
    `proposer.steps=0` and a number of candidates, the untrained proposer writes them: the baseline that a trained one
    must beat. `given` is a file or run whose questions start the first iteration's curriculum.

        GenerationConfig(candidates=512, batch=256, attempts=5, given="checked.jsonl")
    """

    candidates: int = 0
    batch: int = 256
    questions: int = 1
    samples: int = 1
    max_words: int = 50
    attempts: int = 0
    given: str = ""


class SelfPlayConfig(RunConfig, frozen=True, forbid_unknown_fields=True):
    """Config of a whole self-play run.

    SelfPlayConfig(model="smollm2-135m", index="demo/index", iterations=3)
    """

    iterations: int = 3
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


def check_self_play(config: SelfPlayConfig) -> None:
    """Raise BadInput for invalid or contradictory values."""
    proposer, solver, generation = config.proposer, config.solver, config.generation
    ones = {
        "iterations": config.iterations,
        "proposer.questions": proposer.questions,
        "generation.batch": generation.batch,
        "generation.questions": generation.questions,
        "generation.samples": generation.samples,
    }
    zeros = {
        "generation.candidates": generation.candidates,
        "generation.attempts": generation.attempts,
        "generation.max_words": generation.max_words,
        "proposer.reward.format_weight": proposer.reward.format_weight,
    }
    check_least(1, ones)
    check_least(0, zeros)
    check_run(config)
    check_phase("proposer", proposer)
    check_solver(solver)
    config.validation.check()
    if generation.attempts == 1:
        raise BadInput("generation.attempts=1 would drop every question, as one is all or none: set 0, or 2 or more")
    if not proposer.hop_ratio or min(proposer.hop_ratio) < 0 or sum(proposer.hop_ratio) == 0:
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

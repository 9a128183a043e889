"""Settings and presets of an EVE-Agent run; the preset `paper` has the paper's values.

It is Dr. Zero's config with evidence added, and every choice the paper leaves open is one value:

    evidence.check=none                 a span is rewarded wherever it comes from (others: zero_value, invalid)
    evidence.value_weight=0             no verifier (lambda_V); evidence.brevity_weight=0: no brevity (lambda_B)
    evidence.span_weight=0              the solver is rewarded for its answer alone (lambda_E)
    evidence.paid=verbatim              and for a span that it really was shown
    proposer.reward.invalid_rule=algorithm
    prompt_source=questions             documents that a file of questions leads to; or prompt_source=selector
    phase_b_documents=same              the solver's questions are about the proposer's own documents
    verifier.form=teacher_forced        or hosted, with verifier.model=openai:NAME@URL
    selector.run_score=rescale          selector.previous_mean="arm mean"

With `evidence.cite=false`, its three weights 0, `phase_b_documents=same`, and `generation.questions`, `iterations`,
`max_grad_norm` and `proposer.reward.format_rule` as there, it equals Dr. Zero bit for bit.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.errors import BadInput
from quaere.rewards.evidence import BREVITY_TOKENS, BREVITY_WEIGHT, SPAN_WEIGHT, VALUE_WEIGHT, EvidenceCheck
from quaere.rewards.guards import GUARDS, OURS, PAPER
from quaere.setting_types import NonNegativeFloat, PositiveInt, ProperFraction
from quaere.training.learner_settings import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.phases.verification import VerifierSettings
from quaere.training.selector.selector import SelectorSettings
from quaere.training.self_play.config import (
    LARGE_LOOP,
    GenerationConfig,
    ProposerConfig,
    RewardConfig,
    SelfPlayConfig,
    check_self_play,
)

MAX_GRAD_NORM = 0.1  # EVE-Agent's value; Dr. Zero's tables have two


class EvidenceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Evidence: what is asked for, how it is rewarded, and which guards refuse it.

        EvidenceConfig(check="zero_value", value_weight=0.5, brevity_weight=0.1, span_weight=0.3, guards=("verbatim",))

    Attributes:
        cite: Both roles are asked to quote their evidence. [EVE-Agent]
        check: A span that is in no text shown: zero_value: it earns neither value nor brevity; none: it is
            rewarded like any other; invalid: its proposal earns the format reward alone. [EVE-Agent]
        value_weight: Weight of the verifier's value in the proposer's reward: lambda_V. [EVE-Agent, Eq. 16]
        brevity_weight: Weight of the brevity bonus in the proposer's reward: lambda_B. [EVE-Agent, Eq. 16]
        brevity_tokens: Span length at which the brevity bonus is 0: L_max. [EVE-Agent, Eq. 15]
        span_weight: Weight of the quoted span in the solver's reward: lambda_E. [EVE-Agent, Eq. 19]
        gold: Spans that the solver's quotation is compared with: verbatim ones only, or any as it was written,
            also a made-up one (preset paper). [Quaere; EVE-Agent]
        paid: Quotations of the solver that span_weight is paid for: written: any; verbatim: only those that are in
            a text it was shown. [EVE-Agent; Quaere]
        guards: Names of the rules that refuse evidence which proves nothing (`rewards/guards.py`); the paper has
            none. [Quaere]
    """

    cite: bool = True
    check: EvidenceCheck = "zero_value"
    value_weight: NonNegativeFloat = VALUE_WEIGHT
    brevity_weight: NonNegativeFloat = BREVITY_WEIGHT
    brevity_tokens: PositiveInt = BREVITY_TOKENS
    span_weight: NonNegativeFloat = SPAN_WEIGHT
    gold: Literal["verbatim", "written"] = "verbatim"
    paid: Literal["written", "verbatim"] = "written"
    guards: tuple[str, ...] = PAPER


class EveConfig(SelfPlayConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an EVE-Agent run: those of Dr. Zero, and evidence.

        EveConfig(model="smollm2-135m", index="demo/index", iterations=1)

    Attributes:
        prompt_source: How the proposer's documents are drawn: uniformly, by searching with the questions of a
            file, or by the corpus selector. [EVE-Agent, Sec. 3.3]
        prompt_questions: The file of questions for `prompt_source=questions`. [EVE-Agent]
        phase_b_documents: Documents of the solver's questions: held-out ones, or the same as the proposer's.
            [EVE-Agent]
        held_out_share: Share of the documents that is withheld from the proposer's phase and used for the
            solver's questions. [EVE-Agent]
        verify_candidates: Verify the evidence of the solver's questions too; no reward depends on it. [Quaere]
    """

    iterations: PositiveInt = 1
    proposer: ProposerConfig = ProposerConfig(
        reward=RewardConfig(format_rule="eve"),
        learner=LearnerSettings(loss="policy_gradient", max_grad_norm=MAX_GRAD_NORM),
    )
    solver: SolverConfig = SolverConfig(
        learner=LearnerSettings(loss="clipped", epsilon=0.2, max_grad_norm=MAX_GRAD_NORM)
    )
    generation: GenerationConfig = GenerationConfig(questions=5)
    prompt_source: Literal["uniform", "questions", "selector"] = "uniform"
    prompt_questions: str = ""  # a file or hub:OWNER/NAME, for prompt_source=questions
    phase_b_documents: Literal["held-out", "same"] = "held-out"
    held_out_share: ProperFraction = 0.2
    evidence: EvidenceConfig = EvidenceConfig()
    verifier: VerifierSettings = VerifierSettings()
    verify_candidates: bool = False
    selector: SelectorSettings = SelectorSettings()

    @property
    def verifies_proposals(self) -> bool:
        """True if a reward or guard of the proposer's phase depends on the verifier."""
        return self.evidence.cite and (self.evidence.value_weight != 0 or "needed" in self.evidence.guards)

    @property
    def verifies_candidates(self) -> bool:
        """True if the verifier is asked about the solver's questions."""
        return self.evidence.cite and (self.verify_candidates or "needed" in self.evidence.guards)

    @property
    def proposer_range(self) -> tuple[float, float]:
        """The least and the greatest reward of a proposer."""
        value, brevity = self.evidence.value_weight, self.evidence.brevity_weight
        return -value, self.proposer.reward.format_weight + 1 + value + brevity

    @property
    def solver_range(self) -> tuple[float, float]:
        """The least and the greatest reward of a solver."""
        return 0.0, 1 + self.evidence.span_weight


# The settings that each preset changes. The guards are Quaere's, not the paper's.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {
        "engine.max_rows": 256,
        "evidence.gold": "written",  # the paper compares with whatever span the proposer wrote
        "proposer.limits.answer_turn": False,  # the paper keeps no turn for the answer
        "solver.limits.answer_turn": False,
        "proposer.carry_on": True,  # as the released code of Dr. Zero resumes the proposer's training
        "proposer.learner.kl_flat": True,
        "solver.learner.kl_flat": True,
        "solver.max_draws": 0,
        "solver.several_share": 0.0,
        "validation.questions": 0,  # no validation: the last checkpoint is the result
    },
    "single-gpu": {
        "evidence.guards": OURS,
        "verify_candidates": True,
        "proposer.batch": 64,
        "proposer.learner.max_grad_norm": 1.0,  # as in Dr. Zero's presets
        "proposer.learner.learning_rate": 2e-5,
        "proposer.learner.warmup_ratio": 0.1,
        "proposer.learner.min_warmup_steps": 5,
        "proposer.learner.gradient_checkpointing": True,
        "generation.batch": 60,
        "generation.attempts": 5,
        "solver.batch": 32,
        "solver.learner.max_grad_norm": 1.0,
        "solver.learner.learning_rate": 2e-5,
        "solver.learner.warmup_ratio": 0.1,
        "solver.learner.min_warmup_steps": 5,
        "solver.learner.gradient_checkpointing": True,
        "adapter.rank": 16,
    },
    "large-gpu": {
        **LARGE_LOOP,
        "evidence.guards": OURS,
        "verify_candidates": True,
        "proposer.limits.turn_tokens": 256,  # 64 more than in Dr. Zero's: a turn has room for the quoted sentence
        "solver.limits.turn_tokens": 224,
        "solver.limits.sequence_tokens": 5120,
        "proposer.learner.max_grad_norm": 1.0,
        "solver.learner.max_grad_norm": 1.0,
        "generation.batch": 250,
    },
    "demo": {
        "prompts": "brief",
        "evidence.guards": OURS,
        "verify_candidates": True,
        "verifier.samples": 2,
        "verifier.turn_tokens": 24,
        "verifier.guided": True,
        "proposer.steps": 2,
        "proposer.batch": 4,
        "proposer.hop_ratio": (1,),
        "proposer.attempts": 2,
        "proposer.limits": {"max_turns": 2, "turn_tokens": 128, "sequence_tokens": 704, "tool_response_tokens": 160},
        "proposer.learner.learning_rate": 1e-4,
        "generation.candidates": 6,
        "generation.batch": 6,
        "generation.questions": 2,
        "solver.steps": 2,
        "solver.batch": 2,
        "solver.attempts": 3,
        "solver.limits": {
            "max_turns": 3,
            "turn_tokens": 112,
            "sequence_tokens": 704,
            "tool_response_tokens": 160,
            "topk": 1,
        },
        "solver.learner.learning_rate": 1e-4,
        "adapter.rank": 8,
        "checkpoints.every": 1,
        "checkpoints.keep": 2,
    },
}


def check_config(config: EveConfig) -> None:
    """Raise `BadInput` for values out of bounds and for values that contradict each other."""
    check_self_play(config)
    config.verifier.check()
    config.selector.check()
    evidence = config.evidence
    for name in evidence.guards:
        if name not in GUARDS:
            raise BadInput(f"evidence.guards: there is no guard {name!r}; choose from {', '.join(GUARDS)}")
    weights = {name: getattr(evidence, name) for name in ("value_weight", "brevity_weight", "span_weight")}
    for name, weight in weights.items():
        if weight and not evidence.cite:
            raise BadInput(f"evidence.cite=false asks for no evidence: set evidence.{name}=0 as well")
    if evidence.guards and not evidence.cite:
        raise BadInput("evidence.cite=false asks for no evidence: set evidence.guards=[] as well")
    if (config.prompt_source == "questions") != bool(config.prompt_questions):
        raise BadInput("prompt_source=questions and prompt_questions=FILE must be set together, or neither")
    if config.prompt_source != "uniform" and not config.proposer.document:
        raise BadInput(f"prompt_source={config.prompt_source} chooses documents: it needs proposer.document=true")

"""Settings and presets of a Dr. Zero run; the preset `paper` has the paper's values.

Each ablation of the paper is one value:

    proposer.hop_ratio=[1,1,1,1]        other ratios of hops
    proposer.reward.format_weight=0     no format reward
    proposer.reward.format_rule=eve     not of the paper: a leaked answer keeps its format reward
    proposer.reward.needed_searches=true     not of the paper: attempts that searched less than claimed do not count
    proposer.reward.shape=parabola      difficulty peaks at one half
    proposer.document=false             no initial document
    proposer.steps=100                  longer phases
    proposer.advantage=grpo             with proposer.questions=4, proposer.attempts=4
    proposer.advantage=global           REINFORCE++'s baseline
    solver.dialect=evalact              not of the paper: a solver that evaluates what it found (or evalrar, ...)
"""

from __future__ import annotations

from quaere.training.self_play.config import LARGE_LOOP, SelfPlayConfig


class DrZeroConfig(SelfPlayConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a Dr. Zero run.

    DrZeroConfig(model="smollm2-135m", index="demo/index", iterations=3)
    """


# The settings that each preset changes.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {
        "engine.max_rows": 256,
        "proposer.limits.answer_turn": False,  # the paper reserves no turn for the answer
        "solver.limits.answer_turn": False,
        "generation.samples": 5,
        "proposer.carry_on": True,  # as the released code of Dr. Zero resumes the proposer's training
        "proposer.learner.kl_flat": True,
        "solver.learner.kl_flat": True,
        "solver.max_draws": 0,
        "solver.several_share": 0.0,
        "validation.questions": 0,  # no validation: the last checkpoint is the result
    },
    "single-gpu": {
        "proposer.batch": 64,
        "proposer.learner.learning_rate": 2e-5,
        "proposer.learner.warmup_ratio": 0.1,
        "proposer.learner.min_warmup_steps": 5,
        "generation.batch": 64,
        "generation.attempts": 5,
        "solver.batch": 32,
        "solver.learner.learning_rate": 2e-5,
        "solver.learner.warmup_ratio": 0.1,
        "solver.learner.min_warmup_steps": 5,
        "adapter.rank": 16,
        "proposer.learner.gradient_checkpointing": True,
        "solver.learner.gradient_checkpointing": True,
    },
    "large-gpu": {**LARGE_LOOP, "iterations": 1},
    "demo": {
        "iterations": 1,
        "prompts": "brief",
        "proposer.steps": 2,
        "proposer.batch": 4,
        "proposer.hop_ratio": (1,),
        "proposer.attempts": 2,
        "proposer.limits": {"max_turns": 2, "turn_tokens": 80, "sequence_tokens": 640, "tool_response_tokens": 160},
        "proposer.learner.learning_rate": 1e-4,
        "generation.candidates": 6,
        "generation.batch": 6,
        "solver.steps": 2,
        "solver.batch": 2,
        "solver.attempts": 3,
        "solver.limits": {
            "max_turns": 3,
            "turn_tokens": 80,
            "sequence_tokens": 640,
            "tool_response_tokens": 160,
            "topk": 1,
        },
        "solver.learner.learning_rate": 1e-4,
        "adapter.rank": 8,
        "checkpoints.every": 1,
        "checkpoints.keep": 2,
    },
}

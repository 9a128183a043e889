"""Settings that several recipes share; a recipe's config is made of these and of its own.

Every one is a frozen struct that refuses fields it does not know, so that a mistyped key is an error and not a wish.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.chat.prompt_style import PromptStyle
from quaere.errors import BadInput
from quaere.policies.native.device import Precision
from quaere.setting_types import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
)

MIN_VALIDATION = 8
"""Fewer validation questions than this are not worth holding back."""


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where and how the model runs.

    `dtype` is the sampling copy's, `base_dtype` that of frozen weights under an adapter; weights that are trained are
    float32 always. `auto` is bfloat16 on a GPU and float32 on a CPU, except that in `fast` mode a CPU samples in
    whichever is faster there. `int8` is for a CPU and few rows at once: it decodes with weights rounded to bytes, which
    changes log-probs a little. In `deterministic` mode a run repeats bit for bit on a CPU.

        EngineSettings(device="cuda", max_rows=256)
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Precision = "auto"
    base_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    mode: Literal["fast", "deterministic"] = "fast"
    max_rows: PositiveInt = 32


class AdapterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """LoRA: rank 0 trains all weights instead, a copy of the model per role.

    AdapterSettings(rank=16, alpha=32)
    """

    rank: NonNegativeInt = 0
    alpha: PositiveInt = 32


class SamplingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How turns are drawn while training. Temperature 1 with nothing cut off samples the policy that is trained.

    Stored log-probs and gradients are those of that policy whatever is set here. Other values are refused unless
    `off_policy` accepts that; nothing corrects for the difference then.

        SamplingSettings(temperature=1.0)
    """

    temperature: PositiveFloat = 1.0
    top_p: PositiveFraction = 1.0
    top_k: NonNegativeInt = 0
    off_policy: bool = False


class SearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to episodes whose search failed: they are played again, after waiting, up to `replays` times.

    SearchSettings(replays=5, wait_s=4.0)
    """

    replays: NonNegativeInt = 5
    wait_s: NonNegativeFloat = 4.0


class CheckpointSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint every so many steps and at the end of every phase; the newest `keep` stay, and the best.

    CheckpointSettings(every=5, keep=3)
    """

    every: PositiveInt = 5
    keep: PositiveInt = 3


class ValidationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the best checkpoint of a solver's phase is chosen: by exact match on questions held back from training.

    `questions` are held back, but at most `share` of those there are, and none if that leaves fewer than 8. They are
    answered greedily before the phase's first step, after every `every` steps and after its last. `questions=0`
    switches validation off: the last checkpoint is the one that counts.

        ValidationSettings(questions=64, every=10)
    """

    questions: NonNegativeInt = 64
    every: PositiveInt = 10
    share: ProperFraction = 0.1

    def check(self) -> None:
        """Refuse too few questions to choose by."""
        if self.questions and self.questions < MIN_VALIDATION:
            raise BadInput(
                f"validation.questions must be at least {MIN_VALIDATION}, or 0 for no validation, not {self.questions}"
            )


class HealthSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When a run counts as collapsed, and what to do: say so, stop, or go back to the last good checkpoint.

    A condition must hold for `patience` steps in a row. Each limit is switched off by 0. `min_entropy` is in nats a
    token, `min_tokens` in model tokens an episode, `min_valid` a share of the questions (or of the turns, for a
    solver), `max_mismatch` the mean distance between the sampler's log-probs and the learner's. `min_update_seen` is
    the share of the learner's change that must reach the sampler, measured every `update_every` steps and at a phase's
    last one (`update_every=0`: never; see `update_seen.py`). `min_searches_kept` is the share of a solver's searches in
    the first steps of its phase that must be left while its questions need as many (see `needs.py`). Three are for
    those who judge reports: `max_ceiling` is the share of reports at the top of the scale, `min_spread` how far the
    scores of one question's reports lie apart, `max_hack` by how much citations may fall while rewards or agreement
    rise.

        HealthSettings(policy="stop", min_entropy=0.02)
    """

    policy: Literal["warn", "stop", "rollback"] = "warn"
    patience: PositiveInt = 3
    max_rollbacks: NonNegativeInt = 2
    min_entropy: NonNegativeFloat = 0.02
    min_tokens: NonNegativeFloat = 4.0
    min_valid: NonNegativeFloat = 0.05
    max_mismatch: NonNegativeFloat = 0.2
    min_update_seen: NonNegativeFloat = 0.95
    update_every: NonNegativeInt = 10
    zero_advantages: bool = True
    min_searches_kept: NonNegativeFloat = 0.75
    max_ceiling: NonNegativeFloat = 0.9
    min_spread: NonNegativeFloat = 0.005
    max_hack: NonNegativeFloat = 0.05


class RunConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What every recipe's config has: whom to train, on which documents, and how it samples, learns and is saved.

    RunConfig(model="smollm2-135m", index="demo/index", seed=7)
    """

    model: str = ""
    index: str = ""
    search_url: str = ""  # a search server to ask instead of the index itself
    seed: int = 0
    prompts: PromptStyle = "full"
    adapter: AdapterSettings = AdapterSettings()
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    search: SearchSettings = SearchSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    health: HealthSettings = HealthSettings()

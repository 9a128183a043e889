"""Settings that several recipes share; a recipe's config consists of these and its own.

Each is a frozen struct that refuses unknown fields, so that a mistyped key is an error and not silently ignored.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.chat.prompt_style import PromptStyle
from quaere.errors import BadInput
from quaere.policies.native.device import Precision

MIN_VALIDATION = 8
"""Minimum number of validation questions; fewer are not held back."""


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of device, precision and batching.

    `dtype` is that of the sampling copy, `base_dtype` that of frozen weights under an adapter; trained weights are
    always float32. `auto` is bfloat16 on a GPU and float32 on a CPU, except that in `fast` mode a CPU samples in
    whichever is faster. `int8` is for a CPU and few rows at once: it decodes with weights rounded to 8 bits, which
    changes log-probs slightly. In `deterministic` mode a run on a CPU is reproducible bit for bit.

        EngineSettings(device="cuda", max_rows=256)
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Precision = "auto"
    base_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    mode: Literal["fast", "deterministic"] = "fast"
    max_rows: int = 32


class AdapterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """LoRA settings; rank 0 trains all weights instead, with a copy of the model per role.

    AdapterSettings(rank=16, alpha=32)
    """

    rank: int = 0
    alpha: int = 32


class SamplingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling parameters in training. Temperature 1 without top-p and top-k samples the policy that is trained.

    Stored log-probs and gradients are those of that policy whatever is set here. Other values are refused unless
    `off_policy` is set; the difference is then not corrected for.

        SamplingSettings(temperature=1.0)
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    off_policy: bool = False


class SearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Replays of episodes in which a search failed: up to `replays` times, after a pause of `wait_s` seconds.

    SearchSettings(replays=5, wait_s=4.0)
    """

    replays: int = 5
    wait_s: float = 4.0


class CheckpointSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint every `every` steps and at the end of every phase; the newest `keep` and the best are kept.

    CheckpointSettings(every=5, keep=3)
    """

    every: int = 5
    keep: int = 3


class ValidationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Selection of the best checkpoint of a solver's phase by exact match on questions held back from training.

    `questions` are held back, but at most `share` of all, and none if that gives fewer than 8. They are answered
    greedily before the phase's first step, after every `every` steps and after its last. `questions=0` switches
    validation off: the last checkpoint is then used.

        ValidationSettings(questions=64, every=10)
    """

    questions: int = 64
    every: int = 10
    share: float = 0.1

    def check(self) -> None:
        """Raise BadInput for invalid values."""
        if self.questions and self.questions < MIN_VALIDATION:
            raise BadInput(
                f"validation.questions must be at least {MIN_VALIDATION}, or 0 for no validation, not {self.questions}"
            )
        if self.every < 1:
            raise BadInput(f"validation.every must be at least 1, not {self.every}")
        if not 0 < self.share < 1:
            raise BadInput(f"validation.share is a share between 0 and 1, not {self.share:g}")


class HealthSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions under which a run counts as collapsed, and the reaction: warn, stop, or roll back.

    A condition must hold for `patience` consecutive steps. A limit of 0 switches it off. `min_entropy` is in nats per
    token, `min_tokens` in model tokens per episode, `min_valid` a share of the questions (of the turns, for a solver),
    `max_mismatch` the mean absolute difference between the sampler's and the learner's log-probs. `min_update_seen` is
    the share of the learner's change that must reach the sampler, measured every `update_every` steps and at a phase's
    last step (`update_every=0`: never; see `update_seen.py`). `min_searches_kept` is the share of the solver's searches
    in the first steps of its phase that must remain while its questions need as many (see `needs.py`). Three are for
    report recipes: `max_ceiling` is the maximum share of reports at the top of the scale, `min_spread` the minimum
    spread of the scores of one question's reports, `max_hack` how much citations may fall while rewards or agreement
    rise.

        HealthSettings(policy="stop", min_entropy=0.02)
    """

    policy: Literal["warn", "stop", "rollback"] = "warn"
    patience: int = 3
    max_rollbacks: int = 2
    min_entropy: float = 0.02
    min_tokens: float = 4.0
    min_valid: float = 0.05
    max_mismatch: float = 0.2
    min_update_seen: float = 0.95
    update_every: int = 10
    zero_advantages: bool = True
    min_searches_kept: float = 0.75
    max_ceiling: float = 0.9
    min_spread: float = 0.005
    max_hack: float = 0.05


class RunConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that every recipe's config has: model, documents, sampling, checkpoints and health.

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

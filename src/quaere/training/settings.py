"""Settings that several recipes share; a recipe's config consists of these and its own.

Each is a frozen struct that refuses unknown fields, so that a mistyped key is an error and not silently ignored.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.chat.protocol import PromptStyle
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
"""Minimum number of validation questions; fewer are not held back."""


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of device, precision and batching.

        EngineSettings(device="cuda", max_rows=256)

    Attributes:
        device: Where the model runs; auto takes a CUDA device if there is one. [Quaere]
        dtype: Precision of the sampling copy; trained weights are always float32. auto: bfloat16 on a GPU,
            float32 on a CPU, and in `fast` mode on a CPU whichever of both is faster there. int8 decodes on a
            CPU with weights rounded to bytes, which changes log-probs a little. [Quaere]
        base_dtype: Precision of the frozen weights under an adapter; auto as for `dtype`. [Quaere]
        mode: fast, or deterministic: the run repeats bit for bit on a CPU. [Quaere]
        max_rows: Episodes that are sampled at once. [Quaere]
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Precision = "auto"
    base_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    mode: Literal["fast", "deterministic"] = "fast"
    max_rows: PositiveInt = 32


class AdapterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """LoRA adapters: one per role over a shared, frozen base.

        AdapterSettings(rank=16, alpha=32)

    Attributes:
        rank: Rank of the adapters; 0 trains all weights instead, with a copy of the model per role. [LoRA]
        alpha: Scale of the adapters: what they add is multiplied by alpha / rank. [LoRA]
    """

    rank: NonNegativeInt = 0
    alpha: PositiveInt = 32


class SamplingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How turns are sampled in training.

    Stored log-probs and gradients are those of the policy at temperature 1, whatever is set here.

        SamplingSettings(temperature=1.0)

    Attributes:
        temperature: Sampling temperature; 1 samples the policy that is trained. Another value needs
            `off_policy`. [Quaere]
        top_p: Nucleus sampling: the share of probability to sample from; 1 is all of it. Another value needs
            `off_policy`. [Quaere]
        top_k: Sample from the k likeliest tokens; 0 is all of them. Another value needs `off_policy`. [Quaere]
        off_policy: Accept sampling values under which samples are not those of the trained policy; nothing
            corrects for it. [Quaere]
    """

    temperature: PositiveFloat = 1.0
    top_p: PositiveFraction = 1.0
    top_k: NonNegativeInt = 0
    off_policy: bool = False


class SearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to episodes in which a search failed: they are played again and never paid.

        SearchSettings(replays=5, wait_s=4.0)

    Attributes:
        replays: How often such an episode is played again. [Quaere]
        wait_s: Seconds to wait before it is. [Quaere]
    """

    replays: NonNegativeInt = 5
    wait_s: NonNegativeFloat = 4.0


class CheckpointSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When checkpoints are written, beside one at the end of every phase, and how many stay.

        CheckpointSettings(every=5, keep=3)

    Attributes:
        every: Steps between two checkpoints. [Quaere]
        keep: How many of the newest checkpoints stay; the best one stays too. [Quaere]
    """

    every: PositiveInt = 5
    keep: PositiveInt = 3


class ValidationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Selection of the best checkpoint of a solver's phase by exact match on questions held back from training.

    They are answered greedily before the phase's first step, every `every` steps and after its last.

        ValidationSettings(questions=64, every=10)

    Attributes:
        questions: Questions to hold back, 8 at least; 0: no validation, and the last checkpoint is the one that
            counts. [Quaere]
        every: Steps between two validations. [Quaere]
        share: The largest share of the questions to hold back; none are if that leaves fewer than 8. [Quaere]
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
    """When a run counts as collapsed, and what to do then.

    A limit of 0 switches its alarm off.

        HealthSettings(policy="stop", min_entropy=0.02)

    Attributes:
        policy: What an alarm does: warn says so, stop ends the run, rollback goes back to the last good
            checkpoint. [Quaere]
        patience: Steps in a row for which a condition must hold before it is an alarm. [Quaere]
        max_rollbacks: How often a run may go back before it stops. [Quaere]
        min_entropy: Least entropy of the policy, in nats a token. [Quaere]
        min_tokens: Least number of model tokens an episode. [Quaere]
        min_valid: Least share of valid questions; for a solver, of turns that can be read. [Quaere]
        max_mismatch: Greatest mean distance between the sampler's log-probs and the learner's. [Quaere]
        min_update_seen: Least share of the learner's change that must reach the sampler (see `update_seen.py`).
            [Quaere]
        update_every: Steps between two measurements of that share; it is measured at a phase's last step too.
            0: never. [Quaere]
        zero_advantages: Alarm when no episode of a batch has an advantage. [Quaere]
        min_searches_kept: Share of a solver's searches in its first steps that must be left while its questions
            need as many (see `needs.py`). [Quaere]
        min_new_questions: Least number of kept questions in an iteration that no earlier iteration has. [Quaere]
        max_ceiling: Reports: greatest share of scores at the top of the scale. [Quaere]
        min_spread: Reports: least spread of the scores of one question's reports. [Quaere]
        max_hack: Reports: by how much citations may fall while rewards or agreement rise. [Quaere]
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
    min_new_questions: NonNegativeInt = 1
    max_ceiling: NonNegativeFloat = 0.9
    min_spread: NonNegativeFloat = 0.005
    max_hack: NonNegativeFloat = 0.05


class TrainerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where sampling and gradients are computed: here, or on a server that speaks the Tinker interface.

        TrainerSettings(kind="tinker", url="http://127.0.0.1:8000")

    Attributes:
        kind: local: in this process; tinker: on a server (`quaere trainer start`, or the hosted service). [Quaere]
        url: The server's URL; empty: the hosted Tinker service, with the key in $TINKER_API_KEY. [Quaere]
        model: The server's name of the base model; empty: that of `model`, or the only one the server has.
            [Quaere]
        loss_normalisation: What the server's loss does with the tokens of a batch: sum, or sequence_mean, a mean per
            sequence and over sequences; auto: sequence_mean for a server without metrics of its loss (SkyRL with
            JAX), else sum. Advantages are scaled so that the step is the local one. [Quaere]
        patience_s: Seconds without an answer after which a server counts as lost and the run stops. [Quaere]
    """

    kind: Literal["local", "tinker"] = "local"
    url: str = ""
    model: str = ""
    loss_normalisation: Literal["auto", "sum", "sequence_mean"] = "auto"
    patience_s: PositiveFloat = 120.0


class RunConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that every recipe's config has: model, documents, sampling, checkpoints and health.

        RunConfig(model="smollm2-135m", index="demo/index", seed=7)

    Attributes:
        model: The model to start from: a catalogue name, a folder or a hub id. [Quaere]
        index: Index of the documents to learn from (`quaere index`). [Quaere]
        search_url: URL of a search server to ask instead of the index itself, or of several that serve the same index,
            separated by commas; empty: the index. [Quaere]
        seed: Seed of everything that is drawn: a run's samples derive from it. [Quaere]
        prompts: How much prompts explain: full is for a model that has never seen the protocol, brief for one that was
            taught it. [Quaere]
        traced_episodes: Episodes of each update whose tokens are stored with their advantage and the learner's log-prob
            and entropy, for `quaere view`; they are scored once more for it. [Quaere]
    """

    model: str = ""
    index: str = ""
    search_url: str = ""  # a search server to ask instead of the index itself
    seed: int = 0
    prompts: PromptStyle = "full"
    traced_episodes: NonNegativeInt = 0
    trainer: TrainerSettings = TrainerSettings()
    adapter: AdapterSettings = AdapterSettings()
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    search: SearchSettings = SearchSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    health: HealthSettings = HealthSettings()

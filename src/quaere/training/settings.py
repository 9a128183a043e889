"""Settings that several recipes share; a recipe's config consists of these and its own.

Each is a frozen struct that refuses unknown fields, so that a mistyped key is an error and not silently ignored.
"""

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from quaere.chat.protocol import PromptStyle
from quaere.errors import BadInput
from quaere.objectives import Aggregation, Divergence
from quaere.policies.native.device import Precision
from quaere.rollout.episode import Limits
from quaere.setting_types import (
    Fraction,
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    Wait,
    check_settings,
)

# Values of every recipe's preset `demo`: two steps that a CPU makes in minutes.
TINY_RUN: dict[str, object] = {
    "prompts": "brief",
    "solver.steps": 2,
    "solver.batch": 2,
    "solver.attempts": 3,
    "solver.learner.learning_rate": 1e-4,
    "adapter.rank": 8,
    "checkpoints.every": 1,
    "checkpoints.keep": 2,
}
MIN_VALIDATION = 8
"""Minimum number of validation questions; fewer are not held back."""


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of device, precision and batching, and of a server that samples instead.

        EngineSettings(device="cuda", max_rows=256)

    Attributes:
        device: Where the model runs; auto takes a CUDA device if there is one. [Quaere]
        dtype: Precision of the sampling copy; trained weights are always float32. auto: bfloat16 on a GPU,
            float32 on a CPU, and in `fast` mode on a CPU whichever of both is faster there. int8 decodes on a
            CPU with weights rounded to bytes, which changes log-probs a little. [Quaere]
        base_dtype: Precision of the frozen weights under an adapter; auto as for `dtype`. [Quaere]
        mode: fast, or deterministic: the run repeats bit for bit on a CPU. [Quaere]
        max_rows: Episodes that are sampled at once. [Quaere]
        url: URL of a vLLM server that samples, such as http://127.0.0.1:8000/v1; gradients are computed here, and
            each new adapter is loaded there. Empty: episodes are sampled here. [Quaere]
        served_model: The server's name of the base model; empty: that of `model`, or the only one it has. [Quaere]
        folder: Folder for adapters that the server sees under the same path; empty: that of temporary files. [Quaere]
        patience_s: Seconds without an answer after which the server counts as lost and the run stops. [Quaere]
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Precision = "auto"
    base_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    mode: Literal["fast", "deterministic"] = "fast"
    max_rows: PositiveInt = 32
    url: str = ""
    served_model: str = ""
    folder: str = ""
    patience_s: PositiveFloat = 120.0


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
    """What happens to episodes in which a search failed: they are replayed and never rewarded.

        SearchSettings(replays=5, wait_s=4.0)

    Attributes:
        replays: How often such an episode is played again. [Quaere]
        wait_s: Seconds to wait before it is. [Quaere]
    """

    replays: NonNegativeInt = 5
    wait_s: Wait = 4.0


class CheckpointSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When checkpoints are written, in addition to one at the end of every phase, and how many are kept.

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
        """Raise BadInput for a number of questions from 1 to 7: too few to compare checkpoints by."""
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
        min_update_seen: Least share of the learner's change that must reach the sampler (`measure_update`).
            [Quaere]
        update_every: Steps between two measurements of that share; it is measured at a phase's last step too.
            0: never. [Quaere]
        zero_advantages: Alarm when no episode of a batch has an advantage. [Quaere]
        min_searches_kept: Share of a solver's searches in its first steps that must be left while its questions
            need as many (`measure_searches_kept`). [Quaere]
        max_abstained: Greatest share of answerable questions at which a solver that may abstain does so. [Quaere]
        min_refused: Least share of unanswerable questions at which it abstains. [Quaere]
        min_new_questions: Least number of kept questions in an iteration that no earlier iteration has. [Quaere]
        max_repeats: Greatest share of an iteration's questions that nearly repeat another or an earlier one. [Quaere]
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
    max_abstained: NonNegativeFloat = 0.5
    min_refused: NonNegativeFloat = 0.02
    min_new_questions: NonNegativeInt = 1
    max_repeats: NonNegativeFloat = 0.5
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
        search_url: What is searched instead of the index itself: the URL of a search server, or of several that serve
            the same index, separated by commas; mcp:COMMAND|URL; web:NAME[@URL]; record:FILE@PLACE; replay:FILE;
            empty: the index. [Quaere]
        seed: Seed of everything that is drawn: a run's samples derive from it. [Quaere]
        prompts: How much prompts explain: full is for a model that has never seen the protocol, brief for one that was
            taught it. [Quaere]
        traced_episodes: Episodes of each update whose tokens are stored with their advantage and the learner's log-prob
            and entropy, for `quaere view`; they are scored once more for it. [Quaere]
    """

    model: str = ""
    index: str = ""
    search_url: str = ""  # what is searched instead of the index itself
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


class LearnerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a gradient step. Defaults are those of Dr. Zero's solver.

    A batch is used for one update, in which every ratio of GRPO's clipped loss is 1: its gradient is the plain policy
    gradient, and there is nothing to clip.

        LearnerSettings(learning_rate=1e-6, kl_beta=0.001)

    Attributes:
        learning_rate: Learning rate of AdamW, constant after the warm-up. [Dr. Zero, Tables 5 and 6]
        betas: Decay of AdamW's two moments. [AdamW; Dr. Zero, Tables 5 and 6]
        weight_decay: Weight decay of AdamW. [AdamW; Dr. Zero, Tables 5 and 6]
        warmup_ratio: Share of a phase's steps over which the learning rate rises. [Dr. Zero, Tables 5 and 6]
        min_warmup_steps: Least number of steps over which it rises. [Quaere]
        max_grad_norm: Gradients are scaled down to this norm; 0: they are not. [Dr. Zero, Tables 5 and 6]
        kl_beta: Weight of the KL divergence from the model the run began with; 0: no KL term. [GRPO]
        kl: Estimator of the KL divergence: k1 the log-ratio, k2 half its square, k3 the unbiased one that is
            never negative. [GRPO]
        kl_flat: Include samples of zero advantage in the KL term. Without it they take part in no forward pass.
            The term is divided by the count of all samples either way. [Quaere]
        aggregation: token_mean: mean over the tokens of the batch; sequence_mean: over each episode's tokens,
            then over episodes; token_sum: sum over each episode's tokens, mean over episodes. [GRPO; EvalAct]
        micro_tokens: Tokens that are computed at a time; does not change the gradient. [Quaere]
        gradient_checkpointing: Compute activations twice rather than keep them; auto: on a GPU whose memory
            would not hold them. [Quaere]
        offload_optimizer: Keep the optimizer's moments in host memory. [Quaere]
        compiled: Fuse the small kernels of each layer with torch.compile; the first step waits for the
            compiler. [Quaere]
        keep_reference: Keep the model the run began with even where no KL term needs it (see
            `score_reference`). [DPO]
    """

    learning_rate: PositiveFloat = 1e-6
    betas: tuple[FractionBelowOne, FractionBelowOne] = (0.9, 0.999)
    weight_decay: NonNegativeFloat = 0.01
    warmup_ratio: Fraction = 0.03
    min_warmup_steps: NonNegativeInt = 0
    max_grad_norm: NonNegativeFloat = 1.0
    kl_beta: NonNegativeFloat = 0.0
    kl: Divergence = "k3"
    kl_flat: bool = False
    aggregation: Aggregation = "token_mean"
    micro_tokens: PositiveInt = 8192
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    offload_optimizer: bool = False
    compiled: bool = False
    keep_reference: bool = False

    @property
    def needs_reference(self) -> bool:
        """True if the reference model (the model the run started from) is needed."""
        return self.kl_beta > 0 or self.keep_reference

    def warmup_steps(self, num_steps: int) -> int:
        """Number of a phase's steps over which the learning rate rises, at most `num_steps`.

        LearnerSettings(warmup_ratio=0.03).warmup_steps(50) == 2
        LearnerSettings(warmup_ratio=0.1, min_warmup_steps=5).warmup_steps(20) == 5
        """
        return min(num_steps, max(math.ceil(self.warmup_ratio * num_steps), self.min_warmup_steps))


class HardeningConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Rewording of checked questions: which of them are reworded, and the gate that a rewording must pass.

        HardeningConfig(examiner="smollm2-135m", tries=5, min_read=0.6, max_known=0.2)

    Attributes:
        examiner: Model that answers in the gate; without one, the solver does. [Quaere]
        tries: Answers of the examiner with both passages, as many without, and as many to what a description
            means. [Quaere]
        min_read: Least share of right answers with both passages, and to what a description means. [Quaere]
        max_known: Greatest share of right answers without them. [Quaere]
        topk: Passages that a search with the question returns; the page that describes must be among them, but
            neither the page of the answer nor another passage with the answer. [Quaere]
        attempts: Attempts of the solver at each fact when an iteration begins: those it answers sometimes are
            reworded and join the curriculum. 0: none; all facts are reworded. [Quaere]
    """

    examiner: str = ""
    tries: PositiveInt = 5
    min_read: PositiveFraction = 0.6
    max_known: FractionBelowOne = 0.2
    topk: PositiveInt = 10
    attempts: NonNegativeInt = 0

    def check(self, task: str, given: str, *, again: bool) -> None:
        """Raise BadInput for values in conflict; `given` are the questions to reword, `generation.given`."""
        if not given:
            raise BadInput(f"{task} rewords checked questions: set generation.given=FILE as well")
        if again:
            raise BadInput(f"{task} takes facts anew in every iteration: leave out generation.given_again")
        if self.attempts == 1:
            raise BadInput("proposer.hardening.attempts=1 is all or none: set 0, or 2 or more")

    def plan(self, given: str) -> list[tuple[str, str]]:
        """The line of a dry run about the questions of `given`."""
        rated = f", after {self.attempts} attempts at each" if self.attempts else ""
        examined = f"at most {3 * self.tries + 1} single turns of {self.examiner or 'the solver'} for each"
        return [("hardening", f"questions of {given} are reworded{rated}; {examined}")]


# ------------------------------------------------------------- rules; bounds of single settings are part of their types


def check_run(config: RunConfig) -> None:
    """Check every setting against its type, and raise BadInput for off-policy sampling that is not asked for.

    check_run(DrZeroConfig(iterations=0))    # BadInput: iterations must be at least 1, not 0
    """
    check_settings(config)
    sampling = config.sampling
    for name, value in {"temperature": 1.0, "top_p": 1.0, "top_k": 0}.items():
        found = getattr(sampling, name)
        if found != value and not sampling.off_policy:
            raise BadInput(
                f"sampling.{name} must be {value:g} in training, not {found:g}: log-probs and gradients are those of "
                f"temperature 1 with nothing cut off",
                hint="--set sampling.off_policy=true trains on such samples without a correction",
            )


def check_limits(section: str, limits: Limits) -> None:
    """Raise BadInput for token limits that contradict each other; `section` is their name in the config."""
    if limits.thought_tokens >= limits.turn_tokens:
        raise BadInput(
            f"{section}.thought_tokens must be below turn_tokens ({limits.turn_tokens}), or a thought could take the "
            f"whole turn; it is {limits.thought_tokens}"
        )
    if limits.answer_turn and min(limits.answer_tokens, limits.turn_tokens) >= limits.sequence_tokens:
        raise BadInput(
            f"{section}.answer_tokens must be below sequence_tokens ({limits.sequence_tokens}), or no passage "
            f"could be shown; it is {limits.answer_tokens}"
        )


def check_hops(hop_ratio: Sequence[int], limits: Limits, *, document: bool) -> None:
    """Raise BadInput if the hop ratio asks for more hops than a proposer can reach under its limits.

    Each hop is searched for after the one before it is known, so each takes a turn, and the proposal one more. With a
    document, the first hop is in the document and needs no search.

        check_hops((0, 0, 0, 0, 0, 1), Limits(max_turns=5), document=True)    # BadInput: 6 hops take 6 turns
    """
    hops = max(number for number, weight in enumerate(hop_ratio, start=1) if weight)
    num_searches = hops - 1 if document else hops
    for name, allowed, needed in (
        ("max_turns", limits.max_turns, num_searches + 1),
        ("max_searches", limits.max_searches, num_searches),
    ):
        if allowed < needed:
            raise BadInput(
                f"proposer.hop_ratio asks for {hops} hops, which take {num_searches} searches in {num_searches + 1} "
                f"turns, and proposer.limits.{name} is {allowed}",
                hint=f"--set proposer.limits.{name}={needed}",
            )

"""Supervised learning from demonstrations: with advantage 1 for every model token, the policy gradient is imitation.

    learner = Learner(model, imitation(learning_rate=1e-4))
    taught = teach(learner, episodes, epochs=2, batch=16, seed=0)     # taught.loss_before, taught.loss_after

The model, or its adapter, is saved as a Hugging Face folder with `warmup.json`, which records the warm-up.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quaere.disk import new_folder, refuse_taken, write_file
from quaere.errors import BadInput
from quaere.grouping import group_by
from quaere.policies.catalogue import lasting_name
from quaere.records import Episode
from quaere.rollout.policy import derive_seed
from quaere.training.batches import Sample, make_sample
from quaere.training.learner import Learner, save_model, save_weights
from quaere.training.progress import stop_requested
from quaere.training.settings import LearnerSettings
from quaere.warmup.dialect_check import Learnt

HELD_OUT = 0.1
_SCORED_AT_ONCE = 16  # episodes, between which a stop is noticed
MANIFEST = "warmup.json"


class TeachingStep(Struct, frozen=True):
    """One training step; `loss` is in nats per model token, before the step.

    TeachingStep(step=3, num_steps=46, epoch=0, loss=1.62, num_tokens=21400, tokens_per_s=812.0)
    """

    step: int
    num_steps: int
    epoch: int
    loss: float
    num_tokens: int
    tokens_per_s: float


class Taught(Struct, frozen=True):
    """The result of `teach`; both losses are on the held-out episodes, in nats per model token.

    Taught(num_steps=46, num_learnt=360, num_held_out=40, loss_before=2.31, loss_after=0.38)

    `stopped` is true if a stop was requested before the last step (`training/progress.py`).
    """

    num_steps: int
    num_learnt: int
    num_held_out: int
    loss_before: float
    loss_after: float
    stopped: bool = False


def imitation(learning_rate: float, micro_tokens: int = 8192) -> LearnerSettings:
    """Learner settings for imitation."""
    return LearnerSettings(learning_rate=learning_rate, aggregation="token_mean", micro_tokens=micro_tokens)


def count_steps(num_episodes: int, epochs: int, batch: int) -> int:
    """The number of steps that `teach` will take.

    count_steps(400, epochs=2, batch=16) == 46
    """
    num_learnt = num_episodes - count_held_out(num_episodes)
    return epochs * -(-num_learnt // batch)


def count_held_out(num_episodes: int) -> int:
    """The number of episodes that `teach` holds out."""
    return max(1, round(HELD_OUT * num_episodes))


def split_held_out(episodes: Sequence[Episode], seed: int) -> tuple[list[Episode], list[Episode]]:
    """The held-out episodes and the others; a protocol's share of both is its share of all, up to rounding.

    The split depends only on positions, protocols and seed.
    """
    mixed = spread_evenly(episodes, derive_seed(seed, "held out"))
    num_held_out = count_held_out(len(mixed))
    return mixed[:num_held_out], mixed[num_held_out:]


def spread_evenly(episodes: Sequence[Episode], seed: int) -> list[Episode]:
    """The episodes in a stratified random order: every stretch has each protocol in its overall share, up to rounding.

    In a purely random order the held-out tenth or the last batches may have few episodes of a dialect, or none.
    """
    draw = random.Random(seed)
    groups = group_by(draw.sample(episodes, len(episodes)), lambda episode: episode.protocol)
    placed: list[tuple[float, float, Episode]] = []
    for group in groups.values():
        # Each group at equal distances from a random start, so that groups of equal size are not in one fixed order.
        start = draw.random()
        placed += [((place + start) / len(group), draw.random(), episode) for place, episode in enumerate(group)]
    return [episode for _, _, episode in sorted(placed, key=lambda item: item[:2])]


def teach(
    learner: Learner,
    episodes: Sequence[Episode],
    *,
    epochs: int,
    batch: int,
    seed: int = 0,
    report: Callable[[TeachingStep], None] = lambda step: None,
) -> Taught:
    """Train on the episodes for `epochs` epochs, in batches with every protocol in its share; a tenth is held out.

    A requested stop ends training after the current step; before the first step KeyboardInterrupt is raised, because
    there is nothing to keep.
    """
    if len(episodes) < 2:
        raise BadInput(f"teaching needs at least 2 episodes, one of them held out, and there are {len(episodes)}")
    if epochs < 1 or batch < 1:
        raise BadInput(f"epochs and batch must be at least 1, not {epochs} and {batch}")
    held_out, learnt = split_held_out(episodes, seed)
    unseen = [make_sample(episode, 1.0) for episode in held_out]
    loss_before = measure_loss(learner, unseen, _refuse_stopped)
    _refuse_stopped()
    step, num_steps = 0, count_steps(len(episodes), epochs, batch)
    for epoch, taken in _batches(learnt, epochs, batch, seed):
        started = time.perf_counter()
        chosen = [make_sample(episode, 1.0) for episode in taken]
        loss = learner.step(chosen)["loss/policy"]
        step += 1
        num_tokens = sum(len(sample.token_ids) for sample in chosen)
        pace = num_tokens / (time.perf_counter() - started)
        report(TeachingStep(step, num_steps, epoch, loss, num_tokens, pace))
        if stop_requested():
            break
    return Taught(step, len(learnt), len(held_out), loss_before, measure_loss(learner, unseen), step < num_steps)


def _batches(episodes: Sequence[Episode], epochs: int, size: int, seed: int) -> Iterator[tuple[int, list[Episode]]]:
    """All batches as (epoch, episodes); every epoch has a new order."""
    for epoch in range(epochs):
        mixed = spread_evenly(episodes, derive_seed(seed, "epoch", epoch))
        for first in range(0, len(mixed), size):
            yield epoch, mixed[first : first + size]


def measure_loss(learner: Learner, samples: Sequence[Sample], check: Callable[[], None] = lambda: None) -> float:
    """The mean negative log-prob of the samples' model tokens, in nats; `check` is called now and then."""
    scores: list[float] = []
    for first in range(0, len(samples), _SCORED_AT_ONCE):
        check()
        scores += [value for row in learner.score(samples[first : first + _SCORED_AT_ONCE]) for value in row]
    return -sum(scores) / len(scores)


def _refuse_stopped() -> None:
    if stop_requested():
        raise KeyboardInterrupt


# ------------------------------------------------------------------------------------------------- model folder


class WarmupManifest(Struct, frozen=True):
    """Content of `warmup.json`, which marks a model that learnt from demonstrations: no run from it is data-free.

    WarmupManifest(recipe="drzero", data="oracle", teacher="", base_model="smollm2-135m", ...)
    """

    recipe: str
    data: Literal["oracle", "teacher", "documents"]
    teacher: str  # the endpoint's name; "" for the oracle
    base_model: str
    roles: tuple[str, ...]
    style: str
    hop_ratio: tuple[int, ...]  # of a proposer's lessons, in Dr. Zero's count
    world_family: str
    world_seed: int
    num_articles: int
    num_episodes: int
    num_dropped: dict[str, int]  # episodes that were played and not kept, by reason
    num_held_out: int
    num_steps: int
    epochs: int
    batch: int
    learning_rate: float
    lora_rank: int
    seed: int
    loss_before: float
    loss_after: float
    # Files of models taught before there were several dialects lack the fields below.
    also: tuple[str, ...] = ()  # further recipes whose dialect had an equal share of the episodes
    evidence: bool = False  # true if it was taught to quote the sentence it relies on
    fact_ratio: tuple[int, ...] = ()  # of a solver's lessons; if empty, `hop_ratio` was the ratio of facts too
    lesson_ratio: tuple[int, ...] = ()  # of score's reports, rubrics and assessments; empty if it was not taught score
    learnt: dict[str, Learnt] = {}  # results on held-out tasks by dialect and role, if several dialects were taught
    stopped: bool = False  # by the user, after `num_steps` of more steps
    abstention: float = 0.0  # share of a solver's episodes that abstain; above 0, its prompts allow it
    ignore_rubrics: bool = False  # score's reports did not follow the rubrics they were shown
    scores_only: bool = False  # a solver's own attempts at questions on documents taught only the scores of searches
    shuffle_scores: bool = False  # these scores were those of other searches, drawn at random


def check_target(out: Path, force: bool) -> None:
    """Raise `BadInput` if `out` exists and is not empty; with `force`, an earlier warm-up may be replaced."""
    refuse_taken(out, "a warmed-up model", is_ours=(out / MANIFEST).is_file(), force=force)


def save_folder(model: Any, tokenizer: Any, out: Path, manifest: WarmupManifest, *, force: bool = False) -> None:
    """Write model, tokenizer and manifest to a temporary folder, then rename it to `out`: all or nothing."""
    check_target(out, force)
    with new_folder(out) as folder:
        save_model(model, folder)
        tokenizer.save_pretrained(folder)
        write_manifest(manifest, folder)


def save_adapter(
    model: Any, adapter: str, out: Path, manifest: WarmupManifest, *, dtype: str = "float32", force: bool = False
) -> None:
    """Like `save_folder` for an adapter alone: its tensors and the name of its base model, whose tokenizer is used."""
    check_target(out, force)
    model.peft_config[adapter].base_model_name_or_path = lasting_name(manifest.base_model)
    with new_folder(out) as folder:
        save_weights(model, folder, adapter, dtype)
        write_manifest(manifest, folder)


def write_manifest(manifest: WarmupManifest, folder: Path) -> None:
    """Write or replace `warmup.json` in a folder, atomically."""
    write_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")

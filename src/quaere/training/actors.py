"""Several roles over one sampling copy of the model; a role's weights are copied into it before it samples.

    actors = open_actors(RunConfig(model="smollm2-135m"), ("proposer", "solver"))
    played = await actors.play("proposer", jobs, searcher, Limits(), seed=7)
    learner = actors.learner("proposer", LearnerSettings(), num_steps=50)

With adapters, the roles share one frozen base and have one adapter each; without, each role has its own weights. The
sampling copy exists once in either case, so a second role needs no second engine. `RolePlay` is what these have in
common with roles on a server (`remote_actors.py`); `served_actors.py` has roles that learn here and sample on one.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, structs
from torch import Tensor

from quaere.chat.renderer import Renderer
from quaere.disk import link_file
from quaere.errors import TrainingStopped
from quaere.policies.catalogue import ModelPath, resolve_model
from quaere.policies.native.weights import copy_rounded
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.search.searcher import Searcher
from quaere.training.batches import plain_model
from quaere.training.learner import Learner, load_weights, save_weights
from quaere.training.settings import LearnerSettings, RunConfig
from quaere.training.tinker_learner import TinkerLearner


class Played(Struct, frozen=True):
    """Episodes in the order of their jobs, and the attempts in which a search failed (`spoiled`).

    An episode whose last replay failed as well is in both lists.

        Played(episodes=[Episode(...)], spoiled=[])
    """

    episodes: list[Episode]
    spoiled: list[Episode]


class RolePlay(ABC):
    """Several roles that share one policy; each has weights that are trained, saved and loaded separately."""

    def __init__(self, policy: TokenPolicy, roles: Iterable[str], config: RunConfig | None = None) -> None:
        config = config or RunConfig()
        self.policy = policy
        self.sampling = config.sampling
        self.search = config.search
        self.concurrency = config.engine.max_rows  # one slot per episode: with more, contexts would be recomputed
        self.on_progress: Callable[..., None] = lambda role, **amounts: None  # takes the amounts of `StepProgress`
        self._speaking = ""  # the role whose weights the policy has
        self._saved: Path | None = None  # checkpoint with the current weights of all roles not in `_changed`
        self.roles = tuple(roles)
        self._changed = set(roles)

    @abstractmethod
    def learner(self, role: str, settings: LearnerSettings, num_steps: int) -> Learner | TinkerLearner:
        """A new learner of the role's weights, without optimizer moments and at the start of its schedule."""

    @abstractmethod
    def _speak(self, role: str) -> None:
        """Load the role's weights into the policy."""

    @abstractmethod
    def _save(self, folder: Path, role: str) -> None:
        """Write the role's weights to this folder of its own."""

    @abstractmethod
    def _load(self, folder: Path, role: str) -> None:
        """Load the role's weights from the folder of all roles."""

    def become(self, role: str) -> None:
        """Load the role's weights into the policy, unless it already has them. No episode may be in progress."""
        if self._speaking != role:
            self._speak(role)
            self._speaking = role

    def save(self, folder: Path) -> None:
        """Write every role's weights to a folder named after the role, in Hugging Face layout.

        Weights that did not change since the last checkpoint are hard-linked from it instead of written again.
        """
        for role in self.roles:
            if self._saved is None or role in self._changed:
                self._save(folder / role, role)
                continue
            (folder / role).mkdir(parents=True)
            for file in (self._saved / role).iterdir():
                link_file(file, folder / role / file.name)

    def load(self, folder: Path) -> None:
        """Load the weights of every role from a folder that `save` wrote."""
        for role in self.roles:
            self._load(folder, role)
        self._speaking = ""
        self.saved_at(folder)

    def load_role(self, folder: Path, role: str) -> None:
        """Load the weights of one role from a folder that `save` wrote."""
        self._load(folder, role)
        self.weights_changed(role)

    def weights_changed(self, role: str) -> None:
        """Mark the role's weights as changed, so that the sampler and the next checkpoint get the new ones."""
        self._speaking = ""
        self._changed.add(role)

    def saved_at(self, folder: Path) -> None:
        """Record that the checkpoint in `folder` has the current weights of all roles, for `save` to link to."""
        self._saved = folder
        self._changed.clear()

    async def play(
        self,
        role: str,
        jobs: Sequence[Job],
        searcher: Searcher,
        limits: Limits,
        *,
        seed: int,
        params: SamplingParams | None = None,
    ) -> Played:
        """Run an episode per job with the role's weights; episodes in which a search failed are replayed after a pause.

        Without `params`, the sampling settings of the run are used. Raises TrainingStopped if every episode failed.
        """
        self.become(role)
        drawn = self.sampling
        params = params or SamplingParams(temperature=drawn.temperature, top_p=drawn.top_p, top_k=drawn.top_k)
        episodes = await self._run(role, jobs, searcher, limits, seed, params)
        spoiled: list[Episode] = []
        for replay in range(1, self.search.replays + 2):
            broken = [number for number, episode in enumerate(episodes) if episode.search_failed]
            spoiled += [episodes[number] for number in broken]
            if not broken or replay > self.search.replays:
                break
            await asyncio.sleep(self.search.wait_s)
            again = [_again(jobs[number], replay, derive_seed(seed, number, "replay", replay)) for number in broken]
            replayed = await self._run(role, again, searcher, limits, seed, params)
            for number, episode in zip(broken, replayed, strict=True):
                episodes[number] = episode
        # An engine that fails on every episode would otherwise look like a batch without reward.
        if episodes and all(episode.end == "failed" for episode in episodes):
            failure = episodes[0].turns[-1].failure
            raise TrainingStopped(f"every episode failed: {failure.message if failure else 'unknown cause'}")
        return Played(episodes, spoiled)

    async def _run(
        self, role: str, jobs: Sequence[Job], searcher: Searcher, limits: Limits, seed: int, params: SamplingParams
    ) -> list[Episode]:
        started, amounts = time.perf_counter(), {"num_done": 0, "num_all": len(jobs), "num_tokens": 0}

        def count(name: str, number: int) -> None:
            amounts[name] += number
            self.on_progress(role, **amounts, seconds=time.perf_counter() - started)

        count("num_done", 0)
        how: dict[str, Any] = {"seed": seed, "params": params, "concurrency": self.concurrency}
        how["on_episode"] = lambda episode: count("num_done", 1)
        # By the turn: episodes that run side by side end late and together, and a rate is wanted before that.
        how["on_turn"] = lambda turn: count("num_tokens", turn.num_tokens)
        return [episode async for episode in run_many(self.policy, jobs, searcher, limits, **how)]


def _again(job: Job, replay: int, seed: int) -> Job:
    """A copy of the job for replay number `replay`, with its own episode id and this seed.

    The caller derives the seed from the job's number. If it derived from the place among the replayed jobs, replaying
    attempt 3 alone would repeat attempt 0.
    """
    return structs.replace(job, episode_id=f"{job.episode_id or job.task.id}~{replay}", seed=seed)


class Actors(RolePlay):
    """The models of all roles, and the one sampler they share."""

    def __init__(
        self,
        policy: TokenPolicy,
        models: dict[str, Any],
        config: RunConfig | None = None,
        *,
        shared: bool,
        load_reference: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(policy, models, config)
        self.models = models
        self._shared = shared  # one model with an adapter per role
        self._load_reference = load_reference  # loads the model all roles started from

    def _adapter(self, role: str) -> str:
        """Name of the role's adapter; "" if the role has its own model."""
        return role if self._shared else ""

    def learner(self, role: str, settings: LearnerSettings, num_steps: int) -> Learner:
        """A new learner of the role's weights, without optimizer moments and at the start of its schedule.

        The reference model of a KL term is the model the run started from (the base, with adapters), so a resumed run
        has the same reference as an uninterrupted one.
        """
        load = self._load_reference if settings.needs_reference and not self._shared else None
        return Learner(
            self.models[role],
            settings,
            adapter=self._adapter(role),
            warmup_steps=settings.warmup_steps(num_steps),
            reference=load() if load else None,
        )

    def _speak(self, role: str) -> None:
        sampler: Any = self.policy.sampler
        copy_weights(self.models[role], sampler.engine.model, self._adapter(role))
        sampler.weights_changed()

    def _save(self, folder: Path, role: str) -> None:
        save_weights(self.models[role], folder, self._adapter(role))
        if not self._shared:
            self.policy.renderer.tokenizer.save_pretrained(folder)

    def _load(self, folder: Path, role: str) -> None:
        load_weights(self.models[role], folder / role, self._adapter(role))


def open_actors(config: RunConfig, roles: Sequence[str], report: Callable[[str], None] = lambda line: None) -> Actors:
    """Load the model once for sampling, and for training once (with adapters) or once per role."""
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.sampler import NativeSampler

    engine = config.engine
    device = choose_device(engine.device, report)
    found = resolve_model(config.model, report=report)
    renderer = open_renderer(found, report)
    sampling_copy = load_model(found, device, choose_dtype(engine.dtype, device, engine.mode))
    sampler = NativeSampler.over(
        sampling_copy, renderer.decode, name=config.model, mode=engine.mode, max_rows=engine.max_rows
    )
    if sampler.engine.note:
        report(sampler.engine.note)
    return Actors(
        TokenPolicy(sampler, renderer),
        load_trained(config, roles, found, device),
        config,
        shared=bool(config.adapter.rank),
        load_reference=lambda: load_model(found, device, "float32", packed=False),
    )


def open_renderer(found: ModelPath, report: Callable[[str], None]) -> Renderer:
    """The renderer of a model's tokenizer; `report` receives its note, if it has one."""
    from quaere.policies.model_folders import load_tokenizer

    renderer = Renderer(load_tokenizer(found.tokenizer))
    if renderer.note:
        report(renderer.note)
    return renderer


def load_trained(config: RunConfig, roles: Sequence[str], found: ModelPath, device: str) -> dict[str, Any]:
    """The model to train, by role: one with an adapter per role, or without adapters one for each."""
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.device import choose_dtype

    if config.adapter.rank:
        dtype = choose_dtype(config.engine.base_dtype, device)
        base = load_model(found, device, dtype, packed=False, as_base=True)
        from quaere.training.adapters import add_adapters

        torch.manual_seed(config.seed)  # adapters are initialised at random
        return dict.fromkeys(roles, add_adapters(base, roles, config.adapter))
    first = load_model(found, device, "float32", packed=False)
    # A copy in memory takes a fraction of what a second reading of the files does.
    return {role: first if role == roles[0] else deepcopy(first) for role in roles}


# ------------------------------------------------------------------------------------ the weights of the sampling copy


@torch.no_grad()  # type: ignore[untyped-decorator]
def copy_weights(source: Any, target: Any, adapter: str = "") -> None:
    """Copy a learner's weights into a sampling copy of the same architecture, in place and in the copy's dtype.

    An adapter is added to its base weights in float32, so the copy needs no adapter. A bfloat16 copy is rounded without
    bias (`copy_rounded`). The copy's tensors keep their addresses, which CUDA graphs rely on.
    """
    merged = merged_weights(source, adapter)
    for name, weight in target.named_parameters():
        copy_rounded(weight, merged[name](), name)


def merged_weights(model: Any, adapter: str = "") -> dict[str, Callable[[], Tensor]]:
    """For each weight, by name, a function that computes it with the adapter added.

    Functions, because all merged weights at once may not fit into memory.
    """
    weights: dict[str, Callable[[], Tensor]] = {}
    for name, module in plain_model(model).named_modules():
        prefix = f"{name}." if name else ""
        for own, weight in module.named_parameters(recurse=False):
            weights[prefix + own] = partial(_same, weight)
        if hasattr(module, "get_delta_weight"):
            # A LoRA layer: its base weight is one level below, under `base_layer`.
            alone = partial(_same, module.base_layer.weight)
            weights[f"{name}.weight"] = partial(_add_adapter, module, adapter) if adapter else alone
            if getattr(module.base_layer, "bias", None) is not None:
                weights[f"{name}.bias"] = partial(_same, module.base_layer.bias)
    return weights


def _same(weight: Tensor) -> Tensor:
    return weight


def _add_adapter(module: Any, adapter: str) -> Tensor:
    total: Tensor = module.base_layer.weight.float() + module.get_delta_weight(adapter).float()
    return total

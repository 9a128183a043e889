"""Several roles over one sampling copy of the model; a role's weights are copied into it before it samples.

    actors = open_actors("smollm2-135m", ("proposer", "solver"), adapter=AdapterSettings(rank=16))
    played = await actors.play("proposer", jobs, searcher, Limits(), seed=7)
    learner = actors.learner("proposer", LearnerSettings(), num_steps=50)

With adapters, the roles share one frozen base and have one adapter each; without, each role has its own weights. The
sampling copy exists once in either case, so a second role needs no second engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from quaere.rollout.policy import TokenPolicy
from quaere.training.adapters import add_adapters, copy_weights, load_weights, save_weights
from quaere.training.learner import Learner
from quaere.training.learner_settings import LearnerSettings
from quaere.training.role_play import RolePlay
from quaere.training.settings import AdapterSettings, EngineSettings, SamplingSettings, SearchSettings


class Actors(RolePlay):
    """The models of all roles, and the one sampler they share."""

    def __init__(
        self,
        policy: TokenPolicy,
        models: dict[str, Any],
        *,
        shared: bool,
        sampling: SamplingSettings | None = None,
        search: SearchSettings | None = None,
        concurrency: int = 32,
        load_reference: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(policy, models, sampling=sampling, search=search, concurrency=concurrency)
        self.models = models
        self._shared = shared  # one model with an adapter per role
        self._load_reference = load_reference  # loads the model all roles started from

    def adapter_of(self, role: str) -> str:
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
            adapter=self.adapter_of(role),
            warmup_steps=settings.warmup_steps(num_steps),
            reference=load() if load else None,
        )

    def become(self, role: str) -> None:
        """Copy the role's weights into the sampler, if they are not there. No episode may be in progress."""
        if self._speaking != role:
            sampler: Any = self.policy.sampler
            copy_weights(self.models[role], sampler.engine.model, self.adapter_of(role))
            sampler.weights_changed()
            self._speaking = role

    # ------------------------------------------------------------------------------------------------- save and load

    def save(self, folder: Path) -> None:
        """Write every role's weights to a folder named after the role, in Hugging Face layout.

        Weights that did not change since the last checkpoint are hard-linked from it instead of written again.
        """
        for role, model in self.models.items():
            if self.link_unchanged(role, folder):
                continue
            save_weights(model, folder / role, self.adapter_of(role))
            if not self._shared:
                self.policy.renderer.tokenizer.save_pretrained(folder / role)

    def load(self, folder: Path) -> None:
        """Load what `save` wrote."""
        for role, model in self.models.items():
            load_weights(model, folder / role, self.adapter_of(role))
        self._speaking = ""
        self.saved_at(folder)

    def load_role(self, folder: Path, role: str) -> None:
        """Load the weights of one role only."""
        load_weights(self.models[role], folder / role, self.adapter_of(role))
        self.weights_changed(role)


def open_actors(
    model: str,
    roles: Sequence[str],
    *,
    engine: EngineSettings | None = None,
    adapter: AdapterSettings | None = None,
    sampling: SamplingSettings | None = None,
    search: SearchSettings | None = None,
    seed: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> Actors:
    """Load the model once for sampling, and for training once (with adapters) or once per role."""
    import torch

    from quaere.chat.renderer import Renderer
    from quaere.policies.catalogue import resolve_model
    from quaere.policies.model_folders import load_tokenizer
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.sampler import NativeSampler

    engine, adapter = engine or EngineSettings(), adapter or AdapterSettings()
    device = choose_device(engine.device, report)
    found = resolve_model(model, report=report)
    renderer = Renderer(load_tokenizer(found.tokenizer))
    if renderer.note:
        report(renderer.note)
    sampling_copy = load_model(found, device, choose_dtype(engine.dtype, device, engine.mode))
    sampler = NativeSampler.over(sampling_copy, renderer.decode, name=model, mode=engine.mode, max_rows=engine.max_rows)
    if adapter.rank:
        base = load_model(found, device, choose_dtype(engine.base_dtype, device), packed=False, as_base=True)
        torch.manual_seed(seed)  # adapters are initialised at random
        shared = add_adapters(base, roles, adapter)
        models = dict.fromkeys(roles, shared)
    else:
        first = load_model(found, device, "float32", packed=False)
        # A copy in memory takes a fraction of what a second reading of the files does.
        models = {role: first if role == roles[0] else deepcopy(first) for role in roles}
    return Actors(
        TokenPolicy(sampler, renderer),
        models,
        shared=bool(adapter.rank),
        sampling=sampling,
        search=search,
        concurrency=engine.max_rows,  # one slot per episode: with more, contexts would be evicted and recomputed
        load_reference=lambda: load_model(found, device, "float32", packed=False),
    )

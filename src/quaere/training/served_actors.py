"""Several roles that learn here and are sampled by a vLLM server.

    actors = open_served_actors(config, ("proposer", "solver"), print)      # config.engine.url is the server's

Before a role plays, its adapter is written to a folder that the server sees, and loaded there under a new name. So
episodes are those of the current weights, and what the learner needs to know of the sampler is what it needs to know of
the one in this process: how far its log-probs are from the learner's own (`mismatch/mean`). That the server has the
same base model is checked once, by its log-probs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quaere.errors import BadInput, TrainingStopped
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.device import choose_device
from quaere.policies.sampler import SamplingParams, StopStrings
from quaere.policies.vllm import VllmSampler, VllmServer, read_turn, turn_request
from quaere.rollout.policy import TokenPolicy
from quaere.training.actors import Actors, load_trained, open_renderer
from quaere.training.engine_check import as_sample
from quaere.training.learner import save_weights
from quaere.training.remote_actors import choose_base
from quaere.training.settings import LearnerSettings, RunConfig

_PROBE = "The Oss rises in the hills and runs past seven bridges to the sea; the oldest of them was built in 1702."


class ServedActors(Actors):
    """The adapters of all roles, and the server that samples from them."""

    def __init__(self, policy: TokenPolicy, models: dict[str, Any], config: RunConfig) -> None:
        super().__init__(policy, models, config, shared=True)
        self._stale = set(models)  # roles whose weights the server does not have

    def weights_changed(self, role: str) -> None:
        """Mark the role's weights as changed, so that the server and the next checkpoint get the new ones."""
        super().weights_changed(role)
        self._stale.add(role)

    def _speak(self, role: str) -> None:
        sampler: Any = self.policy.sampler
        write = partial(save_weights, self.models[role], adapter=role)
        sampler.use(role, write if role in self._stale else None)
        self._stale.discard(role)

    def _load(self, folder: Path, role: str) -> None:
        super()._load(folder, role)
        self._stale.add(role)


def open_served_actors(config: RunConfig, roles: Sequence[str], report: Callable[[str], None]) -> ServedActors:
    """Load the model for training, with an adapter per role, and connect to the server that samples."""
    engine = config.engine
    device = choose_device(engine.device, report)
    found = resolve_model(config.model, report=report)
    renderer = open_renderer(found, report)
    server = VllmServer(engine.url, patience_s=engine.patience_s)
    base, positions = find_base(server, config)
    folder = Path(engine.folder or tempfile.gettempdir())
    sampler = VllmSampler(server, base, renderer.decode, folder=folder, max_positions=positions)
    report(f"sampling on {server.url}: adapters of {base}, read from {folder}")
    actors = ServedActors(TokenPolicy(sampler, renderer), load_trained(config, roles, found, device), config)
    _check_same_model(actors, sampler, renderer.encode_parts((_PROBE,)), config)
    return actors


def check_engine(config: RunConfig) -> None:
    """Raise BadInput if the config asks for what a sampling server cannot do, or if the server lacks what is needed."""
    engine = config.engine
    if not engine.url:
        for name in ("served_model", "folder"):
            if getattr(engine, name):
                raise BadInput(f"engine.{name} is for a server that samples", hint="--set engine.url=URL")
        return
    if config.trainer.kind != "local":
        raise BadInput("a Tinker server samples itself, and engine.url is set", hint="--set engine.url=")
    if not engine.url.startswith(("http://", "https://")):
        raise BadInput(f"engine.url must begin with http:// or https://, not {engine.url}")
    if not config.adapter.rank:
        raise BadInput("a server that samples is given adapters, and adapter.rank is 0", hint="--set adapter.rank=16")
    if engine.mode == "deterministic":
        raise BadInput("a server's samples do not repeat bit for bit", hint="--set engine.mode=fast")
    server = VllmServer(engine.url)
    try:
        base, _ = find_base(server, config)
        server.require_adapters()
        probe = SamplingParams(max_tokens=1)
        read_turn(server.ask("POST", "completions", turn_request(base, (0,), probe)), (0,), probe, StopStrings(str))
    except TrainingStopped as error:
        raise BadInput(str(error), hint=error.hint) from error


def find_base(server: VllmServer, config: RunConfig) -> tuple[str, int]:
    """The server's name of the base model, and the longest context that it takes."""
    offered = {one.id: one for one in server.models() if one.parent is None}
    how = {"who": f"the engine at {server.url}", "setting": "engine.served_model"}
    base = choose_base(list(offered), config.model, config.engine.served_model, **how)
    return base, offered[base].max_model_len or 1 << 20


def _check_same_model(actors: ServedActors, sampler: VllmSampler, token_ids: Sequence[int], config: RunConfig) -> None:
    """Raise BadInput if the server's base model gives other log-probs than the one that is trained.

    New adapters add nothing, so at the start every role is the base.
    """
    (own,) = actors.learner(actors.roles[0], LearnerSettings(), 1).score([as_sample(token_ids)])
    gap = sum(abs(one - other) for one, other in zip(own, sampler.score(token_ids)[1:], strict=True)) / len(own)
    most = config.health.max_mismatch or 1.0
    if gap > most:
        raise BadInput(
            f"the engine's model {sampler.name} is not {config.model}: log-probs differ by {gap:.2f} on average",
            hint="serve the same weights; those of a warmed-up adapter: quaere export RUN --merge --out DIR",
        )

"""Several roles as adapters of one base on a Tinker server.

    actors = open_remote_actors(config, ("proposer", "solver"), print)

Sampling and gradients are the server's; episodes, searches, seeds and checkpoints are as ever. A checkpoint has each
role's adapter, downloaded, and the name of the state that the server saved with it, from which a resumed run goes on.
States that no checkpoint names any longer are deleted on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quaere.errors import BadInput
from quaere.policies.tinker import TinkerSampler, TinkerService
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.training.learner_settings import LearnerSettings
from quaere.training.remote.remote_role import STATE_FILE, RemoteRole, SavedState, read_state
from quaere.training.remote.tinker_learner import TinkerLearner
from quaere.training.role_play import RolePlay
from quaere.training.settings import RunConfig


class RemoteActors(RolePlay):
    """The roles' adapters on the server, and the sampler they share."""

    def __init__(
        self, policy: TokenPolicy, roles: dict[str, RemoteRole], config: RunConfig, reference: TinkerSampler, base: str
    ) -> None:
        super().__init__(
            policy, roles, sampling=config.sampling, search=config.search, concurrency=config.engine.max_rows
        )
        self._roles = roles
        self._trainer = config.trainer
        self._reference = reference
        self._base = base  # the base model on this machine, for the adapters in checkpoints
        self._samplers: dict[str, Any] = {}  # sampling clients with the current weights, by role
        self._states: set[str] = set()  # states on the server that this process saved or continued from

    def learner(self, role: str, settings: LearnerSettings, num_steps: int) -> TinkerLearner:
        """A new learner of the role's adapter, without optimizer moments and at the start of its schedule."""
        self._roles[role].drop_moments()
        self._samplers.pop(role, None)
        self._speaking = ""
        return TinkerLearner(
            self._roles[role],
            settings,
            reference=self._reference,
            warmup_steps=settings.warmup_steps(num_steps),
            trainer=self._trainer,
        )

    def weights_changed(self, role: str) -> None:
        """Mark the role's weights as changed, so that the sampler and the next checkpoint get the new ones."""
        super().weights_changed(role)
        self._samplers.pop(role, None)

    def become(self, role: str) -> None:
        """Let the sampler draw from the role's current weights."""
        if self._speaking == role:
            return
        if role not in self._samplers:
            self._samplers[role] = self._roles[role].open_sampler()
        sampler: Any = self.policy.sampler
        sampler.use(self._samplers[role])
        self._speaking = role

    # ------------------------------------------------------------------------------------------------- save and load

    def save(self, folder: Path) -> None:
        """Download every role's adapter to a folder named after the role, with the state the server saved."""
        for name, role in self._roles.items():
            if self.link_unchanged(name, folder):
                continue
            role.download(folder / name, self._base)
            saved = SavedState(role.save_state(), role.service.url)
            self._states.add(saved.path)
            (folder / name / STATE_FILE).write_bytes(msgspec.json.encode(saved))

    def saved_at(self, folder: Path) -> None:
        """Record the checkpoint, and delete the states on the server that no checkpoint names."""
        super().saved_at(folder)
        named = _named_states(folder.parent)
        service = next(iter(self._roles.values())).service
        for path in self._states - named:
            service.delete_saved(path)
        self._states &= named

    def load(self, folder: Path) -> None:
        """Continue every role from the state that this checkpoint names."""
        for name in self._roles:
            self._go_back(folder, name)
        self._states |= _named_states(folder.parent)  # for when their checkpoints go
        self._speaking = ""
        self.saved_at(folder)

    def load_role(self, folder: Path, role: str) -> None:
        """Continue one role from the state that this checkpoint names."""
        self._go_back(folder, role)
        self.weights_changed(role)

    def _go_back(self, folder: Path, role: str) -> None:
        saved = read_state(folder / role)
        self._states.add(saved.path)
        self._roles[role].go_back(saved.path)
        self._samplers.pop(role, None)


def _named_states(checkpoints: Path) -> set[str]:
    """Paths of the states that a run's checkpoints name."""
    return {read_state(file.parent).path for file in checkpoints.glob(f"*/*/{STATE_FILE}")}


def open_remote_actors(config: RunConfig, roles: Sequence[str], report: Callable[[str], None]) -> RemoteActors:
    """Connect to the server and prepare an adapter per role; weights stay on the server."""
    from quaere.chat.renderer import Renderer
    from quaere.policies.catalogue import resolve_model
    from quaere.policies.model_folders import load_tokenizer

    trainer = config.trainer
    found = resolve_model(config.model, report=report)
    renderer = Renderer(load_tokenizer(found.tokenizer))
    if renderer.note:
        report(renderer.note)
    service = TinkerService(trainer.url, patience_s=trainer.patience_s)
    base = choose_base(service.models(), config)
    report(f"sampling and gradients on {service.name}: adapters of {base}")
    positions = read_positions(Path(found.path))
    sampler = TinkerSampler(service, renderer.decode, name=config.model, max_positions=positions)
    reference = TinkerSampler(service, renderer.decode, name=base, max_positions=positions)
    reference.use(service.call(lambda: service.sdk.create_sampling_client(base_model=base)))
    adapters = {
        role: RemoteRole(
            service, base, rank=config.adapter.rank, seed=derive_seed(config.seed, "adapter", role) % 2**31
        )
        for role in roles
    }
    return RemoteActors(TokenPolicy(sampler, renderer), adapters, config, reference, str(found.path))


def choose_base(offered: Sequence[str], config: RunConfig) -> str:
    """The server's name of the base model: the one that is set, the one called like the model, or the only one."""
    wanted = config.trainer.model or config.model
    if wanted in offered:
        return wanted
    if len(offered) == 1 and not config.trainer.model:
        return offered[0]
    shown = ", ".join(offered[:8]) or "none"
    raise BadInput(f"the trainer does not offer the model {wanted}; it offers {shown}", hint="--set trainer.model=NAME")


def read_positions(model: Path) -> int:
    """The context length in a model's config.json; a million if there is none."""
    try:
        described = msgspec.json.decode((model / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return 1 << 20
    return int(described.get("max_position_embeddings") or 1 << 20)

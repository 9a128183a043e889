"""Several roles as adapters of one base on a Tinker server.

    actors = open_remote_actors(config, ("proposer", "solver"), print)

The server samples and computes gradients; this process runs episodes, searches and checkpoints, as with local roles. A
checkpoint has each role's downloaded adapter, and the path of the state (weights and optimizer moments) that the server
saved with it; a resumed run continues from that state. States that no checkpoint refers to are deleted on the server.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
from msgspec import Struct

from quaere.disk import read_regular
from quaere.errors import BadInput, TrainingStopped
from quaere.policies.catalogue import resolve_model
from quaere.policies.model_folders import CONFIG, WEIGHTS
from quaere.policies.tinker import TinkerSampler, TinkerService
from quaere.records.foreign_json import decode_json
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.training.actors import RolePlay, open_renderer
from quaere.training.settings import LearnerSettings, RunConfig
from quaere.training.tinker_learner import TinkerLearner

if TYPE_CHECKING:
    from quaere.chat.renderer import Renderer


class RemoteActors(RolePlay):
    """The roles' adapters on the server, and the sampler they share."""

    def __init__(
        self, policy: TokenPolicy, roles: dict[str, RemoteRole], config: RunConfig, reference: TinkerSampler, base: str
    ) -> None:
        super().__init__(policy, roles, config)
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

    def saved_at(self, folder: Path) -> None:
        """Record the checkpoint as the newest, and delete the states on the server that no checkpoint refers to."""
        super().saved_at(folder)
        named = _named_states(folder.parent)
        service = next(iter(self._roles.values())).service
        for path in self._states - named:
            service.delete_saved(path)
        self._states &= named

    def _speak(self, role: str) -> None:
        if role not in self._samplers:
            self._samplers[role] = self._roles[role].open_sampler()
        sampler: Any = self.policy.sampler
        sampler.use(self._samplers[role])

    def _save(self, folder: Path, role: str) -> None:
        """Save the role's state on the server; write its adapter, and the state's path."""
        remote = self._roles[role]
        remote.download(folder, self._base)
        saved = SavedState(remote.save_state(), remote.service.url)
        self._states.add(saved.path)
        (folder / STATE_FILE).write_bytes(msgspec.json.encode(saved))

    def _load(self, folder: Path, role: str) -> None:
        """Continue the role from the server state whose path this checkpoint has."""
        saved = read_state(folder / role)
        self._states |= _named_states(folder.parent)  # with those of other checkpoints, for when these go
        self._roles[role].go_back(saved.path)
        self._samplers.pop(role, None)


def _named_states(checkpoints: Path) -> set[str]:
    """Paths of the server states that the checkpoints in this folder refer to, as far as they can be read."""
    named = set()
    for file in checkpoints.glob(f"*/*/{STATE_FILE}"):
        with suppress(BadInput):  # of a damaged checkpoint that was set aside, or one that was deleted meanwhile
            named.add(read_state(file.parent).path)
    return named


def open_remote_actors(config: RunConfig, roles: Sequence[str], report: Callable[[str], None]) -> RemoteActors:
    """Connect to the server and prepare an adapter per role; weights stay on the server."""
    there = connect(config, report)
    report(f"sampling and gradients on {there.service.name}: adapters of {there.base}")
    sampler, reference = there.sampler(config.model), there.sampler(there.base)
    reference.use(there.open_base())
    adapters = {role: there.role(config, role) for role in roles}
    return RemoteActors(TokenPolicy(sampler, there.renderer), adapters, config, reference, there.path)


def open_remote_policy(config: RunConfig, folder: Path | None, report: Callable[[str], None]) -> TokenPolicy:
    """A policy that samples on the server: the base model, or the solver of this folder of a checkpoint."""
    there = connect(config, report)
    sampler = there.sampler(config.model)
    if folder is None:
        sampler.use(there.open_base())
    else:
        role = there.role(config, "solver")
        role.go_back(read_state(folder).path)
        sampler.use(role.open_sampler())
    return TokenPolicy(sampler, there.renderer)


class Connected(Struct, frozen=True):
    """A server, its name of the base model, and what of the model is needed here.

    Connected(service=TinkerService(...), base="qwen", renderer=Renderer(...), path="/models/qwen", positions=32768)
    """

    service: TinkerService
    base: str
    renderer: Renderer
    path: str
    positions: int

    def sampler(self, name: str) -> TinkerSampler:
        """A sampler that was not given a client yet."""
        return TinkerSampler(self.service, self.renderer.decode, name=name, max_positions=self.positions)

    def open_base(self) -> Any:
        """A sampling client of the base model."""
        return self.service.call(lambda: self.service.sdk.create_sampling_client(base_model=self.base))

    def role(self, config: RunConfig, name: str) -> RemoteRole:
        """A role's adapter."""
        seed = derive_seed(config.seed, "adapter", name) % 2**31
        return RemoteRole(self.service, self.base, rank=config.adapter.rank, seed=seed)


def connect(config: RunConfig, report: Callable[[str], None]) -> Connected:
    """Connect to the server of the config; the model's tokenizer is fetched, its weights are there."""
    trainer = config.trainer
    found = resolve_model(config.model, report=report)
    renderer = open_renderer(found, report)
    service = TinkerService(trainer.url, patience_s=trainer.patience_s)
    base = choose_base(service.models(), config.model, trainer.model)
    return Connected(service, base, renderer, str(found.path), read_positions(Path(found.path)))


def choose_base(
    offered: Sequence[str], model: str, named: str, *, who: str = "the trainer", setting: str = "trainer.model"
) -> str:
    """The server's name of the base model: the one that is `named`, or else `model`, or else the only one `offered`.

    Raises BadInput if the server does not offer the model; `who` and `setting` are what the message calls them.
    """
    wanted = named or model
    if wanted in offered:
        return wanted
    if len(offered) == 1 and not named:
        return offered[0]
    shown = ", ".join(offered[:8]) or "none"
    raise BadInput(f"{who} does not offer the model {wanted}; it offers {shown}", hint=f"--set {setting}=NAME")


def read_positions(model: Path) -> int:
    """The context length in a model's config.json; a million if there is none."""
    try:
        described = decode_json((model / "config.json").read_bytes(), dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return 1 << 20
    return int(described.get("max_position_embeddings") or 1 << 20)


# --------------------------------------------------------------------------------------------------- one role's adapter


STATE_FILE = "trainer_state.json"
_NOT_FOUND = 404
_BEGIN_ANOTHER = "quaere export RUN --merge --out DIR; quaere trainer start skyrl --model DIR"


class SavedState(Struct, frozen=True):
    """Where a server keeps a role's weights and optimizer moments.

    SavedState(path="tinker://model_1a2b/weights/quaere-3c4d", url="http://127.0.0.1:8000")
    """

    path: str
    url: str


class RemoteRole:
    """A role's adapter on the server: its training client, or the saved state from which to open the next client."""

    def __init__(self, service: TinkerService, base: str, *, rank: int, seed: int) -> None:
        self.service = service
        self.base = base  # the server's name of the base model
        self._rank = rank
        self._seed = seed
        self._client: Any = None
        self._state = ""  # path of the state to open the next client from
        self._with_moments = False
        self._is_passing = False  # True if nothing else names the state: it is deleted once it has been loaded
        self.has_stepped = False  # True if the client's optimizer has moments

    @property
    def client(self) -> Any:
        """The SDK's training client, opened at first use from the saved state, else with a new adapter."""
        if self._client is None:
            self._client = self._open()
            self._delete_passing()
        return self._client

    def go_back(self, state: str) -> None:
        """Close the client, so that the next one is opened from this saved state, without its optimizer moments."""
        if self._client is not None:
            for path in self.service.saved_samplers(self._client.model_id):
                self.service.delete_saved(path)
            self.service.forget_model(self._client.model_id)
        self._client, self.has_stepped = None, False
        self._delete_passing()
        self._state, self._with_moments = state, False

    def drop_moments(self) -> None:
        """Give the role a new optimizer: save its state and reopen it without moments, if it has made a step."""
        if self.has_stepped:
            self.go_back(self.save_state())
            self._is_passing = True

    def keep_moments(self) -> None:
        """Make the next client load the optimizer moments of the saved state too."""
        self._with_moments = True

    def save_state(self) -> str:
        """Save weights and moments on the server, and return the path of the saved state."""
        client, name = self.client, _new_name()
        path: str = self.service.call(lambda: client.save_state(name).result()).path
        return path

    def open_sampler(self) -> Any:
        """A sampling client with the current weights; weights saved for earlier sampling clients are deleted."""
        client = self.client
        opened = self.service.call(client.save_weights_and_get_sampling_client)
        for path in self.service.saved_samplers(client.model_id)[:-1]:
            self.service.delete_saved(path)
        return opened

    def download(self, folder: Path, base: str) -> None:
        """Download the adapter to a folder in peft's layout; `base` is the path of its base model on this machine."""
        write_adapter(fetch_adapter(self.service, self.client, _new_name()), folder, base)

    def _open(self) -> Any:
        service, sdk = self.service, self.service.sdk
        if not self._state:
            new = {"base_model": self.base, "rank": self._rank, "seed": self._seed, "train_unembed": False}
            return service.call(lambda: sdk.create_lora_training_client(**new))
        load = sdk.create_training_client_from_state
        if self._with_moments:
            load = sdk.create_training_client_from_state_with_optimizer
        try:
            return service.call(lambda: load(self._state))
        except TrainingStopped as error:
            if getattr(error.__cause__, "status_code", None) != _NOT_FOUND:
                raise
            raise TrainingStopped(
                f"the trainer at {service.name} does not have the state {self._state}: the run began on another "
                "server, or the server's folder was deleted",
                hint=f"begin another run from what was learned: {_BEGIN_ANOTHER}",
            ) from error

    def _delete_passing(self) -> None:
        if self._is_passing:
            self.service.delete_saved(self._state)
        self._is_passing = False


def read_state(folder: Path) -> SavedState:
    """The server state recorded in a role's folder of a checkpoint; BadInput if there is none."""
    try:
        return decode_json(read_regular(folder / STATE_FILE), SavedState)
    except FileNotFoundError:
        raise BadInput(
            f"{folder} was not written by a trainer: a run goes on where it began", hint="--set trainer.kind=local"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{folder / STATE_FILE} cannot be read: {error}") from error


def _new_name() -> str:
    return f"quaere-{uuid.uuid4().hex[:12]}"


# ------------------------------------------------------------------------------------------- the download of an adapter


_TIMEOUT_S = 600.0
_EXPORT_S = 3600  # an export's shortest life on the hosted service, should it not be deleted


def fetch_adapter(service: TinkerService, client: Any, name: str) -> dict[str, bytes]:
    """Download the files of a client's adapter, by file name; the copy on the server, `name`, is then deleted."""
    if not service.url:
        return _fetch_export(service, client, name)
    saved = service.call(lambda: client.save_weights_for_sampler(name).result()).path
    run = saved.removeprefix("tinker://").partition("/")[0]
    try:
        place = f"/api/v1/training_runs/{run}/checkpoints/{name}/archive"
        return read_archive(service.call(lambda: service.get_file(place)))
    finally:
        service.delete_saved(f"tinker://{run}/sampler_weights/{name}")


def read_archive(archive: bytes) -> dict[str, bytes]:
    """The weights and config of an adapter, by file name, from a server's tar archive; other files are ignored."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            members = [member for member in packed.getmembers() if Path(member.name).name in (WEIGHTS, CONFIG)]
            opened = {Path(member.name).name: packed.extractfile(member) for member in members}
            return {name: file.read() for name, file in opened.items() if file is not None}
    except tarfile.TarError as error:
        raise TrainingStopped(f"the trainer's archive of an adapter cannot be read: {error}") from error


def write_adapter(files: Mapping[str, bytes], folder: Path, base: str) -> None:
    """Write an adapter's weights and its config, which names `base`, the path of its base model on this machine."""
    try:
        weights, described = files[WEIGHTS], decode_json(files[CONFIG], dict[str, Any])
    except (KeyError, msgspec.DecodeError) as error:
        raise TrainingStopped(f"what the trainer gave as an adapter cannot be read: {error}") from error
    described |= {"base_model_name_or_path": base, "task_type": "CAUSAL_LM"}
    described["lora_alpha"] = round(described["lora_alpha"])
    if not described.get("target_modules"):  # SkyRL leaves it out, and peft cannot load an adapter without it
        described["target_modules"] = _adapted_modules(weights)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(weights)
    (folder / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))


def _fetch_export(service: TinkerService, client: Any, name: str) -> dict[str, bytes]:
    path = service.call(lambda: client.save_weights_external(name, ttl_seconds=_EXPORT_S).result()).path
    try:
        urls = service.call(lambda: service.rest.get_external_weights_urls(path).result()).urls
        wanted = {Path(file).name: url for file, url in urls.items() if Path(file).name in (WEIGHTS, CONFIG)}
        return service.call(lambda: {file: _get(url) for file, url in wanted.items()})
    finally:
        service.delete_saved(path)


def _adapted_modules(weights: bytes) -> list[str]:
    """Names of the layers that an adapter's tensors belong to, from the header of the safetensors file."""
    names = msgspec.json.decode(weights[8 : 8 + int.from_bytes(weights[:8], "little")], type=dict[str, Any])
    return sorted({name.partition(".lora_A")[0].rpartition(".")[2] for name in names if ".lora_A" in name})


def _get(url: str) -> bytes:
    reply = httpx.get(url, follow_redirects=True, timeout=_TIMEOUT_S)
    reply.raise_for_status()
    return reply.content

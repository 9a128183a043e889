"""One role's adapter on a Tinker server: trained by a client of the SDK that is opened when it is first needed.

A server loads a saved state only into an adapter that has not been used yet. So a role that goes back to a state, or
begins a phase without its optimizer's moments, gets another adapter from that state, and the one before is freed.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from quaere.errors import BadInput, TrainingStopped
from quaere.policies.adapter_folders import CONFIG, WEIGHTS
from quaere.policies.tinker_service import TinkerService

STATE_FILE = "trainer_state.json"
_DOWNLOAD_S = 600.0


class SavedState(Struct, frozen=True):
    """Where a server keeps a role's weights and optimizer moments.

    SavedState(path="tinker://model_1a2b/weights/quaere-3c4d", url="http://127.0.0.1:8000")
    """

    path: str
    url: str


class RemoteRole:
    """A role's adapter: its training client, and the saved state it is to be opened from."""

    def __init__(self, service: TinkerService, base: str, *, rank: int, seed: int) -> None:
        self.service = service
        self.base = base  # the server's name of the base model
        self._rank = rank
        self._seed = seed
        self._client: Any = None
        self._state = ""  # path of the state to open the next client from
        self._with_moments = False
        self.has_stepped = False  # True if the client's optimizer has moments

    @property
    def client(self) -> Any:
        """The SDK's training client."""
        if self._client is None:
            self._client = self.service.call(self._open)
        return self._client

    def go_back(self, state: str) -> None:
        """Continue from this saved state, without its optimizer moments."""
        self._close()
        self._state, self._with_moments = state, False

    def drop_moments(self) -> None:
        """Continue with the current weights and a new optimizer."""
        if self.has_stepped:
            self.go_back(self.save_state())

    def keep_moments(self) -> None:
        """Continue with the optimizer moments of the saved state as well."""
        self._with_moments = True

    def save_state(self) -> str:
        """Save weights and moments on the server, and return the path of what was saved."""
        client, name = self.client, _new_name()
        path: str = self.service.call(lambda: client.save_state(name).result()).path
        return path

    def open_sampler(self) -> Any:
        """A sampling client with the current weights."""
        client = self.client
        return self.service.call(client.save_weights_and_get_sampling_client)

    def download(self, folder: Path, base: str) -> None:
        """Write the adapter to a folder in peft's layout; `base` is the name of its base on this machine."""
        client, service, name = self.client, self.service, _new_name()
        path = service.call(lambda: client.save_weights_for_sampler(name).result()).path
        run, _, rest = path.removeprefix("tinker://").partition("/")
        found = service.call(lambda: service.sdk.create_rest_client().get_checkpoint_archive_url(run, rest).result())
        archive = service.call(lambda: _fetch(found.url))
        write_adapter(archive, folder, base)
        service.delete_saved(f"tinker://{run}/sampler_weights/{rest.removeprefix('sampler_weights/')}")

    def _open(self) -> Any:
        sdk = self.service.sdk
        if not self._state:
            return sdk.create_lora_training_client(
                base_model=self.base, rank=self._rank, seed=self._seed, train_unembed=False
            )
        if self._with_moments:
            return sdk.create_training_client_from_state_with_optimizer(self._state)
        return sdk.create_training_client_from_state(self._state)

    def _close(self) -> None:
        if self._client is not None:
            self.service.forget_model(self._client.model_id)
        self._client = None
        self.has_stepped = False


def write_adapter(archive: bytes, folder: Path, base: str) -> None:
    """Write the two files of an adapter from a server's archive, whatever else the archive has."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            members = {Path(member.name).name: member for member in packed.getmembers() if member.isfile()}
            weights, config = (_read_member(packed, members[name]) for name in (WEIGHTS, CONFIG))
        described = msgspec.json.decode(config, type=dict[str, Any])
        (folder / WEIGHTS).write_bytes(weights)
    except (KeyError, tarfile.TarError, msgspec.DecodeError) as error:
        raise TrainingStopped(f"the trainer's archive of an adapter cannot be read: {error}") from error
    described |= {"base_model_name_or_path": base, "task_type": "CAUSAL_LM"}
    described["lora_alpha"] = round(described["lora_alpha"])
    if not described.get("target_modules"):  # SkyRL leaves it out, and peft cannot load an adapter without it
        described["target_modules"] = _adapted_modules(weights)
    (folder / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))


def _adapted_modules(weights: bytes) -> list[str]:
    """Names of the layers that an adapter's tensors belong to, from the header of the safetensors file."""
    size = int.from_bytes(weights[:8], "little")
    names = msgspec.json.decode(weights[8 : 8 + size], type=dict[str, Any])
    return sorted({name.partition(".lora_A")[0].rpartition(".")[2] for name in names if ".lora_A" in name})


def _read_member(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = packed.extractfile(member)
    assert file is not None, "only files are asked for"
    return file.read()


def read_state(folder: Path) -> SavedState:
    """The saved state that a role's folder in a checkpoint names."""
    try:
        return msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=SavedState)
    except FileNotFoundError:
        raise BadInput(
            f"{folder} was not written by a trainer: a run goes on where it began", hint="--set trainer.kind=local"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{folder / STATE_FILE} cannot be read: {error}") from error


def _new_name() -> str:
    return f"quaere-{uuid.uuid4().hex[:12]}"


def _fetch(url: str) -> bytes:
    reply = httpx.get(url, follow_redirects=True, timeout=_DOWNLOAD_S)
    reply.raise_for_status()
    return reply.content

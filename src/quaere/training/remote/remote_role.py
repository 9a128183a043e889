"""One role's adapter on a Tinker server: trained by a client of the SDK that is opened when it is first needed.

A server loads a saved state only into an adapter that has not been used yet. So a role that goes back to a state, or
begins a phase without its optimizer's moments, gets another adapter from that state, and the one before is freed.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from quaere.disk import read_regular
from quaere.errors import BadInput, TrainingStopped
from quaere.policies.tinker import TinkerService
from quaere.training.remote.adapter_download import fetch_adapter, write_adapter

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
    """A role's adapter: its training client, and the saved state it is to be opened from."""

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
        """The SDK's training client."""
        if self._client is None:
            self._client = self._open()
            self._delete_passing()
        return self._client

    def go_back(self, state: str) -> None:
        """Continue from this saved state, without its optimizer moments."""
        self._close()
        self._delete_passing()
        self._state, self._with_moments = state, False

    def drop_moments(self) -> None:
        """Continue with the current weights and a new optimizer."""
        if self.has_stepped:
            self.go_back(self.save_state())
            self._is_passing = True

    def keep_moments(self) -> None:
        """Continue with the optimizer moments of the saved state as well."""
        self._with_moments = True

    def save_state(self) -> str:
        """Save weights and moments on the server, and return the path of what was saved."""
        client, name = self.client, _new_name()
        path: str = self.service.call(lambda: client.save_state(name).result()).path
        return path

    def open_sampler(self) -> Any:
        """A sampling client with the current weights; those of the clients before it are deleted on the server."""
        client = self.client
        opened = self.service.call(client.save_weights_and_get_sampling_client)
        for path in self.service.saved_samplers(client.model_id)[:-1]:
            self.service.delete_saved(path)
        return opened

    def download(self, folder: Path, base: str) -> None:
        """Write the adapter to a folder in peft's layout; `base` is the name of its base on this machine."""
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

    def _close(self) -> None:
        if self._client is not None:
            for path in self.service.saved_samplers(self._client.model_id):
                self.service.delete_saved(path)
            self.service.forget_model(self._client.model_id)
        self._client = None
        self.has_stepped = False

    def _delete_passing(self) -> None:
        if self._is_passing:
            self.service.delete_saved(self._state)
        self._is_passing = False


def read_state(folder: Path) -> SavedState:
    """The saved state that a role's folder in a checkpoint names."""
    try:
        return msgspec.json.decode(read_regular(folder / STATE_FILE), type=SavedState)
    except FileNotFoundError:
        raise BadInput(
            f"{folder} was not written by a trainer: a run goes on where it began", hint="--set trainer.kind=local"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{folder / STATE_FILE} cannot be read: {error}") from error


def _new_name() -> str:
    return f"quaere-{uuid.uuid4().hex[:12]}"

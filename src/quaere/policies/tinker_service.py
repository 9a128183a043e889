"""The connection to a server that speaks the Tinker interface, over the `tinker` SDK (an extra, imported when needed).

    service = TinkerService("http://127.0.0.1:8000")
    client = service.call(lambda: service.sdk.create_lora_training_client(base_model="qwen", rank=16))

The SDK repeats requests for as long as a server is away. Here every request is waited for with an eye on the server: a
request may take hours while the server answers, but once it has not answered for `patience_s` seconds the request is
given up with `TrainingStopped`. The key of a hosted server comes from $TINKER_API_KEY and is never stored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, TypeVar

import httpx

from quaere.endpoint import read_secret
from quaere.errors import BadInput, ExtraMissing, TrainingStopped, requirement_hint

T = TypeVar("T")

KEY = "TINKER_API_KEY"
HOSTED = "the hosted Tinker service"  # how an empty URL is named
_NEWEST = (0, 36)  # tried; the interface changes with every version
_WITH_EXPORTS = (0, 28)  # the first with the hosted service's way to download an adapter
_WITH_OWN_REST = (0, 36)  # the first whose client of saved states stands alone; the way before it warns
_GO_ON = "quaere evolve --resume RUN goes on from the last checkpoint"
_LOOK_S = 2.0  # seconds between two looks at a request that is under way
_NO_KEY = "tml-none"  # servers of one's own need no key, but the SDK wants one


def check_sdk() -> None:
    """Raise an error unless the SDK is installed in a version that was tried; it is not imported."""
    if find_spec("tinker") is None:
        raise ExtraMissing("--trainer tinker needs the tinker SDK", extra="tinker")
    if sdk_version() > _NEWEST:
        raise BadInput(
            f"tinker {version('tinker')} has not been tried; {_NEWEST[0]}.{_NEWEST[1]} is the newest that has",
            hint=requirement_hint("tinker>=0.25,<0.37"),
        )


def check_hosted() -> None:
    """Raise BadInput if there is no key for the hosted service, or if the SDK is too old for it."""
    if not read_secret(KEY):
        raise BadInput(
            f"{HOSTED} needs a key, and ${KEY} is not set",
            hint=f"export {KEY}=..., or name a server of your own with --trainer-url URL",
        )
    if sdk_version() < _WITH_EXPORTS:
        raise BadInput(
            f"tinker {version('tinker')} cannot download adapters from {HOSTED}",
            hint=requirement_hint("tinker>=0.28,<0.37"),
        )


def sdk_version() -> tuple[int, ...]:
    """The first two parts of the installed SDK's version."""
    return tuple(map(int, version("tinker").split(".")[:2]))


class TinkerService:
    """A server, the SDK's client of it, and how long to wait for it."""

    def __init__(self, url: str = "", *, patience_s: float = 120.0) -> None:
        check_sdk()
        key = read_secret(KEY)
        if not url:
            check_hosted()
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        # What the SDK reports about its own use is switched off unless the user has asked for it.
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        logging.getLogger("tinker").setLevel(logging.ERROR)  # what matters of its warnings is an error here
        import tinker

        self.types = tinker.types
        self._answered = time.monotonic()
        self._looked = 0.0
        where: dict[str, Any] = {"api_key": key or _NO_KEY} | ({"base_url": self.url} if self.url else {})
        self.sdk: Any = self.call(lambda: tinker.ServiceClient(**where))
        is_own = sdk_version() >= _WITH_OWN_REST
        self.rest: Any = self.call(lambda: tinker.RestClient(**where) if is_own else self.sdk.create_rest_client())

    @property
    def name(self) -> str:
        """The server as errors name it."""
        return self.url or HOSTED

    def models(self) -> list[str]:
        """Names of the base models that the server offers."""
        offered = self.call(lambda: self.sdk.get_server_capabilities()).supported_models
        return [model.model_name for model in offered if model.model_name]

    def call(self, request: Callable[[], T]) -> T:
        """The result of a request that blocks; raises TrainingStopped if it fails or the server is lost."""
        future = _in_thread(request)
        self._answered = time.monotonic()
        while True:
            try:
                return future.result(timeout=_LOOK_S)
            except TimeoutError as error:
                if future.done():
                    raise self._failed(error) from error
                self._look()
            except Exception as error:
                raise self._failed(error) from error

    async def wait(self, future: Future[T]) -> T:
        """As `call`, for one of many requests that are under way at once."""
        waiting = asyncio.wrap_future(future)
        self._answered = time.monotonic()
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=_LOOK_S)
            if done:
                break
            if time.monotonic() - self._looked > _LOOK_S:  # one look serves all requests
                await asyncio.to_thread(self._look)
        try:
            return waiting.result()
        except Exception as error:
            raise self._failed(error) from error

    def forget_model(self, model_id: str) -> None:
        """Free an adapter on the server that is no longer used; a server that cannot do that keeps it."""
        if not self.url:
            return  # a hosted service has its own way of ending what is not used
        body = {"model_id": model_id, "type": "unload_model"}
        with suppress(httpx.HTTPError):
            httpx.post(f"{self.url}/api/v1/unload_model", json=body, headers=self._headers(), timeout=10.0)

    def get_file(self, place: str, timeout_s: float = 600.0) -> bytes:
        """A file of one's own server, or of where it sends us for it; that place is not told the key."""
        reply = httpx.get(self.url + place, headers=self._headers(), timeout=timeout_s)
        if reply.next_request is not None:
            reply = httpx.get(reply.next_request.url, follow_redirects=True, timeout=timeout_s)
        reply.raise_for_status()
        return reply.content

    def delete_saved(self, path: str) -> None:
        """Delete a saved state or a sampler's weights; what cannot be deleted stays."""
        with suppress(TrainingStopped):
            self.call(lambda: self.rest.delete_checkpoint_from_tinker_path(path).result())

    def saved_samplers(self, model_id: str) -> list[str]:
        """Paths of the weights that an adapter's sampling clients were opened with, oldest first."""
        try:
            found = self.call(lambda: self.rest.list_checkpoints(model_id).result()).checkpoints
        except TrainingStopped:
            return []
        samplers = [one for one in found if one.checkpoint_type == "sampler"]
        return [one.tinker_path for one in sorted(samplers, key=lambda one: one.time)]

    # -------------------------------------------------------------------------------------------------------- details

    def _headers(self) -> dict[str, str]:
        key = read_secret(KEY)
        return {"X-API-Key": key} if key else {}

    def _look(self) -> None:
        """Ask the server for a sign of life; raises TrainingStopped if there was none for `patience_s` seconds."""
        self._looked = time.monotonic()
        if not self.url or answers(self.url):
            self._answered = time.monotonic()
        elif (silent := time.monotonic() - self._answered) > self.patience_s:
            raise TrainingStopped(f"the trainer at {self.name} has not answered for {silent:.0f} s", hint=_GO_ON)

    def _failed(self, error: Exception) -> Exception:
        if isinstance(error, TrainingStopped | BadInput):
            return error
        said = " ".join(str(error).split())[:300] or type(error).__name__
        return TrainingStopped(f"the trainer at {self.name} refused a request: {said}", hint=_GO_ON)


def answers(url: str, timeout_s: float = 5.0) -> bool:
    """True if a server at this URL answers at all; what it answers does not matter."""
    try:
        httpx.get(f"{url.rstrip('/')}/api/v1/healthz", timeout=timeout_s)
    except httpx.HTTPError:
        return False
    return True


def _in_thread(request: Callable[[], T]) -> Future[T]:
    """Run a blocking request in a thread that does not keep the process alive, as those of an executor would."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(request())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="quaere-trainer", daemon=True).start()
    return future

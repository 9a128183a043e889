"""Client of a server with the Tinker interface, through the `tinker` SDK (an extra, imported when needed).

    service = TinkerService("http://127.0.0.1:8000")
    client = service.call(lambda: service.sdk.create_lora_training_client(base_model="qwen", rank=16))

The SDK retries requests for as long as a server is unreachable. Here the server is probed while a request is pending: a
request may take hours while the server answers the probes, but once it has not answered for `patience_s` seconds the
request fails with `TrainingStopped`. The key of a hosted server comes from $TINKER_API_KEY and is never stored.

A turn ends at a stop id or at a stop string, and the interface takes one kind or the other. `TinkerSampler` sends ids,
because only the server can stop at the end of a turn; strings are cut here, after the token in which they end, as the
native engine does. So a turn is the same as if the server had stopped there; what it sampled beyond is dropped.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, TypeVar

import httpx

from quaere.endpoint import bypass_proxy, read_secret
from quaere.errors import BadInput, ExtraMissing, TrainingStopped, requirement_hint
from quaere.policies.sampler import Sampled, SamplingParams, StopStrings, check_context, cut_turn

T = TypeVar("T")

KEY = "TINKER_API_KEY"
HOSTED = "the hosted Tinker service"  # how an empty URL is named
_NEWEST = (0, 36)  # the newest tested version: the interface changes with every version
_WITH_EXPORTS = (0, 28)  # the first version that can download an adapter from the hosted service
_WITH_OWN_REST = (0, 36)  # the first version with `RestClient`; `create_rest_client` warns since then
_GO_ON = "quaere evolve --resume RUN goes on from the last checkpoint"
_LOOK_S = 2.0  # seconds between two looks at a request that is under way
_FILE_S = 600.0  # a file may take this long
_NO_KEY = "tml-none"  # a server of your own needs no key, but the SDK wants one


def check_sdk() -> None:
    """Raise `ExtraMissing` if the SDK is not installed, `BadInput` if its version is untested; nothing is imported."""
    if find_spec("tinker") is None:
        raise ExtraMissing("--trainer tinker needs the tinker SDK", extra="tinker")
    if sdk_version() > _NEWEST:
        raise BadInput(
            f"tinker {version('tinker')} has not been tested; {_NEWEST[0]}.{_NEWEST[1]} is the newest tested version",
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
    """A Tinker server, the SDK's client of it, and how long to wait for an answer."""

    def __init__(self, url: str = "", *, patience_s: float = 120.0) -> None:
        check_sdk()
        if not url:
            check_hosted()
        self.url = url.rstrip("/")
        bypass_proxy(url)
        self.name = self.url or HOSTED  # in messages
        self.patience_s = patience_s
        # The SDK's telemetry is switched off unless the user has switched it on.
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        logging.getLogger("tinker").setLevel(logging.ERROR)  # the warnings that matter are raised as errors here
        import tinker

        self.types = tinker.types
        self._answered = time.monotonic()
        self._looked = 0.0
        where: dict[str, Any] = {"api_key": read_secret(KEY) or _NO_KEY} | ({"base_url": self.url} if self.url else {})
        self.sdk: Any = self.call(lambda: tinker.ServiceClient(**where))
        is_own = sdk_version() >= _WITH_OWN_REST
        self.rest: Any = self.call(lambda: tinker.RestClient(**where) if is_own else self.sdk.create_rest_client())

    def models(self) -> list[str]:
        """Names of the base models that the server offers."""
        offered = self.call(lambda: self.sdk.get_server_capabilities()).supported_models
        return [model.model_name for model in offered if model.model_name]

    def call(self, request: Callable[[], T]) -> T:
        """The result of a request that blocks; raises TrainingStopped if it fails or the server is lost."""
        future = _in_thread(request)
        self._answered = time.monotonic()
        while not wait([future], timeout=_LOOK_S).done:
            self._look()
        return self._result(future)

    async def wait(self, future: Future[T]) -> T:
        """As `call`, but asynchronous, for one of many concurrent requests; the SDK drops one that is given up."""
        waiting = asyncio.wrap_future(future)
        self._answered = time.monotonic()
        try:
            while not (await asyncio.wait({waiting}, timeout=_LOOK_S))[0]:
                if time.monotonic() - self._looked > _LOOK_S:  # one look serves all requests
                    await asyncio.to_thread(self._look)
            return self._result(waiting)
        finally:
            future.cancel()  # otherwise the SDK would retry it for as long as the process lives

    def forget_model(self, model_id: str) -> None:
        """Ask the server to unload an adapter that is no longer used; failures are ignored."""
        if not self.url:
            return  # the hosted service unloads unused adapters by itself
        body = {"model_id": model_id, "type": "unload_model"}
        with suppress(httpx.HTTPError):
            httpx.post(f"{self.url}/api/v1/unload_model", json=body, headers=self._headers(), timeout=10.0)

    def get_file(self, place: str) -> bytes:
        """Download a file; redirects are followed, and the key is sent to the first host only."""
        reply = httpx.get(self.url + place, headers=self._headers(), timeout=_FILE_S)
        if reply.next_request is not None:
            reply = httpx.get(reply.next_request.url, follow_redirects=True, timeout=_FILE_S)
        reply.raise_for_status()
        return reply.content

    def delete_saved(self, path: str) -> None:
        """Delete a saved state or a sampler's weights on the server; failures are ignored."""
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
        """Probe the server; raises TrainingStopped if it has not answered for `patience_s` seconds."""
        self._looked = time.monotonic()
        if not self.url or answers(self.url):
            self._answered = time.monotonic()
        elif (silent := time.monotonic() - self._answered) > self.patience_s:
            raise TrainingStopped(f"the trainer at {self.name} has not answered for {silent:.0f} s", hint=_GO_ON)

    def _result(self, future: Future[T] | asyncio.Future[T]) -> T:
        try:
            return future.result()
        except (TrainingStopped, BadInput):
            raise
        except Exception as error:
            said = " ".join(str(error).split())[:300] or type(error).__name__
            raise TrainingStopped(f"the trainer at {self.name} refused a request: {said}", hint=_GO_ON) from error


def answers(url: str) -> bool:
    """True if a server at this URL answers at all; what it answers does not matter."""
    bypass_proxy(url)
    try:
        httpx.get(f"{url.rstrip('/')}/api/v1/healthz", timeout=5.0)
    except httpx.HTTPError:
        return False
    return True


def _in_thread(request: Callable[[], T]) -> Future[T]:
    """Run a blocking request in a daemon thread; unlike an executor's threads, it does not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(request())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="quaere-trainer", daemon=True).start()
    return future


# ------------------------------------------------------------------------------------------------------------- sampling

_MAX_SEED = 2**31  # servers keep seeds as 32-bit integers


class TinkerSampler:
    """A `TokenSampler` that samples from the SDK client last given to `use`, with many concurrent requests."""

    lockstep = False

    def __init__(
        self, service: TinkerService, decode: Callable[[Sequence[int]], str], *, name: str, max_positions: int = 1 << 20
    ) -> None:
        self.name = name
        self.max_positions = max_positions
        self._service = service
        self._stops = StopStrings(decode)
        self._client: Any = None

    def use(self, client: Any) -> None:
        """Sample from this client of the SDK from now on."""
        self._client = client

    def open(self, session: str) -> None:
        """Do nothing: the server keeps no sessions."""

    def close(self, session: str) -> None:
        """Do nothing: the server keeps no sessions."""

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """Sample a turn."""
        check_context(token_ids, params, self.max_positions)
        types = self._service.types
        wanted = types.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k or -1,
            seed=params.seed % _MAX_SEED,
            stop=list(params.stop_token_ids) or None,
        )
        prompt = types.ModelInput.from_ints(list(token_ids))
        future = self._client.sample(prompt=prompt, num_samples=1, sampling_params=wanted)
        drawn = (await self._service.wait(future)).sequences[0]
        if drawn.logprobs is None or len(drawn.logprobs) != len(drawn.tokens):
            raise TrainingStopped(f"the trainer at {self._service.name} returns no log-probs of what it samples")
        return cut_turn(drawn.tokens, drawn.logprobs, params, self._stops)

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """See `TokenSampler`."""
        make_input = self._service.types.ModelInput.from_ints
        futures = [self._client.compute_logprobs(make_input(list(token_ids))) for token_ids in sequences]
        found = await asyncio.gather(*map(self._service.wait, futures))
        scored = [prompt_scores(row, len(token_ids)) for row, token_ids in zip(found, sequences, strict=True)]
        return [[0.0] * start + row[start:] for row, start in zip(scored, starts or [0] * len(scored), strict=True)]

    async def stop(self) -> None:
        """Do nothing: the SDK's threads end with the process."""


def prompt_scores(values: Sequence[float | None] | None, num_tokens: int) -> list[float]:
    """Log-probs of a prompt with a 0 for its first token, whether or not the server has an entry for that token.

    prompt_scores([None, -0.5], 2) == prompt_scores([-0.5], 2) == [0.0, -0.5]
    """
    found = list(values or ())
    if len(found) == num_tokens - 1:
        found = [None, *found]
    if len(found) != num_tokens:
        raise TrainingStopped(f"the trainer scored {len(found)} tokens of a sequence of {num_tokens}")
    return [0.0, *(0.0 if value is None else float(value) for value in found[1:])]

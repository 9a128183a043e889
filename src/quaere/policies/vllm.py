"""A vLLM server as the sampler of a training: ids go in, ids and log-probs come out, adapters are read from a folder.

    sampler = VllmSampler(VllmServer("http://127.0.0.1:8000/v1"), "qwen", decode, folder=Path("/shared"))
    sampler.use("solver", write)                     # write(folder) saves the adapter; the server loads it
    sampled = await sampler.sample("e1", prompt_ids, SamplingParams(max_tokens=64))

The wire is vLLM's since 0.10.2: `/v1/completions` with token ids as its prompt and `return_token_ids`, and
`/v1/load_lora_adapter`, which the server has with `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. Its log-probs
are those of the model itself, whatever the temperature (`--logprobs-mode raw_logprobs`, the default).

A server that cannot be reached is asked again until `patience_s` seconds have passed; then the training stops. A new
adapter has a new name, because the server keeps the KV cache of a prompt by the adapter's name.
"""

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec import Struct, structs

from quaere.disk import scratch_folder
from quaere.endpoint import error_message, one_line, open_client, read_secret
from quaere.errors import TrainingStopped
from quaere.policies.sampler import Sampled, SamplingParams, StopStrings, check_context, cut_turn
from quaere.records.foreign_json import decode_json

T = TypeVar("T")

_KEY = "OPENAI_API_KEY"
_GO_ON = "quaere evolve --resume RUN goes on from the last checkpoint"
_ADAPTERS = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank RANK"
_FOLDER = "does it see this path, and was it started with --enable-lora --max-lora-rank RANK?"
_WIRE = "vLLM returns them since 0.10.2"
_LOOK_S = 2.0  # seconds between two looks at a server that has not answered yet
_SOON_S, _LOAD_S = 10.0, 600.0


class ServedModel(Struct, frozen=True):
    """A model or an adapter that the server offers; an adapter has a `parent`, its base, and its folder as `root`.

    ServedModel(id="qwen", root="/models/qwen", max_model_len=8192)
    """

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class VllmServer:
    """The server's URL, and requests to it; every failure raises `TrainingStopped` with one line."""

    def __init__(self, url: str, *, patience_s: float = 120.0) -> None:
        self.url = url.rstrip("/").removesuffix("/v1") + "/v1"
        self.patience_s = patience_s
        self._client: httpx.AsyncClient | None = None
        self._looked = self._answered = 0.0

    def models(self) -> list[ServedModel]:
        """The models and adapters that the server offers."""
        return _read(self.ask("GET", "models", timeout_s=_SOON_S), _Models).data

    def require_adapters(self) -> None:
        """Refuse a server that loads no adapters while it runs: it does not know the path of such requests."""
        if self._send("GET", "load_lora_adapter", None, _SOON_S).status_code == httpx.codes.NOT_FOUND:
            raise TrainingStopped(f"the engine at {self.url} loads no adapters while it runs", hint=_ADAPTERS)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Let the server read an adapter in peft's layout from a folder that it sees under the same path."""
        self.ask("POST", "load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, hint=_FOLDER)

    def unload_adapter(self, name: str) -> None:
        """Let the server forget an adapter; failures are ignored."""
        with suppress(TrainingStopped):
            self.ask("POST", "unload_lora_adapter", {"lora_name": name}, timeout_s=_SOON_S)

    def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = _LOAD_S, hint: str = ""
    ) -> bytes:
        """The answer to a request, while nothing else is done."""
        return self._content(self._send(method, path, body, timeout_s), hint)

    async def complete(self, body: dict[str, Any]) -> bytes:
        """The answer to one of many concurrent requests; it may take as long as the server answers other requests."""
        request, started = asyncio.ensure_future(self._post(body)), time.monotonic()
        try:
            while not (await asyncio.wait({request}, timeout=_LOOK_S))[0]:
                await self._look()
                if (silent := time.monotonic() - max(started, self._answered)) > self.patience_s:
                    said = f"the engine at {self.url} has not answered for {silent:.0f} s"
                    raise TrainingStopped(said, hint=_GO_ON)
            return request.result()
        finally:
            request.cancel()

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    # -------------------------------------------------------------------------------------------------------- details

    async def _post(self, body: dict[str, Any]) -> bytes:
        """Send a request, again and again while the server cannot be reached: the caller puts an end to it."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None)
            self._client = open_client(httpx.AsyncClient, self.url, timeout=None, limits=limits)
        while True:
            try:
                reply = await self._client.post(f"{self.url}/completions", json=body, headers=_headers())
            except httpx.TransportError:
                await asyncio.sleep(_LOOK_S)
            except httpx.RequestError as error:  # such as a damaged gzip: to ask again would change nothing
                raise TrainingStopped(f"the engine's answer cannot be read: {one_line(str(error))}") from error
            else:
                return self._content(reply, _GO_ON)

    def _send(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> httpx.Response:
        try:
            with open_client(httpx.Client, self.url, timeout=timeout_s) as http:
                return http.request(method, f"{self.url}/{path}", json=body, headers=_headers())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = one_line(str(error)) or type(error).__name__
            hint = f"is it running? try: curl {self.url}/models"
            raise TrainingStopped(f"no engine answers at {self.url}: {reason}", hint=hint) from error

    def _content(self, reply: httpx.Response, hint: str) -> bytes:
        if reply.is_success:
            return reply.content
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            hint = f"{_KEY} must be the key of the server"
        said = error_message(reply.content, read_secret(_KEY))
        status = f"the engine at {self.url} answered with status {reply.status_code}"
        raise TrainingStopped(f"{status}: {said}" if said else status, hint=hint)

    async def _look(self) -> None:
        """Ask the server for its models, to see that it is there; one look serves all requests under way."""
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            with suppress(TrainingStopped):
                await asyncio.to_thread(self._send, "GET", "models", None, _SOON_S)
                self._answered = time.monotonic()


def _headers() -> dict[str, str]:
    key = read_secret(_KEY)
    return {"Authorization": f"Bearer {key}"} if key else {}


# ------------------------------------------------------------------------------------------------------------- sampling


class VllmSampler:
    """A `TokenSampler` that samples from the adapter last given to `use`, with many concurrent requests."""

    lockstep = False

    def __init__(
        self,
        server: VllmServer,
        base: str,
        decode: Callable[[Sequence[int]], str],
        *,
        folder: Path,
        max_positions: int = 1 << 20,
    ) -> None:
        self.name = base
        self.max_positions = max_positions
        self._server = server
        self._model = base  # the server's name of the model that is sampled from
        self._stops = StopStrings(decode)
        self._root = folder.absolute()
        self._folder: Path | None = None
        self._closing = ExitStack()
        self._numbers = itertools.count()
        self._loaded: dict[str, str] = {}  # the server's names of the adapters, by role

    def use(self, role: str, write: Callable[[Path], None] | None = None) -> None:
        """Sample from the role's adapter from now on; with `write`, from a new one that it writes to a folder."""
        if write is not None:
            folder = self._open_folder()
            name = f"quaere-{folder.name[-8:]}-{role}-{next(self._numbers)}"
            write(folder / name)
            self._server.load_adapter(name, folder / name)
            if before := self._loaded.get(role):
                self._server.unload_adapter(before)
                shutil.rmtree(folder / before, ignore_errors=True)
            self._loaded[role] = name
        self._model = self._loaded[role]

    def open(self, session: str) -> None:
        """Do nothing: the server keeps no sessions."""

    def close(self, session: str) -> None:
        """Do nothing: the server keeps no sessions."""

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """Sample a turn."""
        check_context(token_ids, params, self.max_positions)
        content = await self._server.complete(turn_request(self._model, token_ids, params))
        return read_turn(content, token_ids, params, self._stops)

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """See `TokenSampler`."""
        asked = [self._server.complete(score_request(self._model, token_ids)) for token_ids in sequences]
        scored = map(read_scores, await asyncio.gather(*asked), sequences)
        starts = starts or [0] * len(sequences)
        return [[0.0] * start + row[start:] for row, start in zip(scored, starts, strict=True)]

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """As `score_many` for one sequence, while nothing else is done."""
        return read_scores(self._server.ask("POST", "completions", score_request(self._model, token_ids)), token_ids)

    async def stop(self) -> None:
        """Unload the adapters, delete their folders and close the connections."""
        for name in self._loaded.values():
            self._server.unload_adapter(name)
        self._loaded.clear()
        self._closing.close()
        await self._server.close()

    def _open_folder(self) -> Path:
        """The folder of this process; those of killed ones are deleted, and their adapters unloaded."""
        if self._folder is None:
            self._folder = self._closing.enter_context(scratch_folder(self._root / "quaere-adapters"))
            for one in self._server.models():
                place = Path(one.root or "")
                if one.parent and place.parent.parent == self._root and not place.exists():
                    self._server.unload_adapter(one.id)
        return self._folder


# ------------------------------------------------------------------------------------------------- requests and answers


def turn_request(model: str, token_ids: Sequence[int], params: SamplingParams) -> dict[str, Any]:
    """The body of a request for a turn; all parameters are set, so that none comes from the model's own settings."""
    return {
        "model": model,
        "prompt": list(token_ids),
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": params.seed,
        "stop": list(params.stop),
        "stop_token_ids": list(params.stop_token_ids),
        "ignore_eos": True,  # the ends of a turn are those above
        "skip_special_tokens": False,  # they may be part of a stop string
        "logprobs": 1,
        "return_token_ids": True,
    }


def score_request(model: str, token_ids: Sequence[int]) -> dict[str, Any]:
    """The body of a request for the log-probs of a prompt; the token that is sampled after it is not used."""
    return turn_request(model, token_ids, SamplingParams(max_tokens=1)) | {"prompt_logprobs": 1}


def read_turn(content: bytes, sent: Sequence[int], params: SamplingParams, stops: StopStrings) -> Sampled:
    """The turn in an answer, cut after the token that completes a stop string."""
    choice = _read_choice(content, sent)
    token_ids, given = choice.token_ids or [], choice.logprobs.token_logprobs if choice.logprobs else []
    logprobs = [value for value in given if value is not None]
    if len(logprobs) != len(token_ids):
        raise TrainingStopped("the engine returns no log-probs of what it samples", hint=_WIRE)
    turn = cut_turn(token_ids, logprobs, params, stops)
    if turn.stop_reason == "length" and choice.finish_reason == "stop":
        return structs.replace(turn, stop_reason="end_of_turn")  # at a stop id of the server's own
    return turn


def read_scores(content: bytes, sent: Sequence[int]) -> list[float]:
    """The log-probs of a prompt in an answer, with a 0 for its first token."""
    rows = (_read_choice(content, sent).prompt_logprobs or [])[1:]
    found = [row[token].logprob for row, token in zip(rows, sent[1:], strict=False) if row and token in row]
    if len(found) != len(sent) - 1:
        raise TrainingStopped("the engine returns no log-probs of a prompt", hint=_WIRE)
    return [0.0, *found]


class _Models(Struct):
    data: list[ServedModel]


class _Logprobs(Struct):
    token_logprobs: list[float | None]


class _Scored(Struct):
    logprob: float


class _Choice(Struct):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[int, _Scored] | None] | None = None
    finish_reason: str | None = None


class _Completion(Struct):
    choices: list[_Choice]


def _read_choice(content: bytes, sent: Sequence[int]) -> _Choice:
    """The only completion in an answer; raises TrainingStopped unless it goes on after the ids that were sent."""
    choices = _read(content, _Completion).choices
    if not choices or choices[0].token_ids is None or choices[0].prompt_token_ids is None:
        raise TrainingStopped("the engine returns no token ids", hint=_WIRE)
    if choices[0].prompt_token_ids != list(sent):
        raise TrainingStopped("the engine sampled after other ids than it was sent", hint="does it truncate prompts?")
    return choices[0]


def _read(content: bytes, kind: type[T]) -> T:
    try:
        return decode_json(content, kind)
    except msgspec.DecodeError as error:
        raise TrainingStopped(f"the engine's answer cannot be read: {one_line(str(error))}") from error

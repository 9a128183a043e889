"""Embedder behind a server with an OpenAI-compatible `POST {base_url}/embeddings`.

    EndpointEmbedder(DenseSettings(embedder="openai:bge-m3@http://localhost:8000/v1"))

The embedder's name is stored in the index, and the index's queries go to the same server, or to that of
`$QUAERE_EMBEDDER_URL` if the model has moved. The API key is read from `$QUAERE_EMBEDDER_KEY` (or the file that
`$QUAERE_EMBEDDER_KEY_FILE` names) and is neither stored nor shown. `$OPENAI_API_KEY` is not used: an index may come
from somebody else, and the server it names must not get the user's key for OpenAI.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx
import msgspec
import numpy as np

from quaere.endpoint import error_message, one_line, open_client, parse_endpoint, read_secret, retry_after
from quaere.errors import SearchFailed
from quaere.records.foreign_json import decode_json
from quaere.search.embedders import DenseSettings, Embedder, Vectors

KEY, MOVED_TO = "QUAERE_EMBEDDER_KEY", "QUAERE_EMBEDDER_URL"
_IN_FLIGHT = 8  # requests of a build at once
_MAX_BYTES = 256 << 20
_BUSY = (408, 429, 500, 502, 503, 504)
_MAX_WAIT_S = 60.0


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


class _Reply(NamedTuple):
    status: int  # 0: no answer
    headers: Mapping[str, str]
    content: bytes
    fault: str = ""


class EndpointEmbedder(Embedder):
    """Embedder over HTTP, in batches of `batch_size` texts, several at once.

    A request that fails for a reason that may pass (no connection, a status such as 429 or 503) is repeated up to
    `max_retries` times, after the wait the server asks for or twice the wait before. Vectors are scaled to norm 1; all
    must have the same size. Every failure is a `SearchFailed`.
    """

    def __init__(
        self, settings: DenseSettings, *, timeout_s: float = 120.0, max_retries: int = 5, first_wait_s: float = 0.5
    ) -> None:
        super().__init__(settings)
        self.num_at_once = _IN_FLIGHT * settings.batch_size
        named, moved_to = settings.embedder, os.environ.get(MOVED_TO, "").strip()
        model = parse_endpoint(named, "--embedder").model
        self._endpoint = parse_endpoint(f"openai:{model}@{moved_to}" if moved_to else named, "--embedder")
        self._timeout_s, self._max_retries, self._first_wait_s = timeout_s, max_retries, first_wait_s
        self._key = read_secret(KEY)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        self._http = open_client(httpx.Client, self._endpoint.base_url, timeout=timeout_s, headers=headers)
        self._threads = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="embed")
        self._width = 0  # of a vector, as the first answer has it

    def _embed(self, texts: Sequence[str], prefix: str | None, *, is_query: bool) -> Vectors:
        prefixed = [(prefix or "") + text for text in texts]
        size = self._settings.batch_size
        batches = [prefixed[start : start + size] for start in range(0, len(prefixed), size)]
        made = list(self._threads.map(self._embed_batch, batches))
        widths = {rows.shape[1] for rows in made} | ({self._width} if self._width else set())
        if len(widths) > 1:
            raise self._failure("broken", f"sent vectors of different sizes: {', '.join(map(str, sorted(widths)))}")
        self._width = widths.pop()
        return np.concatenate(made)

    def _embed_batch(self, texts: list[str]) -> Vectors:
        body = msgspec.json.encode({"model": self._endpoint.model, "input": texts, "encoding_format": "float"})
        reply, wait_s = self._post(body), self._first_wait_s
        for _ in range(self._max_retries):
            asked_s = retry_after(reply.headers) or 0.0
            if reply.status not in (0, *_BUSY) or asked_s > _MAX_WAIT_S:
                break
            time.sleep(max(asked_s, wait_s))
            wait_s = min(2 * wait_s, _MAX_WAIT_S)
            reply = self._post(body)
        if reply.status != 200:
            raise self._refused(reply)
        return self._read(reply.content, len(texts))

    def _post(self, body: bytes) -> _Reply:
        content = bytearray()
        until = time.monotonic() + self._timeout_s  # httpx's own timeouts are per read: slow bytes would never end
        try:
            with self._http.stream("POST", f"{self._endpoint.base_url}/embeddings", content=body) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _MAX_BYTES:
                        raise self._failure("broken", f"answered with more than {_MAX_BYTES >> 20} MiB")
                    if time.monotonic() > until:
                        return _Reply(0, {}, b"", f"no whole answer within {self._timeout_s:g} s")
                return _Reply(response.status_code, response.headers, bytes(content))
        except httpx.HTTPError as error:
            return _Reply(0, {}, b"", one_line(str(error)) or type(error).__name__)

    def _read(self, content: bytes, num_texts: int) -> Vectors:
        try:
            items = decode_json(content, _Answer).data
            if sorted(item.index for item in items) != list(range(num_texts)):
                raise self._failure("broken", f"answered {num_texts} texts with {len(items)} vectors")
            rows = np.array([item.embedding for item in sorted(items, key=lambda item: item.index)])
        except (msgspec.DecodeError, ValueError) as error:  # numpy: rows of different lengths
            raise self._failure("broken", f"sent no readable vectors: {one_line(str(error))}") from error
        if not rows.size:
            raise self._failure("broken", "sent vectors without numbers")
        with np.errstate(over="ignore"):  # a norm that overflows is not finite
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise self._failure("broken", "sent a vector whose norm is not finite")
        # A text without any known word may have a zero vector, whose similarity to every other vector is 0.
        return np.asarray(rows / np.where(norms > 0, norms, 1), np.float32)

    def _refused(self, reply: _Reply) -> SearchFailed:
        base_url = self._endpoint.base_url
        said = f": {error_message(reply.content, self._key)}" if reply.content else ""
        match reply.status:
            case 0:
                hint = f"is the server running? try: curl {base_url}/models"
                return self._failure("unreachable", f"cannot be reached: {reply.fault}", hint)
            case 401 | 403:
                what = "does not accept the key" if self._key else "asks for a key"
                return self._failure("rejected", f"{what} ({reply.status}){said}", f"export {KEY}=...")
            case 404:
                what = "is not there, or its URL lacks a part such as /v1 (404)"
                return self._failure("rejected", what + said, f"curl {base_url}/models")
            case status if status in _BUSY:
                kind = "overloaded" if status in (429, 503) else "broken"
                return self._failure(kind, f"failed {self._max_retries + 1} times ({status}){said}", "try again later")
            case status:
                hint = "passages may be too long for it (--chunk-words, --row-words), or too many (--batch-size)"
                return self._failure("rejected", f"refused the request ({status}){said}", hint)

    def _failure(self, kind: str, what: str, hint: str = "") -> SearchFailed:
        return SearchFailed(f"the embedder {self._settings.embedder} {what}", kind=kind, hint=hint)

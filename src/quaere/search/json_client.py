"""Client of one server that answers with JSON: bounded in size and time, with every failure as a `SearchFailed`.

client = JsonClient("http://127.0.0.1:8000", "the search server http://127.0.0.1:8000", ...)
health = await client.ask("GET", "/health", b"", Health, "its health")
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

import httpx
import msgspec

from quaere.endpoint import open_client
from quaere.errors import SearchFailed
from quaere.records.foreign_json import decode_json

_Answer = TypeVar("_Answer")


class JsonClient:
    """Asynchronous client that never retries; `named` is the server's name, with which its error messages begin.

    `timeout_s` limits a request from first to last byte, `max_connections` the requests at once (others wait), and
    `max_response_bytes` the size of an answer. No message contains one of the `secrets`. `start_hint` is for a server
    that cannot be reached, `key_hint` for one that wants another key.
    """

    def __init__(
        self,
        url: str,
        named: str,
        *,
        headers: Mapping[str, str],
        secrets: Sequence[str],
        start_hint: str,
        key_hint: str,
        max_connections: int,
        max_response_bytes: int,
        timeout_s: float = 30.0,
    ) -> None:
        self._url, self._named, self._secrets = url, named, secrets
        self._start_hint, self._key_hint = start_hint, key_hint
        self._timeout_s = timeout_s
        self._max_response_bytes = max_response_bytes
        self._turns = asyncio.Semaphore(max_connections)
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        # No compression, so that the size limit applies to the bytes that were sent.
        sent = {"content-type": "application/json", "accept-encoding": "identity", **headers}
        self._http = open_client(httpx.AsyncClient, url, limits=limits, timeout=None, headers=sent)

    async def ask(self, method: str, path: str, body: bytes, kind: type[_Answer], called: str) -> _Answer:
        """The answer decoded as `kind`; `called` says in error messages what was expected, such as "its health"."""
        try:
            sent = self._http.stream(method, self._url + path, content=body)
            async with self._turns, asyncio.timeout(self._timeout_s), sent as response:
                answer = await self._read(response)
        except TimeoutError:
            raise self.failure("timeout", f"did not answer within {self._timeout_s:g} s") from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise self.failure("unreachable", f"cannot be reached ({reason})", self._start_hint) from error
        except httpx.RequestError as error:
            raise self.failure("broken", f"sent an answer that cannot be read ({error})") from error
        self._check_status(response.status_code, answer)
        try:
            return decode_json(answer, kind)
        except msgspec.DecodeError as error:
            raise self.failure("broken", f"answered with something other than {called} ({error})") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def failure(self, kind: str, what: str, hint: str = "") -> SearchFailed:
        """A failure of this server, with secrets hidden: a server's error may repeat the key, and errors are stored."""
        return SearchFailed(f"{self._named} {self._hide(what)}", kind=kind, hint=hint)

    async def _read(self, response: httpx.Response) -> bytes:
        answer = bytearray()
        async for chunk in response.aiter_bytes():
            answer += chunk
            if len(answer) > self._max_response_bytes:
                raise self.failure("broken", f"answered with more than {self._max_response_bytes} bytes")
        return bytes(answer)

    def _check_status(self, status: int, answer: bytes) -> None:
        if status == httpx.codes.OK:
            return
        reason = " ".join(self._hide(answer.decode("utf-8", "replace"))[:300].split())
        if status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
            raise self.failure("overloaded", f"is overloaded ({status})")
        if 400 <= status < 500:
            hint = self._key_hint if status in (401, 403) else ""
            raise self.failure("rejected", f"refused the request ({status}): {reason}", hint)
        raise self.failure("broken", f"failed ({status}): {reason}")

    def _hide(self, said: str) -> str:
        """The text with all secrets replaced by `***`."""
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return said

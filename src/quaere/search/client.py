"""Client of a search server: Quaere's own, or any other with the same `POST /retrieve`.

async with SearchClient("http://127.0.0.1:8000") as client:
    hits = (await client.search(["who built the Halm bridge?"], topk=3))[0]

The API key is read from `$QUAERE_SEARCH_KEY`, or a user and password from `$QUAERE_SEARCH_LOGIN` ("USER:PASSWORD").
Either may be in a file named by `$QUAERE_SEARCH_KEY_FILE` or `$QUAERE_SEARCH_LOGIN_FILE`. A URL may contain neither:
URLs are stored with runs and shown in messages.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from ipaddress import ip_address
from types import TracebackType

import httpx
import msgspec

from quaere.endpoint import read_secret
from quaere.errors import BadInput, SearchFailed
from quaere.records import Hit, Passage
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import split_contents
from quaere.search.wire import Health, Reply, Request, WireDocument

KEY, LOGIN = "QUAERE_SEARCH_KEY", "QUAERE_SEARCH_LOGIN"


class SearchClient:
    """Asynchronous client of a search server. It never retries: the caller decides what to do about a failure.

    `timeout_s` limits a request from first to last byte, `max_connections` the requests at once (others wait), and
    `max_response_bytes` the size of an answer.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        max_connections: int = 64,
        max_response_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.url = server_url(url)
        self._timeout_s = timeout_s
        self._max_response_bytes = max_response_bytes
        self._turns = asyncio.Semaphore(max_connections)
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        # A proxy named by the environment must not be used for a server on this machine.
        trust_env = not is_loopback(httpx.URL(self.url).host)
        self._http = httpx.AsyncClient(limits=limits, timeout=None, trust_env=trust_env)
        self._authorization = _authorization()

    async def __aenter__(self) -> SearchClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        request = Request(queries=list(queries), topk=topk, return_scores=True)
        answer = await self._ask("POST", "/retrieve", msgspec.json.encode(request))
        try:
            reply = decode_json(answer, Reply)
        except msgspec.DecodeError as error:
            raise self._failure("broken", f"answered with something other than search results ({error})") from error
        if len(reply.result) != len(request.queries):
            raise self._failure("broken", f"answered {len(reply.result)} of {len(request.queries)} queries")
        found = [[Hit(_passage(item.document), item.score) for item in items[:topk]] for items in reply.result]
        for passage in (hit.passage for hits in found for hit in hits):
            if passage.end < passage.start:
                raise self._failure(
                    "broken", f"sent a passage whose start ({passage.start}) is after its end ({passage.end})"
                )
        return found

    async def health(self) -> Health:
        """The server's description of itself and its index."""
        answer = await self._ask("GET", "/health", b"")
        try:
            return decode_json(answer, Health)
        except msgspec.DecodeError as error:
            raise self._failure("broken", f"answered with something other than its health ({error})") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        try:
            async with self._turns, asyncio.timeout(self._timeout_s):
                # No compression, so that the size limit applies to the bytes that were sent.
                headers = {"content-type": "application/json", "accept-encoding": "identity"}
                if self._authorization:
                    headers["authorization"] = self._authorization
                async with self._http.stream(method, self.url + path, content=body, headers=headers) as response:
                    answer = await self._read(response)
        except TimeoutError:
            raise self._failure("timeout", f"did not answer within {self._timeout_s:g} s") from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            hint = f"quaere serve-search --index DIR --port {httpx.URL(self.url).port or 80}"
            raise self._failure("unreachable", f"cannot be reached ({reason})", hint) from error
        except httpx.RequestError as error:
            raise self._failure("broken", f"sent an answer that cannot be read ({error})") from error
        self._check_status(response.status_code, answer)
        return answer

    async def _read(self, response: httpx.Response) -> bytes:
        answer = bytearray()
        async for chunk in response.aiter_bytes():
            answer += chunk
            if len(answer) > self._max_response_bytes:
                raise self._failure("broken", f"answered with more than {self._max_response_bytes} bytes")
        return bytes(answer)

    def _check_status(self, status: int, answer: bytes) -> None:
        if status == httpx.codes.OK:
            return
        reason = " ".join(self._hide(answer.decode("utf-8", "replace"))[:300].split())
        if status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
            raise self._failure("overloaded", f"is overloaded ({status})")
        if 400 <= status < 500:
            hint = f"export {KEY}=..., or {LOGIN}=USER:PASSWORD" if status in (401, 403) else ""
            raise self._failure("rejected", f"refused the request ({status}): {reason}", hint)
        raise self._failure("broken", f"failed ({status}): {reason}")

    def _failure(self, kind: str, what: str, hint: str = "") -> SearchFailed:
        return SearchFailed(f"the search server {self.url} {self._hide(what)}", kind=kind, hint=hint)

    def _hide(self, said: str) -> str:
        """The text with all secrets replaced by `***`: a server may repeat what it was sent, and errors are stored."""
        for secret in _secrets(self._authorization):
            said = said.replace(secret, "***")
        return said


def _authorization() -> str:
    """The Authorization header from the environment; "" for none."""
    key, login = read_secret(KEY), read_secret(LOGIN)
    if key and login:
        raise BadInput(f"both {KEY} and {LOGIN} are set, but only one can be sent", hint=f"unset {LOGIN}")
    if login and ":" not in login:
        raise BadInput(f"{LOGIN} must be USER:PASSWORD", hint=f"export {LOGIN}=USER:PASSWORD")
    return f"Basic {base64.b64encode(login.encode()).decode()}" if login else f"Bearer {key}" if key else ""


def _secrets(authorization: str) -> list[str]:
    """The secret parts of an Authorization header, longest first."""
    scheme, _, sent = authorization.partition(" ")
    if scheme != "Basic":
        return [sent] if sent else []
    login = base64.b64decode(sent).decode()
    return [sent, login, login.partition(":")[2]]


def _passage(document: WireDocument) -> Passage:
    """The passage in a server's document; without offsets, the document is one passage."""
    title, text = split_contents(document.contents)
    passage_id = str(document.id)
    end = document.start + len(text) if document.end is None else document.end
    doc_id = passage_id if document.doc_id is None else document.doc_id
    return Passage(passage_id, doc_id, title, text, document.start, end, document.place, document.heading)


def server_url(url: str) -> str:
    """The server's address without a trailing `/` or `/retrieve`; `BadInput` if it is no URL or holds a secret."""
    if set("@?#") & set(url):
        said = "the URL of a search server may not contain a user or password, nor @, ? or #"
        raise BadInput(said, hint=f"export {LOGIN}=USER:PASSWORD (or {KEY}=...) and leave it out of the URL")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadInput(f"{url!r} is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadInput(f"{url!r} is not the URL of a search server", hint="it looks like http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/retrieve").rstrip("/")


def server_urls(text: str) -> list[str]:
    """The servers' addresses in a list separated by commas; `BadInput` if one is no URL.

    server_urls("http://a:8000, http://b:8000/") == ["http://a:8000", "http://b:8000"]
    """
    return [server_url(url.strip()) for url in text.split(",") if url.strip()]


def is_loopback(host: str) -> bool:
    """True for `localhost` and the addresses of this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

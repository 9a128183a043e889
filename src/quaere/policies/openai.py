"""Policy behind a server with an OpenAI-compatible `POST {base_url}/chat/completions`.

    endpoint = parse_endpoint("openai:qwen3-4b@http://localhost:8000/v1")
    async with OpenAISampler(endpoint) as sampler:
        reply = await sampler.reply([{"role": "user", "content": "Who built the Halm bridge?"}], SamplingParams())

It returns text, not tokens, so it is used for asking, judging and teaching, and cannot be trained. The API key is read
from an environment variable at each request; it is neither stored nor shown.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx
import msgspec
from msgspec import UNSET, Struct, UnsetType

from quaere.endpoint import Endpoint, error_message, one_line, open_client, parse_endpoint
from quaere.errors import SamplingFailed
from quaere.policies.sampler import ChatReply, SamplingParams
from quaere.records import StopReason
from quaere.records.foreign_json import decode_json

__all__ = ["Endpoint", "OpenAISampler", "parse_endpoint", "restore_stop"]

_MAX_BYTES = 8 << 20
_KEY_ENV = "OPENAI_API_KEY"


class OpenAISampler:
    """A `ChatSampler` over HTTP. `timeout_s` limits a whole request, from connecting to the last byte."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float = 120.0) -> None:
        self.name = f"openai:{endpoint.model}@{endpoint.base_url}"
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    async def reply(self, messages: Sequence[Mapping[str, str]], params: SamplingParams) -> ChatReply:
        """The next assistant message; every failure raises `SamplingFailed` with a one-line message."""
        status, content = await self._post(_request_body(self.endpoint.model, messages, params))
        if status != 200:
            raise self._refused(status, content)
        return _read_reply(content, params.stop, self.endpoint.base_url)

    async def stop(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def _post(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """Send one request; the answer is read up to a size limit."""
        url = f"{self.endpoint.base_url}/chat/completions"
        if self._client is None:
            self._client = open_client(httpx.AsyncClient, url, timeout=None)
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout_s),  # httpx's own timeouts are per read: slow bytes would never end
                self._client.stream("POST", url, content=json.dumps(body), headers=self._headers()) as response,
            ):
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > _MAX_BYTES:
                        raise SamplingFailed(f"the endpoint {url} answered with more than {_MAX_BYTES >> 20} MiB")
                return response.status_code, bytes(content)
        except TimeoutError as error:
            said = f"the endpoint {url} did not answer within {self._timeout_s:g} s"
            raise SamplingFailed(said, hint="allow more time, or fewer new tokens") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = one_line(str(error)) or type(error).__name__
            hint = f"is the server running? try: curl {self.endpoint.base_url}/models"
            raise SamplingFailed(f"the endpoint {url} cannot be reached: {reason}", hint=hint) from error

    def _headers(self) -> dict[str, str]:
        # No compression, so that the size limit applies to the bytes that were sent.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        key = self._key()
        if not (key.isascii() and key.isprintable()):
            raise SamplingFailed(f"the key in {_KEY_ENV} must be printable ASCII", hint=f"export {_KEY_ENV}=...")
        return headers | ({"Authorization": f"Bearer {key}"} if key else {})

    def _key(self) -> str:
        return os.environ.get(_KEY_ENV, "").strip()

    def _refused(self, status: int, content: bytes) -> SamplingFailed:
        """Error for a status other than 200: its meaning, then the server's message."""
        base_url, key = self.endpoint.base_url, self._key()
        said = error_message(content, key)
        about_key = f"{'does not accept the key in' if key else 'asks for a key in'} {_KEY_ENV}"
        no_model = f"has no model {self.endpoint.model}, or its URL lacks a part such as /v1"
        meanings = {
            401: (about_key, f"export {_KEY_ENV}=..."),
            403: (about_key, f"export {_KEY_ENV}=..."),
            404: (no_model, f"curl {base_url}/models"),
            429: ("allows no more requests for now", "wait, then try again"),
        }
        meaning, hint = meanings.get(status, (f"answered with status {status}", ""))
        return SamplingFailed(f"the endpoint {base_url} {meaning}" + (f": {said}" if said else ""), hint=hint)


# -------------------------------------------------------------------------------------------------------- the protocol


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET  # vLLM: the stop string or token that ended the text
    matched_stop: str | int | UnsetType | None = UNSET  # SGLang's name for the same


class _Usage(Struct):
    completion_tokens: int = 0


class _Completion(Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


def _request_body(model: str, messages: Sequence[Mapping[str, str]], params: SamplingParams) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "seed": params.seed,
    }
    # Not every server supports these fields, so they are sent only if they differ from the default.
    optional = {"stop": list(params.stop), "top_k": params.top_k, "stop_token_ids": list(params.stop_token_ids)}
    return body | {name: value for name, value in optional.items() if value}


def _read_reply(content: bytes, stop: Sequence[str], base_url: str) -> ChatReply:
    try:
        completion = decode_json(content, _Completion)
        choice = completion.choices[0]
    except (msgspec.DecodeError, IndexError) as error:
        reason = "it has no choices" if isinstance(error, IndexError) else one_line(str(error))
        raise SamplingFailed(f"the endpoint {base_url} sent no readable completion: {reason}") from error
    text = choice.message.content or ""
    num_tokens = completion.usage.completion_tokens if completion.usage else 0
    match choice.finish_reason:
        case "length":
            return ChatReply(text=text, stop_reason="length", num_tokens=num_tokens)
        case "stop" | "stop_sequence" | "eos" | "eos_token" | "end_turn":
            reported = choice.stop_reason if choice.stop_reason is not UNSET else choice.matched_stop
            text, stop_reason = restore_stop(text, stop, reported)
            return ChatReply(text=text, stop_reason=stop_reason, num_tokens=num_tokens)
        case "content_filter":
            raise SamplingFailed(f"the endpoint {base_url} returned no reply: its content filter blocked it")
        case other:
            raise SamplingFailed(f"the endpoint {base_url} sent an unknown finish_reason: {other}")


def restore_stop(
    text: str, stop: Sequence[str], reported: str | int | UnsetType | None = UNSET
) -> tuple[str, StopReason]:
    """The text with the stop string that the server removed, if it can be inferred, and the stop reason.

    Servers remove the stop string from the text, but protocols need it: without `</tool_call>` a call is unclosed.

    1. If the server reports what it stopped at: a string of `stop` is appended; a token id or null means that the model
       ended its turn.
    2. Otherwise, a text that still ends with a stop string is unchanged.
    3. Otherwise, a stop string that is a closing tag is appended if its opening tag is unclosed; of several, the one
       opened last.
    4. Otherwise the model ended its turn.

        restore_stop("<tool_call>{}", ("</tool_call>", "</answer>")) == ("<tool_call>{}</tool_call>", "stop_string")
        restore_stop("Hello.", ("</answer>",)) == ("Hello.", "end_of_turn")
    """
    if isinstance(reported, str) and reported in stop:
        return (text if text.endswith(reported) else text + reported), "stop_string"
    if any(text.endswith(string) for string in stop if string):
        return text, "stop_string"
    if reported is None or isinstance(reported, int):
        return text, "end_of_turn"
    opened = {string: _unclosed_at(text, string) for string in stop}
    last = max(opened, key=lambda string: opened[string], default="")
    return (text + last, "stop_string") if opened.get(last, -1) >= 0 else (text, "end_of_turn")


def _unclosed_at(text: str, closing: str) -> int:
    """Index of the unclosed opening tag that `closing` would close, or -1."""
    if not (closing.startswith("</") and closing.endswith(">")):
        return -1
    at = text.rfind(f"<{closing[2:]}")
    return at if at > text.rfind(closing) else -1

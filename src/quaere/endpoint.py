"""A model behind a server with OpenAI's interface: how it is named, what its answers have in common, and its key.

    parse_endpoint("openai:qwen3-4b@http://localhost:8000/v1")
    read_secret("QUAERE_API_KEY")                   # $QUAERE_API_KEY, or the content of the file $QUAERE_API_KEY_FILE
    open_client(httpx.AsyncClient, "http://localhost:8000/v1", timeout=None)

A name holds no secret: it is stored with runs and indexes. Keys and passwords are read from the environment or a file,
never from the command line, where `ps` shows them. They are sent to servers or compared with what a client sent; they
are never stored or printed.
"""

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json

T = TypeVar("T")
_SYNTAX = "openai:MODEL@BASE_URL, such as openai:qwen3-4b@http://localhost:8000/v1"


class Endpoint(Struct, frozen=True):
    """A model on a server.

    Endpoint(model="qwen3-4b", base_url="http://localhost:8000/v1")
    """

    model: str
    base_url: str


def parse_endpoint(text: str, option: str = "--model") -> Endpoint:
    """The endpoint in `openai:MODEL@BASE_URL`; the URL begins at the first `@http://` or `@https://`.

    A text that is none is a `BadInput`, which says what to write after `option`.

    parse_endpoint("openai:qwen3-4b@http://localhost:8000/v1") == Endpoint("qwen3-4b", "http://localhost:8000/v1")
    """
    scheme, _, rest = text.partition(":")
    starts = [at for at in (rest.find("@http://"), rest.find("@https://")) if at >= 0]
    if scheme != "openai" or not starts:
        raise BadInput(f"an endpoint must be written as {_SYNTAX}", hint=f"{option} {_SYNTAX.rpartition(' ')[2]}")
    model, base_url = rest[: min(starts)].strip(), rest[min(starts) + 1 :].strip().rstrip("/")
    if not model:
        raise BadInput("the endpoint names no model", hint=f"write it like {_SYNTAX}")
    try:
        parts = urlsplit(base_url)
        _ = parts.port  # raises if the port is not a number
    except ValueError as error:
        raise BadInput("the endpoint's URL cannot be parsed", hint=f"write it like {_SYNTAX}") from error
    if not parts.hostname:
        raise BadInput("the endpoint's URL has no host", hint=f"write it like {_SYNTAX}")
    if parts.username or parts.password:  # runs store the URL and must never store a secret
        raise BadInput(
            "the endpoint's URL holds a user or password, which would be stored", hint="export OPENAI_API_KEY=..."
        )
    if parts.query or parts.fragment:
        raise BadInput("the endpoint's URL may not contain ? or #", hint=f"write it like {_SYNTAX}")
    return Endpoint(model=model, base_url=base_url)


def open_client(kind: Callable[..., T], url: str, **options: Any) -> T:
    """An HTTP client, of httpx or httpx2, for the server at a URL; `BadInput` if the environment's settings are wrong.

    A proxy of the environment is not used for a server on this machine: what is meant for it would leave the machine.
    """
    try:
        return kind(trust_env=not _is_loopback(urlsplit(url).hostname or ""), **options)
    except Exception as error:  # the settings are all that can be wrong, in many ways
        is_known = isinstance(error, ImportError | OSError)  # others may repeat the password of a proxy's URL
        reason = one_line(str(error)) if is_known else "one is not a URL of the right kind"
        said = f"the proxy or certificates that the environment names cannot be used: {reason}"
        raise BadInput(said, hint="check ALL_PROXY, HTTP_PROXY, HTTPS_PROXY, SSL_CERT_FILE and SSL_CERT_DIR") from error


def bypass_proxy(url: str) -> None:
    """Name a server on this machine in NO_PROXY, for a library that makes clients of its own."""
    host = urlsplit(url).hostname or ""
    named = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    if _is_loopback(host) and host not in named:
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(filter(None, (*named, host)))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by the Retry-After header, given as seconds or as a date; None if missing or invalid."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal() and value.isascii():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def error_message(content: bytes, key: str) -> str:
    """The server's error message: `{"error": {"message": ...}}`, `{"message": ...}`, or the body as text.

    The key is removed from it.
    """
    content = content.replace(key.encode(), b"***") if key else content
    try:
        value = decode_json(content, Any)
    except msgspec.DecodeError:
        return one_line(content[:2000].decode(errors="replace"))
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return one_line(value) if isinstance(value, str) else ""


def one_line(text: str, num_chars: int = 200) -> str:
    """At most `num_chars` of a text on one line, without control characters, which could act on a terminal."""
    line = "".join(character if character.isprintable() else " " for character in text[: 4 * num_chars])
    return " ".join(line.split())[:num_chars]


# -------------------------------------------------------------------------------------------------------------- secrets


# Two forms: user and password before an @ in the host part; or, after a colon, text that is not a port number and ends
# with an @, because a password may contain a slash.
_URL_WITH_LOGIN = re.compile(r"https?://(?:[^\s/?#]*@|[^\s/?#@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
_MAX_CHARS = 4096


def read_secret(variable: str, file: Path | None = None) -> str:
    """The secret from `file`, else from the environment variable, else from the file named by `VARIABLE_FILE`; else "".

    White space around the secret is stripped. A secret with characters that cannot be sent in an HTTP header is
    refused; the error does not show it.
    """
    if file is None and (secret := os.environ.get(variable, "").strip()):
        return _checked(secret, f"${variable}")
    named = file or os.environ.get(f"{variable}_FILE")
    if not named:
        return ""
    path = Path(named)
    try:
        with path.open(encoding="utf-8") as lines:
            secret = lines.read(_MAX_CHARS + 1).strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BadInput(f"cannot read the key file {path}: {reason}", hint="give a text file with the key") from None
    if not secret:
        raise BadInput(f"the key file {path} is empty", hint="write the key into it, on one line")
    return _checked(secret, str(path))


def refuse_login(text: str, what: str) -> None:
    """Raise `BadInput` if a setting or option contains a URL with a user or password: settings are stored and shown.

    refuse_login("http://me:s3cret@host:8000", "--index") raises; http://host:8000/@me passes.
    """
    if _URL_WITH_LOGIN.search(text):
        hint = "remove it from the URL and export QUAERE_SEARCH_LOGIN=USER:PASSWORD, or OPENAI_API_KEY=... for a model"
        raise BadInput(f"{what} holds a user or password, which would be stored and shown", hint=hint)


def _checked(secret: str, where: str) -> str:
    if len(secret) > _MAX_CHARS or not (secret.isascii() and secret.isprintable()):
        raise BadInput(
            f"the secret in {where} must be printable ASCII of at most {_MAX_CHARS} characters",
            hint="check that it holds the key and nothing else",
        )
    return secret

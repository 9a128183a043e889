"""API keys and passwords, read from the environment or a file; never from the command line, where `ps` shows them.

    read_secret("QUAERE_API_KEY")                   # $QUAERE_API_KEY, or the content of the file $QUAERE_API_KEY_FILE

Secrets are sent to servers or compared with what a client sent; they are never stored or printed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from quaere.errors import BadInput

# Two forms: user and password before an @ in the host part; or, after a colon, text that is not a port number and ends
# with an @, because a password may contain a slash.
_URL_WITH_LOGIN = re.compile(r"https?://(?:[^\s/?#]*@|[^\s/?#@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
_MAX_CHARS = 4096


def read_secret(variable: str, file: Path | None = None) -> str:
    """The secret from `file`, else from the environment variable, else from the file named by `VARIABLE_FILE`; else "".

    White space around the secret is stripped. A secret with characters that cannot be sent in an HTTP header is
    refused; the error does not show it.
    """
    named = os.environ.get(f"{variable}_FILE", "")
    if file is None and (secret := os.environ.get(variable, "").strip()):
        return _checked(secret, f"${variable}")
    path = file or (Path(named) if named else None)
    if path is None:
        return ""
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

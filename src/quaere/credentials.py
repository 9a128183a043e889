"""Keys and passwords: read from the environment or a file, never from the command line, where `ps` shows them.

    read_secret("QUAERE_API_KEY")                   # $QUAERE_API_KEY, or what the file $QUAERE_API_KEY_FILE holds

They are sent, and compared; nothing stores or prints them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from quaere.errors import BadInput

# Something before an @ and the path; or, behind a colon, something that is no port: a password may hold a slash.
_URL_WITH_LOGIN = re.compile(r"https?://(?:[^\s/?#]*@|[^\s/?#@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
_MAX_CHARS = 4096


def read_secret(variable: str, file: Path | None = None) -> str:
    """The secret in `file`, else in the environment variable, else in the file that `VARIABLE_FILE` names; else "".

    A file is read up to a line break at its end. What cannot stand in a header is refused, without being shown.
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
        reason = getattr(error, "strerror", None) or "it is not text"
        raise BadInput(f"the key file {path} cannot be read: {reason}") from None
    if not secret:
        raise BadInput(f"the key file {path} is empty")
    return _checked(secret, str(path))


def refuse_login(text: str, what: str) -> None:
    """Refuse a setting or an option that holds a URL with a user or password in it: both are stored and shown.

    refuse_login("http://me:s3cret@host:8000", "--index") raises; http://host:8000/@me is let through.
    """
    if _URL_WITH_LOGIN.search(text):
        hint = "leave it out; export QUAERE_SEARCH_LOGIN=USER:PASSWORD, or OPENAI_API_KEY=... for a model"
        raise BadInput(f"{what} holds a user or password, which would be stored and shown", hint=hint)


def _checked(secret: str, where: str) -> str:
    if len(secret) > _MAX_CHARS or not (secret.isascii() and secret.isprintable()):
        raise BadInput(f"the secret in {where} holds characters that no key has, or too many")
    return secret

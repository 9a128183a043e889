"""JSON that somebody else wrote: a question file, a request, a server's answer.

decode_json(b'{"id": "q1", "text": "Who?"}', Question) == Question(id="q1", text="Who?")
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(content: bytes | str, type: type[T]) -> T:
    """The value, or `msgspec.DecodeError` with one line that says what is wrong, whatever the content is.

    msgspec lets two other errors through: text that is not Unicode, and lists in lists deeper than Python's stack,
    which are a few kilobytes. `msgspec.ValidationError` (JSON, but not of this type) is a `DecodeError` too.
    """
    try:
        return msgspec.json.decode(content, type=type)
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error

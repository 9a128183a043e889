"""Decoder for JSON from outside: question files, requests, servers' answers.

decode_json(b'{"id": "q1", "text": "Who?"}', Question) == Question(id="q1", text="Who?")
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(content: bytes | str, type: type[T]) -> T:
    """Decode JSON to `type`; any fault of the content raises `msgspec.DecodeError` with a one-line message.

    msgspec itself lets two other exceptions through: `UnicodeError` for bytes that are not UTF-8, and `RecursionError`
    for lists nested deeper than Python's stack, for which a few kilobytes are enough. `msgspec.ValidationError` (valid
    JSON of another type) is a subclass of `DecodeError`.
    """
    try:
        return msgspec.json.decode(content, type=type)
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    except RecursionError as error:
        raise msgspec.DecodeError("the JSON is nested too deeply") from error

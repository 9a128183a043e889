"""Fields of a GGUF file, and the error for one that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quaere.errors import ModelMissing

if TYPE_CHECKING:
    from gguf import GGUFReader

_REQUIRED = object()


def read_field(reader: GGUFReader, key: str, default: Any = _REQUIRED) -> Any:
    """The value of a field; `default` if the file lacks it, `ModelMissing` if there is no default."""
    field = reader.fields.get(key)
    if field is not None:
        return field.contents()
    if default is _REQUIRED:
        raise ModelMissing(f"the GGUF file lacks the field {key}")
    return default


def read_token_id(reader: GGUFReader, key: str) -> int | None:
    """The id of a token with a part to play (bos, eos, ...), or None."""
    token_id = read_field(reader, f"tokenizer.ggml.{key}_token_id", None)
    return None if token_id is None else int(token_id)

"""Loader of tokenizers from untrusted model folders: no code in them is run, and errors are one line.

renderer = Renderer(load_tokenizer(resolve_model("./my-model").tokenizer))
"""

from __future__ import annotations

from typing import Any

from quaere.errors import ModelMissing


def load_tokenizer(path: str) -> Any:
    """The tokenizer in a model folder."""
    from transformers import AutoTokenizer

    try:
        # False must be explicit: without it transformers asks at a terminal whether to run the folder's code.
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # invalid files raise many exception types
        raise ModelMissing(f"cannot load a tokenizer from {path}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """First line of an exception's message, cut to 300 characters; the type's name if there is no message."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__

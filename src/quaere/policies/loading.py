"""Tokenizers out of model folders that somebody else wrote: no code of theirs runs, and what is wrong is one line.

renderer = Renderer(load_tokenizer(resolve_model("./my-model").tokenizer))
"""

from __future__ import annotations

from typing import Any

from quaere.errors import ModelMissing


def load_tokenizer(path: str) -> Any:
    """The tokenizer in this folder."""
    from transformers import AutoTokenizer

    try:
        # Said outright: without it transformers asks at a terminal whether to run the folder's code.
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # files can be wrong in many ways, and each raises a type of its own
        raise ModelMissing(f"cannot load a tokenizer from {path}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """What an error of a library says, cut to one line of bearable length; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__

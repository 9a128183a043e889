"""LoRA adapters in folders of their own (peft's layout), and the names of their base models.

    is_adapter(Path("warm"))              # True if adapter_config.json and adapter_model.safetensors exist
    split_base("warm@models/qwen")        == ("warm", "models/qwen")      # the base given by hand, if it has moved
    base_names(Path("warm"))              == ["/home/ada/models/qwen", "qwen"]

The weights are read by `native/lora.py`; `catalogue.resolve_model` combines a base with its adapters.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from quaere.errors import ModelMissing

T = TypeVar("T")

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Files that Quaere writes beside its own adapters, and their field with the base model as the user named it.
_NOTES = {"quaere.json": "base", "warmup.json": "base_model"}


class _Config(Struct):
    """The fields of peft's config that are used here."""

    base_model_name_or_path: str | None = None
    peft_type: str = "LORA"


def is_adapter(folder: Path) -> bool:
    """True if the folder contains an adapter in peft's layout."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def split_base(name: str) -> tuple[str, str]:
    """The two parts of `ADAPTER@BASE`; for any other name, the name and ""."""
    if not Path(name).expanduser().is_dir():
        for place in (place for place, letter in enumerate(name) if letter == "@"):
            if is_adapter(Path(name[:place]).expanduser()):
                return name[:place], name[place + 1 :]
    return name, ""


def base_names(folder: Path) -> list[str]:
    """All names that the folder gives for its base model, peft's first; one may be a path on another machine."""
    config = _read(folder / CONFIG, _Config)
    if config.peft_type != "LORA":
        raise ModelMissing(f"{folder} is an adapter of type {config.peft_type}; only type LORA is supported")
    names = [config.base_model_name_or_path]
    for file, field in _NOTES.items():
        if (folder / file).is_file():
            found = _read(folder / file, dict[str, object]).get(field)
            names.append(found if isinstance(found, str) else None)
    return list(dict.fromkeys(name for name in names if name))


def _read(path: Path, type: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelMissing(f"the adapter's file {path} cannot be read: {' '.join(str(error).split())}") from error

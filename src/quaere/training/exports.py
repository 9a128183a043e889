"""A trained role as a folder that transformers and vLLM can load.

weights = find_role(Path("runs/drzero-1"), "solver")
export_role(weights, Path("solver"), merge=True)          # config.json, model.safetensors, tokenizer, quaere.json
"""

import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec

from quaere.dialects.notes import (
    NOTES,
    WARMUP,
    Notes,
    RoleWeights,
    load_role,
    read_json,
    reading_checkpoint,
    tokenizer_folder,
)
from quaere.disk import new_folder, refuse_taken
from quaere.policies.catalogue import lasting_name, resolve_model
from quaere.policies.model_folders import CONFIG as _ADAPTER_CONFIG
from quaere.policies.model_folders import WEIGHTS as _ADAPTER_WEIGHTS
from quaere.policies.model_folders import load_tokenizer

# Copied, not loaded and saved again, so that they stay exactly as published with the base model.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


def export_role(
    weights: RoleWeights,
    out: Path,
    *,
    merge: bool = False,
    dtype: Literal["float32", "bfloat16"] = "float32",
    force: bool = False,
) -> Path:
    """Write the role to the folder `out` with one atomic rename, and return `out`; BadInput if the folder is taken.

    An adapter stays an adapter unless `merge` adds it to its base; a whole model is written as it is. `dtype` is that
    of the written weights. `force` replaces an earlier export, but no other folder.
    """
    from quaere.training.learner import save_model

    refuse_taken(out, "an export of quaere", is_ours=(out / NOTES).is_file(), force=force)
    with new_folder(out) as folder, reading_checkpoint(weights.folder):
        if weights.is_adapter and not merge:
            _write_adapter(weights, folder, dtype)
        else:
            save_model(load_role(weights, dtype=dtype), folder)
            copy_tokenizer(tokenizer_folder(weights), folder)
        (folder / NOTES).write_bytes(msgspec.json.format(msgspec.json.encode(_describe(weights)), indent=2))
    return out


def _write_adapter(weights: RoleWeights, folder: Path, dtype: str) -> None:
    """Write the adapter; its config names the base by hub id or absolute path, so that it loads from any directory."""
    from safetensors.torch import load_file

    from quaere.training.learner import save_tensors

    save_tensors(load_file(weights.folder / _ADAPTER_WEIGHTS), folder / _ADAPTER_WEIGHTS, dtype)
    config = read_json(weights.folder / _ADAPTER_CONFIG, dict[str, Any])
    config["base_model_name_or_path"] = lasting_name(weights.base)
    (folder / _ADAPTER_CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer beside an exported model; without the tags that training spelled out."""
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    tokenizer = load_tokenizer(str(folder))
    if getattr(tokenizer, "spelled_out", ()):  # other programs do not spell them out by themselves
        tokenizer.save_pretrained(folder)


_NOTED = ("recipe", "style", "limits", "evidence", "dialect", "evaluation", "abstention")


def _describe(weights: RoleWeights) -> dict[str, Any]:
    """Content of `quaere.json`: the origin of an export, including a warm-up of its base."""
    described: dict[str, Any] = {name: getattr(weights, name) for name in ("run", "role", "step", "base")}
    return described | _describe_prompts(weights.notes, weights.base)


def _describe_prompts(notes: Notes, base: str) -> dict[str, Any]:
    described = {name: getattr(notes, name) for name in _NOTED}
    # The base must be present (no download): without it, whether it was warmed up would stay undisclosed.
    warmups = (_find_warmup(Path(folder)) for folder in resolve_model(base, pull=False).folders)
    if warmup := next(filter(None, warmups), None):
        described["warmup"] = warmup
    return described


def _find_warmup(folder: Path) -> Any:
    """The warm-up of the model in the folder, also if it is an export of one that was warmed up; None without one."""
    if (folder / WARMUP).is_file():
        return read_json(folder / WARMUP, dict[str, Any])
    return _read_notes(folder).get("warmup")


def _read_notes(folder: Path) -> dict[str, Any]:
    return read_json(folder / NOTES, dict[str, Any]) if (folder / NOTES).is_file() else {}


def export_untrained(model: str, notes: Notes, out: Path) -> None:
    """Write a model to the folder `out` as it is, with notes on how it is to be prompted.

    A model that is an export keeps its origin: the run and the recipe that trained it.
    """
    with new_folder(out) as folder:
        shutil.copytree(resolve_model(model).folders[0], folder, dirs_exist_ok=True)
        described = _describe_prompts(notes, model)
        del described["recipe"]  # nothing was trained by it
        described = _read_notes(folder) | described
        (folder / NOTES).write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))

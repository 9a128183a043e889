"""A warmed-up model as a plain Hugging Face folder, with `warmup.json` to say what it was taught by."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quaere.errors import BadInput

MANIFEST = "warmup.json"


class WarmupManifest(Struct, frozen=True):
    """What `warmup.json` says. A model that has one was taught by demonstrations, so nothing built on it is data-free.

    WarmupManifest(recipe="drzero", data="oracle", teacher="", base_model="smollm2-135m", ...)
    """

    recipe: str
    data: Literal["oracle", "teacher"]
    teacher: str  # the endpoint's name, "" for the oracle
    base_model: str
    roles: tuple[str, ...]
    style: str
    hop_ratio: tuple[int, ...]
    world_family: str
    world_seed: int
    num_articles: int
    num_episodes: int
    num_dropped: dict[str, int]  # episodes that were played and not kept, by reason
    num_held_out: int
    num_steps: int
    epochs: int
    batch: int
    learning_rate: float
    lora_rank: int
    seed: int
    loss_before: float
    loss_after: float


def check_target(out: Path, force: bool) -> None:
    """Refuse to write where something else is; with `force`, only an earlier warm-up is replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MANIFEST).is_file():
        raise BadInput(f"{out} exists and holds no warmed-up model; it is left alone", hint="choose another --out")
    if not force:
        raise BadInput(f"there is a warmed-up model at {out} already", hint="--force replaces it")


def save_folder(model: Any, tokenizer: Any, out: Path, manifest: WarmupManifest, *, force: bool = False) -> None:
    """Write model, tokenizer and manifest under another name beside `out`, then rename: all of it or nothing."""
    check_target(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        try:
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            (partial / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
            _put_in_place(partial, out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise BadInput(f"cannot write the model to {out}: {error.strerror or error}") from error


def _put_in_place(partial: Path, out: Path) -> None:
    partial.chmod(0o755)  # a temporary folder is private; a model is not
    for path in partial.iterdir():
        path.chmod(0o644)
        _sync(path)
    _sync(partial)
    aside = partial.with_name(partial.name.replace(".partial-", ".replaced-"))
    if replaced := out.exists():
        out.rename(aside)
    partial.rename(out)
    _sync(out.parent)
    if replaced:
        shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

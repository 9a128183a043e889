"""A warmed-up model, or its adapter, as a Hugging Face folder with `warmup.json`, which records the warm-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quaere.disk import new_folder, write_file
from quaere.errors import BadInput
from quaere.policies.catalogue import lasting_name
from quaere.training.adapters import save_model, save_weights
from quaere.warmup.dialect_check import Learnt

MANIFEST = "warmup.json"


class WarmupManifest(Struct, frozen=True):
    """The content of `warmup.json`: a model with this file learnt from demonstrations, so no run from it is data-free.

    WarmupManifest(recipe="drzero", data="oracle", teacher="", base_model="smollm2-135m", ...)
    """

    recipe: str
    data: Literal["oracle", "teacher", "documents"]
    teacher: str  # the endpoint's name; "" for the oracle
    base_model: str
    roles: tuple[str, ...]
    style: str
    hop_ratio: tuple[int, ...]  # of a proposer's lessons, in Dr. Zero's count
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
    # Files of models taught before there were several dialects lack the fields below.
    also: tuple[str, ...] = ()  # further recipes whose dialect had an equal share of the episodes
    evidence: bool = False  # true if it was taught to quote the sentence it relies on
    fact_ratio: tuple[int, ...] = ()  # of a solver's lessons; if empty, `hop_ratio` was the ratio of facts too
    lesson_ratio: tuple[int, ...] = ()  # of score's reports, rubrics and assessments; empty if it was not taught score
    learnt: dict[str, Learnt] = {}  # of several dialects: the held-out tasks of each, by dialect and role
    stopped: bool = False  # by the user, after `num_steps` of more steps


def check_target(out: Path, force: bool) -> None:
    """Raise `BadInput` if `out` is not free; with `force`, only an earlier warm-up may be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MANIFEST).is_file():
        raise BadInput(f"{out} exists and is no warmed-up model, so it is not overwritten", hint="choose another --out")
    if not force:
        raise BadInput(f"there is already a warmed-up model at {out}", hint="--force replaces it")


def save_folder(model: Any, tokenizer: Any, out: Path, manifest: WarmupManifest, *, force: bool = False) -> None:
    """Write model, tokenizer and manifest to a temporary folder beside `out`, then rename it: all or nothing."""
    check_target(out, force)
    with new_folder(out) as folder:
        save_model(model, folder)
        tokenizer.save_pretrained(folder)
        write_manifest(manifest, folder)


def save_adapter(
    model: Any, adapter: str, out: Path, manifest: WarmupManifest, *, dtype: str = "float32", force: bool = False
) -> None:
    """Like `save_folder` for an adapter alone: its tensors and the name of its base, whose tokenizer it shares."""
    check_target(out, force)
    model.peft_config[adapter].base_model_name_or_path = lasting_name(manifest.base_model)
    with new_folder(out) as folder:
        save_weights(model, folder, adapter, dtype)
        write_manifest(manifest, folder)


def write_manifest(manifest: WarmupManifest, folder: Path) -> None:
    """Write or replace the manifest of a folder, all or nothing."""
    write_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")

"""Checkpoints that are whole or not there.

    checkpoints/step-000012/
        manifest.json       step, state, and the size and SHA-256 of every other file; written last. `state["best"]`
                            names the checkpoint with the best validated weights so far, which is never pruned
        ...                 whatever `write` put there: weights in Hugging Face layout, optimizer.safetensors

A checkpoint is written under another name, every file is synced, and it is renamed when it is complete. Killing the
process at any moment leaves the earlier checkpoints as they were.

    save_checkpoint(run / "checkpoints", 12, write=learner.save, state={"phase": "solver"})
    latest = find_checkpoints(run / "checkpoints")[-1]
    learner.load(latest.path)
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.training.folders import sync

Which = int | Literal["best", "last"]
"""Which of a run's checkpoints: that of a step, the best by validation, or the last."""

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{6,})")
_TAKE_LAST = "--checkpoint last"


class FileEntry(Struct, frozen=True):
    """A file of a checkpoint.

    FileEntry(num_bytes=538_090_408, sha256="b179...")
    """

    num_bytes: int
    sha256: str


class Manifest(Struct, frozen=True):
    """What `manifest.json` says.

    Manifest(step=12, state={"phase": "solver"}, files={"model.safetensors": FileEntry(...)})
    """

    step: int
    state: dict[str, Any]
    files: dict[str, FileEntry]


class Best(Struct, frozen=True):
    """The checkpoint that holds a role's best weights so far, by exact match on the validation questions.

    Best(role="solver", step=20, exact_match=0.42, num_questions=64).standard_error == 0.062
    """

    role: str
    step: int
    exact_match: float
    num_questions: int

    @property
    def standard_error(self) -> float:
        """Standard error of the exact match: differences of this size between checkpoints are noise."""
        return math.sqrt(self.exact_match * (1 - self.exact_match) / self.num_questions)


class Checkpoint(Struct, frozen=True):
    """A complete checkpoint on disk.

    Checkpoint(path=Path("run/checkpoints/step-000012"), step=12, state={"phase": "solver"})
    """

    path: Path
    step: int
    state: dict[str, Any]

    @property
    def best(self) -> Best | None:
        """The best checkpoint when this one was written; None without validation."""
        return msgspec.convert(self.state.get("best"), Best | None)


def save_checkpoint(
    root: Path, step: int, write: Callable[[Path], None], state: Mapping[str, Any], *, keep: int | None = None
) -> Checkpoint:
    """Write a checkpoint; with `keep`, delete all but the newest `keep` and their best once it is there.

    A checkpoint of the same step is replaced: it can only be the same, or one that a resumed run has left behind.
    """
    root.mkdir(parents=True, exist_ok=True)
    final = root / f"step-{step:06d}"
    partial = root / f".{final.name}.partial-{os.getpid()}"
    _remove_leftovers(root)
    partial.mkdir()
    write(partial)
    names = sorted(str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file())
    manifest = Manifest(step, dict(state), {name: _seal(partial / name) for name in names})
    (partial / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    _seal(partial / _MANIFEST)
    for folder in [*(path for path in partial.rglob("*") if path.is_dir()), partial]:
        sync(folder)
    if final.exists():
        # A directory cannot be renamed over another; for this instant the older checkpoints stand in.
        discard_checkpoint(final)
    partial.rename(final)
    sync(root)
    if keep is not None:
        _prune(root, max(1, keep))
    return Checkpoint(final, step, dict(state))


def find_checkpoints(root: Path) -> list[Checkpoint]:
    """The complete checkpoints, oldest first. A directory without a sound manifest is not one."""
    found = []
    for path in root.iterdir() if root.is_dir() else ():
        if not _NAME.fullmatch(path.name):
            continue
        try:
            manifest = msgspec.json.decode((path / _MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError):
            continue
        found.append(Checkpoint(path, manifest.step, manifest.state))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def pick_checkpoint(checkpoints: Sequence[Checkpoint], role: str, which: Which | None = None) -> Checkpoint:
    """One of a run's checkpoints, oldest first; without `which`, the role's best if there is one, else the last."""
    last = checkpoints[-1]
    best = last.best if last.best and last.best.role == role else None
    if which is None:
        which = "best" if best else "last"
    if which == "best":
        if best is None:
            raise BadInput(f"{last.path.parent}: the {role} was not validated, so none is the best", hint=_TAKE_LAST)
        which = best.step
    step = last.step if which == "last" else which
    for checkpoint in checkpoints:
        if checkpoint.step == step:
            return checkpoint
    known = ", ".join(str(checkpoint.step) for checkpoint in checkpoints)
    raise BadInput(f"{last.path.parent} has no checkpoint of step {step}; it has {known}", hint=_TAKE_LAST)


def verify_checkpoint(checkpoint: Checkpoint) -> None:
    """Compare every file with the manifest; a checkpoint that was damaged on disk is refused by name."""
    manifest = msgspec.json.decode((checkpoint.path / _MANIFEST).read_bytes(), type=Manifest)
    for name, entry in manifest.files.items():
        file = checkpoint.path / name
        if not file.is_file() or file.stat().st_size != entry.num_bytes or _sha256(file) != entry.sha256:
            raise BadInput(
                f"{file} is damaged or missing", hint=f"delete {checkpoint.path} to go on from the one before"
            )


def discard_checkpoint(path: Path) -> None:
    """Delete a checkpoint so that, if we are killed half-way, what is left is no checkpoint any more."""
    condemned = path.with_name(f".{path.name}.partial-{os.getpid()}-old")
    path.rename(condemned)
    shutil.rmtree(condemned)


def _prune(root: Path, keep: int) -> None:
    """Delete all but the newest and those they name as best: a run that goes back to any of them finds its best."""
    found = find_checkpoints(root)
    named = {checkpoint.best.step for checkpoint in found[-keep:] if checkpoint.best}
    for old in found[:-keep]:
        if old.step not in named:
            discard_checkpoint(old.path)


def _remove_leftovers(root: Path) -> None:
    """Parts of checkpoints that a killed process was writing or deleting."""
    for path in root.glob(".step-*.partial-*"):
        shutil.rmtree(path, ignore_errors=True)


def _seal(path: Path) -> FileEntry:
    sync(path)
    return FileEntry(path.stat().st_size, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

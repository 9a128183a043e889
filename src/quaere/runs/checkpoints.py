"""Checkpoints that are written atomically and verified by hash.

    checkpoints/step-000012/
        manifest.json       step, state, the size and SHA-256 of every other file, and a SHA-256 of all this.
                            `state["best"]` names the checkpoint with the best validated weights so far, never pruned
        ...                 the files that `write` wrote: weights in Hugging Face layout, optimizer.safetensors
    checkpoints/step-000011.damaged/      a checkpoint that was found damaged and set aside

A checkpoint is written under a temporary name, every file is synced, and it is renamed when complete. Killing the
process at any time leaves the earlier checkpoints unchanged.

    save_checkpoint(run / "checkpoints", 12, write=learner.save, state={"phase": "solver"})
    learner.load(find_checkpoints(run / "checkpoints")[-1].path)
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, structs

from quaere.disk import discard_folder, new_folder, open_regular, read_regular, remove_leftovers
from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json

Which = int | Literal["best", "last"]
"""A checkpoint of a run: by step, the best by validation, or the last."""

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{6,})")
_TAKE_LAST = "--checkpoint last"
_RESTORE = "restore it from a backup, or name another --checkpoint"

Tell = Callable[[str], None]
"""Callback that receives one line about each checkpoint that is skipped."""


class FileEntry(Struct, frozen=True):
    """Size and hash of a file of a checkpoint.

    FileEntry(num_bytes=538_090_408, sha256="b179...")
    """

    num_bytes: int
    sha256: str


class Manifest(Struct, frozen=True):
    """The content of `manifest.json`.

    Manifest(step=12, state={"phase": "solver"}, files={"model.safetensors": FileEntry(...)}, sha256="5f2c...")
    """

    step: int
    state: dict[str, Any]
    files: dict[str, FileEntry]
    sha256: str = ""  # digest of the fields above; "" in manifests of older versions


class Best(Struct, frozen=True):
    """The checkpoint with a role's best weights so far, by its rating on the validation questions.

    Best(role="solver", step=20, rating=0.42, num_questions=64, variance=0.2436).standard_error == 0.062
    """

    role: str
    step: int
    # Exact match, in which abstaining counts as its reward where it is allowed; the stored name is older than this.
    rating: float = field(name="exact_match")
    num_questions: int
    variance: float | None = None  # of the ratings of questions; None in older checkpoints, whose ratings were 0 or 1

    @property
    def standard_error(self) -> float:
        """Standard error of the rating: differences of this size between checkpoints are noise."""
        variance = self.rating * (1 - self.rating) if self.variance is None else self.variance
        return math.sqrt(max(0.0, variance) / self.num_questions)


class Checkpoint(Struct, frozen=True):
    """A complete checkpoint on disk.

    Checkpoint(path=Path("run/checkpoints/step-000012"), step=12, state={"phase": "solver"})
    """

    path: Path
    step: int
    state: dict[str, Any]

    @property
    def best(self) -> Best | None:
        """The best checkpoint at the time this checkpoint was written; None without validation."""
        return msgspec.convert(self.state.get("best"), Best | None)


def save_checkpoint(
    root: Path, step: int, write: Callable[[Path], None], state: Mapping[str, Any], *, keep: int | None = None
) -> Checkpoint:
    """Write a checkpoint; with `keep`, then delete all but the newest `keep` and the best ones they name.

    An existing checkpoint of the same step is replaced: it is either equal or was left behind by an earlier attempt of
    a resumed run.
    """
    root.mkdir(parents=True, exist_ok=True)
    remove_leftovers(root)
    path = root / _name_of(step)
    with new_folder(path) as folder:
        write(folder)
        kept = msgspec.json.decode(msgspec.json.encode(dict(state)))  # as a reader will decode it, so digests agree
        sealed = {name: FileEntry(file.stat().st_size, _sha256(file)) for name, file in _list_files(folder).items()}
        manifest = Manifest(step, kept, sealed)
        manifest = structs.replace(manifest, sha256=_digest(manifest))
        (folder / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    if keep is not None:
        prune_checkpoints(root, keep)
    return Checkpoint(path, step, dict(state))


def prune_checkpoints(root: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints and the best ones they name, and what killed writers left."""
    remove_leftovers(root)
    found = find_checkpoints(root)
    newest = found[-max(1, keep) :]
    named = {checkpoint.best.step for checkpoint in newest if checkpoint.best}
    for old in found[: -len(newest)]:
        if old.step not in named:
            discard_folder(old.path)


def find_checkpoints(root: Path, tell: Tell = lambda line: None) -> list[Checkpoint]:
    """Checkpoints with a valid manifest and all files present, oldest first; others are skipped.

    `tell` receives one line about each skipped checkpoint.

    File contents are compared only by `verify_checkpoint`.
    """
    found = []
    for path in _step_folders(root):
        try:
            found.append(read_checkpoint(path))
        except BadInput as error:
            if path.is_dir():  # otherwise it was pruned while it was read
                tell(f"passed over: {error}")
    return found


def newest_checkpoint(root: Path, tell: Tell, usable: Callable[[Checkpoint], bool]) -> Checkpoint | None:
    """The newest usable checkpoint whose every byte is verified; None if there is none and none is damaged.

    Newer damaged ones are renamed, with one line each: otherwise they would count among the newest that are kept and
    displace good ones. If all are damaged, nothing is changed and BadInput is raised. `usable` may raise BadInput to
    mark a checkpoint as damaged.
    """
    damaged: list[tuple[Path, BadInput]] = []
    for path in reversed(_step_folders(root)):
        try:
            checkpoint = read_checkpoint(path)
            if not usable(checkpoint):
                continue
            verify_checkpoint(checkpoint)
        except BadInput as error:
            damaged.append((path, error))
            continue
        for bad, fault in damaged:
            tell(f"{fault}; it is set aside as {_set_aside(bad).name}, and step {checkpoint.step} is used")
        return checkpoint
    if damaged:
        raise BadInput(f"{root} has no usable checkpoint: {damaged[0][1]}", hint=_RESTORE)
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder; raises BadInput if its manifest is damaged or its files do not match."""
    manifest = _read_manifest(path)
    checkpoint = Checkpoint(path, manifest.step, manifest.state)
    try:
        _ = checkpoint.best
        return checkpoint
    except msgspec.ValidationError as error:
        raise _damaged(path, f"the entry `best` of {_MANIFEST} is invalid ({error})") from error


def pick_checkpoint(checkpoints: Sequence[Checkpoint], role: str, which: Which | None = None) -> Checkpoint:
    """One of a run's checkpoints (oldest first); by default the role's best if there is one, else the last."""
    last = checkpoints[-1]
    best = last.best if last.best and last.best.role == role else None
    if which == "best" and best is None:
        raise BadInput(f"{last.path.parent}: the {role} was not validated: no best checkpoint", hint=_TAKE_LAST)
    step = which if isinstance(which, int) else best.step if best and which != "last" else last.step
    by_step = {checkpoint.step: checkpoint for checkpoint in checkpoints}
    if step not in by_step:
        known = ", ".join(map(str, by_step))
        raise BadInput(f"{last.path.parent} has no checkpoint of step {step}; it has {known}", hint=_TAKE_LAST)
    return by_step[step]


def find_spare(root: Path) -> list[Path]:
    """Folders of the checkpoints that can be deleted: all but the last and the best one, and all `*.damaged` ones.

    The two that stay are verified by hash first: if one is damaged, BadInput names it and nothing may be deleted.
    """
    if root.is_symlink():
        raise BadInput(f"{root} is a link; nothing is deleted through links", hint=f"delete in {root.resolve()}")
    found = find_checkpoints(root)
    if not found:
        return []
    last, best = found[-1], found[-1].best
    kept = {last.step, best.step if best else last.step}
    for checkpoint in (one for one in found if one.step in kept):
        verify_checkpoint(checkpoint)
    aside = sorted(path for path in root.glob("step-*.damaged") if _NAME.fullmatch(path.stem))
    return [checkpoint.path for checkpoint in found if checkpoint.step not in kept] + aside


def verify_checkpoint(checkpoint: Checkpoint) -> None:
    """Compare every file with the manifest's hashes; raises BadInput naming the damaged file."""
    for name, entry in _read_manifest(checkpoint.path).files.items():
        same = False
        with suppress(OSError):
            same = _sha256(checkpoint.path / name) == entry.sha256
        if not same:
            raise _damaged(checkpoint.path, f"{name} is damaged or missing")


def _read_manifest(path: Path) -> Manifest:
    try:
        manifest = decode_json(read_regular(path / _MANIFEST), Manifest)
    except OSError as error:
        raise _damaged(path, f"{_MANIFEST} cannot be read ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise _damaged(path, f"{_MANIFEST} is not a valid manifest ({error})") from error
    if fault := _find_fault(path, manifest):
        raise _damaged(path, fault)
    return manifest


def _find_fault(path: Path, manifest: Manifest) -> str:
    """What is wrong with a checkpoint, without reading its files' contents; "" if nothing is."""
    if manifest.sha256 and manifest.sha256 != _digest(manifest):
        return f"{_MANIFEST} does not agree with its own digest"
    if path.name != _name_of(manifest.step):
        return f"{_MANIFEST} is of step {manifest.step}"
    if not manifest.files:
        return f"{_MANIFEST} names no files"
    # Look names up in the directory listing: a name in a manifest such as "../x" must not lead out of the folder.
    present = _list_files(path)
    for name, entry in manifest.files.items():
        if name not in present or present[name].stat().st_size != entry.num_bytes:
            return f"{name} is damaged or missing"
    # Weights are loaded by glob, so an extra weight file would be loaded as well. Other extra files do no harm.
    stray = next((name for name in present if name.endswith(".safetensors") and name not in manifest.files), None)
    return f"{stray} does not belong to it" if stray else ""


def _damaged(path: Path, fault: str) -> BadInput:
    return BadInput(f"checkpoint {path} is damaged: {fault}", hint=_RESTORE)


def _set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint so that it no longer counts as one; its files are kept."""
    aside = path.with_name(f"{path.name}.damaged")
    if aside.exists():
        discard_folder(aside)
    return path.rename(aside)


def _step_folders(root: Path) -> list[Path]:
    named = [path for path in root.iterdir() if _NAME.fullmatch(path.name)] if root.is_dir() else []
    return sorted(named, key=lambda path: int(path.name[5:]))


def _name_of(step: int) -> str:
    return f"step-{step:06d}"


def _list_files(folder: Path) -> dict[str, Path]:
    """All files of a checkpoint except the manifest, by their names in the manifest."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / _MANIFEST)
    return {path.relative_to(folder).as_posix(): path for path in files}


def _digest(manifest: Manifest) -> str:
    undigested = structs.replace(manifest, sha256="")
    return hashlib.sha256(msgspec.json.encode(undigested, order="deterministic")).hexdigest()


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

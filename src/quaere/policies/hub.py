"""Models of the Hugging Face hub, by id or by id and revision.

resolve_hub("Qwen/Qwen3-0.6B@main", pull=True) -> Path(".../models--Qwen--Qwen3-0.6B/snapshots/...")
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from quaere.errors import ModelMissing
from quaere.records.foreign_json import decode_json

_TIMEOUT_S = 5.0
_HUB_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
_REVISION = re.compile(r"\w[\w./-]{0,99}")  # a branch, a tag or a commit
_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")


class _Shards(msgspec.Struct):
    """The index of a model's weight files: {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}."""

    weight_map: dict[str, str]


class NotOnHub(ModelMissing):
    """Error for a model that the hub does not have; its message is only the reason, and the caller adds the name."""


def resolve_hub(name: str, *, pull: bool, report: Callable[[str], None]) -> Path:
    """The directory of a hub snapshot: the cached one if complete, without network; else, with `pull`, downloaded."""
    model, at, given = name.partition("@")
    revision = given if at else None
    if not _HUB_ID.fullmatch(model):
        raise NotOnHub("not a valid hub id")
    if revision is not None and not _REVISION.fullmatch(revision):
        raise NotOnHub("its revision is not a branch, tag or commit of the hub")
    from huggingface_hub import HfApi, snapshot_download

    try:
        cached = Path(snapshot_download(model, revision=revision, allow_patterns=list(_FILES), local_files_only=True))
    except Exception:  # the hub raises many exception types for "not cached"
        cached = None
    if cached is not None and _is_complete(cached):
        return cached
    if not pull:
        if "/" not in model:  # more likely mistyped than one of the few models of the hub whose names have no owner
            raise NotOnHub("not on this machine")
        raise ModelMissing(f"model {name} is not on this machine", hint=f"quaere models pull {name}")
    try:
        # One cheap request first: without a network it fails at once, where a download is retried for minutes.
        HfApi().model_info(model, revision=revision, timeout=_TIMEOUT_S)
    except Exception as error:
        raise NotOnHub(explain_hub_error(error)) from error
    report(f"downloading {name} from the hub")
    try:
        path = Path(snapshot_download(model, revision=revision, allow_patterns=list(_FILES), etag_timeout=_TIMEOUT_S))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ModelMissing(f"the download of {name} failed: {reason}", hint=f"quaere models pull {name}") from error
    if not _is_complete(path):
        raise ModelMissing(f"{name} lacks a config.json or safetensors weights", hint="quaere models list")
    return path


def _is_complete(directory: Path) -> bool:
    """True if a snapshot has its config and all weight files; a download may have been interrupted."""
    if not (directory / "config.json").is_file():
        return False
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        return (directory / "model.safetensors").is_file()
    try:
        shards = decode_json(index.read_bytes(), _Shards)
    except msgspec.DecodeError:
        return False
    return all((directory / name).is_file() for name in shards.weight_map.values())


def explain_hub_error(error: Exception) -> str:
    """Why a request to the hub failed, worded to follow "it is ...": "not on the hub", "not reachable on the hub"."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    reasons = {
        GatedRepoError: "gated on the hub: log in with `hf auth login`",  # first: it is a RepositoryNotFoundError too
        RevisionNotFoundError: "on the hub without that revision",
        RepositoryNotFoundError: "not on the hub",
    }
    return next((said for kind, said in reasons.items() if isinstance(error, kind)), "not reachable on the hub")

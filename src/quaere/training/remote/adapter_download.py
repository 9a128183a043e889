"""An adapter from a Tinker server, written as a folder in peft's layout.

    write_adapter(fetch_adapter(service, client, "quaere-1a2b"), folder, base="qwen3-tiny")

A server of one's own packs the weights of a sampler into an archive. The hosted service exports an adapter and gives a
URL per file. What was saved for the download is deleted.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from quaere.errors import TrainingStopped
from quaere.policies.model_folders import CONFIG, WEIGHTS
from quaere.policies.tinker import TinkerService

_TIMEOUT_S = 600.0
_EXPORT_S = 3600  # an export's shortest life on the hosted service, should it not be deleted


def fetch_adapter(service: TinkerService, client: Any, name: str) -> dict[str, bytes]:
    """The files of a training client's adapter, by name; `name` is what it is saved as meanwhile."""
    if not service.url:
        return _fetch_export(service, client, name)
    saved = service.call(lambda: client.save_weights_for_sampler(name).result()).path
    run = saved.removeprefix("tinker://").partition("/")[0]
    try:
        place = f"/api/v1/training_runs/{run}/checkpoints/{name}/archive"
        return read_archive(service.call(lambda: service.get_file(place)))
    finally:
        service.delete_saved(f"tinker://{run}/sampler_weights/{name}")


def read_archive(archive: bytes) -> dict[str, bytes]:
    """The files of an adapter in a server's archive, whatever else the archive has."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            members = [member for member in packed.getmembers() if Path(member.name).name in (WEIGHTS, CONFIG)]
            opened = {Path(member.name).name: packed.extractfile(member) for member in members}
            return {name: file.read() for name, file in opened.items() if file is not None}
    except tarfile.TarError as error:
        raise TrainingStopped(f"the trainer's archive of an adapter cannot be read: {error}") from error


def write_adapter(files: Mapping[str, bytes], folder: Path, base: str) -> None:
    """Write an adapter's weights, and its description with `base`, the name of its base on this machine."""
    try:
        weights, described = files[WEIGHTS], msgspec.json.decode(files[CONFIG], type=dict[str, Any])
    except (KeyError, msgspec.DecodeError) as error:
        raise TrainingStopped(f"what the trainer gave as an adapter cannot be read: {error}") from error
    described |= {"base_model_name_or_path": base, "task_type": "CAUSAL_LM"}
    described["lora_alpha"] = round(described["lora_alpha"])
    if not described.get("target_modules"):  # SkyRL leaves it out, and peft cannot load an adapter without it
        described["target_modules"] = _adapted_modules(weights)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(weights)
    (folder / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))


def _fetch_export(service: TinkerService, client: Any, name: str) -> dict[str, bytes]:
    path = service.call(lambda: client.save_weights_external(name, ttl_seconds=_EXPORT_S).result()).path
    try:
        urls = service.call(lambda: service.rest.get_external_weights_urls(path).result()).urls
        wanted = {Path(file).name: url for file, url in urls.items() if Path(file).name in (WEIGHTS, CONFIG)}
        return service.call(lambda: {file: _get(url) for file, url in wanted.items()})
    finally:
        service.delete_saved(path)


def _adapted_modules(weights: bytes) -> list[str]:
    """Names of the layers that an adapter's tensors belong to, from the header of the safetensors file."""
    size = int.from_bytes(weights[:8], "little")
    names = msgspec.json.decode(weights[8 : 8 + size], type=dict[str, Any])
    return sorted({name.partition(".lora_A")[0].rpartition(".")[2] for name in names if ".lora_A" in name})


def _get(url: str) -> bytes:
    reply = httpx.get(url, follow_redirects=True, timeout=_TIMEOUT_S)
    reply.raise_for_status()
    return reply.content

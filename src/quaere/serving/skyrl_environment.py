"""What a SkyRL server is started with: an environment of its own, and a model folder that it can read.

    environment = prepare_environment(home, "jax", num_gpus=0, report=print)       # home/env-jax-cpu
    folder = prepare_model("warm", home / "models", backend="jax", num_gpus=0)

SkyRL needs Python 3.12 and pins libraries that differ from ours, so it is installed by `uv` into an environment that
nothing else uses. Its engines fsdp and megatron need wheels that are not on PyPI, which a clone of SkyRL knows where to
find: they run in the clone's environment. The model is a folder with merged weights and a `dtype` in its config.json.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from quaere.disk import new_folder
from quaere.errors import BadInput, requirement_hint
from quaere.policies.catalogue import ModelPath, resolve_model

Backend = Literal["jax", "fsdp", "megatron"]
Report = Callable[[str], None]

VERSION = "0.4.0"
# The families of SkyRL's JAX engine; fsdp and megatron run what vLLM runs.
_JAX_FAMILIES = ("deepseek_v3", "llama", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe")
_INSTALLED = "installed.txt"
_WEIGHTS = (".safetensors", ".bin", ".gguf")


def find_uv() -> str:
    """The path of `uv`; raises BadInput if it is not installed."""
    found = shutil.which("uv")
    if found is None:
        raise BadInput("SkyRL's environment is made by uv, which is not installed", hint=requirement_hint("uv"))
    return found


def requirements(num_gpus: int, machine: str = "") -> list[str]:
    """What is installed into the environment of the JAX engine.

    requirements(0, "aarch64") == ["skyrl[tinker,jax]==0.4.0", "aiohttp", "torch<2.9"]
    """
    extras = ["tinker", "jax", *(["gpu"] if num_gpus else [])]
    needed = [f"skyrl[{','.join(extras)}]=={VERSION}", "aiohttp"]  # aiohttp is used and not declared
    if not num_gpus and (machine or platform.machine()) == "aarch64":
        needed.append("torch<2.9")  # later wheels for this machine bring CUDA's libraries with them
    return needed


def prepare_environment(home: Path, backend: Backend, num_gpus: int, report: Report) -> Path:
    """The environment's folder; it is made at the first call, which takes minutes."""
    if backend != "jax":
        raise BadInput(
            f"SkyRL's {backend} engine needs wheels that are not on PyPI; a clone of SkyRL {VERSION} installs them",
            hint=f"in the clone: uv sync --extra tinker --extra {backend}; then add --environment CLONE/.venv",
        )
    folder = home / f"env-{backend}-{'gpu' if num_gpus else 'cpu'}"
    wanted = "\n".join(requirements(num_gpus))
    stamp = folder / _INSTALLED
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    uv = find_uv()
    report(f"installing SkyRL {VERSION} into {folder} (once; minutes)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    quick = {} if num_gpus or "UV_TORCH_BACKEND" in os.environ or "torch<" in wanted else {"UV_TORCH_BACKEND": "cpu"}
    _run([uv, "venv", "--quiet", "--python", "3.12", str(folder)], quick)
    python = folder / "bin" / "python"
    _run([uv, "pip", "install", "--quiet", "--python", str(python), *wanted.splitlines()], quick)
    stamp.write_text(wanted)
    return folder


def check_environment(folder: Path) -> Path:
    """An environment that has SkyRL already; raises BadInput if it has not."""
    looks = [str(folder / "bin" / "python"), "-c", "import importlib.util as u; assert u.find_spec('skyrl.tinker')"]
    try:
        subprocess.run(looks, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise BadInput(
            f"{folder} is not an environment with SkyRL in it",
            hint="--environment CLONE/.venv, or leave it out for jax",
        ) from None
    return folder.resolve()


def prepare_model(model: str, folder: Path, *, backend: Backend, num_gpus: int, report: Report) -> Path:
    """The folder of a model that the server can read: the model's own, or a copy with what it lacks.

    An adapter is merged into its base, because the server's adapters are trained on top of it.
    """
    found = resolve_model(model, report=report)
    described = _read_config(Path(found.path))
    family = str(described.get("model_type", ""))
    if backend == "jax" and family not in _JAX_FAMILIES:
        raise BadInput(
            f"SkyRL's JAX engine does not know the family {family or 'of ' + model}; it knows "
            f"{', '.join(_JAX_FAMILIES)}",
            hint="--backend fsdp, or another model",
        )
    if not found.adapters and described.get("dtype"):
        return Path(found.path)
    key = hashlib.sha256(repr((found.path, found.adapters, num_gpus > 0)).encode()).hexdigest()[:12]
    out = folder / f"{Path(found.path).name}-{key}"
    if not out.is_dir():
        report(f"writing {model} for the trainer to {out}")
        with new_folder(out) as partial:
            _write_model(found, partial, "bfloat16" if num_gpus else "float32")
    return out


def _write_model(found: ModelPath, folder: Path, dtype: str) -> None:
    """Write the merged model in this precision, with its tokenizer and a `dtype` in its config."""
    from quaere.policies.native.bridge import load_model
    from quaere.training.adapters import save_model

    save_model(load_model(found, "cpu", dtype, packed=False), folder)
    source = Path(found.tokenizer)
    for file in source.iterdir():
        if file.is_file() and not (folder / file.name).exists() and file.suffix not in _WEIGHTS:
            shutil.copyfile(file, folder / file.name)
    described = _read_config(folder) | {"dtype": dtype}
    (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{folder} has no config.json that can be read: {error}") from error


def _run(command: list[str], extra: dict[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **extra}, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = " ".join(lines)[:400] or f"exit code {done.returncode}"
        raise BadInput(f"uv failed: {said}", hint=" ".join(command))

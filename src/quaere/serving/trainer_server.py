"""Training servers: SkyRL processes on this machine, which are started, listed and stopped by process id.

    trainer = start_trainer("warm", TrainerOptions(backend="jax"), report=print)
    trainer.url                                                             # "http://127.0.0.1:41873"
    [one.state for one in list_trainers()]                                  # ["running"]
    stop_trainer(trainer)

Each has a folder under `trainers_home()` with a record of its process, its log and its checkpoints. A process is
identified by its id and start time, so that another process that later gets the same id is never signalled.

SkyRL needs Python 3.12 and pins libraries that differ from ours, so it is installed by `uv` into an environment that
nothing else uses. Its engines fsdp and megatron need wheels that are not on PyPI, which a clone of SkyRL knows where to
find: they run in the clone's environment. The model is a folder with merged weights and a `dtype` in its config.json.
"""

import hashlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import platformdirs
from msgspec import Meta

from quaere.disk import new_folder, write_file
from quaere.errors import BadInput, requirement_hint
from quaere.policies.catalogue import ModelPath, resolve_model
from quaere.policies.tinker import answers

Backend = Literal["jax", "fsdp", "megatron"]
Report = Callable[[str], None]

VERSION = "0.4.0"
# The families of SkyRL's JAX engine; fsdp and megatron run what vLLM runs.
_JAX_FAMILIES = ("deepseek_v3", "llama", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe")
_WEIGHTS = (".safetensors", ".bin", ".gguf")
_RECORD, _LOG, _PORT = "trainer.json", "server.log", "port.txt"
_READY = b"Starting background engine"  # SkyRL's log has it once the model is loaded
_LOOK_S = 0.5
_END_S = 20.0


class TrainerOptions(msgspec.Struct, frozen=True):
    """How a training server is started.

        TrainerOptions(backend="jax", gpus=0, max_rank=32)

    Attributes:
        backend: SkyRL's engine
        gpus: GPUs to use (default: 0, a CPU; jax only)
        port: port on this machine (default: the one it had, else a free one)
        max_rank: largest rank of an adapter
        environment: an environment that has SkyRL, for fsdp and megatron (default: its own)
    """

    backend: Backend = "jax"
    gpus: Annotated[int, "N", Meta(ge=0)] = 0
    port: Annotated[int, "N", Meta(ge=0, lt=65536)] = 0
    max_rank: Annotated[int, "R", Meta(ge=1)] = 32
    environment: Annotated[str, "DIR"] = ""
    backend_config: dict[str, Any] = {}  # further settings of SkyRL's engine
    timeout_s: float = 1800.0


class Trainer(msgspec.Struct, frozen=True):
    """A training server that was started: its process id and start time, URL, model, backend and folder.

    Trainer(pid=4711, began="Mon Nov 16 23:50:33 2026", url="http://127.0.0.1:41873", model="warm", backend="jax",
            folder="/srv/quaere/trainers/skyrl-jax-qwen3-5f2c1a07")
    """

    pid: int
    began: str
    url: str
    model: str
    backend: str
    folder: str

    @property
    def is_running(self) -> bool:
        """True if the process is alive and has the recorded start time."""
        return bool(self.began) and _began(self.pid) == self.began

    @property
    def state(self) -> str:
        """`running`, `silent` (alive, but does not answer) or `ended`."""
        if not self.is_running:
            return "ended"
        return "running" if answers(self.url) else "silent"

    @property
    def log(self) -> Path:
        """The file with everything the server printed."""
        return Path(self.folder) / _LOG


def trainers_home() -> Path:
    """The folder of environments, models and servers: $QUAERE_TRAINERS, else `quaere/trainers` in the user's data."""
    named = os.environ.get("QUAERE_TRAINERS")
    return Path(named) if named else platformdirs.user_data_path("quaere") / "trainers"


def start_trainer(model: str, options: TrainerOptions, report: Report) -> Trainer:
    """Start a SkyRL server and wait until it has loaded the model; `report` receives lines about the progress.

    Raises BadInput if a server of the model already runs, or if the new one ends or is not ready in time.
    """
    home, uv = trainers_home(), _find_uv()
    environment = (
        check_environment(Path(options.environment))
        if options.environment
        else prepare_environment(home, options.backend, options.gpus, report)
    )
    served = prepare_model(model, home / "models", backend=options.backend, num_gpus=options.gpus, report=report)
    # Named after the model, not the port: a restarted server then has the states that runs resume from.
    key = hashlib.sha256(str(served).encode()).hexdigest()[:8]
    folder = home / f"skyrl-{options.backend}-{served.name}-{key}"
    if (one := _read(folder)).is_running:
        raise BadInput(f"a trainer of {model} runs already, on {one.url}", hint="quaere trainer stop skyrl")
    folder.mkdir(parents=True, exist_ok=True)
    port = options.port or _usual_port(folder)
    config = {**_usual_config(options), **options.backend_config}
    command = [
        *(uv, "run", "--no-project", "--active", "-m", "skyrl.tinker.api", "--base-model", str(served)),
        *("--backend", options.backend, "--host", "127.0.0.1", "--port", str(port)),
        *("--checkpoints-base", str(folder / "checkpoints"), "--database-url", f"sqlite:///{folder / 'tinker.db'}"),
        *("--backend-config", msgspec.json.encode(config).decode()),
    ]
    with (folder / _LOG).open("ab") as log:
        said_before = log.tell()
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=_variables(environment, uv, options),
            start_new_session=True,  # it outlives this command, and its children share its group
        )
    url = f"http://127.0.0.1:{port}"
    try:
        trainer = Trainer(process.pid, _began(process.pid), url, model, options.backend, str(folder))
        write_file(folder / _RECORD, msgspec.json.encode(trainer))
        write_file(folder / _PORT, str(port).encode())
    except BaseException:  # nobody would find it again
        _end_group(process.pid)
        raise
    report(f"starting SkyRL ({options.backend}) on {trainer.url}; its log is {trainer.log}")
    _wait_ready(trainer, process, said_before, options.timeout_s)
    return trainer


def list_trainers() -> list[Trainer]:
    """All training servers started on this machine and not stopped; some may have ended by themselves."""
    return [_read(path.parent) for path in sorted(trainers_home().glob(f"skyrl-*/{_RECORD}"))]


def stop_trainer(trainer: Trainer) -> bool:
    """End a server's processes and delete its record; log and checkpoints stay. False if it had already ended."""
    was_running = trainer.is_running
    if was_running:
        _end_group(trainer.pid)
    (Path(trainer.folder) / _RECORD).unlink(missing_ok=True)
    return was_running


# ------------------------------------------------------------------------------------------------------------- details


def _usual_config(options: TrainerOptions) -> dict[str, Any]:
    gpus = options.gpus
    if options.backend == "jax":
        spread = {"tensor_parallel_size": gpus} if gpus > 1 else {}
        # Without a batch size for sampling, every number of requests would be compiled for by itself.
        sizes = {"train_micro_batch_size": 8, "sample_max_num_sequences": 32}
        return {"max_lora_adapters": 16, "max_lora_rank": options.max_rank, **sizes, **spread}
    return {
        "trainer.placement.policy_num_gpus_per_node": max(1, gpus),
        "generator.inference_engine.num_engines": max(1, gpus),
    }


def _variables(environment: Path, uv: str, options: TrainerOptions) -> dict[str, str]:
    """The server's environment variables: ours without PYTHONPATH and PYTHONHOME, which would load our libraries."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    # The server starts its engine by the name `uv`.
    kept |= {"VIRTUAL_ENV": str(environment), "PATH": f"{Path(uv).parent}{os.pathsep}{kept.get('PATH', '')}"}
    if options.backend == "jax":
        # Without this cache, every start takes minutes for compiling.
        kept.setdefault("JAX_COMPILATION_CACHE_DIR", str(trainers_home() / "jax-cache"))
    return kept if options.gpus else kept | {"JAX_PLATFORMS": "cpu"}


def _wait_ready(trainer: Trainer, process: subprocess.Popen[bytes], said_before: int, timeout_s: float) -> None:
    """Wait until the log after byte `said_before` says that the model is loaded, and the server answers.

    Raises BadInput if the process ends first, or after `timeout_s`, when the server is stopped.
    """
    ends = time.monotonic() + timeout_s
    while not (_READY in trainer.log.read_bytes()[said_before:] and answers(trainer.url)):
        if process.poll() is not None:
            raise BadInput(f"the server ended while it started: {_last_line(trainer.log)}", hint=f"see {trainer.log}")
        if time.monotonic() > ends:
            stop_trainer(trainer)
            raise BadInput(f"the server was not ready after {timeout_s:.0f} s", hint=f"see {trainer.log}")
        time.sleep(_LOOK_S)


def _end_group(pid: int) -> None:
    """Send SIGTERM to the server's process group, and SIGKILL if it has not ended after `_END_S` seconds."""
    with suppress(ProcessLookupError):  # it has ended
        for sign in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(pid, sign)
            ends = time.monotonic() + _END_S
            while time.monotonic() < ends:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # as a child of this process it would stay a zombie
                os.killpg(pid, 0)
                time.sleep(_LOOK_S)


def _read(folder: Path) -> Trainer:
    try:
        return msgspec.json.decode((folder / _RECORD).read_bytes(), type=Trainer)
    except (OSError, msgspec.DecodeError):
        return Trainer(0, "", "", "", "", str(folder))


def _began(pid: int) -> str:
    """Start time of a process, as `ps` writes it; "" if there is no such process."""
    try:
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        said = "trainers are told apart by ps, which is not installed"
        raise BadInput(said, hint="apt install procps, or your system's package") from error
    return found.stdout.strip()


def _usual_port(folder: Path) -> int:
    """The port that the folder's server used before, so that its runs find it again, else a free port."""
    with suppress(OSError, ValueError):
        return _bind(int((folder / _PORT).read_text()))
    return _bind(0)


def _bind(port: int) -> int:
    """The given port if it is free, or any free port for 0; raises OSError if the port is taken."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended leaves traces
        listener.bind(("127.0.0.1", port))
        return int(listener.getsockname()[1])


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


# ----------------------------------------------------------------------------------------------- environment and model


def _find_uv() -> str:
    if not (found := shutil.which("uv")):
        raise BadInput("SkyRL's environment is made by uv, which is not installed", hint=requirement_hint("uv"))
    return found


def requirements(num_gpus: int, machine: str = "") -> list[str]:
    """The packages to install into the environment of SkyRL's JAX engine.

    requirements(0, "aarch64") == ["skyrl[tinker,jax]==0.4.0", "aiohttp", "torch<2.9"]
    """
    needed = [f"skyrl[tinker,jax{',gpu' if num_gpus else ''}]=={VERSION}", "aiohttp"]  # used, and not declared
    if not num_gpus and (machine or platform.machine()) == "aarch64":
        needed.append("torch<2.9")  # later wheels for this machine bring CUDA's libraries with them
    return needed


def prepare_environment(home: Path, backend: Backend, num_gpus: int, report: Report) -> Path:
    """The folder of the virtual environment with SkyRL; the first call creates it, which takes minutes.

    Raises BadInput for a backend other than jax.
    """
    if backend != "jax":
        raise BadInput(
            f"SkyRL's {backend} engine needs wheels that are not on PyPI; a clone of SkyRL {VERSION} installs them",
            hint=f"in the clone: uv sync --extra tinker --extra {backend}; then add --environment CLONE/.venv",
        )
    folder = home / f"env-{backend}-{'gpu' if num_gpus else 'cpu'}"
    wanted = "\n".join(requirements(num_gpus))
    stamp = folder / "installed.txt"
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    report(f"installing SkyRL {VERSION} into {folder} (once; minutes)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    quick = {} if num_gpus or "UV_TORCH_BACKEND" in os.environ or "torch<" in wanted else {"UV_TORCH_BACKEND": "cpu"}
    _run_uv(["venv", "--quiet", "--python", "3.12", str(folder)], quick)
    python = str(folder / "bin" / "python")
    _run_uv(["pip", "install", "--quiet", "--python", python, *wanted.splitlines()], quick)
    stamp.write_text(wanted)
    return folder


def check_environment(folder: Path) -> Path:
    """The absolute path of a virtual environment with SkyRL; raises BadInput if SkyRL is not in it."""
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
    """The folder of a model in a form that SkyRL reads: the original, or a copy with merged weights and a `dtype`.

    Adapters are merged into the base model, because SkyRL trains its own adapter on top. Raises BadInput if the JAX
    engine does not support the model's family.
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
    from quaere.policies.native.bridge import load_model
    from quaere.training.learner import save_model

    save_model(load_model(found, "cpu", dtype, packed=False), folder)
    for file in Path(found.tokenizer).iterdir():
        if file.is_file() and not (folder / file.name).exists() and file.suffix not in _WEIGHTS:
            shutil.copyfile(file, folder / file.name)
    described = _read_config(folder) | {"dtype": dtype}
    (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(described), indent=2))


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{folder} has no config.json that can be read: {error}") from error


def _run_uv(arguments: list[str], extra: dict[str, str]) -> None:
    command = [_find_uv(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **extra}, check=False)
    if done.returncode:
        lines = " ".join(filter(None, map(str.strip, done.stderr.splitlines())))
        said = lines[:400] or f"exit code {done.returncode}"
        raise BadInput(f"uv failed: {said}", hint=" ".join(command))

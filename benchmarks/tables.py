"""What the speed benchmarks share: workers in processes of their own, medians, tables, and where they were measured.

found = run_worker(__file__, {"engine": "generate", ...})   # {"tokens_per_s": [..]} or {"error": "..."}
print(as_table(("engine", "tokens/s"), [("ours", "1,234")]))
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("quaere", "torch", "transformers", "trl", "vllm", "accelerate", "triton", "flash_attn", "numpy")
WORKER = "--worker"
GIB = 2**30


# ----------------------------------------------------------------------------------------------------------- workers


def run_worker(script: str, spec: dict[str, Any], *, timeout_s: float = 3600) -> dict[str, Any]:
    """Run `script --worker SPEC` in a process of its own, so that memory is given back and a crash is one line.

    The worker calls `answer_worker`. What it returns comes back with `started_s`, the moment the process was made.
    """
    signal.signal(signal.SIGTERM, lambda *ignored: sys.exit(143))  # so that what was started is ended too
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("spec", "found", "said")}
        paths["spec"].write_text(json.dumps(spec))
        # OpenMP threads that spin while they wait slow down tenfold when something else needs the core.
        environment = {"OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false", **os.environ}
        environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, script, WORKER, str(paths["spec"]), str(paths["found"])]
        started_s = time.time()
        with paths["said"].open("wb") as said:
            # A session of its own, so that what a peer starts can be ended with it.
            process = subprocess.Popen(
                command, stdout=said, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return {"error": f"failed: not done after {timeout_s:.0f} s"}
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if paths["found"].exists():
            return {**json.loads(paths["found"].read_text()), "started_s": started_s}
        lines = [line for line in paths["said"].read_text(errors="replace").splitlines() if line.strip()]
        return {"error": f"failed: exit code {code}: {lines[-1][:200] if lines else 'it said nothing'}"}


def answer_worker(work: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """In a worker process: do the work and write what was found. False in a process that is no worker."""
    if WORKER not in sys.argv:
        return False
    spec_path, found_path = sys.argv[sys.argv.index(WORKER) + 1 :][:2]
    spec = json.loads(Path(spec_path).read_text())
    try:
        missing = find_spec(spec.get("package", "json")) is None
        found = {"error": "not installed"} if missing else work(spec)
    except Exception as error:
        import traceback

        traceback.print_exc()
        found = {"error": f"failed: {first_line(error)}"}
    Path(found_path).write_text(json.dumps(found))
    # Threads and engines of peers may not end by themselves.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def first_line(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:160]}" if said else type(error).__name__


# ---------------------------------------------------------------------------------------------------------- the scene


def machine(device: str) -> dict[str, Any]:
    """Where this was measured: {"cpu": ..., "cores": 2, "gpu": ...}."""
    found: dict[str, Any] = {"cpu": _cpu_name(), "cores": os.cpu_count(), "python": sys.version.split()[0]}
    if device == "cuda":
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
        )
        found["gpu"] = asked.stdout.strip().splitlines()[0] if asked.returncode == 0 else "unknown"
    return found


def versions() -> dict[str, str]:
    """The versions of what takes part, where it is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def peak_memory_gib(device: str) -> float:
    """The most memory this process has held: on the GPU if that is where it works."""
    if device == "cuda":
        import torch

        return float(torch.cuda.max_memory_allocated() / GIB)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def measure_bandwidth() -> float:
    """Bytes a second the main memory moves, by copying a quarter of a gigabyte five times and taking the best."""
    import torch

    source = torch.ones(2**26)
    target = torch.empty_like(source)
    best_s = min(_timed(lambda: target.copy_(source)) for _ in range(5))
    return 2 * source.nbytes / best_s


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


# ------------------------------------------------------------------------------------------------------------- tables


def as_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned for the terminal too."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([f"| {text[0]} |", f"|{rule}|", *(f"| {line} |" for line in text[1:])])


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """The lowest and the highest of some measurements: "11,310 to 12,020"."""
    return f"{min(values):{form}} to {max(values):{form}}"


def say_scene(report: dict[str, Any]) -> str:
    """The command, machine and versions of a report, a line each."""
    said = [f"command   {report['command']}"]
    for name in ("machine", "versions"):
        said.append(f"{name:9} " + ", ".join(f"{key} {value}" for key, value in report[name].items()))
    return "\n".join(said)


def scene(device: str) -> dict[str, Any]:
    """What belongs to every report: the command, the machine and the versions."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return {"command": command, "machine": machine(device), "versions": versions()}

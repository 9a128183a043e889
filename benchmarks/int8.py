"""Decoding on a CPU with weights as bytes: how much faster, and how far its log-probs are off.

    python benchmarks/int8.py --model smollm2-135m --rows 1 4 8

Each precision continues the same prompts greedily for `--new` tokens. The time of decoding alone is taken, without the
prompts. Then the tokens that int8 wrote are scored with the whole weights: the difference of log-probs is what rounding
costs, and "same token" is how often the whole weights would have written that token too (of the first eight).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

from tables import as_table, say_scene, scene
from transformers import AutoTokenizer

from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams

PRECISIONS = ("float32", "bfloat16", "int8")
TEXT = "The bridge over the river was built in the year when the old mill burned down, and the people of the town "


def decode(engine: Any, prompts: list[list[int]], new: int) -> tuple[list[Request], float]:
    """Continue every prompt; tokens a second once all prompts are read."""
    requests = [
        Request(str(n), prompt, SamplingParams(max_tokens=new, temperature=0)) for n, prompt in enumerate(prompts)
    ]
    for request in requests:
        engine.add(request)
    engine.step()  # the prompts, and the first token of each
    started = time.perf_counter()
    while engine.busy:
        engine.step()
    return requests, len(prompts) * (new - 1) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a name of the catalogue or a folder")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    model = resolve_model(args.model)
    tokenizer = AutoTokenizer.from_pretrained(model.tokenizer)
    words = tokenizer.encode(TEXT)
    engines = {
        name: Engine(load_model(model, "cpu", name), tokenizer.decode, max_rows=max(args.rows)) for name in PRECISIONS
    }
    print(say_scene(scene("cpu")) + "\n")
    lines = []
    for rows in args.rows:
        draw = random.Random(rows)
        prompts = [draw.sample(words, len(words)) for _ in range(rows)]
        speeds: dict[str, list[float]] = {name: [] for name in PRECISIONS}
        for run in range(1 + args.repeat):  # the first is the warm-up; turns are taken, as the machine may be busy
            for name, engine in engines.items():
                requests, speed = decode(engine, prompts, args.new)
                speeds[name] += [speed] if run else []
        apart, same = compare(engines["float32"], requests)  # int8 came last
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        ratio = medians["int8"] / medians["float32"]
        lines.append((str(rows), *(f"{medians[name]:.1f}" for name in PRECISIONS), f"{ratio:.2f}x", apart, same))
    head = (
        "rows",
        *(f"{name} tokens/s" for name in PRECISIONS),
        "int8 / float32",
        "log-prob off by (mean, max)",
        "same token",
    )
    print(as_table(head, lines))


def compare(engine: Any, requests: list[Request]) -> tuple[str, str]:
    """How far the log-probs of what was written are from those of the whole weights, and how often these agree."""
    gaps, same = [], []
    for request in requests:
        scores = engine.score_many([request.tokens])[0][request.num_prompt :]
        gaps += [abs(ours - theirs) for ours, theirs in zip(request.logprobs, scores, strict=True)]
        starts = range(request.num_prompt, request.num_prompt + 8)
        best, _ = decode(engine, [request.tokens[:end] for end in starts], 1)
        same += [one.tokens[-1] == request.tokens[one.num_prompt] for one in best]
    return f"{statistics.mean(gaps):.4f}, {max(gaps):.3f}", f"{100 * statistics.mean(same):.0f} %"


if __name__ == "__main__":
    main()

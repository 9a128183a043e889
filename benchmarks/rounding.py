"""How much of a small update reaches a bfloat16 sampler, to the nearest and by hashed rounding, and what that costs.

    python benchmarks/rounding.py --model smollm2-135m --rates 1e-5 3e-5 1e-4
    python benchmarks/rounding.py --shape 1.5b --device cuda --rows 64 --new 128

The sampler writes `--rows` continuations, which are worth 1 and -1 in turn; for every rate a fresh adapter learns from
them for `--steps` steps. Its weights then reach the sampler in both ways, and the sampler scores what it wrote: "seen"
is the metric `sampler/update_seen` of a run, "size" is `sampler/update_size`, in nats. On a CPU, many of which are slow
in bfloat16, the sampler computes with the rounded weights in float32. The time of rounding all weights is said beside
that of the sampling.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from shapes import model_folder, prepare_model
from tables import as_table, say_scene, scene

from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model
from quaere.policies.native.device import choose_dtype
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams
from quaere.rollout.samples import Sample
from quaere.training.adapters import add_adapters, copy_weights, merged_weights
from quaere.training.learner import Learner
from quaere.training.learner_settings import LearnerSettings
from quaere.training.settings import AdapterSettings
from quaere.training.update_seen import measure_update

PROMPT_TOKENS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a name of the catalogue or a folder")
    parser.add_argument("--shape", default="", help="random weights of this shape instead: 135m, 1.5b, 3b")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-5, 3e-5, 1e-4, 3e-4])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print(say_scene(scene(args.device)) + "\n")
    path = find_model(args)
    rounded = load_model(path, args.device, "bfloat16")
    sampling = load_model(path, args.device, "float32") if args.device == "cpu" else rounded
    engine = Engine(sampling, lambda ids: "", max_rows=args.rows)
    samples, sampling_s = write(engine, args.rows, args.new)
    base = load_model(path, args.device, choose_dtype("auto", args.device), packed=False)
    names = [f"rate{number}" for number in range(len(args.rates))]
    torch.manual_seed(0)
    model = add_adapters(base, names, AdapterSettings(rank=args.rank, alpha=2 * args.rank))
    ways: dict[str, Callable[[str], None]] = {
        "nearest": lambda name: copy_nearest(model, rounded, name),
        "hashed": lambda name: copy_weights(model, rounded, name),
    }
    lines = []
    for name, rate in zip(names, args.rates, strict=True):
        learner = Learner(model, LearnerSettings(learning_rate=rate, loss="policy_gradient"), adapter=name)
        for _ in range(args.steps):
            learner.step(samples)
        found = {}
        for way, put in ways.items():
            put(name)
            if sampling is not rounded:
                copy_weights(rounded, sampling)
            found[way] = look(engine, learner, samples)
        size = found["hashed"]["sampler/update_size"]
        seen = [f"{found[way]['sampler/update_seen']:.3f}" for way in ways]
        noise = [f"{found[way]['sampler/update_noise']:.3f}" for way in ways]
        lines.append((f"{rate:g}", f"{size:.4f}", *seen, *noise))
    print(as_table(("rate", "size", "nearest: seen", "hashed: seen", "nearest: noise", "hashed: noise"), lines) + "\n")
    costs = {way: timed(lambda put=put: put(names[0]), args) for way, put in ways.items()}
    rows = [(way, f"{cost:.3f}", f"{cost / sampling_s:.1%}") for way, cost in costs.items()]
    said = f"of {args.rows} rows of {args.new} tokens ({sampling_s:.2f} s)"
    print(as_table(("weights to the sampler", "seconds", said), rows))


def find_model(args: argparse.Namespace) -> str:
    """A folder with the model; one of random weights is made if it is not there yet."""
    if not args.shape:
        return resolve_model(args.model).path
    path = str(model_folder(args.shape, "bfloat16"))
    prepare_model({"shape": args.shape, "path": path, "device": args.device, "dtype": "bfloat16"})
    return path


def write(engine: Any, rows: int, new: int) -> tuple[list[Sample], float]:
    """What the sampler writes after random prompts, and how long it took once it had written the like before."""
    draw = random.Random(0)
    vocabulary = engine.model.config.vocab_size
    prompts = [[draw.randrange(10, vocabulary) for _ in range(PROMPT_TOKENS)] for _ in range(rows)]
    for run in range(2):
        params = [SamplingParams(max_tokens=new, temperature=1.0, seed=run * rows + row) for row in range(rows)]
        requests = [Request(f"{run}-{row}", prompts[row], params[row]) for row in range(rows)]
        started = time.perf_counter()
        for request in requests:
            engine.add(request)
        while engine.busy:
            engine.step()
        seconds = time.perf_counter() - started
    samples = []
    for row, request in enumerate(requests):
        mask = tuple(place >= PROMPT_TOKENS for place in range(len(request.tokens)))
        worth = tuple((-1.0) ** row * flag for flag in mask)
        samples.append(Sample(tuple(request.tokens), mask, (0.0,) * len(mask), worth))
    return samples, seconds


def look(engine: Any, learner: Learner, samples: list[Sample]) -> dict[str, float]:
    """The metrics of the sampler as it is now."""
    engine.forget()
    scores = engine.score_many([list(sample.token_ids) for sample in samples])
    scored = [
        Sample(sample.token_ids, sample.loss_mask, (0.0, *row[1:]), sample.advantages)
        for sample, row in zip(samples, scores, strict=True)
    ]
    return measure_update(learner, scored)


@torch.no_grad()
def copy_nearest(source: Any, target: Any, adapter: str) -> None:
    """What `copy_weights` did before: every weight to the nearest that the sampler's precision has."""
    merged = merged_weights(source, adapter)
    for name, weight in target.named_parameters():
        weight.copy_(merged[name]())


def timed(action: Callable[[], None], args: argparse.Namespace) -> float:
    """Seconds of an action: the median after one that does not count."""
    seconds = []
    for _ in range(1 + args.repeat):
        started = time.perf_counter()
        action()
        if args.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()

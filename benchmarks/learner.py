"""How many tokens a second a gradient step learns from, against a plain padded step of transformers.

    python benchmarks/learner.py --shape 135m --device cuda --compiled --json learner.json
    python benchmarks/learner.py --shape tiny --device cpu --samples 16
    python benchmarks/learner.py --shape 1.5b --device cuda --rank 32 --checkpointing off    # adapters

Both learn from the same samples of the same lengths, with the same random weights, loss and optimizer. The plain step
pads the samples of a micro-batch to the longest of them, as they come (and, in a row of its own, sorted by length), and
makes the logits of every token. It is tuned: it runs with each of `--rows` samples a micro-batch, with and without
gradient checkpointing, and the fastest that fits counts. On a GPU both are autocast to bfloat16. Tokens are real ones;
padding does not count. Each figure is the median of `--repeats` steps after one of the same size.

With `--rank`, adapters are trained, and the baseline is our step with peft's own layers.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lengths import read_lengths
from peft.tuners.lora import Linear
from shapes import SHAPES, make_config
from tables import say_scene, scene
from torch import Tensor
from transformers import AutoModelForCausalLM

from quaere.training.adapters import FusedLinear, add_adapters
from quaere.training.batches import Sample
from quaere.training.learner import Learner
from quaere.training.settings import AdapterSettings, LearnerSettings

RATE = 1e-7  # so small that all steps are of the same model


class Row(NamedTuple):
    """One way to take the step."""

    name: str
    step_s: float
    tokens_per_s: float
    peak_gib: float
    loss: float
    gradient_norm: float


# ------------------------------------------------------------------------------------------------------- the workload


def make_model(shape: str, device: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(make_config(shape), dtype=dtype, attn_implementation="sdpa")


def make_learner(args: argparse.Namespace, settings: LearnerSettings, *, fused: bool = True) -> Learner:
    """Our learner of all weights or, with a rank, of an adapter, whose layers are peft's own unless `fused`."""
    if not args.rank:
        return Learner(make_model(args.shape, args.device), settings)
    base = make_model(args.shape, args.device, torch.bfloat16 if args.device == "cuda" else torch.float32)
    model = add_adapters(base, ("solver",), AdapterSettings(rank=args.rank))
    if not fused:
        for module in model.modules():
            if isinstance(module, FusedLinear):
                module.__class__ = Linear
    return Learner(model, settings, adapter="solver")


def draw_masks(count: int, loss_share: float) -> list[list[bool]]:
    """Lengths drawn log-normally, median 900, within 300 and 2500; a prompt, then turns between tool responses."""
    draw, masks = random.Random(0), []
    for _ in range(count):
        length = min(2500, max(300, round(draw.lognormvariate(6.8, 0.6))))
        mask = [False] * 150
        while len(mask) < length:
            turn = draw.randint(20, 150)
            mask += [True] * turn + [False] * round(turn * (1 / loss_share - 1))
        masks.append([*mask[: length - 1], True])
    return masks


def read_masks(run: Path, count: int) -> list[list[bool]]:
    """As long as episodes of a run were, with its model's tokens where they were."""
    masks = []
    for episode in random.Random(0).choices(read_lengths(run), k=count):
        mask = [False] * episode["prompt"]
        for sampled, said in episode["turns"]:
            mask += [True] * sampled + [False] * said
        masks.append(mask)
    return masks


def make_samples(masks: Sequence[Sequence[bool]], vocabulary: int) -> list[Sample]:
    draw = random.Random(0)
    return [
        Sample(
            tuple(draw.randrange(vocabulary) for _ in mask),
            tuple(mask),
            (-10.0,) * len(mask),
            tuple(draw.gauss(0, 1) if flag else 0.0 for flag in mask),
        )
        for mask in masks
    ]


# ------------------------------------------------------------------------------------------------------ the plain step


class PlainLearner:
    """A padded step as one would write it with transformers and nothing else."""

    def __init__(self, model: Any, device: str, *, rows: int, is_sorted: bool, checkpointing: bool) -> None:
        self.model, self.device, self.rows, self.is_sorted = model.train(), device, rows, is_sorted
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=device == "cuda")

    def step(self, samples: Sequence[Sample]) -> dict[str, float]:
        ordered = sorted(samples, key=lambda one: len(one.token_ids)) if self.is_sorted else samples
        total = sum(sum(sample.loss_mask) for sample in samples)
        self.optimizer.zero_grad(set_to_none=True)
        losses = [self._add_gradients(ordered[n : n + self.rows], total) for n in range(0, len(ordered), self.rows)]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return {"loss/policy": sum(map(float, losses)), "gradient/norm": float(norm)}

    def _add_gradients(self, samples: Sequence[Sample], total: int) -> Tensor:
        width = max(len(sample.token_ids) for sample in samples)

        def pad(rows: list[Sequence[float]], dtype: torch.dtype) -> Tensor:
            return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=dtype, device=self.device)

        ids = pad([sample.token_ids for sample in samples], torch.long)
        attention = pad([[1] * len(sample.token_ids) for sample in samples], torch.long)
        worth = pad([sample.advantages for sample in samples], torch.float32)  # 0 where there is no loss
        with torch.autocast("cuda", torch.bfloat16) if self.device == "cuda" else nullcontext():
            logits = self.model(input_ids=ids, attention_mask=attention, use_cache=False).logits
        gaps = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        loss = (gaps * worth[:, 1:].flatten()).sum() / total
        loss.backward()
        return loss.detach()


# ------------------------------------------------------------------------------------------------------- the measuring


def measure(name: str, make: Callable[[], Any], samples: Sequence[Sample], device: str, repeats: int) -> Row | None:
    """The median step of a fresh learner; None where memory does not do."""
    learner = None
    try:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        learner = make()
        first = learner.step(samples)
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            learner.step(samples)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
    except torch.OutOfMemoryError:
        return None
    finally:
        del learner
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    num_tokens = sum(len(sample.token_ids) for sample in samples)
    step_s = statistics.median(times)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    return Row(name, step_s, num_tokens / step_s, peak, first["loss/policy"], first["gradient/norm"])


def measure_plain(args: argparse.Namespace, samples: Sequence[Sample], *, is_sorted: bool) -> Row:
    """The fastest of all ways to run the plain step that fit."""
    found = []
    for rows in args.rows:
        for checkpointing in (False, True):
            name = f"plain padded{', sorted' if is_sorted else ''}: {rows} rows{', checkpointing' * checkpointing}"
            options = {"rows": rows, "is_sorted": is_sorted, "checkpointing": checkpointing}
            row = measure(
                name,
                lambda options=options: PlainLearner(make_model(args.shape, args.device), args.device, **options),
                samples,
                args.device,
                args.repeats,
            )
            print(f"  tried {name}: {f'{row.tokens_per_s:,.0f} tokens/s' if row else 'does not fit'}", flush=True)
            found += [row] if row else []
    return max(found, key=lambda row: row.tokens_per_s)


def measure_ours(args: argparse.Namespace, samples: Sequence[Sample], *, fused: bool = True) -> list[Row]:
    found = []
    for micro_tokens in args.micro_tokens:
        for compiled in (False, True) if args.compiled else (False,):
            settings = LearnerSettings(
                learning_rate=RATE,
                micro_tokens=micro_tokens,
                compiled=compiled,
                gradient_checkpointing={"auto": "auto", "on": True, "off": False}[args.checkpointing],
                offload_optimizer=args.offload,
            )
            row = measure(
                f"quaere: {micro_tokens} micro_tokens{', compiled' * compiled}{'' if fused else ', layers of peft'}",
                lambda settings=settings: make_learner(args, settings, fused=fused),
                samples,
                args.device,
                args.repeats,
            )
            found += [row] if row else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="135m", help="a model of this shape, random weights")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--run", type=Path, metavar="DIR", help="samples as long as the episodes of this run")
    parser.add_argument("--loss-share", type=float, default=0.35, help="without --run: of the tokens after a prompt")
    parser.add_argument("--rows", type=int, nargs="+", default=[4, 8, 16], help="of the plain step's micro-batches")
    parser.add_argument("--micro-tokens", type=int, nargs="+", default=[8192, 16384])
    parser.add_argument("--rank", type=int, default=0, help="of adapters (default: 0, all weights)")
    parser.add_argument("--compiled", action="store_true", help="measure compiled layers as well")
    parser.add_argument("--checkpointing", choices=["auto", "on", "off"], default="auto", help="of ours")
    parser.add_argument("--offload", action="store_true", help="keep our moments in host memory")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    masks = read_masks(args.run, args.samples) if args.run else draw_masks(args.samples, args.loss_share)
    samples = make_samples(masks, SHAPES[args.shape][1]["vocab"])
    lengths = sorted(len(sample.token_ids) for sample in samples)
    about = {
        **scene(args.device),
        "samples": len(samples),
        "tokens": sum(lengths),
        "lengths": f"{lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}",
        "loss_tokens": sum(sum(sample.loss_mask) for sample in samples),
    }
    print(say_scene(about))
    print(f"samples   {about['samples']} of {about['lengths']} tokens, {about['loss_tokens']} carry loss\n", flush=True)
    if args.rank:
        rows = [row for fused in (False, True) for row in measure_ours(args, samples, fused=fused)]
    else:
        plain = [measure_plain(args, samples, is_sorted=flag) for flag in (False, True)]
        rows = [*plain, *measure_ours(args, samples)]
    print(f"{'':58}{'s/step':>8}{'tokens/s':>11}{'ratio':>7}{'GiB':>7}{'loss':>12}{'gradient':>11}")
    for row in rows:
        ratio = row.tokens_per_s / rows[0].tokens_per_s
        print(
            f"{row.name:58}{row.step_s:8.3f}{row.tokens_per_s:11,.0f}{ratio:7.2f}{row.peak_gib:7.1f}"
            f"{row.loss:12.6f}{row.gradient_norm:11.5f}"
        )
    if args.json:
        args.json.write_text(json.dumps({"about": about, "rows": [row._asdict() for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""A whole step of training: sample, reward, learn, put the weights back. Beside TRL's GRPOTrainer, or as Dr. Zero.

    python benchmarks/step.py --shape 135m --device cpu
    python benchmarks/step.py --shape 135m --device cuda --dtypes bfloat16 --prompts 32 --rollouts 160
    python benchmarks/step.py --shape tiny --device cpu --drzero

GRPO: `--prompts` prompts of `--prompt` random tokens, `--rollouts` rollouts over all of them, `--new` tokens each, paid
by the share of even token ids; one update on all of it. Both are given the same model, prompts, lengths and
micro-batch, no KL term and no gradient checkpointing. In float32 all is float32. In bfloat16 our sampling copy is
bfloat16 and the weights that learn stay float32, while TRL holds weights and moments in bfloat16, which takes less
memory and is less exact; it is run with its autocast and without, as either may be faster. Seconds are the median of
`--repeat` steps after a warm-up step, memory is the worker's peak, "against ours 2x" is twice what ours takes.

`--drzero`: a proposer's step of the recipe itself, over a generated world: propose, attempt, reward, HRPO, with a
breakdown of who was busy for how long. The parts overlap, so they may add up to more than the step. A model with random
weights writes nothing that could be read, so what a turn *does* is drawn from a hash of what it says (a search, or an
end with "yes" or "no"); `--as-written` leaves it to the model. `--set K=V` changes the recipe's config.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from drzero_step import drzero_table, run_drzero
from peers import read_flags
from shapes import Sizes, add_model_arguments, model_folder, prepare_model
from tables import answer_worker, as_table, peak_memory_gib, run_worker, say_scene, scene, spread

TITLES = {"ours": "ours", "trl": "TRL GRPOTrainer"}
PACKAGES = {"ours": "quaere", "trl": "trl"}
VARIANTS: dict[str, dict[str, Any]] = {"": {}, " without autocast": {"bf16": False}}  # of TRL, in bfloat16


def main() -> None:
    args = read_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        path = args.model or str(model_folder(args.shape, "float32"))
        prepare = {"engine": "", "shape": "" if args.model else args.shape, "path": path, "device": args.device}
        found = run_worker(__file__, prepare | {"dtype": "float32"})
        if "error" in found:
            sys.exit(f"no model: {found['error']}")
        report: dict[str, Any] = {**scene(args.device), "model": args.model or args.shape, "found": {}}
        spec = {name: value for name, value in vars(args).items() if name != "json"}
        spec |= {"path": path, "scratch": scratch, "vocab": Sizes(*found["sizes"]).vocab}
        if args.drzero:
            report["found"] = run_worker(__file__, spec | {"engine": "drzero", "package": "quaere"})
            if "error" in report["found"]:
                sys.exit(f"Dr. Zero: {report['found']['error']}")
        else:
            report["found"] = measure_grpo(args, spec)
    print(say_scene(report) + "\n")
    if args.drzero:
        print(drzero_table(report["found"]))
    else:
        for title, found in report["found"].items():
            print(f"{title}: " + (found.get("error") or json.dumps(found["flags"])))
        print("\n" + grpo_table(report["found"]))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--prompts", type=int, default=4, help="prompts, or with --drzero documents, of a step")
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens of a rollout, or with --drzero of a turn")
    parser.add_argument("--engines", default="ours,trl")
    parser.add_argument("--flag", action="append", default=[], metavar="ENGINE.NAME=VALUE", help="tune one further")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--drzero", action="store_true", help="a proposer's step of Dr. Zero instead")
    parser.add_argument("--as-written", action="store_true", help="with --drzero: turns do what the model wrote")
    parser.add_argument("--articles", type=int, default=200, help="with --drzero: size of the world")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="with --drzero: the recipe's config")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    args = parser.parse_args()
    if args.rollouts % args.prompts or args.rollouts == args.prompts:
        parser.error(f"--rollouts must be twice or more times --prompts, not {args.rollouts} for {args.prompts}")
    return args


def work(spec: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: prepare the model, or measure one trainer."""
    if not spec["engine"]:
        return {"sizes": prepare_model(spec)}
    import torch

    if spec["threads"]:
        torch.set_num_threads(spec["threads"])
    found = {"ours": run_ours, "trl": run_trl, "drzero": run_drzero}[spec["engine"]](spec)
    return {**found, "memory_gib": peak_memory_gib(spec["device"])}


# --------------------------------------------------------------------------------------------------------------- GRPO


def measure_grpo(args: argparse.Namespace, spec: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for dtype in args.dtypes.split(","):
        for engine, (title, tuned) in product(args.engines.split(","), VARIANTS.items()):
            if tuned and (engine, dtype) != ("trl", "bfloat16"):
                continue
            own = {"engine": engine, "package": PACKAGES[engine], "dtype": dtype}
            found = run_worker(__file__, spec | own | {"flags": tuned | read_flags(args.flag, engine)})
            name = f"{TITLES[engine]}, {dtype}{title}"
            report[name] = {**found, "engine": engine, "dtype": dtype}
            print(f"{name}: {found.get('error') or 'done'}", file=sys.stderr, flush=True)
    return report


def draw_prompts(spec: dict[str, Any]) -> list[list[int]]:
    draw = random.Random(7)
    return [draw.choices(range(10, spec["vocab"]), k=spec["prompt"]) for _ in range(spec["prompts"])]


def even_share(token_ids: Any) -> float:
    """The reward: which share of the ids is even."""
    return sum(token % 2 == 0 for token in token_ids) / len(token_ids)


def run_ours(spec: dict[str, Any]) -> dict[str, Any]:
    """The native sampler, the learner, and the weights back into the sampler through `Actors`."""
    import torch

    from quaere.objectives.policy_gradient import grpo
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.sampler import NativeSampler
    from quaere.policies.sampler import SamplingParams
    from quaere.training.actors import Actors
    from quaere.training.batches import Sample
    from quaere.training.learner import Learner
    from quaere.training.settings import LearnerSettings

    whole_batch = spec["rollouts"] * (spec["prompt"] + spec["new"])
    flags = {"micro_tokens": whole_batch, "gradient_checkpointing": False, **spec["flags"]}
    model = load_model(spec["path"], spec["device"], spec["dtype"])
    sampler = NativeSampler.over(model, lambda ids: "", name="ours", mode="fast", max_rows=spec["rollouts"])
    learner = Learner(load_model(spec["path"], spec["device"], "float32", packed=False), LearnerSettings(**flags))
    policy: Any = SimpleNamespace(sampler=sampler)
    actors = Actors(policy, {"solver": learner.model}, shared=False)
    groups = [row * spec["prompts"] // spec["rollouts"] for row in range(spec["rollouts"])]
    prompts = draw_prompts(spec)

    async def roll_out(step: int, row: int) -> Any:
        params = SamplingParams(max_tokens=spec["new"], seed=step << 16 | row)
        return await sampler.sample(f"s{step}-{row}", prompts[groups[row]], params)

    def make_sample(row: int, sampled: Any, advantage: float) -> Sample:
        given, new = len(prompts[groups[row]]), len(sampled.token_ids)
        mask = (False,) * given + (True,) * new
        worth = tuple(advantage * flag for flag in mask)
        return Sample((*prompts[groups[row]], *sampled.token_ids), mask, ((0.0,) * given + sampled.logprobs), worth)

    async def steps() -> list[list[float]]:
        seconds = []
        for step in range(1 + spec["repeat"]):
            times = [time.perf_counter()]
            sampled = await asyncio.gather(*(roll_out(step, row) for row in range(spec["rollouts"])))
            times.append(time.perf_counter())
            advantages = grpo([even_share(each.token_ids) for each in sampled], groups).values.tolist()
            learner.step([make_sample(row, each, advantages[row]) for row, each in enumerate(sampled)])
            times.append(time.perf_counter())
            actors.weights_changed("solver")
            actors.become("solver")
            if spec["device"] == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter())
            seconds.append([after - before for before, after in pairwise(times)])
        await sampler.stop()
        return seconds[1:]

    seconds = asyncio.run(steps())
    parts = zip(("sampling", "learning", "weights"), zip(*seconds, strict=True), strict=True)
    return {
        "flags": flags,
        "step_s": [sum(parts) for parts in seconds],
        "parts_s": {name: statistics.median(values) for name, values in parts},
    }


def run_trl(spec: dict[str, Any]) -> dict[str, Any]:
    """TRL with its fastest settings for this size: one batch, no checkpointing, no reference model."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    flags = {
        "per_device_train_batch_size": spec["rollouts"],
        "num_generations": spec["rollouts"] // spec["prompts"],
        "max_completion_length": spec["new"],
        "generation_kwargs": {"min_new_tokens": spec["new"]},
        "beta": 0.0,
        "gradient_checkpointing": False,
        "use_transformers_continuous_batching": False,
        "bf16": spec["dtype"] == "bfloat16",
        "learning_rate": 1e-6,
        **spec["flags"],
    }
    ends: list[float] = []
    parts: dict[str, list[float]] = {"sampling": []}

    class Ends(TrainerCallback):
        def on_step_end(self, *ignored: Any, **also: Any) -> None:
            if spec["device"] == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    model = AutoModelForCausalLM.from_pretrained(
        spec["path"], dtype=getattr(torch, spec["dtype"]), attn_implementation="sdpa"
    )
    generate = model.generate

    def timed_generate(*given: Any, **also: Any) -> Any:
        started = time.perf_counter()
        result = generate(*given, **also)
        parts["sampling"].append(time.perf_counter() - started)
        return result

    model.generate = timed_generate
    prompts = [" ".join(f"t{token}" for token in prompt) for prompt in draw_prompts(spec)]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completion_ids, **ignored: [even_share(ids) for ids in completion_ids],
        args=GRPOConfig(
            output_dir=str(Path(spec["scratch"]) / "trl"),
            max_steps=1 + spec["repeat"],
            use_cpu=spec["device"] == "cpu",
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **flags,
        ),
        train_dataset=Dataset.from_dict({"prompt": prompts * (1 + spec["repeat"])}),
        processing_class=number_tokenizer(spec["vocab"]),
        callbacks=[Ends()],
    )
    trainer.train()
    lengths = [entry["completions/mean_length"] for entry in trainer.state.log_history if "loss" in entry]
    if any(length != spec["new"] for length in lengths):
        raise RuntimeError(f"{spec['new']} tokens a rollout were wanted, and {lengths} came")
    step_s = [after - before for before, after in pairwise(ends)]
    sampling_s = statistics.median(parts["sampling"][1:])
    return {"flags": flags, "step_s": step_s, "parts_s": {"sampling": sampling_s}}


def number_tokenizer(vocab: int) -> Any:
    """A tokenizer for which "t17 t4" is [17, 4], as large as the vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({f"t{number}": number for number in range(vocab)}, unk_token="t0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="t0", pad_token="t0", eos_token="t1", padding_side="left"
    )


def grpo_table(found: dict[str, Any]) -> str:
    ours = {each["dtype"]: each for each in found.values() if each["engine"] == "ours" and "error" not in each}
    rows = []
    for title, each in found.items():
        if "error" in each:
            rows.append((title, each["error"].partition(":")[0], *[""] * 5))
            continue
        seconds, own = statistics.median(each["step_s"]), ours.get(each["dtype"])
        rows.append(
            (
                title,
                f"{seconds:.3g}",
                spread(each["step_s"], ".3g"),
                f"{seconds / statistics.median(own['step_s']):.2f}x" if own else "",
                f"{each['memory_gib']:.2f}",
                f"{each['memory_gib'] / own['memory_gib']:.2f}x" if own else "",
                ", ".join(f"{name} {value:.3g}" for name, value in each["parts_s"].items()),
            )
        )
    head = ("", "s a step", "lowest to highest", "time against ours", "GiB", "memory against ours", "of which s")
    return as_table(head, rows)


if __name__ == "__main__" and not answer_worker(work):
    main()

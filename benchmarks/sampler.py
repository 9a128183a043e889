"""How fast tokens are sampled, beside the peers that are installed: one model, one workload, one script.

    python benchmarks/sampler.py --shape 135m --device cuda
    python benchmarks/sampler.py --shape 135m --device cuda --turns --json turns.json
    python benchmarks/sampler.py --shape tiny --device cpu --engines ours,generate

Weights are random, prompts are random ids, temperature is 1, nothing stops early, the log-prob of every sampled token
comes back, and prefill counts. Every sampler has a process of its own, a warm-up of the same size, and then `--repeat`
runs, each with new prompts of the same lengths so that nothing is left from the run before; the median is shown.

Three workloads: a fixed one (`--prompt`, `--new`, `--rows`); `--ragged`, with prompts of 64 to 1,024 tokens and 16 to
128 new ones; and `--turns`: episodes of two to four turns as training plays them, five to a prompt, 300 tokens shared
by all prompts, 40 to 100 new tokens a turn, some 250 tokens from the environment between two turns; or with lengths
drawn from the episodes of a run (`--run`). They are drawn in advance, so that every sampler does the same work.
`generate` can start nobody in the middle and takes turns together; the others go on with an episode as soon as its turn
is done. For the tiny shape all of this is eight times shorter.

The limit is what memory allows: per step all weights once, and K and V of every token a row looks at, over
`--bandwidth` (on a CPU, what copying a quarter of a gigabyte reaches). "ours is 2x" says that our sampler gives twice
the tokens a second; "first s" are the seconds from the start of the process to the first token.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lengths import read_lengths
from peers import SAMPLERS, Plan, read_flags
from shapes import Sizes, add_model_arguments, model_folder, prepare_model
from tables import answer_worker, as_table, measure_bandwidth, peak_memory_gib, run_worker, say_scene, scene, spread

ROLLOUTS = 5  # of each prompt, in the mix of turns
DEFAULTS = {"tiny": (64, 16, 10), "cpu": (512, 128, 32), "cuda": (512, 128, 256)}  # prompt, new, rows


def main() -> None:
    args = read_arguments()
    report = measure(args, args.model or str(model_folder(args.shape, args.dtype)))
    print(say_scene(report))
    print(f"workload  {report['workload']}\n")
    for name, found in report["engines"].items():
        print(f"{SAMPLERS[name].title}: " + (found.get("error") or json.dumps(found["flags"])))
    print("\n" + (start_up_table(report) if args.start_up else speed_table(report)))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: bfloat16 on cuda, float32 on cpu")
    parser.add_argument("--prompt", type=int, help="tokens of a prompt in the fixed workload (default: 512; tiny 64)")
    parser.add_argument("--new", type=int, help="tokens sampled after it (default: 128; tiny 16)")
    parser.add_argument("--rows", type=int, help="prompts at once (default: 256 on cuda, 32 on cpu; tiny 10)")
    mix = parser.add_mutually_exclusive_group()
    mix.add_argument("--ragged", action="store_true", help="prompts of 64 to 1024 tokens, 16 to 128 new ones")
    mix.add_argument("--turns", action="store_true", help="episodes of 2 to 4 turns, 5 rollouts of each prompt")
    parser.add_argument("--run", type=Path, metavar="DIR", help="with --turns: lengths of the episodes of this run")
    parser.add_argument("--engines", default="ours,generate,static,continuous,vllm")
    parser.add_argument("--flag", action="append", default=[], metavar="ENGINE.NAME=VALUE", help="tune one further")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--start-up", action="store_true", help="only the time from process start to the first token")
    parser.add_argument("--bandwidth", type=float, help="bytes/s of memory (default: 4.3e12 on cuda, measured on cpu)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    args = parser.parse_args()
    args.dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    usual = DEFAULTS["tiny" if args.shape == "tiny" and not args.model else args.device]
    for name, value in zip(("prompt", "new", "rows"), usual, strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)
    unknown = set(args.engines.split(",")) - set(SAMPLERS)
    if unknown:
        parser.error(f"unknown engine {', '.join(sorted(unknown))}; there are {', '.join(SAMPLERS)}")
    return args


# ---------------------------------------------------------------------------------------------------------- workloads


def draw_plans(mix: dict[str, Any], run: int) -> list[Plan]:
    """The workload of one run: lengths are the same in every run, tokens are not."""
    lengths, tokens = random.Random(mix["seed"]), random.Random(f"{mix['seed']}/{run}")

    def ids(count: int) -> list[int]:
        return tokens.choices(range(10, mix["vocab"]), k=count)

    def between(low: int, high: int) -> int:
        return lengths.randint(low, high) // mix["shrink"]

    def turns() -> list[tuple[int, int]]:
        if mix["episodes"]:
            drawn: list[tuple[int, int]] = lengths.choice(mix["episodes"])["turns"]
            return drawn
        return [(between(40, 100), between(200, 300)) for _ in range(lengths.randint(2, 4))]

    if mix["kind"] == "fixed":
        return [Plan(ids(mix["prompt"]), [(mix["new"], [])]) for _ in range(mix["rows"])]
    if mix["kind"] == "ragged":
        return [Plan(ids(between(64, 1024)), [(between(16, 128), [])]) for _ in range(mix["rows"])]
    system, plans = ids(300 // mix["shrink"]), []
    for _ in range(max(1, mix["rows"] // ROLLOUTS)):
        own = lengths.choice(mix["episodes"])["prompt"] - len(system) if mix["episodes"] else between(100, 200)
        prompt = system + ids(max(1, own))
        for _ in range(ROLLOUTS):
            *middle, (last, _) = turns()
            plans.append(Plan(prompt, [*((new, ids(said)) for new, said in middle), (last, [])]))
    return plans


def describe(plans: Sequence[Plan]) -> str:
    num_new = sum(new for plan in plans for new, _ in plan.turns)
    num_turns = sum(len(plan.turns) for plan in plans)
    prompts = [len(plan.prompt) for plan in plans]
    return (
        f"{len(plans)} episodes, {num_turns} turns, prompts of {min(prompts)} to {max(prompts)} tokens, "
        f"{num_new} new tokens with log-probs"
    )


def limit_tokens_per_s(plans: Sequence[Plan], sizes: Sizes, bandwidth: float) -> float:
    """Tokens a second if memory were all that mattered and every row were there from the first step on."""
    num_tokens, seen = 0, 0
    for plan in plans:
        context = len(plan.prompt)
        for new, said in plan.turns:
            seen += new * context + new * (new + 1) // 2
            num_tokens += new
            context += new + len(said)
    num_steps = max(sum(new for new, _ in plan.turns) for plan in plans)
    return num_tokens * bandwidth / (num_steps * sizes.weight_bytes + seen * sizes.kv_bytes)


# ---------------------------------------------------------------------------------------------------------- measuring


def measure(args: argparse.Namespace, path: str) -> dict[str, Any]:
    prepare = {"engine": "", "shape": "" if args.model else args.shape, "path": path}
    found = run_worker(__file__, prepare | {"device": args.device, "dtype": args.dtype})
    if "error" in found:
        sys.exit(f"no model: {found['error']}")
    sizes = Sizes(*found["sizes"])
    kind = "ragged" if args.ragged else "turns" if args.turns else "fixed"
    mix = {"kind": kind, "prompt": args.prompt, "new": args.new, "rows": args.rows, "vocab": sizes.vocab, "seed": 7}
    mix["shrink"] = 8 if args.shape == "tiny" and not args.model else 1
    mix["episodes"] = read_lengths(args.run) if args.run else []
    plans = draw_plans(mix, 0)
    bandwidth = args.bandwidth or (4.3e12 if args.device == "cuda" else found["bandwidth"])
    report: dict[str, Any] = {
        **scene(args.device),
        "workload": f"{kind}: {describe(plans)}",
        "model": {"name": args.model or args.shape, "parameters": sizes.num_parameters, "dtype": args.dtype},
        "bandwidth": bandwidth,
        "limit_tokens_per_s": limit_tokens_per_s(plans, sizes, bandwidth),
        "engines": {},
    }
    for name in choose_engines(args):
        spec = {
            "engine": name,
            "package": SAMPLERS[name].package,
            "path": path,
            "device": args.device,
            "dtype": args.dtype,
            "threads": args.threads,
            "mix": mix,
            "repeat": 0 if args.start_up else args.repeat,
            "flags": read_flags(args.flag, name),
        }
        found = run_worker(__file__, spec)
        if "first_token_s" in found:
            found["first_token_s"] -= found["started_s"]
        report["engines"][name] = found
        if args.json:  # after each of them, so that nothing is lost with the next
            args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
        print(f"{SAMPLERS[name].title}: {found.get('error') or 'done'}", file=sys.stderr, flush=True)
    return report


def choose_engines(args: argparse.Namespace) -> list[str]:
    """Beside `ours`, with turns, comes the sampler without reuse."""
    chosen = list(dict.fromkeys(args.engines.split(",")))
    if "ours" in chosen and args.turns and not args.start_up and "ours-no-reuse" not in chosen:
        chosen.insert(chosen.index("ours") + 1, "ours-no-reuse")
    return chosen


def work(spec: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: prepare the model, or measure one sampler."""
    if not spec["engine"]:
        return {"sizes": prepare_model(spec), "bandwidth": measure_bandwidth()}
    plans = draw_plans(spec["mix"], 0)
    if spec["threads"]:
        import torch

        torch.set_num_threads(spec["threads"])
    sampler = SAMPLERS[spec["engine"]].make(spec, plans)
    sampler.run([Plan(plans[0].prompt, [(1, [])])])
    found: dict[str, Any] = {"flags": sampler.flags, "first_token_s": time.time(), "tokens_per_s": []}
    outcome = None
    for run in range(1 + spec["repeat"] if spec["repeat"] else 0):
        plans = draw_plans(spec["mix"], run + 1)
        started = time.perf_counter()
        outcome = sampler.run(plans)
        elapsed_s = time.perf_counter() - started
        if run:  # the first is the warm-up
            found["tokens_per_s"].append(outcome.num_tokens / elapsed_s)
        else:
            found["warm_up_s"] = elapsed_s
    if outcome:
        found["mean_logprob"] = outcome.logprobs / outcome.num_tokens
    # vLLM holds its memory in another process, and takes what it is allowed to.
    found["memory_gib"] = None if spec["engine"] == "vllm" else peak_memory_gib(spec["device"])
    sampler.close()
    return found


# ------------------------------------------------------------------------------------------------------------- tables


def speed_table(report: dict[str, Any]) -> str:
    limit = report["limit_tokens_per_s"]
    ours = report["engines"].get("ours", {}).get("tokens_per_s")
    rows = []
    for name, found in report["engines"].items():
        title = SAMPLERS[name].title
        if "error" in found:
            rows.append((title, found["error"].partition(":")[0], *[""] * 6))
            continue
        speed = statistics.median(found["tokens_per_s"])
        memory = found["memory_gib"]
        rows.append(
            (
                title,
                f"{speed:,.0f}",
                spread(found["tokens_per_s"]),
                f"{statistics.median(ours) / speed:.2f}x" if ours else "",
                f"{100 * speed / limit:.1f} %",
                f"{found['first_token_s']:.1f}",
                "" if memory is None else f"{memory:.2f}",
                f"{found['mean_logprob']:.3f}",
            )
        )
    rows.append((f"limit at {report['bandwidth'] / 1e9:,.0f} GB/s", f"{limit:,.0f}", "", "", "100 %", "", "", ""))
    head = ("", "tokens/s", "lowest to highest", "ours is", "of the limit", "first s", "GiB", "mean log-prob")
    return as_table(head, rows)


def start_up_table(report: dict[str, Any]) -> str:
    rows = []
    for name, found in report["engines"].items():
        seconds = found.get("error") or f"{found['first_token_s']:.1f}"
        rows.append((SAMPLERS[name].title, seconds))
    return as_table(("", "seconds from process start to the first token"), rows)


if __name__ == "__main__" and not answer_worker(work):
    main()

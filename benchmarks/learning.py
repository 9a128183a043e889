"""How often does it learn? The learning tests of the suite over many seeds, with their controls.

    python benchmarks/learning.py --seeds 20 --workers 2 --out learning.json
    python benchmarks/learning.py --arms evalact evalrar "evalact, shuffled advantages" "evalrar, shuffled advantages"

A transformer of a few thousand weights, taught the format only, plays episodes in which the right query and the right
name (grpo, hrpo), or when to search again and when to answer (evalact, evalrar), have to be found by trial and error;
normalised reward is 0 at chance and 1 at the optimum. A seed passes when the mean over the last ten steps exceeds 0.8;
a control passes when it stays below.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
TESTS = Path(__file__).parents[1] / "tests"
ARMS = ("grpo", "hrpo", "grpo, shuffled advantages", "grpo, inverted mask")
EVALUATING = ("evalact", "evalrar", "evalact, shuffled advantages", "evalrar, shuffled advantages")
LINE = 0.8


def play(seed, arms, num_steps):
    """Every arm from the weights its pupil was taught the format with: normalised reward by arm."""
    sys.path[:0] = [str(TESTS), str(TESTS / "training")]
    import torch

    torch.set_num_threads(1)
    import books
    import lookup

    controls = {"": {}, "shuffled advantages": {"spoil": lookup.shuffled}, "inverted mask": {"spoil": lookup.inverted}}
    taught, found = {}, {}
    for arm in arms:
        how, _, control = arm.partition(", ")
        open_pupil = partial(books.Reader, seed, how) if arm in EVALUATING else partial(lookup.Pupil, seed)
        school = how if arm in EVALUATING else "lookup"
        if school not in taught:
            taught[school] = open_pupil()
            asyncio.run(taught[school].learn_format())
        pupil = open_pupil()
        pupil.model.load_state_dict(taught[school].model.state_dict())
        if arm in EVALUATING:
            found[arm] = books.last_mean(asyncio.run(pupil.reinforce(num_steps, spoil=bool(control)))).reward
        else:
            found[arm] = lookup.normalised(asyncio.run(pupil.reinforce(num_steps, how, **controls[control])))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS + EVALUATING)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    started, found = time.time(), {arm: {} for arm in args.arms}
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = {pool.submit(play, seed, args.arms, args.steps): seed for seed in range(args.seeds)}
        for job in as_completed(jobs):
            scores = job.result()
            for arm, score in scores.items():
                found[arm][jobs[job]] = score
            said = "  ".join(f"{arm} {score:.3f}" for arm, score in scores.items())
            print(f"{time.time() - started:6.0f} s  seed {jobs[job]:2}  {said}", flush=True)
            if args.out:
                args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"\n{'arm':28} seeds  over {LINE}  lowest  median  highest")
    for arm, scores in found.items():
        values = sorted(scores.values())
        passed = sum(value > LINE for value in values)
        middle = values[len(values) // 2]
        print(f"{arm:28} {len(values):5}  {passed:8}  {values[0]:6.3f}  {middle:6.3f}  {values[-1]:7.3f}")


if __name__ == "__main__":
    main()

"""`quaere export`: writes a trained role as a folder that transformers and vLLM can load.

quaere export drzero-20250301-101500 --role solver --merge --out my-solver
quaere ask "Who built the Halm bridge?" --model my-solver --index docs-index
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.cli.bounds import checkpoint
from quaere.cli.interrupt import interruptible
from quaere.cli.terminal import say_line
from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.dialects.notes import RoleWeights


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export` to the command line."""
    parser = commands.add_parser("export", help="write a trained model of a run to a folder")
    parser.add_argument("name", metavar="RUN", help="a training run's name or directory")
    parser.add_argument(
        "--role",
        choices=["solver", "proposer", "actor"],
        default="",
        help="role to export (default: solver; actor for a run that writes reports)",
    )
    parser.add_argument(
        "--checkpoint",
        type=checkpoint,
        metavar="N|best|last",
        help="step to export (default: the best by validation if there was one, else the last)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--merge", action="store_true", help="merge a LoRA adapter into its base model")
    form.add_argument("--adapter", action="store_true", help="write the LoRA adapter alone (default if there is one)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], help="precision of the written weights (default: float32, exact)"
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier export at --out")
    parser.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the folder and print what it contains."""
    from quaere.dialects.notes import find_role, use_role
    from quaere.runs import find_run, runs_root
    from quaere.training.exports import export_role

    path = find_run(runs_root(args.runs), args.name)

    def export(weights: RoleWeights) -> None:
        if args.adapter and not weights.is_adapter:
            raise BadInput(f"{weights.run} trained all weights and has no adapter", hint="leave --adapter out")
        if weights.is_adapter and not args.merge and args.dtype and not args.adapter:
            raise BadInput("--dtype needs --merge or --adapter", hint="add one of them, or leave --dtype out")
        export_role(weights, args.out, merge=args.merge, dtype=args.dtype or "float32", force=args.force)

    with interruptible(f"nothing is written to {args.out}"):
        weights, _ = use_role(lambda: find_role(path, args.role, args.checkpoint, say_line), export, report=say_line)
    stays_adapter = weights.is_adapter and not args.merge
    if args.json:
        print(json.dumps({"out": str(args.out), "run": weights.run, "role": weights.role, "step": weights.step}))
        return
    what = f"LoRA adapter on {weights.base}" if stays_adapter else "model"
    best = weights.best
    why = f", the best of {best.num_questions} validation questions" if best else ""
    print(f"{weights.role} of {weights.run} at step {weights.step}{why}: {what} in {args.out}")
    if weights.role != "proposer":
        command = "report" if weights.role == "actor" else "ask"
        print(f'quaere {command} "your question" --index {weights.index or "INDEX"} --model {args.out}')

"""`quaere export`: writes a trained role as a folder that transformers and vLLM can load.

quaere export drzero-20250301-101500 --role solver --merge --out my-solver
quaere ask "Who built the Halm bridge?" --model my-solver --index docs-index
"""

import argparse
import json
import shlex
from functools import partial
from typing import Literal

from msgspec import Struct

from quaere.cli.options import Checkpoint, JsonOption, Role, RunName, RunsFolder, command, exclusive, find_weights
from quaere.cli.terminal import interruptible, say_line
from quaere.dialects.notes import RoleWeights, use_role
from quaere.errors import BadInput
from quaere.setting_types import Folder
from quaere.training.exports import export_role


class ExportForm(Struct):
    """How a LoRA adapter is written.

    Attributes:
        merge: merge a LoRA adapter into its base model
        adapter: write the LoRA adapter alone (default if there is one)
    """

    merge: bool = False
    adapter: bool = False


class ExportOptions(JsonOption, kw_only=True):
    """Options of `quaere export`.

    Attributes:
        name: a training run's name or directory
        role: role to export (default: solver; actor for a run that writes reports)
        checkpoint: step to export (default: the best by validation if there was one, else the last)
        out: folder to write
        dtype: precision of the written weights (default: float32, exact)
        force: replace an earlier export at --out
    """

    name: RunName
    role: Role | None = None
    checkpoint: Checkpoint | None = None
    out: Folder
    dtype: Literal["float32", "bfloat16"] | None = None
    force: bool = False


def _run(args: argparse.Namespace) -> None:
    def export(weights: RoleWeights) -> None:
        if args.adapter and not weights.is_adapter:
            raise BadInput(f"{weights.run} trained all weights and has no adapter", hint="leave --adapter out")
        if weights.is_adapter and not args.merge and args.dtype and not args.adapter:
            raise BadInput("--dtype needs --merge or --adapter", hint="add one of them, or leave --dtype out")
        export_role(weights, args.out, merge=args.merge, dtype=args.dtype or "float32", force=args.force)

    with interruptible(f"nothing is written to {args.out}"):
        weights, _ = use_role(partial(find_weights, args, args.name), export, report=say_line)
    if args.json:
        print(json.dumps({"out": str(args.out), "run": weights.run, "role": weights.role, "step": weights.step}))
        return
    what = f"LoRA adapter on {weights.base}" if weights.is_adapter and not args.merge else "model"
    why = f", the best of {weights.best.num_questions} validation questions" if weights.best else ""
    print(f"{weights.role} of {weights.run} at step {weights.step}{why}: {what} in {args.out}")
    if weights.role != "proposer":
        command = "report" if weights.role == "actor" else "ask"
        where = f"--index {shlex.quote(str(weights.index or 'INDEX'))} --model {shlex.quote(str(args.out))}"
        print(f'quaere {command} "your question" {where}')


fill = command(_run, ExportOptions, RunsFolder, exclusive(ExportForm))

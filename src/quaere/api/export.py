"""`quaere.export`: a trained role as a folder that transformers and vLLM load as it is.

export("runs/notes", "notes-agent", merge=True) -> Path("notes-agent")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from quaere.api.run import Run

if TYPE_CHECKING:
    from quaere.runs.checkpoints import Which


def export(
    run: Run | str | Path,
    out: str | Path,
    *,
    role: Literal["solver", "proposer", "actor"] | None = None,
    checkpoint: Which | None = None,
    merge: bool = False,
    dtype: Literal["float32", "bfloat16"] = "float32",
    force: bool = False,
) -> Path:
    """Write a trained role of a run to the folder `out`, and return it: `Agent(out, index)` opens it.

    `role` is by default the solver, or of a run that writes reports the actor. `checkpoint` is a step, "best" or
    "last"; by default the best by validation where there is one, else the last. A LoRA adapter is written by itself
    unless `merge` adds it to its base. `dtype` is that of the weights that are written. With `force`, an earlier export
    at `out` is replaced.
    """
    from quaere.dialects.notes import find_role, use_role
    from quaere.training.exports import export_role

    path = run.path if isinstance(run, Run) else Run.open(run).path
    _, written = use_role(
        lambda: find_role(path, role or "", checkpoint),
        lambda weights: export_role(weights, Path(out), merge=merge, dtype=dtype, force=force),
    )
    return written

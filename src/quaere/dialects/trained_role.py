"""A trained role outside its run: its weights, how it was trained to be prompted, and a policy of it.

    weights = find_role(Path("runs/drzero-1"), "solver")      # the best checkpoint by validation, else the last
    policy = role_policy(weights)                             # to ask or evaluate it

A role's weights in a checkpoint are a whole model, or an adapter on the model named in the run's `config.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from quaere.chat.protocol import PromptStyle
from quaere.dialects.notes import Notes
from quaere.dialects.registry import SolverDialectName
from quaere.dialects.settings import EvaluationSettings
from quaere.errors import BadInput
from quaere.policies.catalogue import ModelPath, resolve_model
from quaere.policies.model_folders import CONFIG as _ADAPTER_CONFIG
from quaere.policies.native.device import Precision
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.runs import Run
from quaere.runs.checkpoints import Best, Checkpoint, Which, find_checkpoints, pick_checkpoint, verify_checkpoint

T = TypeVar("T")

_NUM_TRIES = 5  # attempts to read a checkpoint before training prunes it


class CheckpointGone(BadInput):
    """Training deleted the checkpoint while it was being read."""


class RoleWeights(Struct, frozen=True):
    """The weights of a role in a checkpoint, and the prompts, protocol and limits it was trained with.

    RoleWeights(run="drzero-1", recipe="drzero", role="solver", step=110, is_adapter=True, base="smollm2-135m",
                folder=Path("runs/drzero-1/checkpoints/step-000110/solver"), style="brief", limits=Limits(max_turns=3),
                evidence=False, dialect="tool-call", evaluation=EvaluationSettings(), best=None)
    """

    run: str
    recipe: str
    role: str
    step: int
    folder: Path
    is_adapter: bool
    base: str
    style: PromptStyle
    limits: Limits
    evidence: bool
    dialect: SolverDialectName
    evaluation: EvaluationSettings
    best: Best | None  # validation result of these weights, if they are the best
    index: str = ""  # that the run learnt from

    @property
    def name(self) -> str:
        """Short name for tables: `drzero-1/solver@110`."""
        return f"{self.run}/{self.role}@{self.step}"


class _Solver(Struct):
    limits: Limits = Limits()
    dialect: SolverDialectName = "tool-call"
    evaluation: EvaluationSettings = EvaluationSettings()


class _Evidence(Struct):
    cite: bool = False


class _RunConfig(Struct):
    """The part of a run's `config.yaml` that is needed here; every recipe has it."""

    model: str
    index: str = ""
    prompts: PromptStyle = "full"
    solver: _Solver = field(default_factory=_Solver)
    evidence: _Evidence = field(default_factory=_Evidence)


# --------------------------------------------------------------------------------------------------------- finding


def find_role(
    run_path: Path, role: str, which: Which | None = None, tell: Callable[[str], None] = lambda line: None
) -> RoleWeights:
    """A role's weights in a checkpoint of a run, verified by hash.

    By default the role's best checkpoint by validation, else the last. The role "" means the solver, or the actor in a
    run that writes reports. `tell` receives a line about each damaged checkpoint that is skipped; a damaged checkpoint
    that was named, or is the best, raises BadInput instead.
    """
    with Run.open(run_path) as run:
        info = run.info
        config = _read_config(run)
    checkpoints = find_checkpoints(run_path / "checkpoints", tell)
    if not checkpoints:
        raise BadInput(f"{run_path} has no complete checkpoint", hint=f"quaere runs show {run_path}")
    role = role or ("actor" if (checkpoints[-1].path / "actor").is_dir() else "solver")
    checkpoint, folder = _open_sound(checkpoints, role, which, tell)
    best = checkpoints[-1].best
    return RoleWeights(
        run=info.id,
        recipe=info.settings.get("recipe", ""),
        role=role,
        step=checkpoint.step,
        folder=folder,
        is_adapter=(folder / _ADAPTER_CONFIG).is_file(),
        base=config.model,
        style=config.prompts,
        limits=config.solver.limits,
        evidence=config.evidence.cite,
        dialect=config.solver.dialect,
        evaluation=config.solver.evaluation,
        best=best if best and (best.role, best.step) == (role, checkpoint.step) else None,
        index=config.index,
    )


def use_role(
    find: Callable[[], RoleWeights],
    use: Callable[[RoleWeights], T],
    *,
    found: RoleWeights | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[RoleWeights, T]:
    """The role's weights and the result of `use(weights)`; retried with other weights if training deletes them.

    A run in training keeps only its newest checkpoints, so the one found may be deleted while it is loaded. `found` is
    the result of an earlier `find`.

        use_role(lambda: find_role(path, "solver"), role_policy) -> (RoleWeights(...), TokenPolicy(...))
    """
    for num_left in reversed(range(_NUM_TRIES)):
        try:
            weights = found or find()
            return weights, use(weights)
        except CheckpointGone as error:
            if not num_left:
                raise
            report(f"{error}; taking the one that follows")
            found = None
    raise AssertionError("the last try returns or raises")


def notes_of(weights: RoleWeights) -> Notes:
    """The notes (prompts, protocol, limits) of a run's role, as `quaere.json` holds them for a folder."""
    return Notes(
        weights.style,
        weights.limits,
        weights.evidence,
        dialect=weights.dialect,
        evaluation=weights.evaluation,
        recipe=weights.recipe,
    )


def _read_config(run: Run) -> _RunConfig:
    text = run.trained_config()
    try:
        config = msgspec.yaml.decode(text, type=_RunConfig)
    except msgspec.DecodeError as error:
        raise BadInput(f"config.yaml of run {run.info.id}: {' '.join(str(error).split())}") from error
    if not config.model:
        raise BadInput(f"config.yaml of run {run.info.id} has no `model`")
    return config


def _open_sound(
    checkpoints: list[Checkpoint], role: str, which: Which | None, tell: Callable[[str], None]
) -> tuple[Checkpoint, Path]:
    """The picked checkpoint and its role's folder; a damaged last checkpoint is removed from the list and skipped."""
    while True:
        checkpoint = pick_checkpoint(checkpoints, role, which)
        with reading_checkpoint(checkpoint.path):
            folder = _role_folder(checkpoint, role)
            try:
                verify_checkpoint(checkpoint)
                return checkpoint, folder
            except BadInput as error:
                if which not in (None, "last") or checkpoint != checkpoints[-1] or len(checkpoints) == 1:
                    raise
                if not checkpoint.path.is_dir():
                    raise
                tell(f"passed over: {error}")
        checkpoints.pop()


def _role_folder(checkpoint: Checkpoint, role: str) -> Path:
    folder = checkpoint.path / role
    if not folder.is_dir():
        roles = ", ".join(sorted(path.name for path in checkpoint.path.iterdir() if path.is_dir())) or "none"
        raise BadInput(f"{checkpoint.path} has no role {role}; its roles are {roles}", hint="omit --role")
    if not any((folder / name).is_file() for name in (_ADAPTER_CONFIG, "config.json")):
        raise BadInput(f"{folder} contains neither a model nor an adapter")
    return folder


@contextmanager
def reading_checkpoint(folder: Path) -> Iterator[None]:
    """Context of reading a checkpoint: if training deleted it meanwhile, raise CheckpointGone instead of the error."""
    try:
        yield
    except Exception as error:
        if folder.is_dir():
            raise
        raise CheckpointGone(
            f"{folder} was deleted while it was being read: the run is still being trained",
            hint="try again, or name another --checkpoint",
        ) from error


# --------------------------------------------------------------------------------------------------------- loading


def load_role(weights: RoleWeights, *, device: str = "cpu", dtype: str = "float32") -> Any:
    """The role as one model without adapter, with the native engine's attention.

    An adapter is added to the weights in float32 and only the sum is rounded, as in training: in bfloat16 the role
    equals the policy that the sampler used.
    """
    from quaere.policies.native.bridge import load_model

    return load_model(_role_path(weights), device, dtype)


def _role_path(weights: RoleWeights) -> ModelPath:
    """The role as a loadable model: its folder, or the run's model with its adapter."""
    if not weights.is_adapter:
        return ModelPath(weights.name, str(weights.folder))
    base = resolve_model(weights.base)
    return ModelPath(weights.name, base.path, (*base.adapters, str(weights.folder)))


def role_policy(
    weights: RoleWeights,
    *,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    dtype: Precision = "auto",
    mode: Literal["fast", "deterministic"] = "fast",
    max_rows: int = 32,
    interactive: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> TokenPolicy:
    """A policy with the role's weights; the counterpart of `open_policy` for a run."""
    from quaere.chat.renderer import Renderer
    from quaere.policies.model_folders import load_tokenizer
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.sampler import NativeSampler

    chosen = choose_device(device, report)
    renderer = Renderer(load_tokenizer(str(tokenizer_folder(weights))))
    with reading_checkpoint(weights.folder):
        precision = choose_dtype(dtype, chosen, mode, interactive=interactive)
        model = load_role(weights, device=chosen, dtype=precision)
    sampler = NativeSampler.over(
        model, renderer.decode, name=weights.name, mode=mode, max_rows=max_rows, quick=mode == "fast"
    )
    return TokenPolicy(sampler, renderer)


def tokenizer_folder(weights: RoleWeights) -> Path:
    """Folder of the role's tokenizer: its own if it was saved, else the base model's, which training keeps."""
    if (weights.folder / "tokenizer_config.json").is_file():
        return weights.folder
    return Path(resolve_model(weights.base).tokenizer)

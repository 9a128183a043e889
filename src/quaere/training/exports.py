"""A trained role on its way out of its run: to a sampler, or to a folder that transformers and vLLM load as it is.

    weights = find_role(Path("runs/drzero-1"), "solver")      # the best checkpoint by validation, else the last
    policy = role_policy(weights)                             # to evaluate it
    export_role(weights, Path("solver"), merge=True)          # config.json, model.safetensors, tokenizer, quaere.json

A role's weights in a checkpoint are a whole model, or an adapter on the model that the run's `config.yaml` names.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from quaere.atomic import new_folder
from quaere.chat.prompt_style import PromptStyle
from quaere.dialects.notes import NOTES, WARMUP, Notes, read_json
from quaere.dialects.registry import SolverDialectName
from quaere.dialects.settings import EvaluationSettings
from quaere.errors import BadInput, warn_old_name
from quaere.policies.adapters import CONFIG as _ADAPTER_CONFIG
from quaere.policies.adapters import WEIGHTS as _ADAPTER_WEIGHTS
from quaere.policies.catalogue import ModelPath, lasting_name, resolve_model
from quaere.policies.native.device import Precision
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.runs import Run
from quaere.training.checkpoints import Best, Checkpoint, Which, find_checkpoints, pick_checkpoint, verify_checkpoint

T = TypeVar("T")

_NUM_TRIES = 5  # a run that prunes faster than it can be read five times over is not followed any further

# Copied rather than loaded and saved again, so that they stay as the base model's makers wrote them.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


class CheckpointGone(BadInput):
    """Training has deleted the checkpoint while it was read."""


class RoleWeights(Struct, frozen=True):
    """Where a role's weights lie, and how it was trained to be asked.

    RoleWeights(run="drzero-1", recipe="drzero", role="solver", step=110, is_adapter=True, base="smollm2-135m",
                folder=Path("runs/drzero-1/checkpoints/step-000110/solver"), style="brief", limits=Limits(max_turns=3))
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
    evidence: bool = False
    dialect: SolverDialectName = "tool-call"
    evaluation: EvaluationSettings = EvaluationSettings()
    best: Best | None = None  # what validation said of these weights, if they are the best

    @property
    def name(self) -> str:
        """One word for it in a table: `drzero-1/solver@110`."""
        return f"{self.run}/{self.role}@{self.step}"


class _Solver(Struct):
    limits: Limits = Limits()
    dialect: SolverDialectName = "tool-call"
    protocol: SolverDialectName | None = None  # what runs of 0.1.0 call `dialect`
    evaluation: EvaluationSettings = EvaluationSettings()

    def __post_init__(self) -> None:
        if self.protocol:
            warn_old_name("solver.protocol", "solver.dialect")
            self.dialect = self.protocol


class _Evidence(Struct):
    protocol: bool = False


class _RunConfig(Struct):
    """The part of a run's `config.yaml` that matters here; every recipe's has it."""

    model: str
    prompts: PromptStyle = "full"
    solver: _Solver = field(default_factory=_Solver)
    evidence: _Evidence = field(default_factory=_Evidence)


# --------------------------------------------------------------------------------------------------------- finding


def find_role(
    run_path: Path, role: str, which: Which | None = None, tell: Callable[[str], None] = lambda line: None
) -> RoleWeights:
    """A role's weights in a checkpoint of a run, whose hashes are checked.

    Without `which` it is the role's best checkpoint where validation has chosen one, else the last. "" is whoever does
    the work: the solver, or of a run that writes reports the actor. `tell` hears of damaged checkpoints that are passed
    over; one that was named or chosen as the best is not.
    """
    with Run.open(run_path) as run:
        info = run.info
        config = _read_config(run)
    checkpoints = find_checkpoints(run_path / "checkpoints", tell)
    if not checkpoints:
        raise BadInput(f"{run_path} has no complete checkpoint")
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
        evidence=config.evidence.protocol,
        dialect=config.solver.dialect,
        evaluation=config.solver.evaluation,
        best=best if best and (best.role, best.step) == (role, checkpoint.step) else None,
    )


def use_role(
    find: Callable[[], RoleWeights],
    use: Callable[[RoleWeights], T],
    *,
    found: RoleWeights | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[RoleWeights, T]:
    """Use a role's weights, with what came of it. Where training deletes them meanwhile, find others and use those.

    A run that is being trained keeps its newest checkpoints only, so the one that was found may go while it is loaded.
    `found` is what an earlier `find` gave.

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
    """The same of a role of a run."""
    return Notes(
        weights.style,
        weights.limits,
        weights.evidence,
        dialect=weights.dialect,
        evaluation=weights.evaluation,
        recipe=weights.recipe,
    )


def _read_config(run: Run) -> _RunConfig:
    text = run.config_text()
    try:
        config = msgspec.yaml.decode(text, type=_RunConfig)
    except msgspec.DecodeError as error:
        raise BadInput(f"config.yaml of run {run.info.id}: {' '.join(str(error).split())}") from error
    if not config.model:
        raise BadInput(f"config.yaml of run {run.info.id} names no model")
    return config


def _open_sound(
    checkpoints: list[Checkpoint], role: str, which: Which | None, tell: Callable[[str], None]
) -> tuple[Checkpoint, Path]:
    """The picked checkpoint and its role's folder. A damaged last one is taken off the list, and it is picked again."""
    while True:
        checkpoint = pick_checkpoint(checkpoints, role, which)
        with _reading(checkpoint.path):
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
        raise BadInput(f"{checkpoint.path} has no role {role}; its roles: {roles}", hint="leave --role out")
    if not any((folder / name).is_file() for name in (_ADAPTER_CONFIG, "config.json")):
        raise BadInput(f"{folder} holds neither a model nor an adapter")
    return folder


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Around reading a checkpoint: if training deletes it meanwhile, that is what is said, not what came of it."""
    try:
        yield
    except Exception as error:
        if folder.is_dir():
            raise
        raise CheckpointGone(
            f"{folder} was deleted while it was read: the run is still being trained",
            hint="try again, or name another --checkpoint",
        ) from error


# --------------------------------------------------------------------------------------------------------- loading


def load_role(weights: RoleWeights, *, device: str = "cpu", dtype: str = "float32") -> Any:
    """The role as one model without an adapter, attending through the native engine.

    An adapter is added to the weights in float32 and only the sum is rounded, as it is while training: in bfloat16 the
    role is the policy that the sampler had.
    """
    from quaere.policies.native.bridge import load_model

    return load_model(_role_path(weights), device, dtype)


def _role_path(weights: RoleWeights) -> ModelPath:
    """The role as a model that can be loaded: its folder, or its run's model with its adapter on top."""
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
    report: Callable[[str], None] = lambda line: None,
) -> TokenPolicy:
    """A policy that speaks with the role's weights; the counterpart of `open_policy` for a run."""
    from quaere.chat.renderer import Renderer
    from quaere.policies.loading import load_tokenizer
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.sampler import NativeSampler

    chosen = choose_device(device, report)
    renderer = Renderer(load_tokenizer(str(_tokenizer_folder(weights))))
    with _reading(weights.folder):
        model = load_role(weights, device=chosen, dtype=choose_dtype(dtype, chosen, mode))
    sampler = NativeSampler.over(model, renderer.decode, name=weights.name, mode=mode, max_rows=max_rows)
    return TokenPolicy(sampler, renderer)


def _tokenizer_folder(weights: RoleWeights) -> Path:
    """The role's own tokenizer where it was saved with one; else its base model's, which training does not change."""
    if (weights.folder / "tokenizer_config.json").is_file():
        return weights.folder
    return Path(resolve_model(weights.base).tokenizer)


# ------------------------------------------------------------------------------------------------------- exporting


def export_role(
    weights: RoleWeights,
    out: Path,
    *,
    merge: bool = False,
    dtype: Literal["float32", "bfloat16"] = "float32",
    force: bool = False,
) -> Path:
    """Write the role to a folder of its own, which appears complete, in one rename.

    An adapter stays one unless `merge` adds it to its base; a whole model is written as it is. `dtype` is that of the
    weights that are written. With `force` an earlier export is replaced, and nothing but an export.
    """
    from quaere.training.adapters import save_model

    _refuse_taken(out, force)
    with new_folder(out) as folder, _reading(weights.folder):
        if weights.is_adapter and not merge:
            _write_adapter(weights, folder, dtype)
        else:
            save_model(load_role(weights, dtype=dtype), folder)
            _copy_tokenizer(_tokenizer_folder(weights), folder)
        (folder / NOTES).write_bytes(msgspec.json.format(msgspec.json.encode(_describe(weights)), indent=2))
    return out


def _refuse_taken(out: Path, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise BadInput(f"{out} exists already", hint="choose another --out, or replace it with --force")
    if not (out / NOTES).is_file():
        raise BadInput(f"{out} is not an export of quaere, so --force does not replace it", hint="choose another --out")


def _write_adapter(weights: RoleWeights, folder: Path, dtype: str) -> None:
    """The adapter with its base by a name that can be loaded from anywhere."""
    from safetensors.torch import load_file

    from quaere.training.adapters import save_tensors

    save_tensors(load_file(weights.folder / _ADAPTER_WEIGHTS), folder / _ADAPTER_WEIGHTS, dtype)
    config = read_json(weights.folder / _ADAPTER_CONFIG, dict[str, Any])
    config["base_model_name_or_path"] = lasting_name(weights.base)
    (folder / _ADAPTER_CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))


def _copy_tokenizer(source: Path, folder: Path) -> None:
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _describe(weights: RoleWeights) -> dict[str, Any]:
    """Where an export comes from. A warm-up of its base stays disclosed, teacher and all."""
    described: dict[str, Any] = {
        "run": weights.run,
        "recipe": weights.recipe,
        "role": weights.role,
        "step": weights.step,
        "style": weights.style,
        "limits": weights.limits,
        "evidence": weights.evidence,
        "dialect": weights.dialect,
        "evaluation": weights.evaluation,
        "base": weights.base,
    }
    # Without its base here nobody could say whether it was warmed up, so a base that is not here is an error.
    for folder in resolve_model(weights.base, pull=False).folders:
        warmup = Path(folder) / WARMUP
        if warmup.is_file():
            described["warmup"] = read_json(warmup, dict[str, Any])
            break
    return described

"""Notes on how a model was trained to be prompted, and loading of a run's trained roles.

    find_notes("warm").style == "brief"                       # from the files next to its weights
    weights = find_role(Path("runs/drzero-1"), "solver")      # the best checkpoint by validation, else the last
    policy = role_policy(weights)                             # to ask or evaluate it

A role's weights in a checkpoint are a whole model, or an adapter on the model named in the run's `config.yaml`.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack

import msgspec
from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle
from quaere.dialects.registry import find_dialect, taught_dialect
from quaere.dialects.roles import DialectSettings
from quaere.disk import read_regular
from quaere.errors import BadInput
from quaere.policies.catalogue import CATALOGUE, ModelPath, resolve_model
from quaere.policies.model_folders import CONFIG as _ADAPTER_CONFIG
from quaere.policies.model_folders import is_adapter, split_base
from quaere.rollout.episode import Limits
from quaere.rollout.policy import EngineOptions, TokenPolicy, load_policy
from quaere.runs import Run
from quaere.runs.checkpoints import Best, Checkpoint, Which, find_checkpoints, pick_checkpoint, verify_checkpoint

T = TypeVar("T")

NOTES, WARMUP = "quaere.json", "warmup.json"
_NUM_TRIES = 5  # attempts to read a checkpoint, which training may prune meanwhile


# --------------------------------------------------------------------------------------------------------------- notes


class Notes(Struct, frozen=True):
    """How a model was trained to be prompted, as far as its files say.

    `evidence` is true if it learned to quote its evidence. `taught` are the names of the dialects that a warm-up taught
    it, or the model it was trained from; a model taught several can start a run of any of them. `untaught` is the model
    before that warm-up, "" if unknown. `dialect` is the one it answers questions in, if there is exactly one, and
    `evaluation` holds that dialect's settings. `recipe` is the recipe that trained it. `min_overlap` is the share of a
    question's key words below which its answers are not believed; 0 where that was not measured. `abstention` is true
    if it learned to say that the documents do not answer.

        Notes(style="brief", limits=Limits(max_turns=3), evidence=True, taught=("eve", "drzero"))
    """

    style: PromptStyle | None = None
    limits: Limits | None = None
    evidence: bool = False
    taught: tuple[str, ...] = ()
    untaught: str = ""
    dialect: str | None = None
    evaluation: DialectSettings = DialectSettings()
    recipe: str = ""
    min_overlap: float = 0.0
    abstention: bool = False


class _Warmup(Struct):
    """What `warmup.json` says about the prompts of a model."""

    style: PromptStyle | None = None
    recipe: str = ""
    also: tuple[str, ...] = ()
    evidence: bool = False
    base_model: str = ""
    abstention: float = 0.0

    @property
    def notes(self) -> Notes:
        taught, abstains = (self.recipe, *self.also) if self.recipe else (), self.abstention > 0
        dialect = taught_dialect(taught)
        return Notes(self.style, None, self.evidence, taught, self.base_model, dialect, abstention=abstains)


def read_notes(folder: Path) -> Notes:
    """Notes from `quaere.json` of an export, or from `warmup.json` of a warmed-up model; empty if neither exists."""
    path = folder / NOTES
    fields = read_json(path, dict[str, Any]) if path.is_file() else {}
    if fields.get("protocol"):
        raise BadInput(
            f"{path} was written by version 0.1.0, whose exports are no longer read",
            hint="train the model with this version: quaere evolve --help",
        )
    try:
        notes = _make_notes(fields)
        if notes.style is None and (folder / WARMUP).is_file():
            return structs.replace(read_json(folder / WARMUP, _Warmup).notes, limits=notes.limits)
        warmup = msgspec.convert(fields.get("warmup"), _Warmup | None)  # of the model before training
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from error
    return structs.replace(notes, taught=warmup.notes.taught, untaught=warmup.base_model) if warmup else notes


def _make_notes(fields: Mapping[str, Any]) -> Notes:
    """Notes from the fields of a file; unknown fields, and settings that the dialect does not have, are ignored."""
    notes = msgspec.convert({name: value for name, value in fields.items() if name != "evaluation"}, Notes)
    dialect, own = notes.dialect, msgspec.convert(fields.get("evaluation") or {}, dict[str, Any])
    kind = find_dialect(dialect, "solver").settings if dialect else DialectSettings
    settings = msgspec.convert({name: own[name] for name in kind.__struct_fields__ if name in own}, kind)
    return structs.replace(notes, evaluation=settings)


def find_notes(model: str) -> Notes:
    """Notes of a model as it is named after `--model`; empty for a model of the catalogue without an adapter.

    An adapter without notes of its own is prompted as its base was.
    """
    if model in CATALOGUE:
        return next((read_notes(Path(folder)) for folder in CATALOGUE[model].adapters), Notes())
    folder = Path(split_base(model)[0]).expanduser()
    if is_adapter(folder):
        trained = map(Path, resolve_model(model).folders)  # its adapters and its base, the last trained first
        folder = next((one for one in trained if (one / NOTES).is_file() or (one / WARMUP).is_file()), folder)
    return read_notes(folder)


def read_json(path: Path, type: type[T]) -> T:
    """The decoded content of a JSON file; `BadInput` if it cannot be read."""
    try:
        return msgspec.json.decode(read_regular(path), type=type)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error


# ------------------------------------------------------------------------------------------------------ trained roles


class CheckpointGone(BadInput):
    """Training deleted the checkpoint while it was being read."""


class RoleWeights(Struct, frozen=True):
    """The weights of a role in a checkpoint, and how it was trained to be prompted.

    RoleWeights(run="drzero-1", role="solver", step=110, is_adapter=True, base="smollm2-135m",
                folder=Path("runs/drzero-1/checkpoints/step-000110/solver"),
                notes=Notes(style="brief", limits=Limits(max_turns=3), dialect="tool-call", recipe="drzero"), best=None)
    """

    run: str
    role: str
    step: int
    folder: Path
    is_adapter: bool
    base: str
    notes: Notes
    best: Best | None  # validation result of these weights, if they are the best
    index: str = ""  # the index that the run learnt from

    @property
    def name(self) -> str:
        """Short name for tables: `drzero-1/solver@110`."""
        return f"{self.run}/{self.role}@{self.step}"

    @property
    def model(self) -> ModelPath:
        """The role as a loadable model: its folder, or the run's model with its adapter."""
        if not self.is_adapter:
            return ModelPath(self.name, str(self.folder))
        base = resolve_model(self.base)
        return ModelPath(self.name, base.path, (*base.adapters, str(self.folder)))


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
        base, index, notes = _read_config(run)
    checkpoints = find_checkpoints(run_path / "checkpoints", tell)
    if not checkpoints:
        raise BadInput(f"{run_path} has no complete checkpoint", hint=f"quaere runs show {shlex.quote(str(run_path))}")
    role = role or ("actor" if (checkpoints[-1].path / "actor").is_dir() else "solver")
    checkpoint, folder = _open_sound(checkpoints, role, which, tell)
    best = checkpoints[-1].best
    return RoleWeights(
        run=info.id,
        role=role,
        step=checkpoint.step,
        folder=folder,
        is_adapter=(folder / _ADAPTER_CONFIG).is_file(),
        base=base,
        notes=notes,
        best=best if best and (best.role, best.step) == (role, checkpoint.step) else None,
        index=index,
    )


def _read_config(run: Run) -> tuple[str, str, Notes]:
    """The model and the index of a run's config, and the notes of its roles."""
    try:
        config = msgspec.yaml.decode(run.trained_config(), type=dict[str, Any])
        notes = config_notes(config, run.info.settings.get("recipe", ""))
        model = msgspec.convert(config.get("model", ""), str)
    except msgspec.DecodeError as error:
        raise BadInput(f"config.yaml of run {run.info.id}: {' '.join(str(error).split())}") from error
    if not model:
        raise BadInput(f"config.yaml of run {run.info.id} has no `model`")
    return model, str(config.get("index", "")), notes


def config_notes(config: Mapping[str, Any], recipe: str) -> Notes:
    """Notes on how a model that is trained with this config is prompted."""
    solver, evidence = (msgspec.convert(config.get(name, {}), dict[str, Any]) for name in ("solver", "evidence"))
    fields = {
        "style": config.get("prompts", "full"),
        "limits": solver.get("limits", {}),
        "evidence": evidence.get("cite", False),
        "dialect": solver.get("dialect", "tool-call"),
        "evaluation": solver.get("evaluation"),
        "abstention": msgspec.convert(solver.get("abstention", {}), dict[str, Any]).get("allowed", False),
        "recipe": recipe,
    }
    return _make_notes(fields)


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
    for _ in range(_NUM_TRIES - 1):
        try:
            weights = found or find()
            return weights, use(weights)
        except CheckpointGone as error:
            report(f"{error}; loading another checkpoint")
            found = None
    weights = find()
    return weights, use(weights)


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
                is_last = which in (None, "last") and checkpoint == checkpoints[-1]
                if not is_last or len(checkpoints) == 1 or not checkpoint.path.is_dir():
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


# ------------------------------------------------------------------------------------------------------------- loading


def load_role(weights: RoleWeights, *, dtype: str = "float32") -> Any:
    """The role as one model without adapter, with the native engine's attention.

    An adapter is added to the weights in float32 and only the sum is rounded, as in training: in bfloat16 the role
    equals the policy that the sampler used.
    """
    from quaere.policies.native.bridge import load_model

    return load_model(weights.model, "cpu", dtype)


def role_policy(weights: RoleWeights, **engine: Unpack[EngineOptions]) -> TokenPolicy:
    """A policy with the role's weights; the counterpart of `open_policy` for a run."""
    with reading_checkpoint(weights.folder):
        return load_policy(weights.model, tokenizer_folder(weights), **engine)


def tokenizer_folder(weights: RoleWeights) -> Path:
    """Folder of the role's tokenizer: its own if it was saved, else the base model's, which training keeps."""
    if (weights.folder / "tokenizer_config.json").is_file():
        return weights.folder
    return Path(resolve_model(weights.base).tokenizer)

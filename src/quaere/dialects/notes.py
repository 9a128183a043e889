"""How a model was trained to be prompted, read from the files beside its weights.

find_notes("warm").style == "brief"
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle
from quaere.dialects.registry import SolverDialectName, taught_dialect
from quaere.dialects.settings import EvaluationSettings
from quaere.errors import BadInput
from quaere.policies.catalogue import CATALOGUE, ModelPath, resolve_model
from quaere.policies.model_folders import is_adapter, split_base
from quaere.regular_files import read_regular
from quaere.rollout.episode import Limits

T = TypeVar("T")

NOTES, WARMUP = "quaere.json", "warmup.json"


class Notes(Struct, frozen=True):
    """How a model in a folder was trained to be prompted, as far as its files say.

    `evidence` is true if it learned to quote its evidence. `taught` are the names of the dialects that a warm-up taught
    it, or the model it was trained from; a model taught several can start a run of any of them. `untaught` is the model
    before that warm-up, "" if unknown. `dialect` is the one it answers questions in, if there is
    exactly one, and `evaluation` holds that dialect's options. `recipe` is the recipe that trained it. `min_overlap` is
    the share of a question's key words below which its answers are not believed; 0 where that was not measured.

        Notes(style="brief", limits=Limits(max_turns=3), evidence=True, taught=("eve", "drzero"))
    """

    style: PromptStyle | None = None
    limits: Limits | None = None
    evidence: bool = False
    taught: tuple[str, ...] = ()
    untaught: str = ""
    dialect: SolverDialectName | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    recipe: str = ""
    min_overlap: float = 0.0


class _Warmup(Struct):
    style: PromptStyle | None = None
    recipe: str = ""
    also: tuple[str, ...] = ()
    evidence: bool = False
    base_model: str = ""

    @property
    def taught(self) -> tuple[str, ...]:
        return (self.recipe, *self.also) if self.recipe else ()


class _Export(Struct):
    """Other fields of `quaere.json`: the warm-up before training, and a field that only version 0.1.0 wrote."""

    protocol: str = ""
    warmup: _Warmup | None = None


def read_notes(folder: Path) -> Notes:
    """Notes from `quaere.json` of an export, or from `warmup.json` of a warmed-up model; empty if neither exists."""
    notes = _read_export(folder / NOTES) if (folder / NOTES).is_file() else Notes()
    if notes.style is None and (folder / WARMUP).is_file():
        warmup = read_json(folder / WARMUP, _Warmup)
        dialect = taught_dialect(warmup.taught)
        return Notes(warmup.style, notes.limits, warmup.evidence, warmup.taught, warmup.base_model, dialect)
    return notes


def _read_export(path: Path) -> Notes:
    notes, export = read_json(path, Notes), read_json(path, _Export)
    if export.protocol:
        raise BadInput(
            f"{path} was written by version 0.1.0, whose exports are no longer read",
            hint="train the model with this version: quaere evolve --help",
        )
    if export.warmup is not None:
        notes = structs.replace(notes, taught=export.warmup.taught, untaught=export.warmup.base_model)
    return notes


def find_notes(model: str) -> Notes:
    """Notes of a model as it is named after `--model`; empty for a model of the catalogue without an adapter.

    An adapter without notes of its own is prompted as its base was.
    """
    if model in CATALOGUE:
        return next((read_notes(Path(folder)) for folder in CATALOGUE[model].adapters), Notes())
    folder = Path(split_base(model)[0]).expanduser()
    if is_adapter(folder):
        return read_notes(_noted_folder(resolve_model(model)) or folder)
    return read_notes(folder)


def _noted_folder(model: ModelPath) -> Path | None:
    """The last trained part of a model that has notes; None if no part has any."""
    folders = map(Path, model.folders)
    return next((one for one in folders if any((one / name).is_file() for name in (NOTES, WARMUP))), None)


def read_json(path: Path, type: type[T]) -> T:
    """The decoded content of a JSON file; `BadInput` if it cannot be read."""
    try:
        return msgspec.json.decode(read_regular(path), type=type)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error

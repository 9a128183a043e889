"""How a model was trained to be asked: what its makers left word of, beside its weights.

find_notes("warm").style == "brief"
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from quaere.chat.prompt_style import PromptStyle
from quaere.dialects.registry import SolverDialectName, taught_dialect
from quaere.dialects.settings import EvaluationSettings
from quaere.errors import BadInput, warn_old_name
from quaere.policies.adapters import is_adapter, split_base
from quaere.policies.catalogue import CATALOGUE, ModelPath, resolve_model
from quaere.rollout.episode import Limits

T = TypeVar("T")

NOTES, WARMUP = "quaere.json", "warmup.json"


class Notes(Struct, frozen=True):
    """How a model in a folder was trained to be asked, as far as its makers left word.

    With `evidence` it learned to quote what it relies on. `taught` are the names under which a warm-up taught it
    dialects; one that was taught several can begin a run of any of them. `dialect` is the one it answers questions in,
    where there is one, with `evaluation` for the options of that. `recipe` is the one that trained it.

        Notes(style="brief", limits=Limits(max_turns=3), evidence=True, taught=("eve", "drzero"))
    """

    style: PromptStyle | None = None
    limits: Limits | None = None
    evidence: bool = False
    taught: tuple[str, ...] = ()
    dialect: SolverDialectName | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    recipe: str = ""


class _Export(Struct):
    """What of an export's notes has another name in those of 0.1.0."""

    protocol: SolverDialectName | None = None


class _Warmup(Struct):
    style: PromptStyle | None = None
    recipe: str = ""
    also: tuple[str, ...] = ()
    evidence: bool = False

    @property
    def taught(self) -> tuple[str, ...]:
        return (self.recipe, *self.also) if self.recipe else ()


def read_notes(folder: Path) -> Notes:
    """What `quaere.json` of an export, or `warmup.json` of a warmed-up model, says about how to ask it."""
    notes = _read_export(folder / NOTES) if (folder / NOTES).is_file() else Notes()
    if notes.style is None and (folder / WARMUP).is_file():
        warmup = read_json(folder / WARMUP, _Warmup)
        dialect = taught_dialect(warmup.taught)
        return Notes(warmup.style, notes.limits, warmup.evidence, warmup.taught, dialect)
    return notes


def _read_export(path: Path) -> Notes:
    notes, old = read_json(path, Notes), read_json(path, _Export)
    if old.protocol is None:
        return notes
    warn_old_name(f"protocol in {path}", "dialect")
    return structs.replace(notes, dialect=old.protocol)


def find_notes(model: str) -> Notes:
    """What there is to know about a model by what a person types after `--model`; a catalogue's has no notes.

    An adapter without notes of its own is asked as its base was.
    """
    if model in CATALOGUE:
        return Notes()
    folder = Path(split_base(model)[0]).expanduser()
    if is_adapter(folder):
        return read_notes(_noted_folder(resolve_model(model)) or folder)
    return read_notes(folder)


def _noted_folder(model: ModelPath) -> Path | None:
    """The last trained part of a model that has notes."""
    folders = map(Path, model.folders)
    return next((one for one in folders if any((one / name).is_file() for name in (NOTES, WARMUP))), None)


def read_json(path: Path, type: type[T]) -> T:
    """The content of a JSON file; what cannot be read is one clear line."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error

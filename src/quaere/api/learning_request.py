"""What a user asks of `quaere learn`, with paths and settings in one form, so that a repeated call is recognised.

ask_for("notes", "Qwen/Qwen2.5-1.5B-Instruct", settings={"solver": {"steps": 8}}, minutes=30)
-> Asked(sources=("/home/ada/notes",), model=..., settings={"solver.steps": 8}, minutes=30)
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from quaere.errors import BadInput
from quaere.policies.catalogue import absolute_name
from quaere.runs.config_yaml import read_settings

FORM, WRITER = "form.", "writer."  # settings of these stages; all others are the recipe's


class Asked(Struct, frozen=True, kw_only=True):
    """What a user asks of `quaere learn`; a call with the same values resumes.

    Asked(sources=("/home/ada/notes",), model="Qwen/Qwen2.5-1.5B-Instruct", minutes=30)
    """

    sources: tuple[str, ...]
    model: str
    minutes: float = 30.0
    recipe: str = "search-r1"
    questions: str = ""  # a file of checked questions; "": they are written
    settings: dict[str, Any] = {}  # by dotted name; those of a config file included
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    trainer: Literal["local", "tinker"] = "local"
    trainer_url: str = ""  # of the server, which may move

    def command(self, out: Path) -> str:
        """The command that asks the same, on whatever device is there.

        Asked(sources=("notes",), model="m").command(Path("learned")) == "quaere learn notes --model m --out learned"
        """
        words = ["quaere", "learn", *self.sources, "--model", self.model, "--out", str(out)]
        for name in ("minutes", "recipe", "questions", "seed", "trainer", "trainer_url"):
            value = getattr(self, name)
            if value != structs.fields(self)[self.__struct_fields__.index(name)].default:
                words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={msgspec.json.encode(value).decode()}"]
        return shlex.join(words)


def ask_for(
    sources: str | Path | Sequence[str | Path],
    model: str | Path,
    questions: str | Path | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    **how: Any,
) -> Asked:
    """The request with paths that do not depend on the working directory; `how` are its other fields."""
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    if not given:
        raise BadInput("no documents are named", hint="quaere learn FOLDER --model M --out DIR")
    read = {} if config is None else read_settings(Path(config).expanduser())
    return Asked(
        sources=tuple(str(Path(source).expanduser().absolute()) for source in given),
        model=absolute_name(str(model)),
        questions="" if questions is None else str(Path(questions).expanduser().absolute()),
        settings=_spread(read) | _spread(settings or {}),
        **how,
    )


def settings_of(settings: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The settings of a stage, without its prefix; those of the stage "" are the recipe's.

    settings_of({"form.episodes": 100, "solver.batch": 8}, "form.") == {"episodes": 100}
    """
    if stage:
        return {name.removeprefix(stage): value for name, value in settings.items() if name.startswith(stage)}
    return {name: value for name, value in settings.items() if not name.startswith((FORM, WRITER))}


def _spread(settings: Mapping[Any, object], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name.

    _spread({"solver": {"batch": 8}}) == {"solver.batch": 8}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _spread(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found

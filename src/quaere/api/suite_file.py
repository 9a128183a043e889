"""The file of a suite: which methods, models and sets of questions are evaluated.

    sets:
      - {name: dev, questions: dev.jsonl, index: dev-index, limit: 1000}
    models:
      - {name: base, model: smollm2-135m}
      - {name: evolved, run: runs/evolved}
    methods: [rag, ircot, {name: ours, dialect: search-r1, models: [evolved], limits: {max_turns: 7}}]
    seed: 0
    out: suite

    read_suite(Path("suite.yaml")).sets[0].name == "dev"

Places are relative to the working directory, as on the command line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from quaere.api.agent import check_limits
from quaere.chat.protocol import PromptStyle
from quaere.dialects.registry import SOLVER_DIALECTS, SolverDialectName
from quaere.endpoint import refuse_login
from quaere.errors import BadInput
from quaere.runs.checkpoints import Which
from quaere.runs.config_yaml import read_settings
from quaere.setting_types import PositiveInt, check_value

# The public splits with their sizes: those for tests, or for development where the answers of the tests are not public.
SPLITS = {
    "nq": ("test", 3610),
    "triviaqa": ("test", 11313),
    "popqa": ("test", 14267),
    "hotpotqa": ("dev", 7405),
    "2wiki": ("dev", 12576),
    "musique": ("dev", 2417),
    "bamboogle": ("test", 125),
    "browsecomp-plus": ("test", 830),
}
_Split = Annotated[str, Meta(extra={"names": SPLITS})]


class SuiteSet(Struct, frozen=True, forbid_unknown_fields=True):
    """A set of questions and what is searched to answer them; `expect` names a public split whose size it must have.

    With `hide_answers`, each question is asked a second time without the passages that contain its answers.

    SuiteSet(name="nq", questions="nq.jsonl", index="wiki-index", limit=1000, expect="nq")
    """

    name: str
    questions: str
    index: str = ""
    limit: PositiveInt | None = None
    expect: str = ""
    hide_answers: bool = False


class SuiteModel(Struct, frozen=True, forbid_unknown_fields=True):
    """A model as after `--model`, or the solver of a training run.

    SuiteModel(name="evolved", run="runs/evolved", checkpoint="last")
    """

    name: str
    model: str = ""
    run: str = ""
    checkpoint: Which | None = None


class SuiteMethod(Struct, frozen=True, forbid_unknown_fields=True):
    """A dialect with its limits, for some of the models (none: for all).

    Without `dialect`, the method's name is one; if it is none, a model is asked as it was trained. With `abstention`,
    it may say that the documents do not answer; by default, if the model was taught to.

    SuiteMethod(name="ours", dialect="search-r1", models=("evolved",), limits={"max_turns": 7})
    """

    name: str
    dialect: SolverDialectName | None = None
    models: tuple[str, ...] = ()
    limits: dict[str, int | bool] = {}
    style: PromptStyle | None = None
    evidence: bool | None = None
    abstention: bool | None = None

    @property
    def chosen(self) -> str | None:
        """The dialect, None if it is the model's own."""
        return self.dialect or (self.name if self.name in SOLVER_DIALECTS else None)


class Suite(Struct, frozen=True, forbid_unknown_fields=True):
    """What is evaluated: all methods with all models on all sets.

    Suite(sets=(SuiteSet(...),), models=(SuiteModel(...),), methods=("rag", SuiteMethod(...)), seed=0, out="suite")
    """

    sets: tuple[SuiteSet, ...]
    models: tuple[SuiteModel, ...]
    methods: tuple[str | SuiteMethod, ...]
    seed: int = 0
    out: str = ""

    @property
    def asked_by(self) -> list[SuiteMethod]:
        """The methods; a name alone is a dialect."""
        return [SuiteMethod(one, dialect=one) if isinstance(one, str) else one for one in self.methods]


def read_suite(path: Path) -> Suite:
    """The suite in a YAML file; BadInput names the key that is wrong."""
    read = read_settings(path)
    try:
        suite = msgspec.convert(read, Suite)
        _check(suite)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {str(error).replace('`$.', '`')}") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}", hint=error.hint) from error
    return suite


def _check(suite: Suite) -> None:
    methods = suite.asked_by
    parts: dict[str, Sequence[SuiteSet | SuiteModel | SuiteMethod]]
    parts = {"sets": suite.sets, "models": suite.models, "methods": methods}
    for key, entries in parts.items():
        names = Counter(entry.name for entry in entries)
        if not names:
            raise BadInput(f"{key} is empty")
        for name, num in names.items():
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise BadInput(f"{key}: {name!r} must be letters, digits, - and _, as files are named by it")
            if num > 1:
                raise BadInput(f"{key}: {name} is there twice")
    for model in suite.models:
        if bool(model.model) == bool(model.run):
            raise BadInput(f"models: {model.name} needs either model or run")
        if model.checkpoint is not None and not model.run:
            raise BadInput(f"models: {model.name} has a checkpoint, which needs run")
        refuse_login(model.model, f"the model of {model.name}")
    for one in suite.sets:
        refuse_login(one.index, f"the index of {one.name}")
        if one.expect:
            check_value(_Split, one.expect, f"sets: expect of {one.name}")
    for method in methods:
        if unknown := set(method.models) - {model.name for model in suite.models}:
            raise BadInput(f"methods: {method.name} names a model that is not there: {min(unknown)}")
        if method.dialect is not None:
            check_value(SolverDialectName, method.dialect, f"methods: the dialect of {method.name}")
        check_limits(method.limits)

"""Configs built from a schema, a preset, a YAML file and `--set`, and their conversion to YAML.

    config = load_config(DrZeroConfig, presets=PRESETS, preset="demo", file=Path("run.yaml"),
                         assignments=["proposer.steps=2", "proposer.limits={max_turns: 3}"])
    config_from_yaml(DrZeroConfig, config_to_yaml(config)) == config

A setting is named by its path, `proposer.learner.learning_rate`. Each layer overrides the one before: the schema's
defaults, the preset, the file, the command line's own flags, the assignments. The error for an unknown key names the
nearest known key, and the error for a value of the wrong type names the right type.

YAML is read by the rules of version 1.2: `1e-6` is a number; `on`, `no` and `2024-01-01` are strings.

The docstring of a schema has a section `Attributes:`, in which each setting has its description and, in brackets, its
sources: papers, or Quaere itself.

    read_docs(AdapterSettings)["rank"] -> SettingDoc("Rank of the adapters; 0 trains all weights ...", ("LoRA",))
"""

import difflib
import functools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct, inspect, structs

from quaere.dialects.registry import SOLVER_DIALECTS, find_dialect
from quaere.dialects.roles import DialectSettings
from quaere.endpoint import refuse_login
from quaere.errors import NEAR, BadInput, find_nearest
from quaere.runs.config_yaml import parse_settings, parse_yaml, read_settings, write_yaml
from quaere.setting_types import MAX_SHOWN, check_value, describe_type, fields_of, is_section, read_attributes, shorten

T = TypeVar("T", bound=Struct)

# Settings that never had an effect and are gone; stored configs still name them.
_GONE = ("learner.loss", "learner.epsilon")


def load_config(
    schema: type[T],
    *,
    presets: Mapping[str, Mapping[str, object]],
    preset: str | None,
    file: Path | None,
    assignments: Sequence[str],
    given: Mapping[str, object] = {},
    overrides: Mapping[str, object] = {},
) -> T:
    """The schema's defaults, overridden by preset, file, `given`, assignments and `overrides`, in this order.

    `given` are the command line's flags by name, None for a flag that was not used. `overrides` are like assignments,
    with Python values instead of text.

        load_config(DrZeroConfig, presets=PRESETS, preset="paper", file=None, assignments=["solver.batch=64"],
                    given={"model": "smollm2-135m", "index": None})
    """
    chosen = {} if preset is None else _choose(presets, preset)
    read = {} if file is None else read_settings(file)
    given = {key: value for key, value in given.items() if value is not None}
    settings = _settings(schema, [chosen, read, given, *map(_split_assignment, assignments), overrides])
    others = _sections_of_others(settings, read)
    values = _flatten(settings, chosen) | _flatten(settings, read, source=f"{file}: ", without=others)
    values |= _flatten(settings, given)
    for assignment in assignments:
        values |= _read_assignment(settings, assignment)
    values |= _flatten(settings, overrides)
    for key, value in values.items():
        if isinstance(value, str):
            refuse_login(value, key)
    return _build(schema, None, values)


def config_to_yaml(config: Struct) -> str:
    """The config as YAML in the schema's order; `config_from_yaml` reads it back to an equal config.

    config_to_yaml(CheckpointSettings()) == "every: 5\\nkeep: 3\\n"
    """
    return write_yaml(_nested(config))


def config_from_yaml(schema: type[T], text: str, *, source: str = "the config") -> T:
    """The config of a YAML text; settings it does not name get the schema's defaults. `source` is used in errors."""
    layer = parse_settings(text, source)
    return _build(schema, None, _flatten(_settings(schema, [layer]), layer, source=f"{source}: "))


def diff_configs(a: Struct, b: Struct) -> list[str]:
    """One line per setting whose value differs, in the schema's order; settings that only one config has are left out.

    diff_configs(CheckpointSettings(), CheckpointSettings(every=1)) == ["every: 5 -> 1"]
    """
    before, after = ({one.name: _show(one.value) for one in list_settings(config) if one.kind} for config in (a, b))
    return [f"{key}: {value} -> {after[key]}" for key, value in before.items() if key in after and value != after[key]]


# ------------------------------------------------------------------------------------------------------- the schema


def _settings(
    schema: type[Struct], layers: Sequence[Mapping[Any, object]], default: Struct | None = None, prefix: str = ""
) -> dict[str, Any]:
    """Types of all settings and sections by dotted name, in the schema's order.

    The values in `layers` matter only where they choose a dialect, whose own settings are then included.
    """
    found: dict[str, Any] = {}
    usual: dict[str, Any] = {}
    for field in fields_of(schema):
        key = prefix + field.name
        usual[field.name] = _default_of(field) if default is None else getattr(default, field.name)
        named = [value for layer in layers if (value := _look_up(layer, f"{prefix}dialect")) is not None]
        found[key] = kind = _kind_of(field, [usual.get("dialect"), *named][-1])
        if is_section(kind):
            found |= _settings(kind, layers, usual[field.name] if type(usual[field.name]) is kind else None, f"{key}.")
    return found


def _kind_of(field: structs.FieldInfo, dialect: object) -> Any:
    """The type of a field; for the section of a dialect's own settings, the settings type of `dialect`."""
    is_own = field.type is DialectSettings and dialect in SOLVER_DIALECTS
    return find_dialect(str(dialect), "solver").settings if is_own else field.type


def _look_up(layer: Mapping[Any, object], key: str) -> object:
    """The value at a dotted name in a mapping that may be nested; None if there is none."""
    for name, value in layer.items():
        if name == key:
            return value
        if isinstance(value, Mapping) and key.startswith(f"{name}."):
            return _look_up(value, key.removeprefix(f"{name}."))
    return None


def _sections_of_others(settings: Mapping[str, Any], layer: Mapping[Any, object]) -> tuple[str, ...]:
    """Sections of a dialect's own settings in a layer whose dialect a later one replaces: they mean nothing then.

    _sections_of_others(settings of a tool-call solver, {"solver": {"dialect": "evalact"}}) == ("solver.evaluation.",)
    """
    found = []
    for key, kind in settings.items():
        dialect = _look_up(layer, f"{key.rpartition('.')[0]}.dialect") if _is_of_dialect(kind) else None
        if dialect in SOLVER_DIALECTS and find_dialect(str(dialect), "solver").settings is not kind:
            found.append(f"{key}.")
    return tuple(found)


def _is_of_dialect(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, DialectSettings)


def _nested(config: Struct) -> dict[str, Any]:
    """The settings as nested mappings, without the section of a dialect that has no settings."""
    values = {field.name: getattr(config, field.name) for field in fields_of(type(config))}
    return {
        name: _nested(value) if isinstance(value, Struct) else msgspec.to_builtins(value)
        for name, value in values.items()
        if not isinstance(value, Struct) or fields_of(type(value))
    }


def _build(schema: type[T], default: T | None, values: Mapping[str, object], prefix: str = "") -> T:
    """An instance of the schema with these values; others come from `default`, or from the schema's defaults."""
    made: dict[str, Any] = {}
    for field in fields_of(schema):
        key = prefix + field.name
        usual = _default_of(field) if default is None else getattr(default, field.name)
        kind = _kind_of(field, made.get("dialect"))
        if is_section(kind):
            made[field.name] = _build(kind, usual if isinstance(usual, kind) else None, values, f"{key}.")
        elif key in values:
            made[field.name] = values[key]
        elif usual is NODEFAULT:
            raise BadInput(f"{key} must be given: {describe_type(inspect.type_info(field.type))}")
        else:
            made[field.name] = usual
    return schema(**made)


def _default_of(field: structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


# ------------------------------------------------------------------------------------------------------- the layers


def _choose(presets: Mapping[str, Mapping[str, object]], name: str) -> Mapping[str, object]:
    if name in presets:
        return presets[name]
    near = find_nearest(name, presets)
    meant = f"did you mean {near}? " if near else ""
    raise BadInput(f"unknown preset {name!r}: {meant}There are {', '.join(presets) or 'none'}")


def _split_assignment(assignment: str) -> dict[str, object]:
    """An assignment such as `solver.dialect=evalact` as an unchecked mapping; {} if its value is no valid YAML."""
    key, _, text = assignment.partition("=")
    try:
        return {key.strip(): parse_yaml(text, key)}
    except BadInput:
        return {}  # text, or an error that reading the assignment reports


def _read_assignment(settings: Mapping[str, Any], assignment: str) -> dict[str, object]:
    """An assignment such as `proposer.steps=2` as checked values by dotted name; BadInput if it is invalid.

    The value is YAML, except that text never needs quotes.
    """
    key, equals, text = assignment.partition("=")
    key = key.strip()
    if not equals or not key:
        raise BadInput(f"a setting must have the form KEY=VALUE, not {shorten(assignment)}")
    if key not in settings:
        raise BadInput(_unknown(settings, key))
    try:
        value = parse_yaml(text, key)
    except BadInput:
        if is_section(settings[key]):
            raise
        value = text
    if not isinstance(value, str) and _takes_text(inspect.type_info(settings[key])):
        value = text.strip()
    if value is None and is_section(settings[key]):
        raise BadInput(_not_a_section(settings, key, text.strip()))
    return _flatten(settings, {key: value})


def _flatten(
    settings: Mapping[str, Any],
    layer: Mapping[Any, object],
    *,
    prefix: str = "",
    source: str = "",
    without: tuple[str, ...] = (),
) -> dict[str, object]:
    """Checked values by dotted name, from a mapping that may be nested and may itself have dotted names.

    Settings that begin with one of `without` are left out.
    """
    found: dict[str, object] = {}
    for name, value in layer.items():
        key = f"{prefix}{name}"
        if (source and key.endswith(_GONE)) or f"{key}.".startswith(without):
            continue
        if key not in settings:
            raise BadInput(source + _unknown(settings, key))
        if not is_section(settings[key]):
            new = {key: check_value(settings[key], value, source + key)}
        elif isinstance(value, Mapping):
            new = _flatten(settings, value, prefix=f"{key}.", source=source, without=without)
        elif value is None:  # a section whose every line is commented out
            new = {}
        else:
            raise BadInput(source + _not_a_section(settings, key, value))
        if twice := found.keys() & new.keys():
            raise BadInput(f"{source}{min(twice)} is given twice")
        found |= new
    return found


# --------------------------------------------------------------------------------------------------- error messages


def _unknown(settings: Mapping[str, Any], key: str) -> str:
    shown = key if len(key) <= MAX_SHOWN and key.isprintable() else shorten(key)
    near, section = _nearest(settings, key[:200]), key.rpartition(".")[0]
    if _is_of_dialect(settings.get(section)) and not near.startswith(f"{section}."):
        owner = f"{section.rpartition('.')[0]}.dialect"
        return f"unknown setting {shown}: it is not of the dialect that {owner} names; leave it out"
    return f"unknown setting {shown}" + (f": did you mean {near}?" if near else "")


def _nearest(settings: Mapping[str, Any], key: str) -> str:
    """The setting that was probably meant, "" if none is near; the last part of a name (or its initials) counts most.

    `lr` and `proposer.learning_rate` are both nearest to `proposer.learner.learning_rate`.
    """
    head, _, leaf = key.rpartition(".")

    def score(name: str) -> tuple[float, float]:
        own_head, _, own_leaf = name.rpartition(".")
        initials = "".join(word[0] for word in own_leaf.split("_"))
        same = len(initials) > 1 and leaf == initials
        return 1.0 if same else _likeness(leaf, own_leaf), _likeness(head, own_head)

    scores = {name: score(name) for name in settings}
    # For equal scores, max returns the first in the schema.
    best = max(scores, key=lambda name: scores[name][0] + scores[name][1] / 4, default="")
    return best if best and scores[best][0] >= NEAR else ""


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def _not_a_section(settings: Mapping[str, Any], key: str, value: object) -> str:
    inside = next((name for name in settings if name.startswith(f"{key}.")), key)
    return f"{key} is a group of settings, such as {inside}; it cannot be {shorten(value)}"


def _takes_text(kind: inspect.Type) -> bool:
    """True if the setting accepts text; a value such as 1 or true is then read as text too."""
    if isinstance(kind, inspect.Metadata):
        return _takes_text(kind.type)
    values = kind.values if isinstance(kind, inspect.LiteralType) else ()
    return isinstance(kind, inspect.StrType) or any(isinstance(value, str) for value in values)


def _show(value: object) -> str:
    """A value as one line of YAML, as in `--set KEY=VALUE`."""
    return write_yaml(msgspec.to_builtins(value), flow=True).removesuffix("\n").removesuffix("\n...")


# --------------------------------------------------------------------------------------------- descriptions of settings


OURS = "Quaere"
PAPERS = {
    "Dr. Zero": ("Dr. Zero: Self-Evolving Search Agents without Training Data", "2601.07055"),
    "EVE-Agent": ("EVE-Agent: Evidence-Verifiable Self-Evolving Agents", "2605.22905"),
    "EvalAct": ("Evaluate-as-Action: Self-Evaluated Process Rewards for Retrieval-Augmented Agents", "2603.09203"),
    "Eval-RAR": ("Eval-RAR: Evaluation-Driven Retrieval-Augmented Reasoning via Reinforcement Learning", ""),
    "SCORE": ("Self-Evolving Deep Research via Joint Generation and Evaluation", "2606.04507"),
    "Search-R1": (
        "Search-R1: Training LLMs to Reason and Leverage Search Engines with Reinforcement Learning",
        "2503.09516",
    ),
    "AutoRefine": (
        "Search and Refine During Think: Facilitating Knowledge Refinement for Improved Retrieval-Augmented Reasoning",
        "2505.11277",
    ),
    "GRPO": ("DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", "2402.03300"),
    "REINFORCE++": ("REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models", "2501.03262"),
    "PPO": ("Proximal Policy Optimization Algorithms", "1707.06347"),
    "DPO": ("Direct Preference Optimization: Your Language Model is Secretly a Reward Model", "2305.18290"),
    "AdamW": ("Decoupled Weight Decay Regularization", "1711.05101"),
    "LoRA": ("LoRA: Low-Rank Adaptation of Large Language Models", "2106.09685"),
}
"""The papers that settings come from: title and number on arXiv ("" if it has none), by the name used in brackets."""

_WIDTH = 100  # characters of a line of comments


class SettingDoc(Struct, frozen=True):
    """The description of a setting, and its sources as the docstring cites them.

    SettingDoc("Weight of the brevity bonus ...", ("EVE-Agent, Eq. 16",))
    """

    text: str
    sources: tuple[str, ...] = ()

    @property
    def papers(self) -> list[str]:
        """The names of the sources without section or equation: "EVE-Agent" of "EVE-Agent, Eq. 16"."""
        return [source.partition(",")[0] for source in self.sources]


class Setting(Struct, frozen=True):
    """A setting with its dotted name, value, type in words (`kind`) and description; the kind of a section is "".

    Setting("adapter.rank", 0, "a whole number", SettingDoc("Rank of the adapters; ...", ("LoRA",)))
    """

    name: str
    value: Any
    kind: str
    doc: SettingDoc


@functools.cache
def read_docs(schema: type[Struct]) -> dict[str, SettingDoc]:
    """The description and sources of each setting of a schema, by name; inherited settings are included."""
    found: dict[str, SettingDoc] = {}
    for name, said in read_attributes(schema).items():
        text, _, sources = said.removesuffix("]").rpartition(" [")
        if text:
            found[name] = SettingDoc(text, tuple(sources.split("; ")))
    return found


def list_settings(config: Struct, prefix: str = "") -> Iterator[Setting]:
    """Every setting of a config with its value, in the schema's order, each section before its own settings.

    [setting.name for setting in list_settings(RunConfig())] -> ["model", "index", ..., "adapter", "adapter.rank", ...]
    """
    docs = read_docs(type(config))
    for field in structs.fields(config):
        name, value = prefix + field.name, getattr(config, field.name)
        if is_section(field.type):
            if not structs.fields(value):  # of a dialect without settings
                continue
            summary = cleandoc(type(value).__doc__ or "").partition("\n")[0]
            yield Setting(name, value, "", docs.get(field.name, SettingDoc(summary)))
            yield from list_settings(value, f"{name}.")
        else:
            kind = describe_type(inspect.type_info(field.type))
            yield Setting(name, value, kind, docs.get(field.name, SettingDoc("")))


def describe_paper(name: str) -> str:
    """A paper's title, with its arXiv address if it has one; for "Quaere", a note that the setting is from no paper.

    describe_paper("LoRA") == "LoRA: Low-Rank Adaptation of Large Language Models, https://arxiv.org/abs/2106.09685"
    """
    if name == OURS:
        return "no paper: a choice of this program"
    title, number = PAPERS[name]
    return f"{title}, https://arxiv.org/abs/{number}" if number else title


def config_to_commented_yaml(config: Struct) -> str:
    """A config as YAML with the description and sources of each setting as comments; `config_from_yaml` can read it."""
    settings = list(list_settings(config))
    cited = {paper for setting in settings for paper in setting.doc.papers}
    lines = ["# What each setting does, and in brackets where it comes from:"]
    lines += [f"#   [{name}] {describe_paper(name)}" for name in (*PAPERS, OURS) if name in cited]
    for setting in settings:
        *sections, name = setting.name.split(".")
        indent = "  " * len(sections)
        lines += [] if sections else [""]
        lines += textwrap.wrap(_comment(setting), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        value = {name: msgspec.to_builtins(setting.value)}
        lines.append(textwrap.indent(write_yaml(value).rstrip("\n"), indent) if setting.kind else f"{indent}{name}:")
    return "\n".join(lines) + "\n"


def _comment(setting: Setting) -> str:
    choices = f" O{setting.kind[1:]}." if setting.kind.startswith("one of ") else ""
    sources = f" [{'; '.join(setting.doc.sources)}]" if setting.doc.sources else ""
    return f"{setting.doc.text}{choices}{sources}"

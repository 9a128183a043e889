"""From a schema, a preset, a YAML file and `--set` to one checked config, and back to YAML.

    config = load_config(DrZeroConfig, presets=PRESETS, preset="demo", file=Path("run.yaml"),
                         assignments=["proposer.steps=2", "proposer.limits={max_turns: 3}"])
    config_from_yaml(DrZeroConfig, config_to_yaml(config)) == config

A setting is named by its path, `proposer.learner.learning_rate`. Each layer overrules the one before: the schema's
defaults, the preset, the file, what the command line's own flags say, the assignments. A key that does not exist is
refused together with the nearest that does, and a value of the wrong type together with what would be right.

YAML is read by the rules of version 1.2: `1e-6` is a number; `on`, `no` and `2024-01-01` are text.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct, inspect, structs

from quaere.credentials import refuse_login
from quaere.errors import BadInput
from quaere.training.config_yaml import parse_yaml, write_yaml

T = TypeVar("T", bound=Struct)

_NEAR = 0.6  # how alike two names must be for one to be a slip of the other
_MAX_SHOWN = 60  # characters of a wrong value in an error


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
    """The schema's defaults, overruled by preset, file, `given`, assignments and `overrides`, in this order.

    In `given` a None stands for a flag that was not used. `overrides` are assignments whose values are Python's.

        load_config(DrZeroConfig, presets=PRESETS, preset="paper", file=None, assignments=["solver.batch=64"],
                    given={"model": "smollm2-135m", "index": None})
    """
    settings = _settings(schema)
    values: dict[str, object] = {}
    if preset is not None:
        values |= _flatten(settings, _choose(presets, preset))
    if file is not None:
        values |= _read_layer(settings, _read_text(file), str(file))
    values |= _flatten(settings, {key: value for key, value in given.items() if value is not None})
    for assignment in assignments:
        values |= _read_assignment(settings, assignment)
    values |= _flatten(settings, overrides)
    for key, value in values.items():
        if isinstance(value, str):
            refuse_login(value, key)
    return _build(schema, None, values)


def config_to_yaml(config: Struct) -> str:
    """Readable YAML in the schema's order, which `config_from_yaml` turns into an equal config.

    config_to_yaml(CheckpointSettings()) == "every: 5\\nkeep: 3\\n"
    """
    return write_yaml(msgspec.to_builtins(config))


def config_from_yaml(schema: type[T], text: str, *, source: str = "the config") -> T:
    """The config that YAML text stands for; what it does not name is as in the schema. `source` is for errors."""
    return _build(schema, None, _read_layer(_settings(schema), text, source))


def diff_configs(a: Struct, b: Struct) -> list[str]:
    """One line for each setting whose value differs, in the schema's order.

    diff_configs(CheckpointSettings(), CheckpointSettings(every=1)) == ["every: 5 -> 1"]
    """
    before, after = ({key: _show(value) for key, value in _leaves(config)} for config in (a, b))
    return [
        f"{key}: {before.get(key, '(none)')} -> {after.get(key, '(none)')}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]


# ------------------------------------------------------------------------------------------------------- the schema


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _settings(schema: type[Struct], prefix: str = "") -> dict[str, Any]:
    """The type of every setting and section by its dotted name, in the schema's order."""
    found: dict[str, Any] = {}
    for field in structs.fields(schema):
        found[prefix + field.name] = field.type
        if _is_section(field.type):
            found |= _settings(field.type, f"{prefix}{field.name}.")
    return found


def _leaves(config: Struct, prefix: str = "") -> Iterator[tuple[str, object]]:
    for field in structs.fields(config):
        value = getattr(config, field.name)
        if _is_section(field.type):
            yield from _leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _build(schema: type[T], default: T | None, values: Mapping[str, object], prefix: str = "") -> T:
    """An instance of the schema with these values; the rest is as in `default`, or as the schema says."""
    made: dict[str, Any] = {}
    for field in structs.fields(schema):
        key = prefix + field.name
        usual = _default_of(field) if default is None else getattr(default, field.name)
        if _is_section(field.type):
            made[field.name] = _build(field.type, None if usual is NODEFAULT else usual, values, f"{key}.")
        elif key in values:
            made[field.name] = values[key]
        elif usual is NODEFAULT:
            raise BadInput(f"{key} must be given: {_describe(inspect.type_info(field.type))}")
        else:
            made[field.name] = usual
    return schema(**made)


def _default_of(field: structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


# ------------------------------------------------------------------------------------------------------- the layers


def _choose(presets: Mapping[str, Mapping[str, object]], name: str) -> Mapping[str, object]:
    if name in presets:
        return presets[name]
    near = difflib.get_close_matches(name, presets, n=1, cutoff=_NEAR)
    meant = f"did you mean {near[0]}? " if near else ""
    raise BadInput(f"unknown preset {name!r}: {meant}There are {', '.join(presets) or 'none'}")


def _read_assignment(settings: Mapping[str, Any], assignment: str) -> dict[str, object]:
    """`proposer.steps=2` as a layer of its own. The value is YAML, save that text needs no quotes for anything."""
    key, equals, text = assignment.partition("=")
    key = key.strip()
    if not equals or not key:
        raise BadInput(f"a setting is given as KEY=VALUE, not {_shorten(assignment)}")
    if key not in settings:
        raise BadInput(_unknown(settings, key))
    try:
        value = parse_yaml(text, key)
    except BadInput:
        if _is_section(settings[key]):
            raise
        value = text
    if not isinstance(value, str) and _takes_text(inspect.type_info(settings[key])):
        value = text.strip()
    if value is None and _is_section(settings[key]):
        raise BadInput(_not_a_section(settings, key, text.strip()))
    return _flatten(settings, {key: value})


def _read_layer(settings: Mapping[str, Any], text: str, source: str) -> dict[str, object]:
    parsed = parse_yaml(text, source)
    if parsed is None:  # an empty file, or one of comments only
        return {}
    if not isinstance(parsed, Mapping):
        raise BadInput(f"{source} must hold settings, as in `{next(iter(settings))}: ...`, not {_shorten(parsed)}")
    return _flatten(settings, parsed, source=f"{source}: ")


def _flatten(
    settings: Mapping[str, Any], layer: Mapping[Any, object], *, prefix: str = "", source: str = ""
) -> dict[str, object]:
    """Checked values by dotted name, from a mapping that may be nested and may hold dotted names itself."""
    found: dict[str, object] = {}
    for name, value in layer.items():
        key = f"{prefix}{name}"
        if key not in settings:
            raise BadInput(source + _unknown(settings, key))
        if not _is_section(settings[key]):
            new = {key: _check(settings[key], value, source + key)}
        elif isinstance(value, Mapping):
            new = _flatten(settings, value, prefix=f"{key}.", source=source)
        elif value is None:  # a section whose every line is commented out
            new = {}
        else:
            raise BadInput(source + _not_a_section(settings, key, value))
        if twice := found.keys() & new.keys():
            raise BadInput(f"{source}{min(twice)} is given twice")
        found |= new
    return found


def _check(kind: Any, value: object, key: str) -> object:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise BadInput(f"{key} must be {_describe(inspect.type_info(kind))}, not {_shorten(value)}") from None


# ---------------------------------------------------------------------------------------------------- what is wrong


def _unknown(settings: Mapping[str, Any], key: str) -> str:
    shown = key if len(key) <= _MAX_SHOWN and key.isprintable() else _shorten(key)
    near = _nearest(settings, key[:200])
    return f"unknown setting {shown}" + (f": did you mean {near}?" if near else "")


def _nearest(settings: Mapping[str, Any], key: str) -> str:
    """The setting that was probably meant: the last part of its name counts most, and may be given by its initials.

    `lr` and `proposer.learning_rate` are both nearest to `proposer.learner.learning_rate`.
    """
    head, _, leaf = key.rpartition(".")

    def score(name: str) -> tuple[float, float]:
        own_head, _, own_leaf = name.rpartition(".")
        initials = "".join(word[0] for word in own_leaf.split("_"))
        same = len(initials) > 1 and leaf == initials
        return 1.0 if same else _likeness(leaf, own_leaf), _likeness(head, own_head)

    scores = {name: score(name) for name in settings}
    # Of two that are equally near, max takes the one that stands first in the schema.
    best = max(scores, key=lambda name: scores[name][0] + scores[name][1] / 4, default="")
    return best if best and scores[best][0] >= _NEAR else ""


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def _not_a_section(settings: Mapping[str, Any], key: str, value: object) -> str:
    inside = next((name for name in settings if name.startswith(f"{key}.")), key)
    return f"{key} is a group of settings, such as {inside}; it cannot be {_shorten(value)}"


def _shorten(value: object) -> str:
    """A value as it may stand in one line, however long, deep or odd it is."""
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    shorter = reprlib.Repr()
    shorter.maxlevel = 3
    shorter.maxstring = shorter.maxlong = _MAX_SHOWN
    shown = shorter.repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def _describe(kind: inspect.Type, *, many: bool = False) -> str:
    """What a value of this type looks like: "a whole number", "a list of 2 numbers", "one of paper, demo"."""
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            whole = "whole " if isinstance(kind, inspect.IntType) else ""
            return (f"{whole}numbers" if many else f"a {whole}number") + _bounds(kind)
        case inspect.StrType():
            return "texts" if many else "text"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}" if len(values) > 1 else str(values[0])
        case inspect.TupleType(item_types=items):
            return f"a list of {len(items)} {_describe(items[0], many=True) if items else 'values'}"
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return f"a list of {_describe(item, many=True)}"
        case inspect.UnionType(types=types):
            return " or ".join(_describe(one) for one in types)
        case inspect.NoneType():
            return "null"
        case _:
            return "a mapping" if isinstance(kind, inspect.DictType | inspect.StructType) else "another value"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    bounds = [f"{word} {getattr(kind, name)}" for name, word in words.items() if getattr(kind, name) is not None]
    return f" {' and '.join(bounds)}" if bounds else ""


def _takes_text(kind: inspect.Type) -> bool:
    """Is a bare word always a text here?"""
    values = kind.values if isinstance(kind, inspect.LiteralType) else ()
    return isinstance(kind, inspect.StrType) or any(isinstance(value, str) for value in values)


def _show(value: object) -> str:
    """A value as one would write it behind `=`."""
    return write_yaml(msgspec.to_builtins(value), flow=True).removesuffix("\n").removesuffix("\n...")


def _read_text(file: Path) -> str:
    if file.is_dir():
        raise BadInput(f"{file} is a folder, not a YAML file of settings")
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"there is no settings file {file}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not a text file") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None

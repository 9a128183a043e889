"""Families of worlds as data: one folder each, whose TOML files hold every name, sentence and question.

    load_family("evaluation")   # a river country of towns, guilds and ships, for worlds with gold questions
    load_family("warmup")       # an island country, for the demonstrations of warm-up
    load_family("village")      # records of three words about houses, for models made from nothing
    load_family("hamlet")       # the same with one record for each house, for the demonstrations to these models

`family.toml` lists the tables in the order in which worlds are generated: seeds depend on it. A table has `[[kinds]]`
and `[[relations]]` (see `worlds/schema.py` for their fields), and `[shared]` with fields of all its kinds. An entry
"@name" stands for the entries of that list or group in `family.toml`. A family with a `base` has the tables and words
of that family, and `facts_per_article` of its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import structs

from quaere.worlds.schema import Family


@cache
def load_family(name: str) -> Family:
    """The family with this name, read once."""
    about = _read(name, "family")
    if "base" in about:
        return _derive(name, about["base"], about["facts_per_article"])
    lists = about.pop("lists") | about["groups"]
    tables = [_expand(_read(name, table), lists) for table in about.pop("tables")]
    kinds = [_inherit(table.get("shared", {}), kind) for table in tables for kind in table["kinds"]]
    relations = [relation for table in tables for relation in table["relations"]]
    data = about | {"kinds": kinds, "relations": relations, "lexicon": _read(name, "lexicon")}
    return msgspec.convert(data, Family)


def _derive(name: str, base: str, num_facts: int) -> Family:
    """The base family with another number of facts in each article."""
    family = load_family(base)
    kinds = tuple(structs.replace(kind, min_facts=num_facts, max_facts=num_facts) for kind in family.kinds)
    return structs.replace(family, name=name, kinds=kinds)


def _read(family: str, table: str) -> dict[str, Any]:
    return tomllib.loads((files(__name__) / family / f"{table}.toml").read_text(encoding="utf-8"))


def _expand(value: Any, lists: Mapping[str, Sequence[str]]) -> Any:
    """The value with every "@name" in a list replaced by the entries it stands for, at any depth."""
    if isinstance(value, dict):
        return {key: _expand(item, lists) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    expanded: list[Any] = []
    for item in value:
        is_name = isinstance(item, str) and item.startswith("@")
        expanded += lists[item[1:]] if is_name else [_expand(item, lists)]
    return expanded


def _inherit(shared: Mapping[str, Any], kind: Mapping[str, Any]) -> dict[str, Any]:
    """The kind with the shared fields of its table; its own sentences come after the shared ones."""
    merged = dict(shared)
    for key, value in kind.items():
        is_list_of_text = isinstance(value, list) and value and isinstance(value[0], str)
        merged[key] = [*shared.get(key, []), *value] if is_list_of_text else value
    return merged

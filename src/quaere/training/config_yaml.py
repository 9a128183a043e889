"""YAML as configs are written in: the bare words of version 1.2, plain values, no key twice.

parse_yaml("rate: 1e-6", "the config") == {"rate": 1e-6}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import yaml
from msgspec import Struct

from quaere.errors import BadInput

_TAG = "tag:yaml.org,2002:"


class _Reader(yaml.SafeLoader):
    """YAML 1.2's idea of what a bare word stands for, plain values only, and no key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (declared so by yaml)
    yaml_constructors: ClassVar[dict[Any, Any]] = {
        tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*(_TAG + kind for kind in ("str", "seq", "map")), None)
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As usual, but a repeated key is an error and not a silent winner."""
        made = super().construct_mapping(node, deep=True)
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"{key} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return made


class _Writer(yaml.SafeDumper):
    """Lists in one line, and quotes around any text that some reader of YAML would take for something else."""

    def ignore_aliases(self, data: object) -> bool:
        """Write a value out wherever it occurs."""
        return True


class _Word(Struct, frozen=True):
    """A kind of bare word: how it looks, what it may begin with, what it stands for."""

    pattern: str
    first: str
    meaning: Callable[[str], object]


_WORDS = {
    "null": _Word(r"~|null|Null|NULL|", "~nN", lambda word: None),
    "bool": _Word(r"true|True|TRUE|false|False|FALSE", "tTfF", lambda word: {"true": True, "false": False}[word]),
    "int": _Word(r"[-+]?[0-9]+", "-+0123456789", int),
    "float": _Word(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)",
        "-+.0123456789",
        lambda word: float(word.replace(".inf", "inf")),
    ),
}


def _constructor(word: _Word) -> Callable[[_Reader, yaml.ScalarNode], object]:
    def construct(reader: _Reader, node: yaml.ScalarNode) -> object:
        text = str(reader.construct_scalar(node))
        try:
            return word.meaning(text.lower())
        except (ValueError, KeyError):  # more digits than Python reads, or a forced `!!bool maybe`
            return text

    return construct


for _kind, _word in _WORDS.items():
    _Reader.add_constructor(_TAG + _kind, _constructor(_word))
    for _dialect in (_Reader, _Writer):  # the writer knows the words of YAML 1.1 as well
        _dialect.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_word.pattern})\\Z"), [*_word.first, ""])
# In any other style a line break inside a text would be folded.
_Writer.add_representer(
    str, lambda writer, text: writer.represent_scalar(_TAG + "str", text, None if text.isprintable() else '"')
)
for _sequence in (list, tuple):
    _Writer.add_representer(_sequence, lambda writer, data: writer.represent_sequence(_TAG + "seq", data, True))


def parse_yaml(text: str, source: str) -> Any:
    """What a text of YAML 1.2 says; where it says nothing readable, one clear line."""
    try:
        return yaml.load(text, Loader=_Reader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}, line {mark.line + 1}" if mark else source
        raise BadInput(f"{where}: bad YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        where = f"{source}, line {text.count(chr(10), 0, int(error.position)) + 1}"
        raise BadInput(f"{where}: a character that YAML does not allow") from None
    except RecursionError:
        raise BadInput(f"{source}: nested too deeply") from None


def write_yaml(value: object, *, flow: bool = False) -> str:
    """A value as YAML, in the order it has; with `flow` in one line."""
    return yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=1 << 30)

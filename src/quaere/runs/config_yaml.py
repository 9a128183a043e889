"""YAML reader and writer of configs: YAML 1.2 scalars, plain values only, no duplicate keys.

parse_yaml("rate: 1e-6", "the config") == {"rate": 1e-6}
"""

import re
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import yaml

from quaere.errors import BadInput
from quaere.setting_types import shorten

_TAG = "tag:yaml.org,2002:"
# libyaml reads much faster, but nesting beyond its stack ends the process. Every level takes one of these marks or,
# in a file of lines that are indented further and further, as many characters as it is deep.
_NESTING = "[{-?"
_MAX_QUICK_MARKS = 500
_MAX_QUICK_CHARS = 100_000


def _construct_mapping(
    self: yaml.constructor.SafeConstructor, node: yaml.MappingNode, deep: bool = False
) -> dict[Hashable, Any]:
    """The mapping of a node; a duplicate key is an error, not silently overridden."""
    made = yaml.constructor.SafeConstructor.construct_mapping(self, node, deep)
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = self.construct_object(key_node)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"{key} is given twice", problem_mark=key_node.start_mark)
        seen.add(key)
    return made


class _Reader(yaml.SafeLoader):
    """A YAML loader with the scalar types of YAML 1.2, plain values only, and no duplicate keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (declared so by yaml)
    yaml_constructors: ClassVar[dict[Any, Any]] = {
        tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*(_TAG + kind for kind in ("str", "seq", "map")), None)
    }

    construct_mapping = _construct_mapping


class _QuickReader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """The loader `_Reader` on top of libyaml, which is faster, or of PyYAML's own parser if libyaml is missing."""

    yaml_implicit_resolvers = _Reader.yaml_implicit_resolvers
    yaml_constructors = _Reader.yaml_constructors
    construct_mapping = _construct_mapping


# libyaml's emitter is much faster, but PyYAML may have been built without it. It writes the same, except that it
# escapes characters beyond the basic plane.
class _Writer(yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper):  # type: ignore[misc]
    """A YAML dumper with inline lists, and quotes around any text that a YAML reader could take for another type."""

    def ignore_aliases(self, data: object) -> bool:
        return True  # a value is written out at every occurrence instead of as an anchor


# Scalar types: pattern, possible first characters and conversion of each.
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
_WORDS: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "null": (r"~|null|Null|NULL|", "~nN", lambda word: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF", {"true": True, "false": False}.__getitem__),
    "int": (r"[-+]?[0-9]+", "-+0123456789", int),
    "float": (_FLOAT, "-+.0123456789", lambda word: float(word.replace(".inf", "inf"))),
}


def _construct(read: Callable[[str], object], reader: _Reader, node: yaml.ScalarNode) -> object:
    text = str(reader.construct_scalar(node))
    try:
        return read(text.lower())
    except (ValueError, KeyError):  # more digits than Python converts, or an explicit `!!bool maybe`
        return text


for _kind, (_pattern, _first, _read) in _WORDS.items():
    _Reader.add_constructor(_TAG + _kind, partial(_construct, _read))
    for _dialect in (_Reader, _Writer):  # the writer also keeps the scalars of YAML 1.1, so that it quotes them
        _dialect.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), [*_first, ""])
# Double quotes for text with line breaks: any other style would fold them.
_Writer.add_representer(
    str, lambda writer, text: writer.represent_scalar(_TAG + "str", text, None if text.isprintable() else '"')
)
for _sequence in (list, tuple):
    _Writer.add_representer(_sequence, lambda writer, data: writer.represent_sequence(_TAG + "seq", data, True))


def parse_yaml(text: str, source: str) -> Any:
    """The value of a YAML 1.2 text; raises BadInput with the line number if it is invalid."""
    if len(text) <= _MAX_QUICK_CHARS and sum(map(text.count, _NESTING)) <= _MAX_QUICK_MARKS:
        # What it refuses is read again below, so that an error has the same words with and without libyaml.
        with suppress(yaml.YAMLError, RecursionError):
            return yaml.load(text, Loader=_QuickReader)
    try:
        return yaml.load(text, Loader=_Reader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}, line {mark.line + 1}" if mark else source
        raise BadInput(f"{where}: bad YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        where = f"{source}, line {text.count(chr(10), 0, int(error.position)) + 1}"
        raise BadInput(f"{where}: bad YAML: a character that YAML does not allow") from None
    except RecursionError:
        raise BadInput(f"{source}: bad YAML: nested too deeply") from None


def read_settings(file: Path) -> Mapping[Any, object]:
    """The settings of a YAML file as they are written there, unchecked; BadInput if it has none."""
    return parse_settings(_read_text(file), str(file))


def parse_settings(text: str, source: str) -> Mapping[Any, object]:
    """The settings of a YAML text, unchecked; {} if it is empty."""
    parsed = parse_yaml(text, source)
    if parsed is None:  # an empty file, or one of comments only
        return {}
    if not isinstance(parsed, Mapping):
        raise BadInput(f"{source} must contain settings, as in `model: ...`, not {shorten(parsed)}")
    return parsed


def _read_text(file: Path) -> str:
    if file.is_dir():
        raise BadInput(f"{file} is a folder, not a YAML file of settings")
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"the settings file {file} does not exist") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not text in UTF-8") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None


def write_yaml(value: object, *, flow: bool = False) -> str:
    """A value as YAML, in its own order; with `flow` on one line."""
    return yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=1 << 30)

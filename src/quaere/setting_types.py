"""Types of settings: numbers with bounds, and one-line errors for values that do not fit their type.

    class SolverConfig(Struct):
        batch: PositiveInt = 256
        attempts: GroupSize = 5

    check_value(PositiveInt, 0, "solver.batch")         # BadInput: solver.batch must be at least 1, not 0
    check_settings(SolverConfig(attempts=1), "solver")  # BadInput: solver.attempts must be at least 2, not 1: ...

msgspec checks bounds when it decodes or converts a value, never when Python constructs a struct. Code that constructs
settings itself therefore calls `check_settings`. `extra={"why": ...}` gives the reason for a bound where it is not
obvious; the error line ends with it. `extra={"names": ...}` lists the values of a text. A rule that relates two
settings cannot be written in a type and is a function. `read_attributes` reads what a schema's docstring says of its
fields; the text in `Count` and others is the metavar of an option.
"""

import re
import reprlib
import textwrap
from collections.abc import Collection, Iterable
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import msgspec
from msgspec import Meta, Struct, inspect, structs

from quaere.errors import BadInput, find_nearest

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Wait = Annotated[float, Meta(ge=0, le=86_400)]  # seconds; at most a day, because an infinite wait has no end
Fraction = Annotated[float, Meta(ge=0, le=1)]
SignedFraction = Annotated[float, Meta(ge=-1, le=1)]
PositiveFraction = Annotated[float, Meta(gt=0, le=1)]
FractionBelowOne = Annotated[float, Meta(ge=0, lt=1)]
ProperFraction = Annotated[float, Meta(gt=0, lt=1)]  # a share that is neither none nor all
Count = Annotated[int, "N"]  # of options: how the help calls the value
PositiveCount = Annotated[int, "N", Meta(ge=1)]
Number = Annotated[float, "X"]
Folder = Annotated[Path, "DIR"]
File = Annotated[Path, "FILE"]
GroupSize = Annotated[int, Meta(ge=2, extra={"why": "group-relative advantages need two attempts"})]

MAX_SHOWN = 60  # characters of a wrong value that an error message shows


def check_value(kind: Any, value: object, name: str) -> Any:
    """The value converted to `kind`; `BadInput` names the setting if the value does not fit the type."""
    extras = (note.extra for note in getattr(kind, "__metadata__", ()) if isinstance(note, Meta))
    names = next((extra.get("names") for extra in extras if extra), None)
    try:
        converted = msgspec.convert(value, kind)
        if names is None or converted in names:
            return converted
    except msgspec.ValidationError:
        pass
    info = inspect.type_info(kind)
    why = (info.extra or {}).get("why", "") if isinstance(info, inspect.Metadata) else ""
    right = _broken_bounds(info, value) or describe_type(info)
    raise BadInput(f"{name} must be {right}, not {shorten(value)}" + (f": {why}" if why else ""))


def check_settings(settings: Struct, section: str = "") -> None:
    """Raise `BadInput` for the first value that does not fit its type, nested groups of settings included.

    check_settings(ValidationSettings(every=0), "validation")    # BadInput: validation.every must be at least 1, not 0
    """
    for field in fields_of(type(settings)):
        name = f"{section}.{field.name}" if section else field.name
        value = getattr(settings, field.name)
        if is_section(field.type):
            check_settings(value, name)
        else:
            check_value(field.type, msgspec.to_builtins(value), name)


@cache
def fields_of(schema: type[Struct]) -> tuple[structs.FieldInfo, ...]:
    """The fields of a group of settings. They are kept: to resolve their types takes msgspec half a millisecond."""
    return structs.fields(schema)


def is_section(kind: Any) -> TypeGuard[type[Struct]]:
    """True if this is the type of a group of settings."""
    return isinstance(kind, type) and issubclass(kind, Struct)


# --------------------------------------------------------------------------------------------- types and values as text


def describe_type(kind: inspect.Type, *, many: bool = False) -> str:
    """A type in words: "a whole number", "a list of 2 numbers", "one of paper, demo"."""
    match kind:
        case inspect.Metadata(extra={"names": names}):
            return f"one of {', '.join(names)}"
        case inspect.Metadata(type=inner):
            return describe_type(inner, many=many)
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            whole = "whole " if isinstance(kind, inspect.IntType) else ""
            bounds = _describe_bounds(kind)  # " of at least 1", but " above 0"
            joint = " of " if bounds.startswith("at ") else " " if bounds else ""
            return (f"{whole}numbers" if many else f"a {whole}number") + joint + bounds
        case inspect.StrType():
            return "texts" if many else "text"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}" if len(values) > 1 else str(values[0])
        case inspect.TupleType(item_types=items):
            return f"a list of {len(items)} {describe_type(items[0], many=True) if items else 'values'}"
        case (
            inspect.VarTupleType(item_type=item, min_length=least) | inspect.ListType(item_type=item, min_length=least)
        ):
            return f"a list of {f'{least} or more ' if least else ''}{describe_type(item, many=True)}"
        case inspect.UnionType(types=types):
            return " or ".join(describe_type(one) for one in types)
        case inspect.NoneType():
            return "null"
        case inspect.CustomType(cls=custom) if issubclass(custom, Path):
            return "a path"
        case _:
            return "a mapping" if isinstance(kind, inspect.DictType | inspect.StructType) else "another value"


def _describe_bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    """The bounds of a number in words: "at least 1", "above 0 and below 1", "between 0 and 1" (both included).

    An empty string if the type has no bounds.
    """
    if kind.ge is not None and kind.le is not None:
        return f"between {kind.ge} and {kind.le}"
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return " and ".join(
        f"{word} {getattr(kind, name)}" for name, word in words.items() if getattr(kind, name) is not None
    )


def _broken_bounds(kind: inspect.Type, value: object) -> str:
    """The bounds of the type that this number violates; "" if the value is no number of that type."""
    if isinstance(kind, inspect.Metadata):
        return _broken_bounds(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        return next((broken for one in kind.types if (broken := _broken_bounds(one, value))), "")
    if isinstance(value, bool) or not isinstance(kind, inspect.IntType | inspect.FloatType):
        return ""
    fits = isinstance(value, int) or (isinstance(value, float) and isinstance(kind, inspect.FloatType))
    return _describe_bounds(kind) if fits else ""


def shorten(value: object) -> str:
    """A value as one short line of text for an error message, however long or deeply nested the value is."""
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    shorter = reprlib.Repr()
    shorter.maxlevel, shorter.maxstring, shorter.maxlong = 3, MAX_SHOWN, MAX_SHOWN
    shown = shorter.repr(value)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."


def read_attributes(schema: type[Struct]) -> dict[str, str]:
    """What the docstring of a schema says of each field under `Attributes:`, those of its bases among them."""
    found: dict[str, str] = {}
    for each in reversed(schema.__mro__):
        _, _, section = cleandoc(each.__dict__.get("__doc__") or "").partition("\n\nAttributes:\n")
        for entry in re.split(r"\n(?=\w)", textwrap.dedent(section)):
            name, _, said = entry.partition(":")
            found |= {name: " ".join(said.split())} if said else {}
    return found


# ------------------------------------------------------------------------------------------------------ options by name


def refuse_unknown(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse the first name that is not known.

    refuse_unknown(["max_wrods"], ["max_words", "k1"], "index option")
    raises "there is no index option 'max_wrods': did you mean max_words?"
    """
    for name in given:
        if name not in known:
            near = find_nearest(name, known)
            meant = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            raise BadInput(f"there is no {what} {name!r}: {meant}")


def check_positive(options: object, names: Iterable[str]) -> None:
    """Raise `BadInput` for the first of these options that was given and is below 1.

    check_positive(args, ("limit", "max_rows"))    # BadInput: --max-rows must be at least 1, not 0
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {value}")

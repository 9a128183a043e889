"""`quaere` commands that documents show, read for the real argument parser. None of them is run.

    faults("page.md", "    quaere serach Halm --index INDEX")
    -> ["page.md:1: quaere serach Halm --index INDEX: argument COMMAND: invalid choice: 'serach' ..."]

A command stands in a code block, and must then parse as it is, or in a sentence (`quaere eval --run RUN`), where it may
leave out what it needs. Words in capitals stand for values, `a|b` for either, `[...]` for what may be left out, and a
lone `...` for more. Variables are those that the document sets above.
"""

import argparse
import contextlib
import functools
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quaere.cli.main import build_parser
from quaere.dialects.registry import SOLVER_DIALECTS
from quaere.errors import BadInput
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.training.config import load_config

ROOT = Path(__file__).parents[1]
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*(\.\.\.)?")
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
ANY_SETTING = ("K=V", "key=value")


class Shown(NamedTuple):
    """A command as a document shows it. `is_whole` is False for one that a sentence names."""

    line: int
    text: str
    is_whole: bool = True


class Undefined(Exception):
    """A variable that the document does not set."""


# ------------------------------------------------------------------------------------------------------- what is shown


def read_document(name: str, text: str) -> list[Shown]:
    """Commands and assignments of a Markdown page or a Makefile, in their order."""
    if name.endswith("Makefile"):
        return list(_join(_expand_makefile(text)))
    blocks, prose = _split_markdown(text)
    found = [shown for block in blocks for shown in _join(_typed(block))]
    return sorted([*found, *_inline(prose)])


def _split_markdown(text: str) -> tuple[list[list[tuple[int, str]]], str]:
    """The lines of each code block with their numbers; and the text with those lines left empty."""
    blocks: list[list[tuple[int, str]]] = []
    prose: list[str] = []
    is_fenced, is_open, was_blank = False, False, True
    for number, line in enumerate(text.splitlines(), start=1):
        fence = line.lstrip().startswith("```")
        indented = not is_fenced and line.startswith("    ") and line.strip() != "" and (is_open or was_blank)
        if not fence and (is_fenced or indented):
            if not is_open:
                blocks.append([])
            blocks[-1].append((number, line if is_fenced else line[4:]))
            is_open = True
            prose.append("")
        else:
            is_fenced ^= fence
            is_open = is_open and not line.strip()  # an empty line does not end a block
            prose.append("" if fence else line)
        was_blank = not line.strip()
    return blocks, "\n".join(prose)


def _typed(block: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """What is typed in a block: where prompts are shown, the rest is output."""
    if not any(line.startswith("$ ") for _, line in block):
        return block
    typed, goes_on = [], False
    for number, line in block:
        if goes_on or line.startswith("$ "):
            typed.append((number, line.removeprefix("$ ")))
            goes_on = line.endswith("\\")
    return typed


def _join(lines: list[tuple[int, str]]) -> Iterator[Shown]:
    """Whole commands and assignments, from lines that may go on in the next; nothing else."""
    rest = iter(lines)
    for number, line in rest:
        line = _uncomment(line)
        if not (ASSIGNMENT.match(line) or re.search(r"(^@?|[;&]\s+)(\S*/)?quaere\s", line)):
            continue
        while line.endswith("\\") or (ASSIGNMENT.match(line) and not _is_closed(line)):
            line = f"{line.removesuffix(chr(92)).rstrip()} {_uncomment(next(rest)[1]).strip()}"
        yield Shown(number, line)


def _uncomment(line: str) -> str:
    return re.sub(r"(^|\s)#\s.*", "", line).rstrip()


def _is_closed(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def _expand_makefile(text: str) -> list[tuple[int, str]]:
    """Recipe lines with the variables that the Makefile sets put in; what is echoed counts as typed."""
    values: dict[str, str] = {}
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), line)
        if setting := re.match(r"(\w+) [:?]?= (.*)", line):
            values[setting[1]] = setting[2]
        elif line.startswith("\t"):
            lines.append((number, re.sub(r'^@?echo "\s*(.*)"$', r"\1", line.strip())))
    return lines


def _inline(prose: str) -> Iterator[Shown]:
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", prose):
        for span in re.finditer(r"`([^`]+)`", paragraph):
            if re.match(r"quaere\s", span[1]):
                text = " ".join(span[1].replace("\\|", "|").split())
                yield Shown(line + paragraph.count("\n", 0, span.start()), text, is_whole=False)
        line += paragraph.count("\n")


# ----------------------------------------------------------------------------------------------- from a line to words


def split_commands(text: str, values: dict[str, str]) -> Iterator[list[str]]:
    """The words after `quaere` of each command in a line, in every reading that its alternatives allow."""
    text = re.sub(r"(?<=\s)\[[a-z]+\]", "", text)  # such as [filters]
    text = re.sub(r"(?<=\s)\[([^\[\]\"']*)\]", r"\1", text)
    pieces = shlex.split(text.replace("; ", " ; "))
    words = [word for piece in pieces for word in _substitute(piece, values)]
    for _, group in itertools.groupby(words, key=lambda word: word in (";", "&&", "||")):
        command = list(itertools.dropwhile(ASSIGNMENT.match, group))
        if command and command[0].lstrip("@").rpartition("/")[2] == "quaere":
            command = list(itertools.takewhile(lambda word: word not in (">", "2>"), command[1:]))
            for reading in _read_alternatives(command):
                yield from map(list, itertools.product(*(word.split("|") for word in reading)))


def _substitute(word: str, values: dict[str, str]) -> list[str]:
    """A variable on its own gives several words, inside a word a part of it."""

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in values:
            raise Undefined(f"${name} is not set above")
        return values[name]

    value = VARIABLE.sub(value_of, word)
    return value.split() if VARIABLE.fullmatch(word) else [value]


def _read_alternatives(words: list[str]) -> Iterator[list[str]]:
    """`--model M | --run RUN` is one or the other; before anything but an option, `|` is a pipe and ends it."""
    if "|" not in words:
        yield words
        return
    bar = words.index("|")
    if bar + 1 == len(words) or not words[bar + 1].startswith("--"):
        yield words[:bar]
        return
    begin = max((place for place in range(bar) if words[place].startswith("--")), default=bar)
    later = (place for place in range(bar + 2, len(words)) if words[place].startswith("--") or words[place] == "|")
    end = next(later, len(words))
    yield from _read_alternatives(words[:bar] + words[end:])
    yield from _read_alternatives(words[:begin] + words[bar + 1 :])


# ------------------------------------------------------------------------------------------------------- what is wrong


def faults(name: str, text: str) -> list[str]:
    """One line for each command of the document that the program would refuse."""
    values: dict[str, str] = {}
    found = []
    for shown in read_document(name, text):
        try:
            if (setting := ASSIGNMENT.match(shown.text)) and len(words := shlex.split(setting[2])) == 1:
                parts = [part for word in words[0].split() for part in _substitute(word, values)]
                values[setting[1]] = " ".join(parts)
                continue
            for words in split_commands(shown.text, values):
                check_command(words, is_whole=shown.is_whole)
        except (BadInput, Undefined, ValueError) as error:
            found.append(f"{name}:{shown.line}: {shown.text}: {error}")
    return found


def check_command(words: list[str], *, is_whole: bool = True) -> None:
    """Refuse, as `BadInput`, what the parser refuses and what `evolve` refuses of its settings."""
    is_whole = is_whole and "..." not in words
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            args = _parser(is_whole).parse_args([word for word in words if word != "..."])
    except SystemExit as stopped:
        if stopped.code:
            raise BadInput(said.getvalue().splitlines()[0]) from None
        return
    if words[0] == "evolve":
        _check_settings(args)


def _check_settings(args: argparse.Namespace) -> None:
    """Load the config of an `evolve` command; that of a run to resume may be any recipe's."""
    recipes = [args.recipe] if args.recipe in RECIPES else RECIPES
    refusals = []
    for recipe in map(find_recipe, recipes):
        try:
            if args.questions and not recipe.takes_questions:
                raise BadInput(f"{recipe.name} takes no --questions")
            file = ROOT / args.config if args.config else None
            load_config(
                recipe.schema,
                presets=recipe.presets,
                preset=None if args.preset and PLACEHOLDER.fullmatch(args.preset) else args.preset,
                file=file if file and file.exists() else None,
                assignments=[each for each in args.assignments if each and each not in ANY_SETTING],
                given={"solver.dialect": args.solver_dialect} if args.solver_dialect in SOLVER_DIALECTS else {},
            )
        except BadInput as error:
            refusals.append(error)
    if len(refusals) == len(recipes):
        raise refusals[0]


# ---------------------------------------------------------------------------------------------------------- the parser


class _Choices(list[object]):
    """Choices, and words that stand for one."""

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or _stands_for_value(value)


def _stands_for_value(value: object) -> bool:
    return isinstance(value, str) and PLACEHOLDER.fullmatch(value) is not None


@functools.cache
def _parser(is_whole: bool) -> argparse.ArgumentParser:
    """The real parser, strict about names, and open to words that stand for values. Options must be spelled in full.

    Where a command need not be whole, nothing is required, and an option may be named without its value.
    """
    parser = build_parser()
    for each in _walk(parser):
        each.allow_abbrev = False
        for action in each._actions:
            _open_to_placeholders(action)
            action.required = action.required and is_whole
            if action.option_strings and not is_whole:
                action.nargs = {None: "?", "+": "*"}.get(action.nargs, action.nargs)
        for group in each._mutually_exclusive_groups:
            group.required = group.required and is_whole
    return parser


def _walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _walk(each)


def _open_to_placeholders(action: argparse.Action) -> None:
    if isinstance(action, argparse._SubParsersAction):
        return
    if action.choices is not None:
        action.choices = _Choices(action.choices)
    if (read := action.type) is not None:
        assert callable(read)

        def read_or_keep(text: str) -> object:
            return text if _stands_for_value(text) else read(text)

        read_or_keep.__name__ = getattr(read, "__name__", "value")  # argparse names it in errors
        action.type = read_or_keep

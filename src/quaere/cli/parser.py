"""The argument parser of every command: errors are one line, with a suggestion for mistyped names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NoReturn

from quaere.cli.terminal import printable_line

_MAX_SHOWN = 40  # characters of a mistyped name that an error shows


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that suggests names, and whose error messages cannot control the terminal.

    quaere search Halm --indx DIR     # quaere: there is no option --indx: did you mean --index?
    quaere evolve drzro               # quaere: argument recipe: invalid choice: 'drzro': did you mean drzero?
    """

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """As argparse, but checks option names first: argparse would report missing options before mistyped ones."""
        words = sys.argv[1:] if args is None else list(args)
        if unknown := self._find_unknown(words):
            # Underscores and capitals are the most frequent typing errors in options.
            meant = self._suggest(unknown.lower().replace("_", "-"), self._option_string_actions)
            self.error(f"there is no option {unknown[:_MAX_SHOWN]}{meant}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after one line, and a hint unless the line already suggests a name."""
        hint = "" if message.endswith("?") else f"  try: {self.prog} --help\n"
        self.exit(2, f"{printable_line(f'quaere: {message}')}\n{hint}")

    def _find_unknown(self, words: Iterable[str]) -> str:
        """The first word that argparse would read as an option and that this parser does not have."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # the rest belongs to a subcommand, or holds no options
            name = word.partition("=")[0]
            if not word.startswith("--") or " " in word or name in self._option_string_actions:
                continue
            if not (self.allow_abbrev and any(option.startswith(name) for option in self._option_string_actions)):
                return name
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise an error for an invalid choice; if one is similar, suggest it instead of listing all."""
        is_wrong = action.choices is not None and isinstance(value, str) and value not in action.choices
        if is_wrong and (meant := self._suggest(value.lower(), map(str, action.choices or ()))):
            raise argparse.ArgumentError(action, f"invalid choice: {value[:_MAX_SHOWN]!r}{meant}")
        super()._check_value(action, value)

    @staticmethod
    def _suggest(name: str, names: Iterable[str]) -> str:
        near = get_close_matches(name, list(names), 1)
        return f": did you mean {near[0]}?" if near else ""


def walk_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and the parsers of all commands below it, in the order of the help."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from walk_parsers(each)

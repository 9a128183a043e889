"""The command `quaere` and its parser. Importing this must stay cheap: no torch until a command needs it."""

import argparse
import errno
import faulthandler
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from quaere import __version__
from quaere.api.background import set_library_defaults
from quaere.cli.terminal import INTERRUPTED, printable_line, say_line, show_warnings
from quaere.disk import DISK_ERRORS
from quaere.endpoint import refuse_login
from quaere.errors import BadInput, QuaereError, catch_missing_libraries, catch_out_of_memory, find_nearest

# The commands, in the order of the help, with their lines there. A module of this name has the command's `fill`.
COMMANDS = {
    "index": "make an index of a folder of documents",
    "search": "search an index",
    "serve_search": "serve an index over HTTP",
    "serve": "serve a model or a search agent as an OpenAI-compatible endpoint",
    "mcp": "serve an index to clients of the Model Context Protocol",
    "world": "write a fictional encyclopedia with gold questions",
    "questions": "write questions about documents: open-ended ones, or ones with checked answers",
    "models": "list and pull models",
    "ask": "let a model answer questions by searching an index",
    "report": "write a cited report by searching an index, with a model or without",
    "learn": "let a model learn to answer questions about your documents, in one command",
    "warmup": "teach a small model a dialect by demonstration",
    "evolve": "train a search agent on your documents, with its own questions or with yours",
    "trainer": "start, list and stop servers that train (SkyRL)",
    "eval": "score a model on a set of questions",
    "verify": "measure how much evidence helps a model to answer",
    "grade": "check the citations of reports, and grade the reports",
    "export": "write a trained model of a run to a folder",
    "runs": "list runs, read their episodes, export and delete them",
    "curriculum": "list the questions a run wrote, and accept or reject them",
    "view": "show runs in a browser",
    "doctor": "check this machine, a model's chat template, an index",
    "completion": "print a shell's completion script",
}


_MOST_NAMED = 200  # characters of a file's name that an error shows
# Error numbers of a name that is too long or leads nowhere, and of a file that this user may not read or write.
_NAME_ERRORS = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM}


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of every command; of the others than `only`, if given, it knows no options and imports no module."""
    parser = Parser(
        prog="quaere",
        description="Ask your documents: index them, and let a language model answer by searching them.",
        epilog="Start with: quaere index FOLDER --out INDEX && quaere ask 'your question' --index INDEX",
    )
    parser.add_argument("--version", action="version", version=f"quaere {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module, said in COMMANDS.items():
        name = module.replace("_", "-")
        command = commands.add_parser(name, help=said)
        if only in (None, module, name):
            import_module(f"quaere.cli.{module}").fill(command)
    return parser


def check_command(argv: Sequence[str]) -> None:
    """Raise `BadInput` for an unknown command, with the nearest known one; argparse would list all of them.

    check_command(["serach", "Halm"]) raises "there is no command 'serach': did you mean search?"
    """
    names = [name.replace("_", "-") for name in COMMANDS]
    typed = next((word for word in argv if not word.startswith("-")), None)
    if typed is None or typed in names:
        return
    near = find_nearest(typed.lower().replace("_", "-"), names)
    meant = f"did you mean {near}?" if near else "quaere --help lists what there is"
    raise BadInput(f"there is no command {typed[:40]!r}: {meant}")


def _check_logins(args: argparse.Namespace) -> None:
    for name, value in vars(args).items():
        if isinstance(value, str) and not set(value) & set(" \t\n"):  # a question may mention such a URL
            refuse_login(value, f"--{name.replace('_', '-')}")


def _check_questions(args: argparse.Namespace) -> None:
    for text in (getattr(args, "question", None) or "", *getattr(args, "queries", ())):
        if any("\ud800" <= character <= "\udfff" for character in text):  # what Python makes of other bytes
            raise BadInput("the question is not UTF-8 text", hint="LC_ALL=C.UTF-8, or the same words typed anew")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit code 2 with one clear line when the input is at fault, 3 when no answer was found."""
    set_library_defaults()
    show_warnings()
    if not faulthandler.is_enabled():
        with suppress(RuntimeError, ValueError, OSError):  # no stderr to write to
            faulthandler.enable()  # a crash in a library's native code ends with a traceback, not in silence
    try:
        _run(sys.argv[1:] if argv is None else argv)
    except QuaereError as error:
        say_line(str(error))
        if error.hint:
            print(printable_line(f"  try: {error.hint}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        closed = _closed_outputs()
        if not closed:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in closed:  # what is still in their buffers goes nowhere as well
            os.dup2(nowhere, number)
        return 0
    except OSError as error:
        known = DISK_ERRORS | _NAME_ERRORS if error.filename else DISK_ERRORS
        if error.errno not in known:  # such as a process or a socket that is not permitted
            raise
        say_line(f"{str(error.filename or 'the disk')[:_MOST_NAMED]}: {error.strerror}")
        return 2
    return 0


def _run(words: Sequence[str]) -> None:
    try:
        check_command(words)
        args = build_parser(next((word for word in words if not word.startswith("-")), "")).parse_args(words)
        _check_logins(args)  # before a URL with a password is printed or stored
        _check_questions(args)
        with catch_missing_libraries(), catch_out_of_memory():
            args.run(args)
    except SystemExit:  # of --help, or a command's own exit code
        _flush()
        raise
    _flush()


def _flush() -> None:
    """Write what is left in the buffer now: a closed pipe is noticed while it can be handled."""
    if sys.stdout is not None:  # it was closed
        sys.stdout.flush()


def _closed_outputs() -> list[int]:
    """Those of stdout and stderr that nobody reads any more, as after `quaere runs show ... | head`."""
    if not hasattr(select, "poll"):  # Windows
        return [1, 2]
    outputs = select.poll()
    for number in (1, 2):
        outputs.register(number, 0)  # an error is reported whether asked for or not
    return [number for number, event in outputs.poll(0) if event & (select.POLLERR | select.POLLHUP)]


# ----------------------------------------------------------------------------------------------------------- the parser


_SHORT_OPTION = re.compile(r"-(?!h)[^\W\d_]\S*")  # -h is the only one there is
_MEANT = ": did you mean "  # in an error that suggests a name, which needs no hint
_MAX_SHOWN = 40  # characters of a mistyped name that an error shows


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that suggests names, and whose error messages cannot control the terminal.

    quaere search Halm --indx DIR     # quaere: there is no option --indx: did you mean --index?
    quaere evolve drzro               # quaere: argument recipe: invalid choice: 'drzro': did you mean drzero?
    """

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """As argparse, but checks option names first: argparse would report missing options before mistyped ones.

        What is left over is refused here, by the parser of the command, whose help is the hint then.
        """
        words = sys.argv[1:] if args is None else list(args)
        if unknown := self._find_unknown(words):
            self._refuse_option(unknown)
        found, left = super().parse_known_args(words, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def _refuse_option(self, unknown: str) -> NoReturn:
        if any(unknown in below._option_string_actions for below in walk_parsers(self)):
            assert self._subparsers is not None
            (group,) = self._subparsers._group_actions
            self.error(f"{unknown} is an option of what follows: put it after {group.metavar}")
        # Underscores and capitals are the most frequent typing errors in options.
        meant = self._suggest(unknown.lower().replace("_", "-"), self._option_string_actions)
        self.error(f"there is no option {unknown[:_MAX_SHOWN]}{meant}")

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after one line, and a hint unless the line already suggests a name."""
        takes_question = any(action.dest == "question" for action in self._actions)
        is_left = takes_question and message.startswith("unrecognized arguments")
        quotes = "put a question of several words in quotes, or: " if is_left else ""
        hint = "" if _MEANT in message else f"  try: {quotes}{self.prog} --help\n"
        self.exit(2, f"{printable_line(f'quaere: {message}')}\n{hint}")

    def _find_unknown(self, words: Iterable[str]) -> str:
        """The first word that argparse would read as an option and that this parser does not have."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # the rest belongs to a subcommand, or holds no options
            if not word.startswith("--"):
                if _SHORT_OPTION.fullmatch(word):
                    return word[:2]
                continue
            name = word.partition("=")[0]
            if " " in word or name in self._option_string_actions:
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
        near = find_nearest(name, names)
        return f"{_MEANT}{near}?" if near else ""


def walk_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and the parsers of all commands below it, in the order of the help."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from walk_parsers(each)

"""The command `quaere`. Importing this module must stay cheap: no torch or transformers until a command needs them."""

from __future__ import annotations

import argparse
import faulthandler
import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

from quaere import __version__
from quaere.api.background import set_library_defaults
from quaere.cli.parser import Parser
from quaere.cli.terminal import printable_line, show_warnings
from quaere.disk import DISK_ERRORS
from quaere.endpoint import refuse_login
from quaere.errors import BadInput, QuaereError, catch_missing_libraries

COMMANDS = (
    "index",
    "search",
    "serve_search",
    "serve",
    "world",
    "questions",
    "models",
    "ask",
    "report",
    "warmup",
    "evolve",
    "trainer",
    "eval",
    "verify",
    "grade",
    "export",
    "runs",
    "curriculum",
    "view",
    "doctor",
    "completion",
)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser with every command, or with `only` one: the modules of other commands are then not imported."""
    parser = Parser(
        prog="quaere",
        description="Ask your documents: index them, and let a language model answer by searching them.",
        epilog="Start with: quaere index FOLDER --out INDEX && quaere ask 'your question' --index INDEX",
    )
    parser.add_argument("--version", action="version", version=f"quaere {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS if only is None else (only.replace("-", "_"),):
        import_module(f"quaere.cli.{name}").register(commands)
    return parser


def check_command(argv: Sequence[str]) -> None:
    """Raise `BadInput` for an unknown command, with the nearest known one; argparse would list all of them.

    check_command(["serach", "Halm"]) raises "there is no command 'serach': did you mean search?"
    """
    names = [name.replace("_", "-") for name in COMMANDS]
    typed = next((word for word in argv if not word.startswith("-")), None)
    if typed is None or typed in names:
        return
    near = get_close_matches(typed.lower().replace("_", "-"), names, 1)
    meant = f"did you mean {near[0]}?" if near else "quaere --help lists what there is"
    raise BadInput(f"there is no command {typed[:40]!r}: {meant}")


def check_logins(args: argparse.Namespace) -> None:
    """Raise `BadInput` for a URL with a password, before it is printed or stored."""
    for name, value in vars(args).items():
        if isinstance(value, str) and not set(value) & set(" \t\n"):  # a question may mention such a URL
            refuse_login(value, f"--{name.replace('_', '-')}")


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
        print(printable_line(f"quaere: {error}"), file=sys.stderr)
        if error.hint:
            print(printable_line(f"  try: {error.hint}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        closed = _closed_outputs()
        if not closed:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in closed:  # what is still in their buffers goes nowhere as well
            os.dup2(nowhere, number)
        return 0
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        print(printable_line(f"quaere: {error.filename or 'the disk'}: {error.strerror}"), file=sys.stderr)
        return 2
    return 0


def _run(words: Sequence[str]) -> None:
    """Run the command of these words and write all of its output."""
    try:
        check_command(words)
        args = build_parser(words[0] if words and not words[0].startswith("-") else None).parse_args(words)
        check_logins(args)
        with catch_missing_libraries():
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


if __name__ == "__main__":
    sys.exit(main())

"""Renamed options: the earlier name is still read, and one line names the new one."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

from quaere.cli.terminal import printable_line
from quaere.dialects.registry import SOLVER_DIALECTS
from quaere.errors import OldName, ServerDown, StaleIndex, warn_old_name

_show_usual = warnings.showwarning


def add_solver_dialect(parser: argparse.ArgumentParser, help: str) -> None:
    """Add `--solver-dialect`, which was `--solver-protocol` in 0.1.0."""
    parser.add_argument("--solver-dialect", choices=SOLVER_DIALECTS, help=help)
    parser.add_argument(
        "--solver-protocol", choices=SOLVER_DIALECTS, dest="solver_dialect", action=_Renamed, help=argparse.SUPPRESS
    )


class _Renamed(argparse.Action):
    """Stores the value under the option's new name, and prints that name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        warn_old_name(option_string or self.option_strings[0], f"--{self.dest.replace('_', '-')}")
        setattr(namespace, self.dest, values)


def show_old_names() -> None:
    """Print warnings about old names, stale indexes and lost servers as one line each, others as before."""
    warnings.showwarning = _show


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, (OldName, ServerDown, StaleIndex)):
        print(printable_line(f"quaere: {message}"), file=sys.stderr)
    else:
        _show_usual(message, category, filename, lineno, file, line)

"""Results of checks, as `quaere doctor` and `quaere models check` print them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from quaere.errors import BadInput, QuaereError


class Check(Struct, frozen=True):
    """The result of one check.

    Check(name="memory", status="ok", detail="23 GiB, 21 GiB free")
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    hint: str = ""


def guard(name: str, check: Callable[[], Check]) -> Check:
    """The result of a check; a failed one with the error's message if it raised a `QuaereError`."""
    try:
        return check()
    except QuaereError as error:
        return Check(name, "fail", str(error), error.hint)


def print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print every check; `BadInput`, and so exit code 2, if one failed."""
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(checks), indent=2).decode())
    else:
        _print(checks)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        raise BadInput(f"these checks failed: {', '.join(failed)}")


def _print(checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    marks = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}
    console = Console(highlight=False)
    for check in checks:
        console.print(Text.assemble(marks[check.status], f" {check.name:<10} {check.detail}"))
        if check.hint:
            console.print(Text(f"                try: {check.hint}", "dim"))

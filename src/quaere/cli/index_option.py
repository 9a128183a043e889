"""The option `--index` of commands that search: an index directory, or one or several search servers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def add_index(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    """Add `--index`. Repeated, it names several search servers; the value is then their URLs, separated by commas."""
    parser.add_argument(
        "--index",
        action=_Joined,
        required=required,
        metavar="DIR|URL",
        help="index directory, or URL of a search server (repeatable: requests are spread over the servers)",
    )


class _Joined(argparse.Action):
    """Joins the URLs of a repeated option; a second value of any other kind replaces the first, as usual."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        before, now = getattr(namespace, self.dest), str(values)
        both_urls = before is not None and all(each.startswith(("http://", "https://")) for each in (before, now))
        setattr(namespace, self.dest, f"{before},{now}" if both_urls else now)

"""Limit on the work done by a chat template, which is an untrusted program that comes with a model.

Jinja's sandbox restricts what a template can access, not how long it runs: two nested loops of 100,000 take an hour.
The limit counts lines rather than seconds, so that the same templates are refused on slow and fast machines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from quaere.errors import TemplateRefused

MAX_LINES = 3_000_000  # compiling and rendering a long template takes a few hundred thousand


def refuse_powers(template: str) -> None:
    """Raise `TemplateRefused` if the template uses `**`: `9 ** 9 ** 9` is one line, so `limited_work` cannot stop it.

    refuse_powers("{{ 2 ** n }}") raises TemplateRefused; "**bold**" outside of an expression is text
    """
    from jinja2 import Environment, TemplateSyntaxError

    before = ""
    try:
        for _, kind, value in Environment().lex(template):
            if kind == "operator" and value == "**" and before not in ("(", ","):  # f(**options) is not a power
                raise TemplateRefused("the chat template uses the power operator **, whose work has no limit")
            before = before if kind == "whitespace" else value
    except TemplateSyntaxError:
        return  # rendering reports the syntax error


@contextmanager
def limited_work() -> Iterator[None]:
    """Context manager: raises `TemplateRefused` once the Python code inside has run more than `MAX_LINES` lines."""
    left = MAX_LINES

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TemplateRefused(f"the chat template ran more than {MAX_LINES:,} lines and was stopped")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)

"""A limit on the work of a chat template, which comes with a model and is a program somebody else wrote.

Jinja's sandbox keeps a template from touching anything, not from running on: two loops of 100,000 in one another take
an hour. Lines are counted rather than seconds, so that what is refused on a slow machine is refused on a fast one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from quaere.errors import TemplateRefused

MAX_LINES = 3_000_000  # compiling and rendering a long template takes some hundred thousand


def refuse_powers(template: str) -> None:
    """Refuse a template that raises to a power: `9 ** 9 ** 9` is one line, and nothing could interrupt it.

    refuse_powers("{{ 2 ** n }}") raises TemplateRefused; "**bold**" outside of an expression is text
    """
    from jinja2 import Environment, TemplateSyntaxError

    before = ""
    try:
        for _, kind, value in Environment().lex(template):
            if kind == "operator" and value == "**" and before not in ("(", ","):  # f(**options) is no power
                raise TemplateRefused("the chat template raises numbers to powers, which may never end")
            before = before if kind == "whitespace" else value
    except TemplateSyntaxError:
        return  # whoever renders it says so


@contextmanager
def limited_work() -> Iterator[None]:
    """Within it, Python code that runs for more than `MAX_LINES` lines is stopped with a `TemplateRefused`."""
    left = MAX_LINES

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TemplateRefused("the chat template does not come to an end")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)

"""Records as HTML or as JSON.

Every value in a template is escaped, and characters that would change how a page reads (control characters, marks that
reverse the direction of text) are shown as visible ones. No template marks anything as safe.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from quaere import __version__
from quaere.api.printing import count, format_duration, inflect
from quaere.chat.terminal_text import printable, shorten_number
from quaere.viewer import plot
from quaere.viewer.page_settings import write_query

if TYPE_CHECKING:
    from jinja2 import Environment

_SEED_DIGITS = 8  # of a seed that is shown whole


def render(template: str, data: Struct, **context: object) -> bytes:
    """A page of HTML. Templates see the record as `data`."""
    text = _environment().get_template(f"{template}.html.j2").render(data=data, **context)
    return text.encode("utf-8", "replace")


def compile_templates() -> None:
    """Compile every template, so that the first to ask for a page does not wait for it."""
    for name in _environment().list_templates():
        _environment().get_template(name)


def encode_twin(data: Struct) -> bytes:
    """The same content as JSON; a number that is not finite is null."""
    return msgspec.json.encode(data)


def path_to(*parts: object) -> str:
    """The path of a page, with every part percent-encoded.

    path_to("run", "a/b") == "/run/a%2Fb"
    """
    return "".join(f"/{quote(str(part), safe='', errors='replace')}" for part in parts)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("quaere.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "path_to": path_to,
        "query": write_query,
        "plot": plot.plot,
        "sparkline": plot.sparkline,
        "x_of": plot.x_of,
        "place_band": plot.place_band,
        "chart": {name: getattr(plot, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM")},
        "version": __version__,
        "count": count,
        "inflect": inflect,
    }
    made.filters |= {"short": plot.short, "minute": _minute, "seconds": _seconds, "seed": _short_seed}
    return made


def _visible(value: Any) -> Any:
    """Text with its unprintable characters made visible; anything else, and text that is markup already, as it is."""
    return printable(value) if type(value) is str else value


def _minute(time: str) -> str:
    """A time to the minute: "2025-03-01 10:15"."""
    return time[:16].replace("T", " ")


def _seconds(value: float) -> str:
    """A duration: "0.8 ms", "84 ms", "4.2 s", "35 min"."""
    return f"{shorten_number(1000 * value)} ms" if value < 1 else format_duration(value)


def _short_seed(seed: int) -> str:
    """A seed that can be told from others at a glance: "7", "4090…5006". Those of episodes have 18 digits or so."""
    digits = str(seed)
    return digits if len(digits) <= _SEED_DIGITS else f"{digits[:4]}…{digits[-4:]}"

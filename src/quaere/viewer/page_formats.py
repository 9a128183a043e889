"""Pages: the settings in their addresses, and records as HTML or as JSON.

    class RunsQuery(Listed, frozen=True):
        state: str = ""

    read_query("text=notes&page=2", RunsQuery) == RunsQuery(text="notes", page=2)

Unknown names are ignored, so that a link from a later version still opens; a value that does not fit is a `BadInput`.

Every value in a template is escaped, and characters that would change how a page reads (control characters, marks that
reverse the direction of text) are shown as visible ones. No template marks anything as safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import parse_qs, quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from msgspec import DecodeError, Meta, Struct, convert, structs

from quaere import __version__
from quaere.api.printing import between, format_duration, inflect
from quaere.chat.terminal_text import printable, shorten_number
from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json
from quaere.rewards.abstention import has_hidden_answer
from quaere.viewer import plot
from quaere.viewer.metric_charts import name_metric

T = TypeVar("T")
U = TypeVar("U")
Query = TypeVar("Query", bound=Struct)
Record = TypeVar("Record", bound=Struct)
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000)]
PAGE_SIZE = 50
MAX_QUERY_CHARS = 8192
_SEED_DIGITS = 8  # a seed of at most this many digits is shown whole


# ------------------------------------------------------------------------------------------------ addresses and bodies


class ById(Struct, frozen=True):
    """The URL settings of a page that shows a single record: its id.

    ById(id="i0g-000003")
    """

    id: str = ""


class Listed(Struct, frozen=True):
    """The URL settings of a page with a list: the text to search for, and the page number.

    Listed(text="warm", page=2)
    """

    text: str = ""
    page: PageNumber = 1


def path_to(*parts: object) -> str:
    """The path of a page, with every part percent-encoded.

    path_to("run", "a/b") == "/run/a%2Fb"
    """
    return "".join(f"/{quote(str(part), safe='', errors='replace')}" for part in parts)


def read_query(text: str, form: type[Record]) -> Record:
    """Parse a URL's query as a record of class `form`; a repeated name fills a list field, else its last value counts.

    Raises `BadInput` for a query that is too long or has a value of the wrong type.
    """
    if len(text) > MAX_QUERY_CHARS:
        raise BadInput(f"the address has a query of more than {MAX_QUERY_CHARS} characters", hint="shorten it")
    try:
        given = parse_qs(text, max_num_fields=200)
        values = {
            field.name: given[field.name] if isinstance(field.default_factory, type) else given[field.name][-1]
            for field in structs.fields(form)
            if field.name in given
        }
        return convert(values, form, strict=False)
    except ValueError as error:  # msgspec's own error is one
        raise BadInput(f"the query of the address has an invalid value: {error}", hint="correct the address") from None


def write_query(query: Struct, **changes: object) -> str:
    """The inverse of `read_query`: the settings as "?..." for a URL, with `changes` applied; defaults are left out.

    write_query(RunsQuery(text="notes"), page=2) == "?text=notes&page=2"
    """
    plain = structs.asdict(type(query)())
    changed = structs.asdict(structs.replace(query, **changes))
    kept = [(name, value) for name, value in changed.items() if value not in (plain[name], None)]
    text = urlencode(sorted(kept, key=lambda pair: pair[0] == "page"), doseq=True)  # the page last
    return f"?{text}" if text else ""


def read_body(body: bytes, form: type[Record], what: str, example: str) -> Record:
    """Decode the JSON body of a request as `form`; if invalid, raise `BadInput` "not {what}" with `example` as hint."""
    try:
        return decode_json(body, form)
    except DecodeError as error:
        raise BadInput(f"not {what}: {error}", hint=example) from None


# ------------------------------------------------------------------------------------------------------------- records


class Page(Struct, Generic[T], frozen=True):
    """One page of a long list, and its place in it.

    Page(items=["a", "b"], number=1, num_pages=3, num_items=5)
    """

    items: list[T]
    number: int
    num_pages: int
    num_items: int

    def map(self, view: Callable[[T], U]) -> Page[U]:
        """The same page with `view` applied to each item."""
        return Page([view(item) for item in self.items], self.number, self.num_pages, self.num_items)


class ListPage(Struct, Generic[Query, T], frozen=True):
    """A web page with one page of a list, and the settings in its URL that select what is listed.

    ListPage(Listed(text="warm"), Page(items=["warm-1"], number=1, num_pages=1, num_items=1))
    """

    query: Query
    page: Page[T]


def cut_page(items: Sequence[T], number: int, size: int | None = None) -> Page[T]:
    """The page of this number, counted from 1; beyond the last page, the last one."""
    size = size or PAGE_SIZE
    num_pages = max(1, -(-len(items) // size))
    number = min(number, num_pages)
    return Page(list(items[(number - 1) * size : number * size]), number, num_pages, len(items))


def copy_fields(kind: type[Record], source: object, /, **given: Any) -> Record:
    """A record of class `kind`: its fields are taken from `given`, else from attributes of `source` of the same name.

    copy_fields(AskReply, record, page="/ask/5f3a9c01d2e4").id == record.id
    """
    names = [name for name in kind.__struct_fields__ if name not in given and hasattr(source, name)]
    return kind(**{name: getattr(source, name) for name in names}, **given)


# --------------------------------------------------------------------------------------------------------------- pages


def render(template: str, data: Struct, **context: object) -> bytes:
    """Render a template as HTML in UTF-8; the template accesses the record as `data`, and `context` by its names."""
    text = _environment().get_template(f"{template}.html.j2").render(data=data, **context)
    return text.encode("utf-8", "replace")


def compile_templates() -> None:
    """Compile and cache every template now, so that the first request of a page is not slow."""
    for name in PackageLoader("quaere.viewer").list_templates():
        _environment().get_template(name)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=ChoiceLoader([PackageLoader("quaere.viewer"), PackageLoader("quaere.api")]),
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
        "between": between,
        "count": _count,
        "inflect": inflect,
    }
    made.tests["hidden"] = has_hidden_answer  # takes the id of a question
    made.filters |= {
        "short": plot.short,
        "minute": _minute,
        "seconds": _seconds,
        "seed": _short_seed,
        "words": name_metric,
    }
    return made


def _visible(value: Any) -> Any:
    """Text with its unprintable characters made visible; anything else, and text that is markup already, as it is."""
    return printable(value) if type(value) is str else value


def _count(number: int, noun: str) -> str:
    """A number with its noun: "1 search", "13,312 episodes"."""
    return f"{number:,} {inflect(number, noun)}"


def _minute(time: str) -> str:
    """A time to the minute: "2025-03-01 10:15"."""
    return time[:16].replace("T", " ")


def _seconds(value: float) -> str:
    """A duration: "0.8 ms", "84 ms", "4.2 s", "35 min"."""
    return f"{shorten_number(1000 * value)} ms" if value < 1 else format_duration(value)


def _short_seed(seed: int) -> str:
    """A seed shortened for display: "7", "4090…5006". Seeds of episodes have about 18 digits."""
    digits = str(seed)
    return digits if len(digits) <= _SEED_DIGITS else f"{digits[:4]}…{digits[-4:]}"

"""Settings of a page, read from the query of its address.

    class RunsQuery(Struct, frozen=True):
        text: str = ""
        page: PageNumber = 1

    read_query("text=notes&page=2", RunsQuery) == RunsQuery(text="notes", page=2)

Unknown names are ignored, so that a link from a later version still opens; a value that does not fit is a `BadInput`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar
from urllib.parse import parse_qs, urlencode

import msgspec
from msgspec import Meta, Struct

from quaere.errors import BadInput

T = TypeVar("T")
Query = TypeVar("Query", bound=Struct)
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000)]
MAX_QUERY_CHARS = 8192


def read_query(text: str, form: type[Query]) -> Query:
    """The query of an address as a record. A field that is a list takes every value, any other the last one."""
    if len(text) > MAX_QUERY_CHARS:
        raise BadInput(f"the address has a query of more than {MAX_QUERY_CHARS} characters", hint="ask for less")
    try:
        given = parse_qs(text, max_num_fields=200)
        named = {field.name: field for field in msgspec.structs.fields(form)}
        values = {
            name: found if isinstance(named[name].default_factory, type) else found[-1]
            for name, found in given.items()
            if name in named
        }
        return msgspec.convert(values, form, strict=False)
    except ValueError as error:  # msgspec's own error is one
        raise BadInput(
            f"the address asks for something that is not there: {error}", hint="correct the address"
        ) from None


def write_query(query: Struct, **changes: object) -> str:
    """The query as part of an address, with some values changed; defaults are left out.

    write_query(RunsQuery(text="notes"), page=2) == "?text=notes&page=2"
    """
    changed = msgspec.structs.replace(query, **changes)
    plain = type(query)()
    pairs = [
        (name, value)
        for name, value in msgspec.structs.asdict(changed).items()
        if value != getattr(plain, name) and value is not None
    ]
    text = urlencode([(name, _text(value)) for name, value in pairs], doseq=True)
    return f"?{text}" if text else ""


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


class Page(Struct, Generic[T], frozen=True):
    """One page of a long list, and its place in it.

    Page(items=["a", "b"], number=1, num_pages=3, num_items=5)
    """

    items: list[T]
    number: int
    num_pages: int
    num_items: int


def cut_page(items: Sequence[T], number: int, size: int) -> Page[T]:
    """The page of this number, counted from 1; beyond the last page, the last one."""
    num_pages = max(1, -(-len(items) // size))
    number = min(number, num_pages)
    return Page(list(items[(number - 1) * size : number * size]), number, num_pages, len(items))

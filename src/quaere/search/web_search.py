"""The web as a search engine: a vendor finds pages, which are fetched, cleaned and cut into passages here.

    web:searxng@http://127.0.0.1:8888     # an instance of SearXNG whose settings allow the format json
    web:brave                             # with the key in $BRAVE_API_KEY; web:brave@URL asks another server

A result is the passage of its page that has most of the query's words; title, place and offsets are those of the
cleaned page, whose id is its URL. Where a page may not or cannot be read, the result is the vendor's own excerpt.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from quaere.endpoint import read_secret
from quaere.errors import BadInput, SearchFailed, import_extra
from quaere.records import Hit, Passage
from quaere.search.bm25 import Bm25Settings, passage_terms, query_terms
from quaere.search.cache import Cache
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.client import server_url
from quaere.search.corpus import Document
from quaere.search.engines import RANK_OFFSET
from quaere.search.extracted import Unreadable, storable_text
from quaere.search.fetch import PAGE_SUFFIXES, Fetched, Fetcher, Refused
from quaere.search.files import parse_file
from quaere.search.formats.text import decode
from quaere.search.json_client import JsonClient
from quaere.search.words import detect_language

MAX_RESULTS = 20  # per query: the lowest of the vendors' own maxima
_MAX_ANSWER_BYTES = 4 << 20
_MAX_EXCERPT = 2000
_EXA_CONTENTS = {"text": {"maxCharacters": _MAX_EXCERPT}}
# Tags of a page: with more, reading takes seconds. Real pages of two megabytes have half as many.
_MAX_TAGS = 100_000
_MAX_CHARS = 1 << 20
_NUM_REMEMBERED = 4096  # queries whose hits are kept
_REMEMBERED_CHARS = 32 << 20  # characters of cleaned pages that are kept


class Result(Struct, frozen=True):
    """A result of a vendor.

    Result(url="https://example.org/rivers", title="Rivers", excerpt="The Oss rises near ...")
    """

    url: str
    title: str
    excerpt: str


# ------------------------------------------------------------------------------------------------------------- vendors


class Vendor(Struct, frozen=True):
    """A search engine of the web that answers with JSON.

    `ask` returns the method, the path and the parameters of a query: in the path for GET, as JSON for POST. `results`
    leads to the list of results, and `fields` names URL, title and excerpt of each. `url` is "" if there is no public
    server; `key` is the environment variable with the key, `header` what it is sent as.

        Vendor(ask, results=("results",), fields=("url", "title", "text"), url="https://api.example")
    """

    ask: Callable[[str, int], tuple[str, str, dict[str, object]]]
    results: tuple[str, ...]
    fields: tuple[str, str, str]
    url: str = ""
    key: str = ""
    header: str = ""


VENDORS = {
    "searxng": Vendor(
        ask=lambda query, num: ("GET", "/search", {"q": query, "format": "json"}),
        results=("results",),
        fields=("url", "title", "content"),
    ),
    "brave": Vendor(
        ask=lambda query, num: ("GET", "/res/v1/web/search", {"q": query, "count": num, "text_decorations": "false"}),
        results=("web", "results"),
        fields=("url", "title", "description"),
        url="https://api.search.brave.com",
        key="BRAVE_API_KEY",
        header="x-subscription-token: {}",
    ),
    "tavily": Vendor(
        ask=lambda query, num: ("POST", "/search", {"query": query, "max_results": num}),
        results=("results",),
        fields=("url", "title", "content"),
        url="https://api.tavily.com",
        key="TAVILY_API_KEY",
        header="authorization: Bearer {}",
    ),
    "exa": Vendor(
        ask=lambda query, num: ("POST", "/search", {"query": query, "numResults": num, "contents": _EXA_CONTENTS}),
        results=("results",),
        fields=("url", "title", "text"),
        url="https://api.exa.ai",
        key="EXA_API_KEY",
        header="x-api-key: {}",
    ),
    "serper": Vendor(
        ask=lambda query, num: ("POST", "/search", {"q": query, "num": num}),
        results=("organic",),
        fields=("link", "title", "snippet"),
        url="https://google.serper.dev",
        key="SERPER_API_KEY",
        header="x-api-key: {}",
    ),
}
DDGS = "ddgs"  # a library that asks several engines, without a key
_SYNTAX = f"web:NAME or web:NAME@URL, with one of the names {', '.join([*VENDORS, DDGS])}"


class Finder(Protocol):
    """What finds pages on the web."""

    async def find(self, query: str, num: int) -> list[Result]:
        """At most `num` results, best first; raises `SearchFailed`."""

    async def close(self) -> None:
        """Release connections."""


class HttpFinder:
    """Asks a vendor over HTTP. Its key is sent to this server only, and appears in no message."""

    def __init__(self, name: str, url: str) -> None:
        vendor = self._vendor = VENDORS[name]
        key = read_secret(vendor.key) if vendor.key else ""
        header, _, value = vendor.header.format(key).partition(": ")
        self._json = JsonClient(
            url,
            f"the search engine {name}",
            headers={header: value} if key else {},
            secrets=[key] if key else [],
            start_hint=f"check the address {url}",
            key_hint=f"export {vendor.key}=..." if vendor.key else "its settings must allow the format json",
            max_connections=8,
            max_response_bytes=_MAX_ANSWER_BYTES,
        )

    async def find(self, query: str, num: int) -> list[Result]:
        """At most `num` results, best first."""
        method, path, parameters = self._vendor.ask(query, num)
        body = msgspec.json.encode(parameters) if method == "POST" else b""
        path = path if body else f"{path}?{urlencode(parameters)}"
        answer = await self._json.ask(method, path, body, dict[str, Any], "search results")
        return read_results(answer, self._vendor)[:num]

    async def close(self) -> None:
        """Close the connections."""
        await self._json.close()


class DdgsFinder:
    """Asks the engines of the library ddgs, in a thread."""

    def __init__(self) -> None:
        self._library = import_extra("ddgs", "searching with ddgs needs its library", extra="ddgs")

    async def find(self, query: str, num: int) -> list[Result]:
        """At most `num` results, best first."""
        try:
            found = await asyncio.to_thread(lambda: self._library.DDGS().text(query, max_results=num))
        except Exception as error:
            if "no results" in str(error).lower():  # raised by the library instead of an empty list
                return []
            said = f"the library ddgs failed: {type(error).__name__}: {error}"
            raise SearchFailed(said, kind="broken") from error
        fields = ("href", "title", "body")
        return [result for one in found or () if (result := _read_result(one, fields))][:num]

    async def close(self) -> None:
        """Do nothing."""


def read_results(answer: dict[str, Any], vendor: Vendor) -> list[Result]:
    """The results in a vendor's answer, without repeated addresses; entries that are not results are left out."""
    found: Any = answer
    for name in vendor.results:
        found = found.get(name) if isinstance(found, dict) else None
    results = (_read_result(one, vendor.fields) for one in (found if isinstance(found, list) else ()))
    return list({result.url: result for result in results if result}.values())


def _read_result(found: object, fields: Sequence[str]) -> Result | None:
    url, title, excerpt = (found.get(name) if isinstance(found, dict) else None for name in fields)
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    lines = (" ".join(text.split())[:_MAX_EXCERPT] if isinstance(text, str) else "" for text in (title, excerpt))
    return Result(storable_text(url), *map(storable_text, lines))


# ------------------------------------------------------------------------------------------------------------ searcher


def read_web(rest: str) -> Callable[[], "WebSearcher"]:
    """The function that opens the searcher of `web:NAME` or `web:NAME@URL`; `rest` is the text after `web:`."""
    name, at, url = rest.partition("@")
    if name == DDGS:
        if at:
            raise BadInput("web:ddgs takes no URL", hint="--search web:ddgs")
        return lambda: WebSearcher(DdgsFinder())
    if name not in VENDORS:
        raise BadInput(f"there is no web search {name!r}", hint=_SYNTAX)
    vendor = VENDORS[name]
    url = server_url(url or vendor.url) if at or vendor.url else ""
    if not url:
        raise BadInput(f"web:{name} needs the URL of a server", hint=f"--search web:{name}@http://127.0.0.1:8888")
    if vendor.key and not read_secret(vendor.key):
        raise BadInput(f"web:{name} needs a key", hint=f"export {vendor.key}=..., or {vendor.key}_FILE=FILE")
    return lambda: WebSearcher(HttpFinder(name, url))


class WebSearcher:
    """Searches the web. `keep_page` is called with every page that was fetched."""

    def __init__(self, finder: Finder, fetcher: Fetcher | None = None) -> None:
        self._finder, self._fetcher = finder, fetcher or Fetcher()
        self.keep_page: Callable[[Fetched], None] = lambda page: None
        self._found: Cache[tuple[str, int], list[Hit]] = Cache(_NUM_REMEMBERED)
        self._pages: Cache[str, Document] = Cache(_REMEMBERED_CHARS, weigh=lambda page: len(page.text) + 1)

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        searches = (self._found.get((query, topk), partial(self._search, query, topk)) for query in queries)
        return [[*hits] for hits in await asyncio.gather(*searches)]

    async def close(self) -> None:
        """Close the connections."""
        await self._finder.close()
        await self._fetcher.close()

    async def _search(self, query: str, topk: int) -> list[Hit]:
        results = await self._finder.find(query, min(topk, MAX_RESULTS))
        read = await asyncio.gather(*(self._read(query, result) for result in results))
        passages = {passage.id: passage for passage in read if passage}  # two addresses may lead to one page
        return [Hit(passage, 1 / (RANK_OFFSET + place)) for place, passage in enumerate(passages.values(), start=1)]

    async def _read(self, query: str, result: Result) -> Passage | None:
        """The best passage of a result's page, else the vendor's excerpt; None if both are empty."""
        try:
            page = await self._pages.get(result.url, lambda: self._fetch(result))
            return await asyncio.to_thread(choose_passage, query, page)
        except (Refused, Unreadable):
            name, text = f"{result.url}#excerpt", result.excerpt
            found = Passage(name, result.url, result.title, text, 0, len(text), "excerpt of the search engine")
            return found if text else None

    async def _fetch(self, result: Result) -> Document:
        page = await self._fetcher.fetch(result.url)
        document = await asyncio.to_thread(clean_page, page, result.title)
        self.keep_page(page)
        return document


def clean_page(page: Fetched, title: str = "") -> Document:
    """The document in a page, read as a file of its type is; `title` is for a page without one.

    Raises `Unreadable` if nothing can be read.
    """
    if page.body.count(b"<") > _MAX_TAGS:
        raise Unreadable(f"has more than {_MAX_TAGS} tags")
    text, _ = decode(page.body, page.charset or None)
    host = urlsplit(page.url).hostname or "page"
    suffix = PAGE_SUFFIXES[page.media_type]
    found = parse_file(Path(f"{host}{suffix}"), text.encode(), _MAX_CHARS)
    if not found.text.strip():
        raise Unreadable("has no text")
    if len(found.text) > _MAX_CHARS:  # the readers of formats that are text have no limit
        raise Unreadable(f"its text is longer than {_MAX_CHARS} characters")
    has_title = found.title != host  # without one a file is titled by its name
    named = found.title if has_title or not title else title
    return Document(page.url, named, found.text, "file", found.parts, headings=found.headings)


def choose_passage(query: str, page: Document) -> Passage | None:
    """The passage of a page with the most and rarest words of the query, by BM25 within the page; the first if equal.

    The title is that of all passages, so it does not count.
    """
    passages = cut(page, ChunkSettings())
    settings = Bm25Settings(title_weight=0, stemmer=detect_language([page.text]))
    counts = [Counter(passage_terms(passage, settings)) for passage in passages]
    mean = sum(count.total() for count in counts) / max(1, len(counts)) or 1.0
    wanted = set(query_terms(query, settings))
    rarity = {term: sum(term in count for count in counts) for term in wanted}

    def score(count: Counter[str]) -> float:
        norm = settings.k1 * (1 - settings.b + settings.b * count.total() / mean)
        weights = (math.log(1 + (len(counts) - rarity[term] + 0.5) / (rarity[term] + 0.5)) for term in sorted(wanted))
        return sum(w * count[term] / (count[term] + norm) for w, term in zip(weights, sorted(wanted), strict=True))

    scored = [(score(count), -number) for number, count in enumerate(counts)]
    return passages[-max(scored)[1]] if passages else None

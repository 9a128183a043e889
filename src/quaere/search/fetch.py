"""Fetching of web pages within bounds: public addresses only, and limits of size, time, type and rate.

    fetcher = Fetcher()
    page = await fetcher.fetch("https://example.org/rivers")      # Refused if it may not or cannot be fetched
    await fetcher.close()

A name is resolved once for each request. All of its addresses are checked, and the connection is made to an address
that was checked, so that a name that changes in between cannot lead elsewhere; every redirect begins anew. A proxy of
the environment is not used: it would resolve the names itself.

What a site's robots.txt forbids (RFC 9309) is not fetched:

    read_robots("User-agent: *\\nDisallow: /private/\\nAllow: /private/open", "quaere").allows("/private/x") == False
"""

from __future__ import annotations

import asyncio
import socket
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote

import httpx
from msgspec import Struct

from quaere import __version__
from quaere.endpoint import open_client
from quaere.search.cache import Cache

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
PROGRAM = "quaere"
PAGE_SUFFIXES = {  # by media type: the suffix of files that are read in the same way
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/plain": ".txt",
    "text/markdown": ".md",
}
_HEADERS = {
    "user-agent": f"{PROGRAM}/{__version__}",
    "accept": ", ".join(PAGE_SUFFIXES),
    "accept-encoding": "gzip",
    "connection": "close",
}
_PACKED = ("gzip", "x-gzip", "deflate")
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_ROBOTS_BYTES = 500 << 10
_MAX_RULES = 5000
_NUM_SITES = 4096  # sites whose robots.txt is kept


class Refused(Exception):
    """Raised for a page that may not or cannot be fetched; the message says why."""


class FetchLimits(Struct, frozen=True):
    """Bounds of fetching. `pause_s` is the time between two requests to one host; waiting for it is not counted.

    FetchLimits(max_bytes=2 << 20, timeout_s=20.0, max_redirects=5, pause_s=1.0, max_concurrent=8)
    """

    max_bytes: int = 2 << 20
    timeout_s: float = 20.0
    max_redirects: int = 5
    pause_s: float = 1.0
    max_concurrent: int = 8


class Fetched(Struct, frozen=True):
    """A page as it was sent, unpacked; `url` is that of the last redirect.

    Fetched(url="https://example.org/rivers", status=200, headers=[("content-type", "text/html")], body=b"<p>...")
    """

    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def media_type(self) -> str:
        """The type without its parameters, in lower case; "" if none was sent."""
        return self.header("content-type").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The declared encoding; "" if there is none."""
        parameters = self.header("content-type").lower().split(";")[1:]
        named = (each.partition("=")[2] for each in parameters if each.strip().startswith("charset="))
        return next(named, "").strip(" \"'")

    def header(self, name: str) -> str:
        """The first header of this name, "" if there is none."""
        return next((value for key, value in self.headers if key == name), "")


# ----------------------------------------------------------------------------------------------------------- addresses


_PORTS = (80, 443)
_UNICAST = ip_network("2000::/3")
# Not public, or answered by the network of a data centre, whatever the version of Python knows about them.
_REFUSED = [
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "224.0.0.0/3"),
        *("2001::/23", "2001:db8::/32", "3fff::/20"),
    )
]
# Networks of IPv6 addresses that stand for an IPv4 address, and how many bits follow it.
_EMBEDDING = [
    (ip_network("::/96"), 0),
    (ip_network("::ffff:0:0/96"), 0),
    (ip_network("::ffff:0:0:0/96"), 0),
    (ip_network("64:ff9b::/96"), 0),
    (ip_network("2002::/16"), 80),
]


def is_public(address: Address, port: int) -> bool:
    """True for the web ports of a public address; one that stands for an IPv4 address is checked as that one.

    is_public(ip_address("93.184.215.14"), 443); not is_public(ip_address("64:ff9b::10.0.0.1"), 443)
    """
    if isinstance(address, IPv6Address):
        for network, num_bits in _EMBEDDING:
            if address in network:
                return is_public(IPv4Address(int(address) >> num_bits & 0xFFFFFFFF), port)
        if address not in _UNICAST or address.scope_id:
            return False
    is_listed = any(address in network for network in _REFUSED if network.version == address.version)
    return port in _PORTS and address.is_global and not address.is_multicast and not is_listed


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, by the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


# ------------------------------------------------------------------------------------------------------------ fetching


class Fetcher:
    """Fetches pages. `admits` decides which addresses and ports may be connected to; only tests replace it."""

    def __init__(
        self,
        limits: FetchLimits | None = None,
        *,
        admits: Callable[[Address, int], bool] = is_public,
        resolve: Resolve = resolve,
    ) -> None:
        self.limits = limits or FetchLimits()
        self._admits, self._resolve = admits, resolve
        # The bare transport keeps no cookies and follows no redirect. No connection is kept: two names may share an
        # address, and the certificate was checked for one of them.
        self._http = open_client(httpx.AsyncHTTPTransport, "", limits=httpx.Limits(max_keepalive_connections=0))
        self._turns = asyncio.Semaphore(self.limits.max_concurrent)
        self._next_at: dict[str, float] = {}  # by host, when the next request may be sent
        self._robots: Cache[str, Robots] = Cache(_NUM_SITES)

    async def fetch(self, url: str) -> Fetched:
        """The page at a URL, after redirects; raises `Refused` if it may not or cannot be fetched."""
        try:
            async with self._turns, asyncio.timeout(self.limits.timeout_s) as limit:
                return await self._fetch(url, limit)
        except TimeoutError:
            raise Refused(f"did not answer within {self.limits.timeout_s:g} s") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _fetch(self, url: str, limit: asyncio.Timeout) -> Fetched:
        at = _parse(url)
        for _ in range(self.limits.max_redirects + 1):
            robots = await self._robots.get(_site(at), partial(self._read_robots, at, limit))
            if not robots.allows(at.raw_path.decode("ascii")):
                raise Refused("robots.txt of its site forbids it")
            answer = await self._request(at, limit, self.limits.max_bytes, is_page=True)
            if answer.status not in _REDIRECTS:
                return answer
            at = _parse(answer.header("location"), at)
        raise Refused(f"redirects more than {self.limits.max_redirects} times")

    async def _read_robots(self, at: httpx.URL, limit: asyncio.Timeout) -> Robots:
        """A site's rules: everything is allowed if it has no robots.txt, nothing if that cannot be read (RFC 9309)."""
        at = at.join("/robots.txt")
        try:
            for _ in range(self.limits.max_redirects + 1):
                answer = await self._request(at, limit, _MAX_ROBOTS_BYTES, is_page=False)
                if answer.status not in _REDIRECTS:
                    break
                at = _parse(answer.header("location"), at)
        except Refused as refusal:
            raise Refused(f"robots.txt of its site: {refusal}") from refusal
        if answer.status == httpx.codes.OK:
            return read_robots(answer.body.decode("utf-8", "replace"), PROGRAM)
        return Robots() if 400 <= answer.status < 500 else NOTHING_ALLOWED

    async def _request(self, at: httpx.URL, limit: asyncio.Timeout, most: int, *, is_page: bool) -> Fetched:
        """One request and its answer. A page must have status 200 or be a redirect, be text, and fit into `most`."""
        host = at.raw_host.decode("ascii")
        await self._wait_turn(host, limit)
        address = await self._find_address(at)
        headers = _HEADERS | {"host": at.netloc.decode("ascii")}
        where = at.copy_with(host=address, fragment=None)
        request = httpx.Request("GET", where, headers=headers, extensions={"sni_hostname": host})
        try:
            response = await self._http.handle_async_request(request)
            try:
                sent = [(name.lower(), value) for name, value in response.headers.multi_items()]
                found = Fetched(str(at), response.status_code, sent, b"")
                if found.status in _REDIRECTS:
                    return found
                if is_page:
                    _check_page(found)
                body = _unpack(await _read(response, most), found.header("content-encoding").lower(), most)
                return Fetched(found.url, found.status, sent, body)
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.StreamError, OSError, ValueError) as error:
            raise Refused(f"cannot be fetched ({type(error).__name__})") from error

    async def _wait_turn(self, host: str, limit: asyncio.Timeout) -> None:
        now = time.monotonic()
        if len(self._next_at) > _NUM_SITES:
            self._next_at = {name: at for name, at in self._next_at.items() if at > now}
        at = max(now, self._next_at.get(host, now))
        self._next_at[host] = at + self.limits.pause_s
        if at > now and (until := limit.when()):
            limit.reschedule(until + at - now)
            await asyncio.sleep(at - now)

    async def _find_address(self, at: httpx.URL) -> str:
        """An address of the URL's host; `Refused` unless all of its addresses are admitted."""
        port = at.port or (443 if at.scheme == "https" else 80)
        try:
            found = await self._resolve(at.raw_host.decode("ascii"), port)
            addresses = [ip_address(text) for text in found]
        except (OSError, ValueError) as error:  # a UnicodeError is a ValueError
            raise Refused(f"its host {at.host!r} cannot be found") from error
        if not addresses or not all(self._admits(address, port) for address in addresses):
            raise Refused(f"its host {at.host!r} is not a web server with a public address")
        return found[0]


def _parse(text: str, base: httpx.URL | None = None) -> httpx.URL:
    """The URL, relative to `base`, without fragment; `Refused` if it is not http or https, or contains a login."""
    try:
        url = (base.join(text) if base else httpx.URL(text)).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise Refused("its address is not a URL") from error
    if url.scheme not in ("http", "https") or not url.host or not text:
        raise Refused("its address is not that of a web page")
    if url.userinfo:
        raise Refused("its address contains a user or password")
    return url


def _site(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _check_page(found: Fetched) -> None:
    if found.status != httpx.codes.OK:
        raise Refused(f"its server answered {found.status}")
    if found.media_type not in PAGE_SUFFIXES:
        raise Refused(f"is of the type {found.media_type[:40]!r}, not a page of text")


async def _read(response: httpx.Response, most: int) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_raw():  # as sent: httpx would unpack a chunk to any size
        data += chunk
        if len(data) > most:
            raise Refused(f"is larger than {most} bytes")
    return bytes(data)


def _unpack(data: bytes, encoding: str, most: int) -> bytes:
    if encoding in ("", "identity"):
        return data
    if encoding not in _PACKED:
        raise Refused(f"is packed in an unknown way, {encoding[:40]!r}")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        unpacked = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise Refused("is damaged: it cannot be unpacked") from error
    if len(unpacked) > most:
        raise Refused(f"unpacks to more than {most} bytes")
    if not unpacker.eof:
        raise Refused("is damaged: it ends early")
    return unpacked


# ----------------------------------------------------------------------------------------------------------- robots.txt


class Rule(Struct, frozen=True):
    """A line of robots.txt: paths of this pattern may be fetched, or not.

    Rule(pattern="/private/*.html$", is_allowed=False)
    """

    pattern: str
    is_allowed: bool


class Robots(Struct, frozen=True):
    """The rules for one program; of those that match a path, the one with the longest pattern decides.

    Robots([Rule("/private/", is_allowed=False)])
    """

    rules: list[Rule] = []

    def allows(self, path: str) -> bool:
        """True if the path, with its query, may be fetched."""
        plain = unquote(path)
        matching = [rule for rule in self.rules if _matches(rule.pattern, plain)]
        return max(matching, key=lambda rule: (len(rule.pattern), rule.is_allowed), default=Rule("", True)).is_allowed


NOTHING_ALLOWED = Robots([Rule("/", is_allowed=False)])


def read_robots(text: str, program: str) -> Robots:
    """The rules of the groups that name the program; if there are none, those of the groups for all programs."""
    groups: dict[str, list[Rule]] = {}
    named: set[str] = set()  # names of the group, only this program's and "*" of them: a file may list thousands
    is_open = False  # whether the last line named a program, so that another name joins the group
    for line in text.removeprefix("\ufeff").splitlines():
        field, colon, value = (part.strip() for part in line.partition("#")[0].partition(":"))
        field = field.lower()
        if colon and field == "user-agent":
            named = (named if is_open else set()) | ({value.lower()} & {program, "*"})
            is_open = True
            groups |= {name: groups.get(name, []) for name in named}
        elif field in ("allow", "disallow"):
            is_open = False
            for name in named if value else ():
                groups[name].append(Rule(unquote(value), field == "allow"))
    return Robots(groups.get(program, groups.get("*", []))[:_MAX_RULES])


def _matches(pattern: str, path: str) -> bool:
    """True if the pattern matches the start of the path; `*` stands for any text, a last `$` for the path's end."""
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    for part in others:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if not pattern.endswith("$"):
        return True
    last = others[-1] if others else ""  # the last part may also be found further to the right
    return at == len(path) or (bool(others) and path.endswith(last))

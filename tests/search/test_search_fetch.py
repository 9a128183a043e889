"""Fetching within bounds: what may be connected to, what may be read, and how much of it."""

import asyncio
import gzip
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from ipaddress import ip_address

import httpx
import httpx._transports.default as httpx_transports
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.search import fetch
from quaere.search.fetch import Fetcher, FetchLimits, Refused, is_public, read_robots
from websites import HOSTILE, QUICK, open_fetcher, page, redirect, websites

# ------------------------------------------------------------------------------------------------------- addresses


_PRIVATE_V4 = """
127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255
169.254.169.254 169.254.0.1 100.64.0.1 100.100.100.200 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1
198.51.100.7 203.0.113.7 168.63.129.16 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
""".split()
_PRIVATE_V6 = """
::1 :: fe80::1 fc00::1 fd00:ec2::254 fec0::1 ff02::1 ff0e::1 100::1 2001:db8::1 2001::1
2001:0:4136:e378:8000:63bf:3fff:fdd2
2001:10::1 2001:20::1 3fff::1 64:ff9b:1::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe ::127.0.0.1 ::7f00:1
::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b::192.168.1.1 2002:7f00:1:: 2002:c0a8:101::1
2002:a9fe:a9fe::a9fe:a9fe fe80::1%lo
""".split()
_PUBLIC = "8.8.8.8 93.184.215.14 2606:4700::6810:84e5 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1".split()
_NUMBERS = """
127.1 0 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 127.0x1 0x7f.0.0x1 3232235777 2852039166 0xa9fea9fe
""".split()
_TRICKS = [
    "http://localhost/",
    "http://LOCALHOST./",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://user:password@127.0.0.1/",
    "http://93.184.215.14@127.0.0.1/",
    "http://127.0.0.1@93.184.215.14/",
    "http://127.0.0.1#@93.184.215.14/",
    "http://127.0.0.1?@93.184.215.14/",
    "http://127.0.0.1\\@93.184.215.14/",
    "http://[::ffff:7f00:1]:80/",
    "//127.0.0.1/",
    "http:127.0.0.1",
    "http:///127.0.0.1",
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "gopher://127.0.0.1:70/",
    "javascript:alert(1)",
    "http://93.184.215.14:22/",
    "http://93.184.215.14:25/",
    "https://93.184.215.14:8443/",
    "http://93.184.215.14:99999/",
    "",
]
_NAMES = {  # what a resolver may say
    "private.test": ["10.0.0.1"],
    "mixed.test": ["93.184.215.14", "127.0.0.1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "nat64.test": ["64:ff9b::a9fe:a9fe"],
    "sixtofour.test": ["2002:7f00:1::"],
    "linked.test": ["fe80::1%2"],
    "nothing.test": [],
    "nonsense.test": ["not an address"],
}


@contextmanager
def connections():
    """The addresses that this process connects to."""
    _CONNECTED.clear()
    if not _HOOKED:
        _HOOKED.append(True)
        sys.addaudithook(lambda event, args: _CONNECTED.append(args[1]) if event == "socket.connect" else None)
    yield _CONNECTED
    _CONNECTED.clear()


_CONNECTED, _HOOKED = [], []


@pytest.mark.parametrize("text", [*_PRIVATE_V4, *_PRIVATE_V6])
def test_a_private_address_is_not_public(text):
    assert not is_public(ip_address(text), 80) and not is_public(ip_address(text), 443)


@pytest.mark.parametrize("text", _PUBLIC)
def test_a_public_address_is_public_at_the_ports_of_the_web(text):
    assert is_public(ip_address(text), 80) and is_public(ip_address(text), 443)
    assert not is_public(ip_address(text), 22)


@given(st.ip_addresses(v=4), st.sampled_from([80, 443]))
def test_an_address_that_stands_for_another_is_checked_as_that_one(address, port):
    number = int(address)
    forms = [0xFFFF << 32 | number, number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80 | 1]
    assert {is_public(ip_address(form.to_bytes(16, "big")), port) for form in forms} == {is_public(address, port)}


async def test_no_attempt_to_reach_a_private_address_connects():
    async def resolve(host, port):
        return _NAMES[host] if host in _NAMES else await fetch.resolve(host, port)

    hosts = [*_PRIVATE_V4, *_NUMBERS, *_NAMES, *(f"[{text.replace('%', '%25')}]" for text in _PRIVATE_V6)]
    attempts = [*(f"{scheme}://{host}/x" for host in hosts for scheme in ("http", "https")), *_TRICKS]
    assert len(attempts) >= 60
    fetcher = Fetcher(QUICK, resolve=resolve)
    with connections() as connected:
        for url in attempts:
            with pytest.raises(Refused):
                await fetcher.fetch(url)
        assert connected == []
    await fetcher.close()


async def test_a_redirect_is_checked_like_an_address():
    targets = [
        *("http://169.254.169.254/latest/", "http://2130706433/", "http://[::1]/", "http://10.0.0.1/", "//127.0.0.2/"),
        *("http://private.test/", "file:///etc/passwd", "http://user@127.0.0.1/", "http://[64:ff9b::7f00:1]/", ""),
        *("http://127.0.0.1:1/", "http://0x7f.1:1/", "https://localhost/", "http://[", "\x00"),
    ]
    pages = {f"/{number}": redirect(target) for number, target in enumerate(targets)}

    async def resolve(host, port):
        return _NAMES[host] if host in _NAMES else await fetch.resolve(host, port)

    with websites(pages) as sites, connections() as connected:
        fetcher = open_fetcher(sites, resolve=resolve)
        for path in pages:
            with pytest.raises(Refused):
                await fetcher.fetch(sites.url(path))
        assert set(connected) == {("127.0.0.1", sites.port)}
        assert sites.paths() == [*pages]
        await fetcher.close()


async def test_each_request_is_resolved_once_and_connects_to_the_address_that_was_checked():
    given = []

    async def resolve(host, port):
        """A name whose address changes with every look."""
        given.append(f"127.0.0.{len(given) + 1}")
        return given[-1:]

    with websites({"/rivers": page("<p>The Oss")}) as sites, connections() as connected:
        fetcher = Fetcher(QUICK, admits=lambda address, port: str(address) == "127.0.0.1", resolve=resolve)
        with pytest.raises(Refused, match="not a web server with a public address"):
            await fetcher.fetch(sites.url("/rivers", host="changing.test"))
        # The first look was for robots.txt; the second had another address, which was checked and not connected to.
        assert given == ["127.0.0.1", "127.0.0.2"] and connected == [("127.0.0.1", sites.port)]
        assert sites.requests == [(f"changing.test:{sites.port}", "/robots.txt")]
        await fetcher.close()


async def test_a_name_is_resolved_as_it_is_sent():
    """Python's resolver would look for fass.test, which is another site."""
    resolved = []

    async def resolve(host, port):
        resolved.append(host)
        return ["127.0.0.1"]

    with websites({"/rivers": page("<p>The Oss")}) as sites:
        fetcher = open_fetcher(sites, resolve=resolve)
        await fetcher.fetch(sites.url("/rivers", host="faß.test"))
        assert resolved == ["xn--fa-hia.test"] * 2
        assert {host for host, _ in sites.requests} == {f"xn--fa-hia.test:{sites.port}"}
        await fetcher.close()


@pytest.fixture
def certificate(tmp_path):
    """A certificate of its own making for rivers.test, with its key, and the TLS settings of a server that has it."""
    file = tmp_path / "certificate.pem"
    named = ["-subj", "/CN=rivers.test", "-addext", "subjectAltName=DNS:rivers.test"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *named]
    try:
        subprocess.run([*made, "-out", file, "-keyout", tmp_path / "key.pem"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, tmp_path / "key.pem")
    return file, context


async def test_a_certificate_is_checked_for_the_name_and_not_for_the_address(certificate, monkeypatch):
    file, context = certificate
    with websites({"/rivers": page("<p>The Oss")}, tls=context) as sites:
        url = sites.url("/rivers", host="rivers.test", scheme="https")
        unknown = open_fetcher(sites)
        with pytest.raises(Refused, match="ConnectError"):  # nobody vouches for it
            await unknown.fetch(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        # Tests share one context otherwise (conftest.py), which was made before.
        monkeypatch.setattr(httpx_transports, "create_ssl_context", httpx.create_ssl_context)
        fetcher = open_fetcher(sites)
        assert (await fetcher.fetch(url)).body == b"<p>The Oss"
        with pytest.raises(Refused, match="ConnectError"):
            await fetcher.fetch(sites.url("/rivers", host="other.test", scheme="https"))
        assert sites.paths() == ["/rivers"]
        await unknown.close()
        await fetcher.close()


async def test_no_proxy_is_used(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with websites({"/rivers": page("<p>The Oss")}) as sites, connections() as connected:
        fetcher = open_fetcher(sites)
        await fetcher.fetch(sites.url("/rivers", host="rivers.test"))
        assert set(connected) == {("127.0.0.1", sites.port)}
        await fetcher.close()


# ---------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("path", [path for path in HOSTILE if path not in ("/nul", "/empty", "/script")])
async def test_what_is_too_large_too_slow_or_no_page_is_refused(path):
    with websites(HOSTILE) as sites:
        fetcher = open_fetcher(sites, FetchLimits(pause_s=0, timeout_s=1.0))
        with pytest.raises(Refused):
            await fetcher.fetch(sites.url(path))
        assert len(sites.paths()) <= 6
        await fetcher.close()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/tags", "is larger than 2097152 bytes"),
        ("/gzip-bomb", "unpacks to more than 2097152 bytes"),
        ("/deflate-bomb", "unpacks to more than 2097152 bytes"),
        ("/torn", "is damaged: it ends early"),
        ("/image", "is of the type 'image/png', not a page of text"),
        ("/missing", "its server answered 404"),
        ("/loop", "redirects more than 5 times"),
        ("/drip", "did not answer within 1 s"),
    ],
)
async def test_a_refusal_says_why(path, said):
    with websites(HOSTILE) as sites:
        fetcher = open_fetcher(sites, FetchLimits(pause_s=0, timeout_s=5.0 if path != "/drip" else 1.0))
        with pytest.raises(Refused) as refused:
            await fetcher.fetch(sites.url(path))
        assert str(refused.value) == said
        await fetcher.close()


async def test_a_page_is_unpacked_and_its_last_address_is_its_own():
    pages = {
        "/packed": page(gzip.compress(b"<p>The Oss"), content_encoding="gzip", content_type="text/html; charset=utf-8"),
        "/old": redirect("new?x=1#part", 301),
        "/new?x=1": redirect("/packed", 307),
        "/cookie": page("<p>x", set_cookie="a=b"),
    }
    with websites(pages) as sites:
        fetcher = open_fetcher(sites)
        found = await fetcher.fetch(sites.url("/old", host="rivers.test"))
        assert (found.url, found.body) == (sites.url("/packed", host="rivers.test"), b"<p>The Oss")
        assert (found.media_type, found.charset) == ("text/html", "utf-8")
        assert sites.requests[0] == (f"rivers.test:{sites.port}", "/robots.txt")
        assert sites.paths() == ["/old", "/new?x=1", "/packed"]
        await fetcher.close()


async def test_requests_to_one_host_keep_their_distance_and_waiting_is_not_counted():
    with websites({f"/{number}": page("<p>x") for number in range(4)}) as sites:
        fetcher = open_fetcher(sites, FetchLimits(pause_s=0.5, timeout_s=1.5))
        began = time.monotonic()
        await asyncio.gather(*(fetcher.fetch(sites.url(f"/{number}")) for number in range(4)))
        assert time.monotonic() - began >= 4 * 0.5  # robots.txt and four pages
        await fetcher.close()


# ---------------------------------------------------------------------------------------------------------- robots


async def test_robots_txt_is_asked_once_and_kept_to_also_after_a_redirect():
    pages = {
        "/robots.txt": page("User-agent: *\nDisallow: /private", content_type="text/plain"),
        "/private/x": page("<p>secret"),
        "/open": page("<p>open"),
        "/leads": redirect("/private/x"),
    }
    with websites(pages) as sites:
        fetcher = open_fetcher(sites)
        assert (await fetcher.fetch(sites.url("/open"))).body == b"<p>open"
        for path in ("/private/x", "/leads"):
            with pytest.raises(Refused, match=r"robots\.txt"):
                await fetcher.fetch(sites.url(path))
        assert sites.paths() == ["/open", "/leads"] and len(sites.requests) == 3
        await fetcher.close()


@pytest.mark.parametrize(("status", "is_read"), [(404, True), (403, True), (500, False), (503, False)])
async def test_a_site_without_robots_txt_may_be_read_and_one_that_fails_may_not(status, is_read):
    with websites({"/robots.txt": page("", status), "/open": page("<p>open")}) as sites:
        fetcher = open_fetcher(sites)
        if is_read:
            await fetcher.fetch(sites.url("/open"))
        else:
            with pytest.raises(Refused, match=r"robots\.txt"):
                await fetcher.fetch(sites.url("/open"))
        await fetcher.close()


ROBOTS = """
# a comment
User-agent: other
Disallow: /

User-agent: Quaere
User-agent: another
Disallow: /private/   # with a remark
Allow: /private/open
Disallow: /*.pdf$
Disallow: /search*page=
Disallow:

User-agent: *
Disallow: /everything

user-agent: quaere
disallow: /late
"""


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("/", True),
        ("/private", True),
        ("/private/x", False),
        ("/private/open/x", True),
        ("/%70rivate/x", False),
        ("/a/b.pdf", False),
        ("/a.pdf/b.pdf", False),
        ("/b.pdf?x", True),
        ("/search?q=x&page=2", False),
        ("/search?q=x", True),
        ("/everything", True),
        ("/late", False),
    ],
)
def test_the_longest_rule_of_the_programs_own_groups_decides(path, is_allowed):
    assert read_robots(ROBOTS, "quaere").allows(path) is is_allowed


def test_rules_for_all_hold_where_none_is_for_the_program():
    assert not read_robots("User-agent: *\nDisallow: /x", "quaere").allows("/x/y")
    assert read_robots("User-agent: a\nDisallow: /x", "quaere").allows("/x/y")
    assert read_robots("Disallow: /x\nnonsense\n:\n", "quaere").allows("/x/y")
    assert not read_robots("User-agent: *\nDisallow: /x$", "quaere").allows("/x")
    assert read_robots("User-agent: *\nDisallow: /x$", "quaere").allows("/xy")


def test_a_long_robots_txt_is_read_in_one_pass():
    """Of thousands of names and rules, each rule for each name would be hundreds of millions."""
    names = "".join(f"User-agent: program-{number}\n" for number in range(20_000)) + "User-agent: quaere\n"
    rules = "".join(f"Disallow: /{number}{'*x' * 5}\n" for number in range(20_000))
    robots = read_robots(names + rules, "quaere")
    assert len(robots.rules) == 5000 and not robots.allows("/7" + "x" * 60_000) and robots.allows("/7" + "y" * 60_000)

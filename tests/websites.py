"""Web sites on the loopback, with a search engine that has the answers of SearXNG, and a fetcher that may read them.

    with websites({"/rivers": page("<title>The Oss</title><p>It rises at Korrin.")}) as sites:
        sites.results["who"] = [sites.url("/rivers")]
        searcher = WebSearcher(HttpFinder("searxng", sites.url("")), open_fetcher(sites))

Every name that ends with `.test` leads to the one server; no other address than its own may be connected to.
"""

import gzip
import json
import threading
import time
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from quaere.search.fetch import Fetcher, FetchLimits

QUICK = FetchLimits(pause_s=0.0, timeout_s=5.0)


def page(body, status=200, **headers):
    """What the server sends for a path; underscores in the names of headers are hyphens."""
    sent = {"content-type": "text/html"} | {name.replace("_", "-"): value for name, value in headers.items()}
    data = body.encode() if isinstance(body, str) else body

    def send(handler):
        handler.send_response(status)
        for name, value in ({"content-length": str(len(data))} | sent).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return send


def redirect(where, status=302):
    return page("", status, location=where)


# --------------------------------------------------------------------------------------------------- hostile pages


def _drip(handler):
    handler.send_response(200)
    handler.send_header("content-type", "text/html")
    handler.end_headers()
    while True:
        handler.wfile.write(b"<")
        handler.wfile.flush()
        time.sleep(0.05)


def _endless(handler):
    handler.send_response(200)
    handler.send_header("content-type", "text/html")
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    while True:
        handler.wfile.write(b"4\r\n<p>x\r\n" * 4096)


def _endless_head(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"x-filler: " + b"a" * 1000 + b"\r\n")


def _endless_news(handler):
    while True:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)


def _short(handler):
    page("<p>The Oss", content_length="4000")(handler)
    handler.close_connection = True


_BOMB = gzip.compress(b"<p>" * (10 << 20))
HOSTILE = {
    "/drip": _drip,
    "/endless": _endless,
    "/endless-head": _endless_head,
    "/endless-news": _endless_news,
    "/short": _short,
    "/gzip-bomb": page(_BOMB, content_encoding="gzip"),
    "/deflate-bomb": page(zlib.compress(bytes(30 << 20)), content_encoding="deflate"),
    "/torn": page(gzip.compress(b"<p>The Oss" * 1000)[:30], content_encoding="gzip"),
    "/not-packed": page("<p>The Oss", content_encoding="gzip"),
    "/packed-otherwise": page("<p>The Oss", content_encoding="br"),
    "/packed-twice": page(gzip.compress(_BOMB[:1000]), content_encoding="gzip, gzip"),
    "/tags": page(b"<p>" * ((10 << 20) // 3)),
    "/image": page(b"\x89PNG", content_type="image/png"),
    "/program": page("MZ", content_type="application/octet-stream"),
    "/no-type": page("<p>The Oss", content_type=""),
    "/missing": page("gone", 404),
    "/broken": page("oh", 500),
    "/partial": page("<p>The", 206),
    "/choices": page("<p>The", 300, location="/rivers"),
    "/not-modified": page("", 304),
    "/loop": redirect("/loop"),
    "/to-nowhere": redirect("http://"),
    "/nul": page(b"<p>The Oss\x00"),
    "/empty": page(""),
    "/script": page("<script>" + "x" * 1000),
    "/garbage": lambda handler: handler.wfile.write(b"\x00\xff" * 100),
    "/nothing": lambda handler: setattr(handler, "close_connection", True),
}


# -------------------------------------------------------------------------------------------------------- the server


class Sites:
    """The server's pages and results, which a test may change, and the (Host, path) of every request."""

    def __init__(self, pages, port):
        self.pages, self.port = pages, port
        self.results = {}
        self.requests = []
        self.asked = []  # method, path, headers and body of the searches

    def url(self, path, host="127.0.0.1", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"

    def paths(self):
        return [path for _, path in self.requests if path != "/robots.txt"]


class _Handler(BaseHTTPRequestHandler):
    sites: Sites
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        parts = urlsplit(self.path)
        if parts.path.endswith("/search"):
            self.search(parse_qs(parts.query)["q"][0])
            return
        self.sites.requests.append((self.headers["host"], self.path))
        send = self.sites.pages.get(self.path) or page("nothing here", 404)
        try:
            send(self)
        except OSError:  # the fetcher has read enough
            self.close_connection = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.search(body.get("q") or body["query"], body)

    def search(self, query, body=None):
        self.sites.asked.append((self.command, self.path, dict(self.headers), body))
        found = self.sites.results.get(query, [])
        if callable(found):
            found(self)
            return
        titles = ({"url": url, "title": f"Title of {url}", "content": f"An excerpt of {url}."} for url in found)
        page(json.dumps({"query": query, "results": [*titles]}), content_type="application/json")(self)

    def log_message(self, *words):
        pass


@contextmanager
def websites(pages, tls=None):
    """The server; with `tls`, an `SSLContext`, it speaks HTTPS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {}))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    sites = server.RequestHandlerClass.sites = Sites(pages, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield sites
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def resolve_test(host, port):
    """Names of tests are at the loopback; an address is itself."""
    return ["127.0.0.1"] if host.endswith(".test") else [host]


def open_fetcher(sites, limits=QUICK, resolve=resolve_test):
    """A fetcher that reaches the one server and nothing else."""
    return Fetcher(limits, admits=lambda address, port: address.is_loopback and port == sites.port, resolve=resolve)

"""Pages of the viewer as files that open without a server.

export_pages(open_folder("runs/notes"), Path("notes-pages"), max_pages=2000).num_pages -> 412

    notes-pages/
        index.html                       the page of the run, or the list of runs
        pages/run--notes--step--12.html  one file for each page, and one for its JSON twin
        static/                          style sheet and script
        quaere-pages.json                what this folder is: `--force` replaces no other

The pages are those of the server (`app.py`): they are asked for one after another, beginning with the first, and every
link to a page of `EXPORTED` is followed and made relative; other links become plain text. What needs a server
(filters, verdicts, following a run) is hidden by the style sheet, and what a page would ask for later (the further
tokens of a long episode) is in it as `<script type="application/json">`.

Attributes are found by a pattern. That is sound because templates escape every value: a double quote inside the text of
a page is always `&#34;`.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from html import escape, unescape
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import httpx
import msgspec
from msgspec import Struct
from starlette.types import ASGIApp

from quaere import __version__
from quaere.disk import new_folder
from quaere.errors import BadInput
from quaere.viewer.app import STATIC, make_app, read_static
from quaere.viewer.curriculum_browser import TITLES
from quaere.viewer.page_formats import path_to
from quaere.viewer.run_folder import RunFolder

NOTES = "quaere-pages.json"
# As the server's, without what only a server can do. `frame-ancestors` is a header's alone. Browsers differ in what
# 'self' is for a file, so the scheme is named too.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; "
    "base-uri 'none'; form-action 'none'"
)
_ATTRIBUTE = re.compile(r' (?P<name>href|src|action|data-step-link|data-changes|data-verdicts)="(?P<value>[^"]*)"')
_MORE = re.compile(r'<a data-more href="(?P<address>[^"]*)"')
_ROWS = re.compile(r"<div data-rows>\n(?P<rows>.*?)</div>", re.DOTALL)
_PLAIN_PART = re.compile(r"[a-z0-9._]+(-[a-z0-9._]+)*")
_STEP = "{step}"  # placeholder of the step's number in `data-step-link`


class ExportedPage(Struct, frozen=True):
    """A kind of page that is exported; `*` is any one part of its path.

    Each value of the URL settings `names` is exported as a page of its own. Of the settings `one_of`, at most one may
    be set, since there are too many combinations. Links with any other setting lead to the page without that setting.

    ExportedPage("/run/*/questions", names=("step", "page"))
    """

    path: str
    names: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    def canonical(self, path: str, pairs: list[tuple[str, str]]) -> str | None:
        """The one URL under which a page is exported, for any URL that shows it; None for a URL of another page."""
        given = {name: value for name, value in pairs if value and (name, value) != ("page", "1")}
        pattern = self.path.replace("*", "[^/]*")  # no path has another character with a meaning
        if not re.fullmatch(pattern, path) or sum(name in given for name in self.one_of) > 1:
            return None
        kept = [(name, given[name]) for name in (*self.names, *self.one_of) if name in given]
        return path + (f"?{urlencode(kept)}" if kept else "")


EXPORTED = (
    ExportedPage("/", ("page",)),
    ExportedPage("/run/*"),
    ExportedPage("/run/*/step/*"),
    ExportedPage("/run/*/questions", ("step", "page")),
    ExportedPage("/run/*/map", ("of", "page")),
    ExportedPage("/run/*/curriculum", ("page",), one_of=tuple(TITLES)),
    ExportedPage("/run/*/unproven"),
    ExportedPage("/run/*/group", ("task", "step")),
    ExportedPage("/run/*/item", ("id",)),
    ExportedPage("/run/*/episode", ("id",)),
    ExportedPage("/run/*/reports", ("page",)),
    ExportedPage("/run/*/report", ("id",)),
    ExportedPage("/evaluations", ("page",)),
    ExportedPage("/evaluation", ("of", "page"), one_of=("right",)),
)
"""The pages that are exported; add new pages here. Document pages are left out: they hold more than a run shows."""


class PageExport(Struct, frozen=True):
    """The result of an export. `num_left_out` counts linked pages that were not written because of `max_pages`.

    PageExport(first=Path("notes-pages/index.html"), num_pages=412, num_left_out=0)
    """

    first: Path
    num_pages: int
    num_left_out: int


def export_pages(
    folder: RunFolder,
    out: Path,
    *,
    max_pages: int,
    force: bool = False,
    results: Sequence[Path] = (),
    on_page: Callable[[int, int], None] = lambda num_done, num_known: None,
) -> PageExport:
    """Write the pages of a run, or of a folder of runs, to a new folder with one atomic rename.

    Pages are written in breadth-first order of links, up to `max_pages`. `force` replaces an earlier export, but no
    other folder. `results` are files of `quaere eval` to show with the runs. `on_page` gets the numbers of pages
    written and known.
    """
    _refuse_taken(out, force)
    first = path_to("run", folder.only) if folder.only else "/"
    with new_folder(out) as partial:
        writer = _PageWriter(make_app(folder, files=results), partial, first, max_pages)
        asyncio.run(writer.write_all(on_page))
        (partial / "static").mkdir()
        for name in STATIC:
            (partial / "static" / name).write_bytes(read_static(name))
        notes = {"quaere": __version__, "shows": folder.only or str(folder.root.name)}
        (partial / NOTES).write_bytes(msgspec.json.encode(notes))
    return PageExport(out / "index.html", len(writer.files), len(writer.left_out))


def name_file(address: str) -> str:
    """The file of a page, without its ending: the parts of its address, each plain or shortened with a hash.

    name_file("/run/notes/episode?id=i0-s3") == "run--notes--episode--id=i0-s3"
    """
    url = urlsplit(address)
    parts = [_name_part(unquote(part)) for part in url.path.split("/") if part] or ["runs"]
    return "--".join(parts + [f"{name}={_name_part(value)}" for name, value in parse_qsl(url.query)])


class _PageWriter:
    """Writes pages as files, following their links; `files` maps the URL of each admitted page to its file."""

    def __init__(self, app: ASGIApp, out: Path, first: str, max_pages: int) -> None:
        self._app, self._out, self._first, self._max_pages = app, out, first, max_pages
        self.files: dict[str, str] = {}  # by address
        self._order: list[str] = []  # the addresses as they were met
        self.left_out: set[str] = set()

    async def write_all(self, on_page: Callable[[int, int], None]) -> None:
        (self._out / "pages").mkdir()
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            self._admit(self._first)
            for num_done, address in enumerate(self._order, start=1):  # it grows while it is read
                await self._write(client, address)
                on_page(num_done, len(self._order))

    async def _write(self, client: httpx.AsyncClient, address: str) -> None:
        page, twin = (await client.get(address)).text, await client.get(f"/json{address}")
        rest = await self._read_rest(client, page, address)
        if "data-step-link" in page:
            page = self._admit_steps(page, address, twin.json())
        made = _ATTRIBUTE.sub(lambda found: self._relink(found, address), _MORE.sub("<a data-more", page))
        head = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        made = made.replace('<meta charset="utf-8">', head, 1).replace("<body", "<body data-exported", 1)
        if rest:
            data = msgspec.json.encode(rest).decode().replace("<", "\\u003c")
            made = made.replace("</main>", f'<script type="application/json" data-rest>{data}</script>\n</main>', 1)
        (self._out / self.files[address]).write_text(made, encoding="utf-8")
        (self._out / "pages" / f"{name_file(address)}.json").write_bytes(twin.content)

    async def _read_rest(self, client: httpx.AsyncClient, page: str, address: str) -> list[str]:
        """The HTML of the token rows that the server would send on scrolling, one string per request."""
        rest = []
        while found := _MORE.search(page):
            page = (await client.get(_absolute(unescape(found["address"]), address))).text
            rest += [rows["rows"] for rows in [_ROWS.search(page)] if rows]
        return rest

    def _admit_steps(self, page: str, address: str, twin: dict[str, int]) -> str:
        """Admit the pages of all steps of a run; returns its page, without the step link if a step has no page."""
        files = [self._admit(f"{address}/step/{step}") for step in range(twin["first_step"], twin["last_step"] + 1)]
        return page if all(files) else re.sub(r' data-step-link="[^"]*"', "", page)

    def _relink(self, found: re.Match[str], address: str) -> str:
        """The HTML attribute with its URL made relative to the exported files; "" if the target is not exported."""
        name, value = found["name"], unescape(found["value"])
        if value.startswith("#"):
            return found[0]
        up, beside = ("", "pages/") if address == self._first else ("../", "")
        url, target = urlsplit(_absolute(value, address)), ""
        if url.path.startswith("/static/"):
            target = f"{up}static/{url.path.rpartition('/')[2]}"
        elif url.path.startswith("/json/"):
            target = f"{beside}{quote(name_file(address))}.json"
        elif name == "data-step-link":
            target = f"{beside}{quote(name_file(url.path).removesuffix(_name_part(_STEP)))}{_STEP}.html"
        elif name == "href" and (known := self._find(url.path, url.query)) and (file := self._admit(known)):
            target = f"{up}{quote(file)}" if file == "index.html" or not up else quote(file.removeprefix("pages/"))
            target += f"#{url.fragment}" if url.fragment else ""
        return f' {name}="{escape(target)}"' if target else ""

    def _find(self, path: str, query: str) -> str | None:
        return next(filter(None, (kind.canonical(path, parse_qsl(query)) for kind in EXPORTED)), None)

    def _admit(self, address: str) -> str:
        """The file of a page, queued for writing at the first call; "" if `max_pages` is reached."""
        if address not in self.files:
            if len(self.files) >= self._max_pages:
                self.left_out.add(address)
                return ""
            self.files[address] = f"pages/{name_file(address)}.html" if self.files else "index.html"
            self._order.append(address)
        return self.files[address]


# ------------------------------------------------------------------------------------------------------------- details


def _absolute(link: str, address: str) -> str:
    """Resolve a link found on the page at `address`: one that begins with "?" is the same path with another query."""
    return urlsplit(address).path + link if link.startswith("?") else link


def _name_part(text: str) -> str:
    """The text as part of a file name: valid on every file system, and made unique by a hash where it is shortened."""
    if len(text) <= 60 and _PLAIN_PART.fullmatch(text) and text.strip("."):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", text[:40].lower()).strip("-")
    return f"{plain}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _refuse_taken(out: Path, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise BadInput(f"{out} exists already", hint="choose another folder, or replace it with --force")
    if not (out / NOTES).is_file():
        raise BadInput(f"{out} is not an export of pages: --force does not replace it", hint="choose another folder")

"""Formats whose text is HTML: web pages (.html), books (.epub) and mail (.eml).

    read_page("<title>The Oss</title><p>It rises<p>at Korrin.").blocks == [Block("It rises"), Block("at Korrin.")]

Every page is read in linear time, without menus, banners and footers. The standard library's parser is quadratic: for
each tag without an end it searches to the end of the page (32 KiB of "<a " take it 17 s), and it raises on some
declarations.
"""

import posixpath
import re
import zipfile
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage
from html import unescape
from urllib.parse import unquote

from msgspec import Struct, structs

from quaere.search.extracted import Block, FileText, TextBuilder, Unreadable, choose_title, name_some
from quaere.search.formats.office import open_archive
from quaere.search.formats.text import decode, find_encoding
from quaere.search.page_blocks import PageBlocks

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)


def read_html(data: bytes, limit: int) -> FileText:
    """Read a web page: its title, and its blocks without menus, banners and footers."""
    declared = _CHARSET.search(data[:4096])
    markup, encoding = decode(data, declared.group(1).decode("ascii", "ignore") if declared else None)
    page, text = read_page(markup), TextBuilder(limit)
    text.add_blocks(page.blocks)
    return text.build(choose_title(page.title, page.heading), encoding)


# ---------------------------------------------------------------------------------------------------------------- pages


_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}  # no tags inside
_NAME = re.compile(r"<(/?)\s*+([a-zA-Z][^\s/>]*+)")
# A ">" inside a quoted value does not end the tag. Quantifiers are possessive, so that a tag is scanned once.
_TAG_END = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_COMMENT_END = re.compile("--!?>")
# Marks where a word may be broken; between words of Thai, Lao, Burmese and Khmer one is a kind of space.
_INVISIBLE = re.compile("[\u00ad\u2060\ufeff]|(?<![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])\u200b")
_ENDLESS_REFERENCE = re.compile("&#[0-9]{16,}+;?")  # not a character, and int() refuses thousands of digits


class Page(Struct, frozen=True):
    """The title of a page, and its blocks without menus, banners and footers.

    Page(title="The Oss", blocks=[Block("Course", headings=((2, "Course"),)), Block("It rises at Korrin.")])
    """

    title: str
    blocks: list[Block]

    @property
    def heading(self) -> str:
        """The first heading of the first three levels; "" if there is none."""
        return next((text for block in self.blocks for level, text in block.headings if level <= 3), "")

    @property
    def text(self) -> str:
        """The text of all blocks, separated by blank lines or, before tight blocks, by line breaks."""
        return "".join(("\n" if block.tight else "\n\n") + block.text for block in self.blocks).strip()


def read_page(markup: str) -> Page:
    """Title and blocks of a page without menus, banners and footers; with them if nothing else but headings is left."""
    for whole in (False, True):
        page = PageBlocks(whole=whole)
        _Scanner(markup, page).scan()
        if blocks := page.finish():
            break
    return Page(" ".join("".join(page.title).split()), blocks)


class _Scanner:
    """Scanner of tags and text. `_tag` and `_declaration` take the index of a `<` and return where to go on."""

    def __init__(self, markup: str, page: PageBlocks) -> None:
        self._markup, self._page = markup, page
        self._last_end = markup.rfind(">")  # a "<" after it opens no tag and is text
        self._quotes_close = True

    def scan(self) -> None:
        at = told = 0  # the text between `told` and `at` was not passed to the page yet
        while 0 <= (at := self._markup.find("<", at)) < self._last_end:
            behind = self._markup[at + 1 : at + 2]
            if not (behind in "!?/" or (behind.isascii() and behind.isalpha())):
                at += 1
                continue
            self._tell(told, at)
            at = told = self._tag(at) if behind not in "!?" else self._declaration(at)
        self._tell(told, len(self._markup))

    def _tell(self, start: int, end: int) -> None:
        if start < end:
            text = unescape(_ENDLESS_REFERENCE.sub("\ufffd", self._markup[start:end]))
            self._page.data(text if text.isascii() else _INVISIBLE.sub("", text))

    def _declaration(self, at: int) -> int:
        """End of a declaration or comment. A comment without an end hides the rest of the page, as in browsers."""
        if not self._markup.startswith("<!--", at):
            return self._markup.index(">", at) + 1
        end = _COMMENT_END.search(self._markup, at + 2)
        return end.end() if end else len(self._markup)

    def _tag(self, at: int) -> int:
        name = _NAME.match(self._markup, at)
        if name is None:  # browsers read "</3>" as a comment
            return self._markup.index(">", at) + 1
        end, tag = self._tag_end(name), name.group(2).lower()
        if name.group(1):
            self._page.end_tag(tag)
            return end
        self._page.start_tag(tag, self._markup[name.end() : end - 1])
        if self._markup[end - 2] == "/":
            self._page.end_tag(tag)
        elif tag in _RAW:
            closing = _RAW[tag].search(self._markup, end)
            return closing.start() if closing else len(self._markup)
        return end

    def _tag_end(self, name: re.Match[str]) -> int:
        if self._quotes_close and not name.group(1):
            if end := _TAG_END.match(self._markup, name.end()):
                return end.end()
            # The page ends inside a quoted value: a quote is missing somewhere, so from here on quotes are ignored.
            self._quotes_close = False
        return self._markup.index(">", name.end()) + 1


# ---------------------------------------------------------------------------------------------------------------- books


_MAX_HEADING = 80
_PACKAGE = "{http://www.idpf.org/2007/opf}"
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_epub(data: bytes, limit: int) -> FileText:
    """Read an EPUB book: its chapters in reading order; chapters that cannot be read are listed in `problems`."""
    text, problems = TextBuilder(limit), []
    with open_archive(data, limit) as archive:
        title, chapters = _read_package(archive)
        for number, name in enumerate(chapters, start=1):
            try:
                markup, _ = decode(archive.read(name))
            except (KeyError, zipfile.BadZipFile, Unreadable):
                problems.append(f"chapter {number} ({name}) cannot be read")
                continue
            page = read_page(markup)
            # Links are dropped: they lead to chapters of the same book, which is one document.
            blocks = [structs.replace(block, links=()) for block in page.blocks]
            text.add_blocks(blocks, group=f"chapter {choose_title(page.heading)[:_MAX_HEADING] or number}")
    return text.build(choose_title(title), problems=problems)


def _read_package(archive: zipfile.ZipFile) -> tuple[str, list[str]]:
    """The book's title, and the names of its chapters within the archive."""
    from defusedxml.ElementTree import fromstring

    try:
        container = fromstring(archive.read("META-INF/container.xml"))
        root = next(container.iter(f"{_CONTAINER}rootfile")).attrib["full-path"]
        package = fromstring(archive.read(root))
    except (KeyError, StopIteration, SyntaxError, ValueError) as error:  # a parse error is a SyntaxError
        raise Unreadable("not a readable EPUB file (it has no package document that can be read)") from error
    files = {item.get("id"): item.get("href") or "" for item in package.iter(f"{_PACKAGE}item")}
    spine = [files.get(item.get("idref")) for item in package.iter(f"{_PACKAGE}itemref")]
    title = next((element.text or "" for element in package.iter(_TITLE)), "")
    names = [posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(name))) for name in spine if name]
    return title, list(dict.fromkeys(names))  # once each: a short spine could name a long chapter without end


# ----------------------------------------------------------------------------------------------------------------- mail


_SHOWN = ("From", "To", "Cc", "Date", "Subject")
# The standard library parses addresses recursively, with a call or more per character, and parameters in quadratic
# time.
_MAX_HEADER = 2000
# The standard library compares every line with the boundaries of all open parts.
_NESTING = re.compile(rb"content-type:\s*+(?:multipart|message)/", re.IGNORECASE)
_MAX_NESTED = 100


def read_eml(data: bytes, limit: int) -> FileText:
    """Read a mail: its visible headers and its body; attachments are not read but listed in `problems`."""
    if len(_NESTING.findall(data)) > _MAX_NESTED:
        raise Unreadable(f"holds more than {_MAX_NESTED} messages and parts inside one another")
    message = message_from_bytes(data, policy=_POLICY)
    assert isinstance(message, EmailMessage)
    if not (headers := _show_headers(message)):
        raise Unreadable("has none of the headers of a message")
    attachments: list[str] = []
    text = TextBuilder(limit)
    text.add_blocks([Block(headers), *map(Block, _read_parts(message, attachments))])
    problems = [f"attachments are not read: {name_some(attachments)}"] if attachments else []
    return text.build(choose_title(_read_header(message, "Subject")), problems=problems)


_registry = HeaderRegistry()
_POLICY = policy.default.clone(header_factory=lambda name, value: _registry(name, value[:_MAX_HEADER]))


def _show_headers(message: EmailMessage) -> str:
    return "\n".join(f"{name}: {_read_header(message, name)}" for name in _SHOWN if name in message)


def _read_header(message: EmailMessage, name: str) -> str:
    return " ".join(str(message[name] or "").split())  # the first of this name


def _read_parts(part: EmailMessage, attachments: list[str]) -> Iterator[str]:
    """The paragraphs of a message or a part of one, those of forwarded messages below their headers."""
    kind = part.get_content_type()
    if part.is_multipart():
        inner = [child for child in part.get_payload() if isinstance(child, EmailMessage)]
        if kind == "multipart/alternative":
            inner.sort(key=lambda child: child.get_content_type() != "text/plain")
            yield from next(filter(None, [[*_read_parts(child, attachments)] for child in inner]), [])
            return
        for child in inner:
            if kind == "message/rfc822" and (headers := _show_headers(child)):
                yield headers
            yield from _read_parts(child, attachments)
    elif kind in ("text/plain", "text/html") and not part.is_attachment():
        yield from (said for said in _read_body(part).replace("\r\n", "\n").split("\n\n") if said.strip())
    else:
        attachments.append(part.get_filename() or kind)


def _read_body(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        # The declared encoding is tried first: the encodings of Japanese mail look like ASCII.
        text = data.decode(find_encoding(part.get_content_charset()))
    except (UnicodeError, LookupError):
        text, _ = decode(data)
    return read_page(text).text if part.get_content_subtype() == "html" else text

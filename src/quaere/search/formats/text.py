"""Formats that are text: plain, Markdown, reStructuredText, AsciiDoc, separated values (.csv, .tsv) and notebooks.

Apart from notebooks, their text is the source itself without a byte-order mark, so that offsets point into the file;
only headings and hyperlinks are looked for. The header row of a Markdown table becomes a heading below all section
levels, so that every passage of the table has the names of its columns. Scanning takes linear time for any text: no
pattern can match without a bound.
"""

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from io import StringIO
from itertools import accumulate, islice
from typing import Any

import msgspec
from msgspec import structs

from quaere.records.foreign_json import decode_json
from quaere.search.extracted import SECTION_LEVELS, FileText, Heading, Part, TextBuilder, Unreadable, choose_title
from quaere.search.hyperlinks import MAX_ANCHOR_CHARS, MAX_LINKS, Hyperlink, clean_target

# Longest first: the mark of UTF-16 opens the mark of UTF-32.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Codecs that no file is written in: those of host names, which take quadratic time, and of Python literals.
_NOT_OF_FILES = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """The text and its encoding: a byte-order mark decides, then UTF-8, then what was declared, then Windows-1252.

    A text with one of the five bytes that Windows-1252 does not define is decoded as Latin-1, which defines all bytes.

        >>> decode(b"caf\xe9")
        ('café', 'windows-1252')
    """
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    candidates = (marked,) if marked else ("utf-8", find_encoding(declared), "windows-1252", "latin-1")
    for encoding in candidates:
        try:
            text = data.decode(encoding)
        except (UnicodeError, LookupError):
            continue
        if "\0" in text:
            raise Unreadable("contains NUL bytes: not a text file")
        return text, encoding
    raise Unreadable(f"opens with the mark of {marked} but is not {marked}")


def find_encoding(declared: str | None) -> str:
    """The declared encoding if Python knows it and files use it; else UTF-8: `find_encoding("punycode") == "utf-8"`."""
    try:
        is_of_files = declared is not None and codecs.lookup(declared).name not in _NOT_OF_FILES
    except (LookupError, ValueError):  # ValueError: a name with characters that no name has
        is_of_files = False
    return declared if declared and is_of_files else "utf-8"


def read_text(data: bytes, limit: int) -> FileText:
    """Read plain text: no title, and underlined lines as headings."""
    text, encoding = decode(data)
    return FileText("", text, encoding, headings=tuple(_find_underlined_headings(text, slack=2)))


def _read_outlined(
    find_headings: Callable[[str], list[Heading]], find_links: Callable[[str], list[Hyperlink]], data: bytes, limit: int
) -> FileText:
    text, encoding = decode(data)
    headings = find_headings(text)
    title = choose_title(_first_section(headings))
    return FileText(title, text, encoding, headings=tuple(headings), links=tuple(find_links(text)))


def read_markdown(data: bytes, limit: int) -> FileText:
    """Read Markdown: its title is its first heading, or that of its front matter if the first is none of level 1."""
    found = _read_outlined(_find_markdown_headings, _find_markdown_links, data, limit)
    first = next((heading for heading in found.headings if heading.level <= SECTION_LEVELS), None)
    front = _FRONT_MATTER.match(found.text)
    named = _FRONT_TITLE.search(front.group()) if front and (first is None or first.level > 1) else None
    title = choose_title(_unquote(named.group(1).strip())) if named else ""
    return structs.replace(found, title=title) if title else found


def _unquote(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _first_section(headings: list[Heading]) -> str:
    return next((heading.text for heading in headings if heading.level <= SECTION_LEVELS), "")


# ---------------------------------------------------------------------------------------------------------------- csv

_MAX_COLUMNS_SHOWN = 12
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"sep=([^\w\s\"]|\t)\r?\n", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*+"')


def read_csv(data: bytes, limit: int) -> FileText:
    """Read a table of separated values. Each row is a part, numbered as in a spreadsheet: the header is row 1.

    The first row with several values names the columns. Excel's line "sep=;" names the delimiter and is no row.
    """
    text, encoding = decode(data)
    named = _SEPARATOR.match(text)
    delimiter = named.group(1) if named else _find_delimiter(text[:4096])
    starts = [0, *accumulate(map(len, StringIO(text, newline="")))]
    rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
    parts: list[Part] = []
    columns: list[str] = []
    first_line = 0
    try:
        for number, row in enumerate(rows, start=0 if named else 1):
            if any(row) and number:
                columns = columns or (row if sum(map(bool, row)) > 1 else [])
                parts.append(Part(starts[first_line], unit="row", number=number))
            first_line = rows.line_num
    except csv.Error:  # a quote that is never closed: the rows are unknown, the lines are not
        return FileText("", text, encoding)
    names = tuple(" ".join(column.split())[:40] for column in columns[:_MAX_COLUMNS_SHOWN])
    return FileText("", text, encoding, tuple(parts), columns=names if len(names) > 1 else ())


def _find_delimiter(text: str) -> str:
    """The most frequent delimiter, outside of quotes, of the first line that has one; a comma if none has."""
    for line in _QUOTED.sub("", text).split("\n"):
        delimiter = max(_DELIMITERS, key=line.count)
        if delimiter in line:
            return delimiter
    return _DELIMITERS[0]


# ------------------------------------------------------------------------------------------------------------ notebooks


_Lines = str | list[str]


class _Output(msgspec.Struct):
    text: _Lines = ""
    data: dict[str, Any] = {}


class _Cell(msgspec.Struct):
    cell_type: str
    source: _Lines = ""
    outputs: list[_Output] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell]
    metadata: dict[str, Any] = {}


def read_ipynb(data: bytes, limit: int) -> FileText:
    """Read a Jupyter notebook: its cells, numbered from 1, without pictures; its title is its first heading."""
    try:
        notebook = decode_json(data.removeprefix(b"\xef\xbb\xbf"), _Notebook)
    except msgspec.DecodeError as error:
        raise Unreadable(f"not a notebook of format 4 ({error})") from error
    text, heading = TextBuilder(limit), ""
    for number, cell in enumerate(notebook.cells, start=1):
        source = _join(cell.source).strip()
        is_markup = cell.cell_type == "markdown"
        headings, links = (_find_markdown_headings(source), _find_markdown_links(source)) if is_markup else ([], [])
        heading = heading or _first_section(headings)
        for each in headings:
            text.begin(each.level, each.text, each.start)
        shown = [_join(output.text) or _join(output.data.get("text/plain", "")) for output in cell.outputs]
        written = "\n\n".join(part.strip() for part in (source, *shown) if part.strip())
        text.add(written, unit="cell", number=number, links=links)
    return text.build(choose_title(str(notebook.metadata.get("title") or ""), heading))


def _join(lines: object) -> str:
    """The text of a notebook field, which is a string or a list of lines; "" for anything else."""
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""


# ------------------------------------------------------------------------------------------------------------ headings


_HASHES = re.compile(r" {0,3}(#{1,6})[ \t]++(.*+)")
_EQUALS = re.compile(r"(={1,6})[ \t]++(.*+)")
_FENCE = re.compile(r"[ \t]*+(`{3,}|~{3,}|:{3,})")
_ADOC_FENCE = re.compile(
    r"(`{3,}(?=[\w-]*+[ \t]*+$)|-{4,}|\.{4,}|\+{4,}|/{4,}|_{4,}|={4,}|\*{4,})(?:(?<=`)[\w-]++)?[ \t]*+$"
)
_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1++[ \t]*+$")
_TABLE_RULE = re.compile(r"[ \t]*+\|?+[ \t]*+:?+-++:?+[ \t]*+(?:\|[ \t:-]*+)*+$")
# A label that names the section below it, in MyST or AsciiDoc.
_LABEL = re.compile(r"\([\w.:-]++\)=[ \t]*+$|\[[\[#][^\]]*+\]\]?+[ \t]*+$")
_SETEXT = re.compile(r"(?:=++|-{2,}+)[ \t]*+$")
_COLUMNS = SECTION_LEVELS + 1
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*+\r?\n(?:.*+\n)*?(?:\1|\.\.\.)[ \t]*+(?:\r?\n|$)")
_FRONT_TITLE = re.compile(r"^title[ \t]*+[:=][ \t]*+([^\s>|].*+)", re.MULTILINE)
_HTML_HEADING = re.compile(r"<h([1-6])(?:\s[^<>]{0,200}+)?>((?:(?!</?h[1-6])[\s\S]){1,1000})</h\1", re.IGNORECASE)
# Markup inside headings. The target of a link is no word of the heading.
_TARGET = r"(?:\([^()\n]{0,500}+\)|\[[^\[\]\n]{0,200}+\])"
_IMAGES = re.compile(
    rf"!\[(?P<alt>[^\[\]\n]{{0,200}}+)\]{_TARGET}|<img\s(?:[^<>]{{0,500}}?\salt=\"(?P<name>[^<>\"]{{0,200}}+)\")?[^<>]{{0,500}}+>",
    re.IGNORECASE,
)
_LINKS = re.compile(rf"\[([^\[\]\n]{{0,200}}+)\]{_TARGET}")
_TAGS = re.compile(
    r"</?(?:a|b|br|code|div|em|i|kbd|p|picture|small|source|span|strong|sub|sup)(?:\s[^<>]{0,500}+)?/?>", re.I
)
_HEADING_ID = re.compile(r"[ \t]\{:?[ \t]?[#.][^{}]{0,200}+\}[ \t]*$")


def _find_markdown_headings(text: str) -> list[Heading]:
    """Headings with `#` or underlined with `=` or `-`, and the header rows of tables; code blocks are skipped."""
    found: list[Heading] = []
    fence, in_table = "", False
    above, before, before_start = "", "", 0  # the two lines before this one
    for start, line in _lines(_blank_front_matter(text)):
        marks = _FENCE.match(line)
        if fence:
            fence = "" if marks and marks.group(1).startswith(fence) and not line[marks.end() :].strip() else fence
            line = ""
        elif marks and marks.group(1)[0] != ":":
            fence, line = marks.group(1), ""
        elif heading := _HASHES.match(line):
            at = before_start if _LABEL.match(before) else start
            found.append(Heading(at, len(heading.group(1)), _strip_markup(_unclosed(heading.group(2)))))
            in_table, line = False, ""
        elif heading := _HTML_HEADING.match(text, start):
            found.append(Heading(start, int(heading.group(1)), _strip_markup(unescape(heading.group(2)))))
        elif "|" in line and "|" in before and _TABLE_RULE.match(line):
            found.append(Heading(start, _COLUMNS, _one_line(before.strip(" \t|"))))
            in_table = True
        elif before.strip() and not above.strip() and _SETEXT.match(line):
            found.append(Heading(before_start, 1 if line[0] == "=" else 2, _strip_markup(before)))
            line = ""
        if in_table and "|" not in line:
            found.append(Heading(start, _COLUMNS, ""))
            in_table = False
        above, before, before_start = before, line, start
    return [heading for heading in found if heading.text or heading.level == _COLUMNS]


def _find_underlined_headings(text: str, *, slack: int | None = None) -> list[Heading]:
    """Headings that are fully underlined, as in reStructuredText; the line may be up to `slack` characters longer.

    The first underline character used has level 1, the next new one level 2, and so on. A heading with an overline too
    counts as another style, and starts at the overline.
    """
    found: list[Heading] = []
    styles: dict[tuple[str, bool], int] = {}
    above, above_start, before, before_start = "", 0, "", 0
    for start, line in _lines(text):
        title = before.strip()
        rule = _UNDERLINE.match(line)
        if rule and title and not _UNDERLINE.match(before) and (longer := len(line.rstrip()) - len(title)) >= 0:
            has_overline = above.strip() == line.strip()
            if (has_overline or not above.strip()) and (slack is None or longer <= slack):
                level = styles.setdefault((line[0], has_overline), len(styles) + 1)
                at = above_start if has_overline else before_start
                found.append(Heading(at, min(level, SECTION_LEVELS), _one_line(title)))
                line = ""
        above, above_start, before, before_start = before, before_start, line, start
    return found


def _find_adoc_headings(text: str) -> list[Heading]:
    found: list[Heading] = []
    fence, before, before_start = "", "", 0
    for start, line in _lines(text):
        marks = _ADOC_FENCE.match(line)
        if marks:
            fence = "" if fence == marks.group(1) else fence or marks.group(1)
        elif not fence and (heading := _EQUALS.match(line)):
            at = before_start if _LABEL.match(before) else start
            found.append(Heading(at, len(heading.group(1)), _one_line(heading.group(2))))
        before, before_start = line, start
    return [heading for heading in found if heading.text]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line as (offset of its first character that is not white space, line without its end)."""
    start = 0
    for line in text.split("\n"):
        yield start + len(line) - len(line.lstrip()), line.removesuffix("\r")
        start += len(line) + 1


def _blank_front_matter(text: str) -> str:
    """The text with its front matter (settings between two `---` or `+++` lines at the top) replaced by spaces."""
    front = _FRONT_MATTER.match(text)
    return " " * front.end() + text[front.end() :] if front else text


def _unclosed(heading: str) -> str:
    """The heading without the `#` that close it: "Course" for `Course ##`, but "C#" for `C#`."""
    bare = heading.rstrip(" \t").rstrip("#")
    return bare if not bare or bare[-1] in " \t" else heading


def _strip_markup(heading: str) -> str:
    """The heading as it is shown: "Tool" for `Tool [![Build](a.svg)](b)`, "1.2" for `[1.2](c)` and `1.2 {#v1-2}`."""
    heading = _HEADING_ID.sub("", heading)
    without, named = (_TAGS.sub("", _IMAGES.sub(image, heading)) for image in ("", r"\g<alt>\g<name>"))
    without, named = (_one_line(_LINKS.sub(r"\1", said)) for said in (without, named))
    return without if any(map(str.isalnum, without)) else named


# ---------------------------------------------------------------------------------------------------------------- links


_ANCHOR = rf"[^\[\]]{{1,{MAX_ANCHOR_CHARS}}}+"
_ROLE = r"`(?P<role>[^`]{1,700}+)`"
_TITLE = r"""\s++(?:"[^"]*+"|'[^']*+'|\([^()]*+\))"""
_PATH = r"(?:[^\s()<>]++|\([^\s()<>]*+\))++"
# Code is matched before links, so that links inside code are ignored.
_MARKDOWN = re.compile(
    rf"\{{(?:ref|doc)\}}{_ROLE}"
    r"|`++[^`]*+`++"
    rf"|\[\[(?P<wiki>[^\[\]|\n]{{1,{MAX_ANCHOR_CHARS}}}+)(?:\|(?P<shown>[^\[\]\n]{{1,{MAX_ANCHOR_CHARS}}}+))?\]\]"
    rf"|(?<![!\\])\[(?P<text>{_ANCHOR})\](?:\(\s*+(?:<(?P<angle>[^<>\n]*+)>|(?P<path>{_PATH}))(?:{_TITLE})?\s*+\)"
    rf"|\[(?P<ref>[^\[\]]{{0,{MAX_ANCHOR_CHARS}}}+)\]|(?![:(]))"
)
_DEFINITION = re.compile(
    rf"^ {{0,3}}\[(?!\^)(?P<ref>{_ANCHOR})\]:[ \t]*+(?:<(?P<angle>[^<>\n]++)>|(?P<path>[^\s<>]++))", re.MULTILINE
)
_RST = re.compile(
    rf":(?:std:)?(?:ref|doc|any):{_ROLE}"
    r"|``(?:[^`]|`(?!`))*+``"
    rf"|`(?P<text>[^`<>]{{1,{MAX_ANCHOR_CHARS}}}+)<(?P<path>[^`<>\s]++)>`_"
)
_ADOC = re.compile(
    rf"\b(?:xref|link):(?P<path>[^\s\[\]]++)\[(?P<text>{_ANCHOR})\]"
    rf"|<<(?P<id>[^<>,\n]++),(?P<shown>[^<>]{{1,{MAX_ANCHOR_CHARS}}}+)>>"
)
_TITLED_ROLE = re.compile(r"([^<>]++)<([^<>]++)>\s*+")
_AROUND = " \t\r\n*`"  # white space and emphasis around an anchor


def _find_markdown_links(text: str) -> list[Hyperlink]:
    """Inline links, reference links, MyST's `{ref}` and `{doc}`, and wiki links `[[Page|anchor]]`; code is skipped."""
    prose = _blank_code(text)
    written = islice(_DEFINITION.finditer(prose), MAX_LINKS)
    definitions = {_one_line(found["ref"].casefold()): found["angle"] or found["path"] for found in written}

    def find() -> Iterator[Hyperlink | None]:
        for found in _MARKDOWN.finditer(prose):
            if role := found["role"]:
                yield _make(found, "role", role)
            elif wiki := found["wiki"]:
                yield _make(found, "shown" if found["shown"] else "wiki", wiki)
            elif found["text"]:
                named = _one_line((found["ref"] or found["text"]).casefold())
                yield _make(found, "text", found["angle"] or found["path"] or definitions.get(named, ""))

    return _take(find())


def _find_rst_links(text: str) -> list[Hyperlink]:
    return _take(
        _make(found, "role" if found["role"] else "text", found["role"] or found["path"] or "")
        for found in _RST.finditer(text)
    )


def _find_adoc_links(text: str) -> list[Hyperlink]:
    return _take(
        _make(found, "shown", found["id"]) if found["id"] else _make(found, "text", found["path"])
        for found in _ADOC.finditer(text)
    )


def _take(links: Iterator[Hyperlink | None]) -> list[Hyperlink]:
    return list(islice(filter(None, links), MAX_LINKS))


def _make(found: re.Match[str], group: str, target: str) -> Hyperlink | None:
    """The link whose anchor text is `group` of the match, without emphasis marks.

    None if the anchor is empty or too long, or the target is outside of the corpus.
    """
    said, target = found[group] or "", clean_target(target)
    if group == "role" and (titled := _TITLED_ROLE.fullmatch(said)):  # `anchor <target>`, else the target is the anchor
        said, target = titled[1], clean_target(titled[2])
    start = found.start(group) + len(said) - len(said.lstrip(_AROUND))
    end = start + len(said.strip(_AROUND))
    return Hyperlink(start, end, target) if target and start < end <= start + MAX_ANCHOR_CHARS else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _blank_code(text: str) -> str:
    """The text with fenced code replaced by spaces. A fence with a name in braces is a MyST directive and is kept."""
    lines, fence, is_code = [], "", False
    for line in text.split("\n"):
        marks = _FENCE.match(line)
        rest = line[marks.end() :].strip() if marks else ""
        if fence:
            lines.append(" " * len(line) if is_code else line)
            fence = "" if marks and marks.group(1).startswith(fence) and not rest else fence
        elif marks and marks.group(1)[0] != ":":
            fence, is_code = marks.group(1), not rest.startswith("{") or rest.startswith("{code")
            lines.append(" " * len(line))
        else:
            lines.append(line)
    return "\n".join(lines)


# The markup is kept in the text, so only headings and links are parsed. docutils is not used: its directives can read
# other files.
read_rst = partial(_read_outlined, _find_underlined_headings, _find_rst_links)
read_adoc = partial(_read_outlined, _find_adoc_headings, _find_adoc_links)

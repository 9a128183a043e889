"""Pages of a report: Markdown, or HTML in a single file. Citations are links to the passages they cite.

    to_markdown(report, link)
    to_html(report, link)

`link` maps a passage to the path of its document, relative to the page ("" if there is no file). An unresolved citation
is marked in the text and listed at the end.

No text of a document or a model can become markup. The HTML page is a template (`templates/report.html.j2`) that
escapes all of it, and a content security policy forbids scripts. In Markdown, passages are in fences longer than any
run of backticks in them, all punctuation in titles is escaped, and the report keeps its headings, lists and emphasis,
but no links, images, HTML or code. Addresses are built from fixed words and percent-encoded paths, so none can name a
scheme such as `javascript:`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from quaere.chat.statements import Citation, find_citations
from quaere.chat.terminal_text import UNPRINTABLE
from quaere.records import Passage, Report, Source

if TYPE_CHECKING:
    from jinja2 import Template

Link = Callable[[Passage], str]
"""Path of a passage's document, relative to the page: `lambda passage: f"docs/{passage.doc_id}"`."""

_NUM_FRAGMENT_WORDS = 6


def count_line(report: Report) -> str:
    """Counts of statements and citations on one line.

    count_line(report) -> "9 statements, 7 of them cited; 8 citations, 7 resolved (88 %), 1 unresolved"
    """
    stating = [statement for statement in report.statements if statement.states]
    num_cited = sum(bool(statement.citations) for statement in stating)
    num_citations, num_lost = len(report.citations), len(report.unresolved)
    share = f"{report.resolved_share:.0%}".replace("%", " %")
    return (
        f"{_count(len(stating), 'statement')}, {num_cited} of them cited; {_count(num_citations, 'citation')}, "
        f"{num_citations - num_lost} resolved ({share}), {num_lost} unresolved"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _clean(text: str) -> str:
    """The text with unprintable characters replaced, which could make a page look different from its text."""
    return UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def _line(text: str) -> str:
    return " ".join(_clean(text).split())


def _place(source: Source, index: str) -> str:
    """The passage's place in its document, for display; with `index`, the name of the index is added."""
    where = f" of the index {index}" if index else ""
    place = f", {_line(source.passage.place)}" if source.passage.place else ""
    return f"{where}{place}, characters {source.passage.start} to {source.passage.end}"


def _address(source: Source, link: Link) -> str:
    """URL of the passage's document with a text fragment, which browsers scroll to; "" if there is no file."""
    path = link(source.passage)
    return f"./{quote(path.lstrip('/'), safe='/')}{_fragment(source.passage.text)}" if path else ""


def _fragment(text: str) -> str:
    """A URL text fragment: the whole passage if short, else its first and last words, which do not overlap.

    _fragment("The Oss rises.") -> "#:~:text=The%20Oss%20rises."
    """
    lines = [words for line in text.splitlines() if (words := line.lstrip("#*->+ \t").split())]
    if not lines:
        return ""
    is_short = len(lines) == 1 and len(lines[0]) <= 2 * _NUM_FRAGMENT_WORDS
    ends = lines if is_short else [lines[0][:_NUM_FRAGMENT_WORDS], lines[-1][-_NUM_FRAGMENT_WORDS:]]
    # A dash is syntax in a text fragment (it marks a prefix or suffix), so it is percent-encoded.
    return "#:~:text=" + ",".join(quote(" ".join(words), safe="").replace("-", "%2D") for words in ends)


def _unresolved(report: Report) -> list[tuple[list[str], str]]:
    """Statements with unresolved citations: the distinct citations as written, and the statement's text."""
    known = {source.number for source in report.sources}
    found = []
    for statement in report.statements:
        cites = (cite for cite in find_citations(statement.text) if not known.issuperset(cite.numbers))
        # Each statement is listed once, not once per citation: else a page grows with the square of its report.
        if lost := list(dict.fromkeys(_cut(statement.text[cite.start : cite.end]) for cite in cites)):
            found.append((lost, statement.text))
    return found


class _Number(NamedTuple):
    number: int
    said: str
    is_known: bool


def _numbers(text: str, cite: Citation, known: set[int]) -> list[_Number]:
    digits = re.findall("[0-9]+", text[cite.start : cite.end])
    return [_Number(number, _cut(said, 12), number in known) for number, said in zip(cite.numbers, digits, strict=True)]


# ---------------------------------------------------------------------------------------------------------- Markdown

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LEAD = re.compile(r"[ \t]*+(#{1,6}[ \t]++|[-*+][ \t]++|[0-9]{1,3}[.)][ \t]++|>[ \t]*+)?")
_SPECIAL = re.compile(r"([\\`\[\]~])")


def to_markdown(report: Report, link: Link, *, index: str = "") -> str:
    """The report as Markdown: text, sources with their passages, unresolved citations.

    to_markdown(report, lambda passage: f"docs/{passage.doc_id}")
    -> "# What is known of the Oss?\\n\\nThe Oss rises at Korrin [[2]](#source-2). ..."
    """
    known = {source.number for source in report.sources}
    text = "\n".join(_markdown_line(line, known) for line in _clean(report.text).split("\n"))
    parts = [f"# {_escape(report.question.text)}", text, f"*{count_line(report)}*", "## Sources"]
    parts += [_markdown_source(source, link, index) for source in report.sources]
    if not report.sources:
        parts.append("No source is cited.")
    if lost := _unresolved(report):
        parts += ["## Unresolved citations", "The writer was shown no passage of these numbers."]
        named = ((", ".join(f"**{_escape(cite)}**" for cite in cites), said) for cites, said in lost)
        parts.append("\n".join(f"- {cites} in: {_escape(said)}" for cites, said in named))
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """The text on one line, with all Markdown punctuation escaped."""
    return _PUNCTUATION.sub(r"\\\1", _line(text))


def _cut(text: str, num_chars: int = 60) -> str:
    return text if len(text) <= num_chars else text[:num_chars] + "…"


def _markdown_line(line: str, known: set[int]) -> str:
    lead = _LEAD.match(line)
    at = lead.end() if lead else 0
    # At most two spaces are kept: nested lists stay lists, and no line becomes a code block, which takes four.
    pieces = [f"{'  ' * line.startswith(('  ', chr(9)))}{lead.group(1)}" if lead and lead.group(1) else ""]
    for cite in find_citations(line):
        words = _markdown_words(line[at : cite.start])
        if words.endswith("!"):  # or a link becomes an image
            words = f"{words[:-1]}\\!"
        pieces += [words, *(_markdown_number(*number) for number in _numbers(line, cite, known))]
        at = cite.end
    return "".join([*pieces, _markdown_words(line[at:])])


def _markdown_words(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")


def _markdown_number(number: int, said: str, is_known: bool) -> str:
    return f"[\\[{said}\\]](#source-{number})" if is_known else f"**\\[{said}: no such source\\]**"


def _markdown_source(source: Source, link: Link, index: str) -> str:
    passage, address = source.passage, _address(source, link)
    name = f"[{_escape(passage.doc_id)}]({address})" if address else f"document {_escape(passage.doc_id)}"
    text = _clean(passage.text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    title = f" **{_escape(passage.title)}**," if passage.title.strip() else ""
    place = _PUNCTUATION.sub(r"\\\1", _place(source, "" if address else _line(index)))
    head = f'<a id="source-{source.number}"></a>**\\[{source.number}\\]**{title} {name}{place}'
    return f"{head}\n\n{fence}text\n{text}\n{fence}"


# -------------------------------------------------------------------------------------------------------------- HTML

_HEADING = re.compile(r"[ \t]*+(#{1,6})[ \t]++(.*)")
_ITEM = re.compile(r"[ \t]*+(?:[-*+•][ \t]++|[0-9]{1,3}[.)][ \t]++)(.*)")
_BOLD = re.compile(r"\*\*([^*\n]++)\*\*")


class _Run(NamedTuple):
    """A run of plain or bold text of the HTML page, or the numbers of a citation."""

    is_bold: bool
    parts: list[str | list[_Number]]


class _Block(NamedTuple):
    kind: Literal["heading", "list", "paragraph"]
    lines: list[list[_Run]]
    level: int = 0


def to_html(report: Report, link: Link, *, index: str = "") -> str:
    """The report as a self-contained HTML page: citations link to the passages on it, passages to their documents."""
    return _page_template().render(
        title=_line(report.question.text),
        blocks=_blocks(report),
        counts=count_line(report),
        sources=[_html_source(source, link, index) for source in report.sources],
        unresolved=_unresolved(report),
    )


@cache
def _page_template() -> Template:
    """The Jinja template of the HTML page; all inserted text is escaped and freed of unprintable characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("quaere.chat"),
        autoescape=True,
        finalize=lambda value: _clean(value) if type(value) is str else value,  # what a macro returns is no plain str
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2")


def _blocks(report: Report) -> list[_Block]:
    """The report's text as headings, lists and paragraphs, line by line; all other markup is text."""
    known = {source.number for source in report.sources}
    blocks: list[_Block] = []
    goes_on = ""  # the kind of block that the next line may belong to
    for line in _clean(report.text).split("\n"):
        heading, item = _HEADING.match(line), _ITEM.match(line)
        kind: Literal["", "list", "paragraph"] = ""  # a heading or a blank line ends a block
        if heading:
            blocks.append(_Block("heading", [_runs(heading.group(2), known)], min(6, 1 + len(heading.group(1)))))
        elif line.strip():
            kind = "list" if item else "paragraph"
            if kind != goes_on:
                blocks.append(_Block(kind, []))
            blocks[-1].lines.append(_runs(item.group(1) if item else line, known))
        goes_on = kind
    return blocks


def _runs(line: str, known: set[int]) -> list[_Run]:
    """A line as runs of plain and bold text. No citation holds an asterisk, so each lies within one run."""
    runs = []
    for number, text in enumerate(_BOLD.split(line)):  # plain and bold text in turn
        parts: list[str | list[_Number]] = []
        at = 0
        for cite in find_citations(text):
            parts += [text[at : cite.start], _numbers(text, cite, known)]
            at = cite.end
        runs.append(_Run(number % 2 == 1, [*parts, text[at:]]))
    return runs


def _html_source(source: Source, link: Link, index: str) -> dict[str, object]:
    passage, address = source.passage, _address(source, link)
    return {
        "number": source.number,
        "title": _line(passage.title),
        "name": _line(passage.doc_id),
        "address": address,
        "place": _place(source, "" if address else index),
        "text": passage.text,
    }

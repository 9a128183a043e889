"""Pages of a report: Markdown, or HTML in a single file. Citations are links to the passages they cite.

    to_markdown(report, link)
    to_html(report, link)

`link` maps a passage to the path of its document, relative to the page ("" if there is no file). An unresolved citation
is marked in the text and listed at the end.

No text of a document or a model can become markup. In HTML all of it is escaped, and a content security policy forbids
scripts. In Markdown, passages stand in fences longer than any run of backticks in them, all punctuation in titles is
escaped, and the report keeps its headings, lists and emphasis, but no links, images, HTML or code. Addresses are built
from fixed words and percent-encoded paths, so none can name a scheme such as `javascript:`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

from quaere.chat.statements import Citation, find_citations
from quaere.records import Passage, Report, Source

Link = Callable[[Passage], str]
"""Path of a passage's document, relative to the page: `lambda passage: f"docs/{passage.doc_id}"`."""

_NO_SOURCE = "no such source"
# Control characters and marks of text direction: with them a document could make a page look different from its text.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_WORD = re.compile(r"\S+")
_NUM_FRAGMENT_WORDS = 6


def count_line(report: Report) -> str:
    """Counts of statements and citations on one line.

    count_line(report) -> "9 statements, 7 of them cited; 8 citations, 7 resolved (88 %), 1 unresolved"
    """
    stating = [statement for statement in report.statements if statement.states]
    num_cited = sum(bool(statement.citations) for statement in stating)
    num_citations, num_lost = len(report.citations), len(report.unresolved)
    statements = f"{_count(len(stating), 'statement')}, {num_cited} of them cited"
    resolved = f"{num_citations - num_lost} resolved ({report.resolved_share:.0%})".replace("%", " %")
    return f"{statements}; {_count(num_citations, 'citation')}, {resolved}, {num_lost} unresolved"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def _line(text: str) -> str:
    return " ".join(_clean(text).split())


def _place(source: Source, index: str) -> str:
    """The passage's place in its document, for display; with `index`, the name of the index is added."""
    where = f" of the index {index}" if index else ""
    return f"{where}, characters {source.passage.start} to {source.passage.end}"


def _address(source: Source, link: Link) -> str:
    """URL of the passage's document with a text fragment, which browsers scroll to; "" if there is no file."""
    path = link(source.passage)
    return f"./{quote(path.lstrip('/'), safe='/')}{_fragment(source.passage.text)}" if path else ""


def _fragment(text: str) -> str:
    """A URL text fragment: the whole passage if short, else its first and last words, which do not overlap.

    _fragment("The Oss rises.") -> "#:~:text=The%20Oss%20rises."
    """
    lines = [words for line in text.splitlines() if (words := _WORD.findall(line.lstrip("#*->+ \t")))]
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


def _written(text: str, cite: Citation) -> Iterator[tuple[int, str]]:
    """The numbers of a citation with their digits as written; more than 12 digits are cut."""
    digits = re.findall("[0-9]+", text[cite.start : cite.end])
    for number, said in zip(cite.numbers, digits, strict=True):
        yield number, said if len(said) <= 12 else said[:12] + "…"


# ---------------------------------------------------------------------------------------------------------- Markdown

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LEAD = re.compile(r"[ \t]*+(#{1,6}[ \t]++|[-*+][ \t]++|[0-9]{1,3}[.)][ \t]++|>[ \t]*+)?")
_SPECIAL = re.compile(r"([\\`\[\]~])")


def to_markdown(report: Report, link: Link, *, index: str = "") -> str:
    """The report as Markdown: text, sources with their passages, unresolved citations.

    to_markdown(report, lambda passage: f"docs/{passage.doc_id}")
    -> "# What is known of the Oss?\\n\\nThe Oss rises at Korrin [[2]](#source-2). ..."
    """
    parts = [f"# {_escape(report.question.text)}", _markdown_text(report), f"*{count_line(report)}*", "## Sources"]
    parts += [_markdown_source(source, link, index) for source in report.sources]
    if not report.sources:
        parts.append("No source is cited.")
    lost = _unresolved(report)
    if lost:
        parts.append("## Unresolved citations")
        parts.append("The writer was shown no passage of these numbers.")
        named = ((", ".join(f"**{_escape(cite)}**" for cite in cites), said) for cites, said in lost)
        parts.append("\n".join(f"- {cites} in: {_escape(said)}" for cites, said in named))
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """The text on one line, with all Markdown punctuation escaped."""
    return _PUNCTUATION.sub(r"\\\1", _line(text))


def _cut(text: str, num_chars: int = 60) -> str:
    return text if len(text) <= num_chars else text[:num_chars] + "…"


def _markdown_text(report: Report) -> str:
    known = {source.number for source in report.sources}
    return "\n".join(_markdown_line(line, known) for line in _clean(report.text).split("\n"))


def _markdown_line(line: str, known: set[int]) -> str:
    lead = _LEAD.match(line)
    at = lead.end() if lead else 0
    # At most two spaces are kept: nested lists stay lists, and no line becomes a code block, which takes four.
    pieces = [f"{'  ' * line.startswith(('  ', chr(9)))}{lead.group(1)}" if lead and lead.group(1) else ""]
    for cite in find_citations(line):
        pieces += [_markdown_words(line[at : cite.start]), _markdown_cite(line, cite, known)]
        at = cite.end
    return "".join([*pieces, _markdown_words(line[at:])])


def _markdown_words(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def _markdown_cite(line: str, cite: Citation, known: set[int]) -> str:
    return "".join(
        f"[\\[{said}\\]](#source-{number})" if number in known else f"**\\[{said}: {_NO_SOURCE}\\]**"
        for number, said in _written(line, cite)
    )


def _markdown_source(source: Source, link: Link, index: str) -> str:
    passage = source.passage
    address = _address(source, link)
    name = f"[{_escape(passage.doc_id)}]({address})" if address else f"document {_escape(passage.doc_id)}"
    text = _clean(passage.text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    title = f" **{_escape(passage.title)}**," if passage.title.strip() else ""
    place = _PUNCTUATION.sub(r"\\\1", _place(source, "" if address else _line(index)))
    head = f'<a id="source-{source.number}"></a>**\\[{source.number}\\]**{title} {name}{place}'
    return f"{head}\n\n{fence}text\n{text}\n{fence}"


# -------------------------------------------------------------------------------------------------------------- HTML

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.55 Georgia, serif; color: #222; }}
h1, h2, h3 {{ line-height: 1.25; }}
a {{ color: #1a5a96; text-decoration: none; }}
.counts, .place {{ color: #666; font-size: .9rem; }}
.cite {{ font-size: .85em; }}
.lost {{ color: #b00020; font-weight: bold; }}
.source {{ margin: 1.2rem 0; padding: .2rem .8rem; border-left: 3px solid #ddd; }}
.source:target {{ border-color: #1a5a96; background: #f3f8fd; }}
blockquote {{ margin: .4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }}
</style>
</head>
<body>
<h1>{title}</h1>
{text}
<p class="counts">{counts}</p>
<h2>Sources</h2>
{sources}
{unresolved}</body>
</html>
"""
_HEADING = re.compile(r"[ \t]*+(#{1,6})[ \t]++(.*)")
_ITEM = re.compile(r"[ \t]*+(?:[-*+•][ \t]++|[0-9]{1,3}[.)][ \t]++)(.*)")
_BOLD = re.compile(r"\*\*([^*\n]++)\*\*")


def to_html(report: Report, link: Link, *, index: str = "") -> str:
    """The report as a self-contained HTML page: citations link to the passages on it, passages to their documents."""
    sources = [_html_source(source, link, index) for source in report.sources]
    return _PAGE.format(
        title=_html(_line(report.question.text)),
        text=_html_text(report),
        counts=_html(count_line(report)),
        sources="\n".join(sources) or "<p>No source is cited.</p>",
        unresolved=_html_unresolved(report),
    )


def _html(text: str) -> str:
    return html.escape(_clean(text))


def _html_text(report: Report) -> str:
    """The report's text as headings, lists and paragraphs, line by line; all other markup is escaped."""
    known = {source.number for source in report.sources}
    made: list[str] = []
    items: list[str] = []
    words: list[str] = []

    def flush() -> None:
        if items:
            made.append("<ul>\n" + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ul>")
        if words:
            made.append("<p>" + "<br>\n".join(words) + "</p>")
        items.clear()
        words.clear()

    for line in _clean(report.text).split("\n"):
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if heading or not line.strip() or bool(item) != bool(items):
            flush()
        if heading:
            level = min(6, 1 + len(heading.group(1)))
            made.append(f"<h{level}>{_html_words(heading.group(2), known)}</h{level}>")
        elif item:
            items.append(_html_words(item.group(1), known))
        elif line.strip():
            words.append(_html_words(line, known))
    flush()
    return "\n".join(made)


def _html_words(line: str, known: set[int]) -> str:
    pieces: list[str] = []
    at = 0
    for cite in find_citations(line):
        pieces += [_html(line[at : cite.start]), _html_cite(line, cite, known)]
        at = cite.end
    return _BOLD.sub(r"<strong>\1</strong>", "".join([*pieces, _html(line[at:])]))


def _html_cite(line: str, cite: Citation, known: set[int]) -> str:
    shown = [
        f'<a href="#source-{number}">{said}</a>'
        if number in known
        else f'<a class="lost" href="#unresolved" title="the writer was shown no passage of this number">{said}: '
        f"{_NO_SOURCE}</a>"
        for number, said in _written(line, cite)
    ]
    return f'<span class="cite">[{", ".join(shown)}]</span>'


def _html_source(source: Source, link: Link, index: str) -> str:
    passage = source.passage
    name, address = _html(_line(passage.doc_id)), _address(source, link)
    name = f'<a href="{html.escape(address)}">{name}</a>' if address else f"document {name}"
    return (
        f'<div class="source" id="source-{source.number}">\n<p>[{source.number}] '
        f"<strong>{_html(_line(passage.title))}</strong><br>\n"
        f'<span class="place">{name}{_html(_place(source, "" if address else index))}</span></p>\n'
        f"<blockquote>{_html(passage.text)}</blockquote>\n</div>"
    )


def _html_unresolved(report: Report) -> str:
    lost = _unresolved(report)
    if not lost:
        return ""
    named = ((", ".join(f'<span class="lost">{_html(cite)}</span>' for cite in cites), said) for cites, said in lost)
    items = "\n".join(f"<li>{cites} in: {_html(said)}</li>" for cites, said in named)
    return (
        '<h2 id="unresolved">Unresolved citations</h2>\n<p>The writer was shown no passage of these numbers.</p>\n'
        f"<ul>\n{items}\n</ul>\n"
    )

"""Layout of a report for its pages (Markdown, HTML, Word, PDF): blocks of text, sources, and what a citation opens.

    layout = lay_out(report, lambda passage: f"docs/{passage.doc_id}", searches=["source of the Oss"])
    layout.sources[0].parts -> [Part("It is long. "), Part("The Oss rises at Korrin.", "source-1-1", ...)]

`link` maps a passage to the path of its document, relative to the page ("" if there is no file). A citation opens its
source on the page. If the statement has the passage's own words, it opens the sentence there, which in turn opens the
document at that sentence. All text is free of unprintable characters; escaping is left to the pages. Addresses are
built from fixed words and percent-encoded paths, so none can name a scheme such as `javascript:`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote

from quaere.chat.plain_text import Plain, plain_text
from quaere.chat.spans import locate_span
from quaere.chat.statements import Citation, find_citations, strip_citations
from quaere.chat.terminal_text import UNPRINTABLE
from quaere.records import Passage, Report, Source

Link = Callable[[Passage], str]
"""Path of a passage's document, relative to the page: `lambda passage: f"docs/{passage.doc_id}"`."""

_NUM_FRAGMENT_WORDS = 6
_MIN_QUOTED_WORDS = 3
_MAX_QUOTATIONS = 200  # sentences that are looked up in their passages, so that a page costs linear time
_HEADING = re.compile(r"[ \t]*+(#{1,6})[ \t]++(.*)")
_ITEM = re.compile(r"[ \t]*+(?:[-*+•][ \t]++|[0-9]{1,3}[.)][ \t]++)(.*)")
_BOLD = re.compile(r"\*\*([^*\n]++)\*\*")
_BRACKETS = str.maketrans("[]", "()")


class CitedNumber(NamedTuple):
    """A number of a citation as it was written, and the anchor that it opens."""

    number: int
    said: str
    is_known: bool
    anchor: str


class TextRun(NamedTuple):
    """A run of plain or bold text, with the numbers of citations in their places."""

    is_bold: bool
    parts: list[str | list[CitedNumber]]


class Block(NamedTuple):
    """A heading, a list or a paragraph; headings have a level from 2 to 6."""

    kind: Literal["heading", "list", "paragraph"]
    lines: list[list[TextRun]]
    level: int = 0


class Part(NamedTuple):
    """A part of a passage; a quoted sentence has an anchor, its place in the document, and the address of it."""

    text: str
    anchor: str = ""
    place: str = ""
    address: str = ""


class SourceLayout(NamedTuple):
    """A cited passage: its document (`name`, and `address` if there is a file), its place there, and its parts."""

    number: int
    title: str
    name: str
    address: str
    place: str
    parts: list[Part]


class Layout(NamedTuple):
    """All that a page shows of a report."""

    title: str
    blocks: list[Block]
    counts: str
    sources: list[SourceLayout]
    unresolved: list[tuple[list[str], str]]
    searches: list[str]


def lay_out(report: Report, link: Link, *, index: str = "", searches: Sequence[str] = ()) -> Layout:
    """The report in parts; `searches` are the queries behind it, `index` is named where a document has no file."""
    quoted = find_quotations(report)
    return Layout(
        title=one_line(report.question.text),
        blocks=_blocks(report, anchors(report, quoted)),
        counts=count_line(report),
        sources=[_lay_source(source, link, index, quoted) for source in report.sources],
        unresolved=[([*map(clean, cites)], clean(said)) for cites, said in _find_unresolved(report)],
        searches=[one_line(query) for query in dict.fromkeys(searches)],
    )


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


def clean(text: str) -> str:
    """The text with unprintable characters replaced, which could make a page look different from its text."""
    return UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text on one line, without unprintable characters."""
    return " ".join(clean(text).split())


def cut_long(text: str, num_chars: int = 60) -> str:
    """The text, or its beginning if it is long."""
    return text if len(text) <= num_chars else text[:num_chars] + "…"


def _find_unresolved(report: Report) -> list[tuple[list[str], str]]:
    """Statements with unresolved citations: the distinct citations as written, and the statement's text."""
    known = {source.number for source in report.sources}
    found = []
    for statement in report.statements:
        cites = (cite for cite in find_citations(statement.text) if not known.issuperset(cite.numbers))
        # Each statement is listed once, not once per citation: else a page grows with the square of its report.
        if lost := list(dict.fromkeys(cut_long(statement.text[cite.start : cite.end]) for cite in cites)):
            found.append((lost, statement.text))
    return found


# ---------------------------------------------------------------------------------------------------------- quotations


Quotations = dict[int, list[tuple[str, int, int]]]
"""By source: statements without their citations that are sentences of its passage, and where in the passage."""


def find_quotations(report: Report) -> Quotations:
    """The statements that have the very words of a passage they cite, in order, without overlaps.

    find_quotations(report) -> {1: [("The Oss rises at Korrin.", 12, 36)]}
    """
    passages = {source.number: source.passage.text for source in report.sources}
    plain = {number: plain_text(text) for number, text in passages.items()}
    found: Quotations = {}
    asked = dict.fromkeys((strip_citations(one.text), number) for one in report.statements for number in one.citations)
    for said, number in list(asked)[:_MAX_QUOTATIONS]:
        is_sentence = number in passages and len(said.split()) >= _MIN_QUOTED_WORDS
        place = _locate(said, passages[number], plain[number]) if is_sentence else None
        others = found.setdefault(number, [])
        if place and not any(place[0] < end and start < place[1] for _, start, end in others):
            others.append((said, *place))
    return found


def _locate(said: str, passage: str, plain: Plain) -> tuple[int, int] | None:
    """The place of a statement in the passage, as written or without markup; None if the passage does not have it."""
    if place := locate_span(_veil(said), _veil(passage)):
        return place
    place = locate_span(_veil(said), _veil(plain.text))
    return (plain.places[place[0]], plain.places[place[1] - 1] + 1) if place else None


def _veil(text: str) -> str:
    """The text with brackets as parentheses, as composed reports write them; all offsets stay."""
    return text.translate(_BRACKETS)


def anchors(report: Report, quoted: Quotations) -> Iterator[str]:
    """The anchor that each citation of the report opens, in order; every citation belongs to one statement."""
    names = {
        (said, number): f"source-{number}-{place}"
        for number, own in quoted.items()
        for place, (said, _, _) in enumerate(own, start=1)
    }
    for statement in report.statements:
        said = strip_citations(statement.text) if statement.citations else ""
        for number in statement.citations:
            yield names.get((said, number), f"source-{number}")


def number_citation(text: str, cite: Citation, known: set[int], opened: Iterator[str]) -> list[CitedNumber]:
    """The numbers of a citation; `opened` gives the anchor of each, if statements and text have the same citations."""
    found = []
    for number, said in zip(cite.numbers, re.findall("[0-9]+", text[cite.start : cite.end]), strict=True):
        whole, anchor = f"source-{number}", next(opened, "")
        anchor = anchor if anchor.startswith(f"{whole}-") else whole
        found.append(CitedNumber(number, cut_long(said, 12), number in known, anchor))
    return found


# ------------------------------------------------------------------------------------------------------------- sources


def _lay_source(source: Source, link: Link, index: str, quoted: Quotations) -> SourceLayout:
    passage, address = source.passage, _address(source, link)
    text, at, parts = passage.text, 0, list[Part]()
    own = [(start, end, place) for place, (_, start, end) in enumerate(quoted.get(source.number, ()), start=1)]
    for start, end, place in sorted(own):
        opens = f"{address.partition('#')[0]}{_fragment(text[start:end])}" if address else ""
        where = f"characters {passage.start + start} to {passage.start + end}"
        quotation = Part(clean(text[start:end]), f"source-{source.number}-{place}", where, opens)
        parts += [Part(clean(text[at:start])), quotation]
        at = end
    parts = [part for part in (*parts, Part(clean(text[at:]))) if part.text]
    named = one_line(passage.title), one_line(passage.doc_id)
    return SourceLayout(source.number, *named, address, _place(source, "" if address else index), parts)


def _place(source: Source, index: str) -> str:
    """The passage's place in its document, for display; with `index`, the name of the index is added."""
    passage = source.passage
    where = f" of the index {one_line(index)}" if index else ""
    found = (one_line(passage.place), f"under {one_line(passage.heading)}" if passage.heading else "")
    place = "".join(f", {one}" for one in found if one)
    return f"{where}{place}, characters {passage.start} to {passage.end}"


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


# -------------------------------------------------------------------------------------------------------------- blocks


def _blocks(report: Report, opened: Iterator[str]) -> list[Block]:
    """The report's text as headings, lists and paragraphs, line by line; all other markup is text."""
    known = {source.number for source in report.sources}
    blocks: list[Block] = []
    goes_on = ""  # the kind of block that the next line may belong to
    for line in clean(report.text).split("\n"):
        heading, item = _HEADING.match(line), _ITEM.match(line)
        kind: Literal["", "list", "paragraph"] = ""  # a heading or a blank line ends a block
        if heading:
            level = min(6, max(2, len(heading.group(1))))
            blocks.append(Block("heading", [_runs(heading.group(2), known, opened)], level))
        elif line.strip():
            kind = "list" if item else "paragraph"
            if kind != goes_on:
                blocks.append(Block(kind, []))
            blocks[-1].lines.append(_runs(item.group(1) if item else line, known, opened))
        goes_on = kind
    return blocks


def _runs(line: str, known: set[int], opened: Iterator[str]) -> list[TextRun]:
    """A line as runs of plain and bold text. No citation holds an asterisk, so each lies within one run."""
    runs = []
    for number, text in enumerate(_BOLD.split(line)):  # plain and bold text in turn
        parts: list[str | list[CitedNumber]] = []
        at = 0
        for cite in find_citations(text):
            parts += [text[at : cite.start], number_citation(text, cite, known, opened)]
            at = cite.end
        runs.append(TextRun(number % 2 == 1, [*parts, text[at:]]))
    return runs

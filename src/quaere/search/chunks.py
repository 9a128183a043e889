"""Chunking of documents into passages at natural boundaries, with offsets into the document.

A passage is `document[start:end]`, unchanged. Paragraphs that fit are kept whole and packed together (see `pieces`). A
passage prefers to begin at a heading; it does not end with one, nor with the lead of what comes next.

    >>> for passage in cut(document, ChunkSettings(max_words=40)):
    ...     assert document.text[passage.start : passage.end] == passage.text
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Passage
from quaere.search.corpus import Document
from quaere.search.extracted import Places, find_stretches
from quaere.search.heading_trails import HeadingTrails
from quaere.search.pieces import FileSplitter, Piece, split_row
from quaere.search.words import count_words


class ChunkSettings(Struct, frozen=True):
    """Length of passages in words; two characters of Chinese, Japanese, Korean or Thai count as one word.

    Rows of JSON Lines files with up to `row_words` stay whole: such corpora are usually split into passages already.

        ChunkSettings(max_words=120, overlap_words=0, row_words=300)
    """

    max_words: int = 120
    overlap_words: int = 0
    row_words: int = 300

    def check(self) -> None:
        """Raise `BadInput` if a size is out of range."""
        if self.max_words < 1:
            raise BadInput(f"passages must have at least 1 word, not {self.max_words}")
        if not 0 <= self.overlap_words < self.max_words:
            raise BadInput(f"the overlap must be 0 to {self.max_words - 1} words, not {self.overlap_words}")
        if self.row_words < 0:
            raise BadInput(f"row_words must be 0 or more, not {self.row_words}; 0 splits rows like files")


def cut(document: Document, settings: ChunkSettings) -> list[Passage]:
    """The passages of a document, numbered `doc_id#0`, `doc_id#1`, ... in reading order.

    None crosses from one page, slide, sheet or chapter into another, so that each has a place that can be named.
    """
    is_file = document.kind == "file"
    whole_words = settings.max_words if is_file else max(settings.row_words, settings.max_words)
    split = _find_splitter(document)
    spans = [
        span
        for start, end in find_stretches(document.text, document.parts)
        for span in _cut_stretch(document.text, start, end, whole_words, settings, split)
    ]
    trimmed = [_trim(document.text, start, end) for start, end in spans]
    filled = [(start, end) for start, end in trimmed if start < end]
    places, trails = Places(document.text, document.parts), HeadingTrails(document.title, document.headings)
    return [
        Passage(
            id=f"{document.id}#{number}",
            doc_id=document.id,
            title=document.title,
            text=document.text[start:end],
            start=start,
            end=end,
            place=places.name(start, end) if is_file else "",
            heading=trails.name(start, end),
        )
        for number, (start, end) in enumerate(filled)
    ]


Splitter = Callable[[int, int, int], list[Piece]]


def _find_splitter(document: Document) -> Splitter:
    """How pieces of the document are found, given a span and the most words of a piece."""
    if document.kind == "row":
        return partial(split_row, document.text)
    return FileSplitter(document.text, document.headings, [part.start for part in document.parts]).split


def _cut_stretch(
    text: str, start: int, end: int, whole_words: int, settings: ChunkSettings, split: Splitter
) -> list[tuple[int, int]]:
    """Where the passages of a stretch of the text lie: all of it if it has at most `whole_words`."""
    if count_words(text[start:end]) <= whole_words:
        return [(start, end)]
    groups = _pack(split(start, end, settings.max_words), settings)
    return [(group[0].start, group[-1].end) for group in groups]


# ----------------------------------------------------------------------------------------------------------- packing


def _pack(pieces: list[Piece], settings: ChunkSettings) -> list[list[Piece]]:
    """Groups of consecutive pieces, one per passage. A short rest, of text or section, joins the passage before."""
    groups: list[list[Piece]] = []
    group: list[Piece] = []
    num_words = 0
    for piece, section_words in zip(pieces, _count_sections(pieces), strict=True):
        is_full = num_words + piece.num_words > settings.max_words
        begins = piece.level > 0 and (
            num_words + section_words > settings.max_words or piece.level < (group[0].level if group else 0)
        )
        if group and piece.level and not group[0].level and _join_rest(groups, group, settings):
            group, num_words = [], 0
        elif group and (is_full or (begins and num_words >= settings.max_words // 4)):
            room = settings.max_words - piece.num_words
            rest = [] if settings.overlap_words else _take_leads(group, min(room, settings.max_words // 2))
            groups.append(group)
            group = rest or _overlap(group, min(settings.overlap_words, room))
            num_words = _num_words(group)
        group.append(piece)
        num_words += piece.num_words
    if group and not _join_rest(groups, group, settings):
        groups.append(group)
    return groups


def _join_rest(groups: list[list[Piece]], rest: list[Piece], settings: ChunkSettings) -> bool:
    """Add a rest of up to a quarter of a passage to the passage before; False if it has more words, or no room."""
    most = settings.max_words // 4
    if not groups or settings.overlap_words or _num_words(rest) > most:
        return False
    if _num_words(groups[-1]) + _num_words(rest) > settings.max_words + most:
        return False
    groups[-1] += rest
    return True


def _count_sections(pieces: list[Piece]) -> list[int]:
    """For each piece the number of words from it to the next heading."""
    counts, num_words = [], 0
    for piece in reversed(pieces):
        num_words += piece.num_words
        counts.append(num_words)
        num_words = 0 if piece.level else num_words
    return counts[::-1]


def _take_leads(group: list[Piece], max_words: int) -> list[Piece]:
    """The headings and leads at the end of a passage, taken from it for the next one."""
    kept = len(group)
    while kept > 1 and group[kept - 1].leads and group[kept - 1].num_words <= max_words:
        kept -= 1
        max_words -= group[kept].num_words
    taken = group[kept:]
    del group[kept:]
    return taken


def _overlap(group: list[Piece], max_words: int) -> list[Piece]:
    """The last pieces of a passage, of at most `max_words` in total, which the next passage repeats."""
    kept = 0
    for piece in reversed(group):
        max_words -= piece.num_words
        if max_words < 0:
            break
        kept += 1
    # Never all pieces: the next passage would then contain this one.
    return group[len(group) - min(kept, len(group) - 1) :] if len(group) > 1 else []


def _num_words(group: list[Piece]) -> int:
    return sum(piece.num_words for piece in group)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Start and end without surrounding white space."""
    stretch = text[start:end]
    return start + len(stretch) - len(stretch.lstrip()), start + len(stretch.rstrip())

"""Chunking of documents into passages at natural boundaries, with offsets into the document.

A passage is `document[start:end]`, unchanged. Paragraphs that fit are kept whole and packed together; a longer
paragraph is cut between sentences, a longer sentence between words.

    >>> for passage in cut(document, ChunkSettings(max_words=40)):
    ...     assert document.text[passage.start : passage.end] == passage.text
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Passage
from quaere.search.corpus import Document
from quaere.search.extracted import Places, find_stretches
from quaere.search.words import count_words, word_spans


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


class _Piece(Struct):
    """A span of the document that is not split further: document[start:end] and its number of words."""

    start: int
    end: int
    num_words: int


def cut(document: Document, settings: ChunkSettings) -> list[Passage]:
    """The passages of a document, numbered `doc_id#0`, `doc_id#1`, ... in reading order.

    None crosses from one page, slide, sheet or chapter into another, so that each has a place that can be named.
    """
    whole_words = max(settings.row_words if document.kind == "row" else 0, settings.max_words)
    spans = [
        span
        for start, end in find_stretches(document.text, document.parts)
        for span in _cut_stretch(document.text, start, end, whole_words, settings)
    ]
    trimmed = [_trim(document.text, start, end) for start, end in spans]
    filled = [(start, end) for start, end in trimmed if start < end]
    places = Places(document.text, document.parts)
    return [
        Passage(
            id=f"{document.id}#{number}",
            doc_id=document.id,
            title=document.title,
            text=document.text[start:end],
            start=start,
            end=end,
            place=places.name(start, end) if document.kind == "file" else "",
        )
        for number, (start, end) in enumerate(filled)
    ]


def _cut_stretch(text: str, start: int, end: int, whole_words: int, settings: ChunkSettings) -> list[tuple[int, int]]:
    """Where the passages of a stretch of the text lie: all of it if it has at most `whole_words`."""
    if count_words(text[start:end]) <= whole_words:
        return [(start, end)]
    pieces = list(_pieces(text, start, end, settings.max_words))
    return [(group[0].start, group[-1].end) for group in _pack(pieces, settings)]


# ------------------------------------------------------------------------------------------------------------ pieces

_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*|\u2029\s*")
# A sentence ends at its marks and closing quotes before white space; in scripts without spaces no space is needed.
# Danda (Hindi), Arabic and Armenian marks and line breaks end sentences too.
_SENTENCE_END = re.compile(r"[.!?…؟۔।॥։።][\"'”’»)\]]*\s+|[。！？｡]+[\"'”’»」』）)\]]*\s*|\n\s*")


def _pieces(text: str, start: int, end: int, max_words: int) -> Iterator[_Piece]:
    """The span as consecutive pieces of at most `max_words`: paragraphs, else sentences, else runs of words."""
    for paragraph in _split(text, start, end, _PARAGRAPH_END):
        if paragraph.num_words <= max_words:
            yield paragraph
            continue
        for sentence in _split(text, paragraph.start, paragraph.end, _SENTENCE_END):
            if sentence.num_words <= max_words:
                yield sentence
            else:
                yield from _runs_of_words(text, sentence, max_words)


def _split(text: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[_Piece]:
    ends = [match.end() for match in boundary.finditer(text, start, end)]
    for stop in [*ends, end]:
        if stop > start:
            yield _Piece(start, stop, count_words(text[start:stop]))
            start = stop


def _runs_of_words(text: str, sentence: _Piece, max_words: int) -> Iterator[_Piece]:
    starts = [start for start, _ in word_spans(text, sentence.start, sentence.end)][::max_words]
    for start, end in zip([sentence.start, *starts[1:]], [*starts[1:], sentence.end], strict=True):
        yield _Piece(start, end, count_words(text[start:end]))


# ----------------------------------------------------------------------------------------------------------- packing


def _pack(pieces: list[_Piece], settings: ChunkSettings) -> list[list[_Piece]]:
    """Groups of consecutive pieces, one per passage; a short rest is added to the last passage."""
    groups: list[list[_Piece]] = []
    group: list[_Piece] = []
    for piece in pieces:
        if group and _num_words(group) + piece.num_words > settings.max_words:
            groups.append(group)
            group = _overlap(group, min(settings.overlap_words, settings.max_words - piece.num_words))
        group.append(piece)
    rest = _num_words(group)
    if groups and rest <= settings.max_words // 4 and not settings.overlap_words:
        groups[-1] += group
    elif group:
        groups.append(group)
    return groups


def _overlap(group: list[_Piece], max_words: int) -> list[_Piece]:
    """The last pieces of a passage, of at most `max_words` in total, which the next passage repeats."""
    kept = 0
    for piece in reversed(group):
        max_words -= piece.num_words
        if max_words < 0:
            break
        kept += 1
    # Never all pieces: the next passage would then contain this one.
    return group[len(group) - min(kept, len(group) - 1) :] if len(group) > 1 else []


def _num_words(group: list[_Piece]) -> int:
    return sum(piece.num_words for piece in group)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Start and end without surrounding white space."""
    stretch = text[start:end]
    return start + len(stretch) - len(stretch.lstrip()), start + len(stretch.rstrip())

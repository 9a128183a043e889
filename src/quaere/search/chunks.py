"""Chunking of documents into passages at natural boundaries, with offsets into the document.

A passage is `document[start:end]`, unchanged. Paragraphs that fit are kept whole and packed together. A paragraph that
is too long is split into list items or table rows; those that are still too long into sentences, then lines, then runs
of words. A passage begins at a heading if possible. It does not end with a heading or with a lead: a short text that
introduces the next one, such as "Options:".

    >>> for passage in cut(document, ChunkSettings(max_words=40)):
    ...     assert document.text[passage.start : passage.end] == passage.text
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise

from msgspec import Struct

from quaere.chat.statements import goes_on, is_abbreviation, starts_own_line
from quaere.errors import BadInput
from quaere.records import Passage
from quaere.search.corpus import Document
from quaere.search.extracted import SECTION_LEVELS, HeadingTrails, Places, find_stretches
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


def cut(document: Document, settings: ChunkSettings) -> list[Passage]:
    """The passages of a document, numbered `doc_id#0`, `doc_id#1`, ... in reading order.

    No passage crosses the boundary of a page, slide, sheet or chapter, so that each passage has one place to cite.
    """
    is_file = document.kind == "file"
    whole_words = settings.max_words if is_file else max(settings.row_words, settings.max_words)
    split = _FileSplitter(document).split if is_file else partial(_split_row, document.text)
    spans: list[tuple[int, int]] = []
    for start, end in find_stretches(document.text, document.parts):
        if count_words(document.text[start:end]) <= whole_words:
            spans.append((start, end))
        else:
            groups = _pack(split(start, end, settings.max_words), settings)
            spans += [(group[0].start, group[-1].end) for group in groups]
    trimmed = [_trim(document.text, start, end) for start, end in spans]
    places = Places(document.text, document.parts)
    trails = HeadingTrails(document.title, document.headings, document.text)
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
        for number, (start, end) in enumerate(span for span in trimmed if span[0] < span[1])
    ]


# -------------------------------------------------------------------------------------------------------------- packing


def _pack(pieces: list[_Piece], settings: ChunkSettings) -> list[list[_Piece]]:
    """Group consecutive pieces into passages; a short remainder of the text or a section joins the passage before."""
    groups: list[list[_Piece]] = []
    group: list[_Piece] = []
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


def _join_rest(groups: list[list[_Piece]], rest: list[_Piece], settings: ChunkSettings) -> bool:
    """Add the remaining pieces to the last passage if they are at most a quarter of one and fit; False if not."""
    most = settings.max_words // 4
    room = min(most, settings.max_words + most - _num_words(groups[-1])) if groups else 0
    if not groups or settings.overlap_words or _num_words(rest) > room:
        return False
    groups[-1] += rest
    return True


def _count_sections(pieces: list[_Piece]) -> list[int]:
    """For each piece the number of words from it to the next heading."""
    counts, num_words = [], 0
    for piece in reversed(pieces):
        counts.append(num_words + piece.num_words)
        num_words = 0 if piece.level else counts[-1]
    return counts[::-1]


def _take_leads(group: list[_Piece], max_words: int) -> list[_Piece]:
    """Remove the headings and leads at the end of a passage and return them, to begin the next passage with."""
    kept = len(group)
    while kept > 1 and group[kept - 1].leads and group[kept - 1].num_words <= max_words:
        kept -= 1
        max_words -= group[kept].num_words
    taken, group[kept:] = group[kept:], []
    return taken


def _overlap(group: list[_Piece], max_words: int) -> list[_Piece]:
    """The last pieces of a passage, of at most `max_words` in total, which the next passage repeats."""
    kept = sum(num_words <= max_words for num_words in accumulate(piece.num_words for piece in reversed(group)))
    # Never all pieces: the next passage would then contain the whole group.
    return group[len(group) - min(kept, len(group) - 1) :] if len(group) > 1 else []


def _num_words(group: list[_Piece]) -> int:
    return sum(piece.num_words for piece in group)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    stretch = text[start:end]
    return start + len(stretch) - len(stretch.lstrip()), start + len(stretch.rstrip())


# --------------------------------------------------------------------------------------------------------------- pieces


_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*|\u2029\s*")
# A sentence ends at its marks and closing quotes before white space; in scripts without spaces no space is needed.
# Danda (Hindi), Arabic and Armenian marks end sentences too, and in a row of JSON Lines so does a line break.
_MARKS = r"[.!?…؟۔।॥։።][\"'”’»)\]]*\s+|[。！？｡]+[\"'”’»」』）)\]]*\s*"
_SENTENCE_END = re.compile(_MARKS)
_ROW_SENTENCE_END = re.compile(rf"{_MARKS}|\n\s*")
_LINE_END = re.compile(r"\n\s*")
_MAX_LEAD_WORDS = 40
_LONG_WORD = 40
_TAIL_CHARS = 12  # longer than any abbreviation, and than what follows ordinals
_MAX_INDENT = 80

_Boundaries = Callable[[int, int], list[int]]


class _Piece(Struct):
    """A span of the document that is not split further: document[start:end] and its number of words.

    `level` is the level of the section that the piece begins, 0 if it begins none. A piece that `leads` (a heading, or
    a text that introduces the next one) should not be the last of a passage.
    """

    start: int
    end: int
    num_words: int
    level: int = 0
    leads: bool = False


def _split_row(text: str, start: int, end: int, max_words: int) -> list[_Piece]:
    """The pieces of a row of JSON Lines, of at most `max_words`: paragraphs, else sentences, else runs of words."""
    levels = [partial(_find_ends, pattern, text) for pattern in (_PARAGRAPH_END, _ROW_SENTENCE_END)]
    return list(_split(text, start, end, max_words, levels))


class _FileSplitter:
    """Splits the text of a file. The first line of a part (page, row, ...) never continues the sentence before it."""

    def __init__(self, document: Document) -> None:
        self._text = document.text
        self._levels = {one.start: one.level for one in reversed(document.headings) if one.level <= SECTION_LEVELS}
        self._sections = sorted(self._levels)
        self._line_starts = frozenset(part.start for part in document.parts)

    def split(self, start: int, end: int, max_words: int) -> list[_Piece]:
        pieces: list[_Piece] = []
        below = [self._find_items, self._find_sentences, self._find_lines]
        for block_start, block_end in _spans(start, end, self._find_blocks(start, end)):
            split = list(_split(self._text, block_start, block_end, max_words, below))
            split[0].level = self._levels.get(block_start, 0)
            split[-1].leads = self._leads(split[-1], self._text[block_end : min(block_end + _LONG_WORD, end)])
            pieces += split
        return pieces

    def _leads(self, piece: _Piece, following: str) -> bool:
        """True if the piece introduces the next: a heading, a text with a final colon, or an unfinished sentence."""
        if piece.num_words > _MAX_LEAD_WORDS:
            return False
        said = self._text[piece.start : piece.end].rstrip()
        is_heading = piece.level > 0 and said.count("\n") <= 2
        return is_heading or said.endswith(":") or goes_on(said, following, width=len(said) + _LONG_WORD)

    def _find_blocks(self, start: int, end: int) -> list[int]:
        """Offsets in `text[start:end]` where paragraphs end; a heading starts one even without a blank line above."""
        sections = self._sections[bisect_left(self._sections, start) : bisect_left(self._sections, end)]
        return sorted({*_find_ends(_PARAGRAPH_END, self._text, start, end), *sections})

    def _find_items(self, start: int, end: int) -> list[int]:
        """Offsets of lines that begin a list item: indented no further than the first, not continuing a sentence."""
        indent = self._indent(start)
        return [at for at in self._find_hard_lines(start, end) if self._indent(at) <= indent]

    def _find_sentences(self, start: int, end: int) -> list[int]:
        ends = {mark.end() for mark in _SENTENCE_END.finditer(self._text, start, end) if self._ends_sentence(mark, end)}
        return sorted(ends.union(self._find_hard_lines(start, end)))

    def _find_lines(self, start: int, end: int) -> list[int]:
        return [self._text.rfind("\n", start, at) + 1 for at in _find_ends(_LINE_END, self._text, start, end)]

    def _find_hard_lines(self, start: int, end: int) -> list[int]:
        """Offsets of lines that begin a new sentence or item; those that continue the line above are left out."""
        lines = self._text[start:end].split("\n")
        width = max(len(line.rstrip()) for line in lines)
        found, at = [], start
        for line, following in pairwise(lines):
            at += len(line) + 1
            is_definition = following.lstrip().startswith(": ")
            is_own = starts_own_line(following) or not goes_on(line, following, width)
            if at in self._line_starts or (is_own and not is_definition):
                found.append(at)
        return found

    def _indent(self, at: int) -> int:
        """Indentation, in characters, of the line that contains offset `at`; absurdly long indents are cut."""
        first = max(0, at - _MAX_INDENT)
        line = self._text[self._text.rfind("\n", first, at) + 1 or first : at + _MAX_INDENT]
        return len(line) - len(line.lstrip(" \t"))

    def _ends_sentence(self, mark: re.Match[str], end: int) -> bool:
        following = self._text[mark.end() : min(mark.end() + _TAIL_CHARS, end)]
        before = self._text[max(0, mark.start() - _TAIL_CHARS) : mark.start()]
        return not (following[:1].islower() or (mark.group()[0] == "." and is_abbreviation(before, following)))


# ---------------------------------------------------------------------------------------------------------- splitting


def _split(text: str, start: int, end: int, max_words: int, levels: Sequence[_Boundaries]) -> Iterator[_Piece]:
    """Split `text[start:end]` into consecutive pieces of at most `max_words` words.

    A longer span is split at the boundaries of `levels[0]`, its parts at those of `levels[1]` and so on; at last into
    runs of words.
    """
    num_words = count_words(text[start:end])
    if num_words <= max_words:
        yield _Piece(start, end, num_words)
    elif not levels:
        yield from _runs_of_words(text, start, end, max_words)
    else:
        for part_start, part_end in _spans(start, end, levels[0](start, end)):
            yield from _split(text, part_start, part_end, max_words, levels[1:])


def _spans(start: int, end: int, boundaries: Sequence[int]) -> Iterator[tuple[int, int]]:
    for stop in [*boundaries, end]:
        if stop > start:
            yield start, stop
            start = stop


def _find_ends(pattern: re.Pattern[str], text: str, start: int, end: int) -> list[int]:
    return [match.end() for match in pattern.finditer(text, start, end)]


def _runs_of_words(text: str, start: int, end: int, max_words: int) -> Iterator[_Piece]:
    starts = [word for word, _ in word_spans(text, start, end)][::max_words]
    for run_start, run_end in zip([start, *starts[1:]], [*starts[1:], end], strict=True):
        yield _Piece(run_start, run_end, count_words(text[run_start:run_end]))

"""Pieces of a document's text: spans that belong together and are packed into passages.

A piece is a paragraph; of one that is too long, an item of a list or a row of a table, else a sentence, else a line,
else a run of words. All pieces together are the whole span, without a gap.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from msgspec import Struct

from quaere.chat.statements import goes_on, is_abbreviation, starts_own_line
from quaere.search.extracted import SECTION_LEVELS, Heading
from quaere.search.words import count_words, word_spans

_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*|\u2029\s*")
# A sentence ends at its marks and closing quotes before white space; in scripts without spaces no space is needed.
# Danda (Hindi), Arabic and Armenian marks end sentences too, and in a row of JSON Lines so does a line break.
_MARKS = r"[.!?…؟۔।॥։።][\"'”’»)\]]*\s+|[。！？｡]+[\"'”’»」』）)\]]*\s*"
_SENTENCE_END = re.compile(_MARKS)
_ROW_SENTENCE_END = re.compile(rf"{_MARKS}|\n\s*")
_LINE_END = re.compile(r"\n\s*")
_MAX_LEAD_WORDS = 40
_LONG_WORD = 40
_TAIL_CHARS = 12  # longer than any abbreviation
_MAX_INDENT = 80

Boundaries = Callable[[int, int], list[int]]


class Piece(Struct):
    """A span of the document that is not split further: document[start:end] and its number of words.

    `level` is that of the section it begins, 0 if it begins none. One that `leads` should not be the last of a passage.
    """

    start: int
    end: int
    num_words: int
    level: int = 0
    leads: bool = False


def split_row(text: str, start: int, end: int, max_words: int) -> list[Piece]:
    """The pieces of a row of JSON Lines, of at most `max_words`: paragraphs, else sentences, else runs of words."""
    levels = [partial(_find_ends, pattern, text) for pattern in (_PARAGRAPH_END, _ROW_SENTENCE_END)]
    return list(_split(text, start, end, max_words, levels))


class FileSplitter:
    """Splits the text of a file; a line at one of `line_starts` begins anew, any other may go on a sentence."""

    def __init__(self, text: str, headings: Sequence[Heading], line_starts: Sequence[int]) -> None:
        self._text = text
        self._levels = {each.start: each.level for each in reversed(headings) if each.level <= SECTION_LEVELS}
        self._sections = sorted(self._levels)
        self._line_starts = frozenset(line_starts)

    def split(self, start: int, end: int, max_words: int) -> list[Piece]:
        """The pieces of a span, of at most `max_words` words each."""
        pieces: list[Piece] = []
        below = [self._find_items, self._find_sentences, self._find_lines]
        for block_start, block_end in _spans(start, end, self._find_blocks(start, end)):
            split = list(_split(self._text, block_start, block_end, max_words, below))
            split[0].level = self._levels.get(block_start, 0)
            split[-1].leads = self._leads(split[-1], self._text[block_end : min(block_end + _LONG_WORD, end)])
            pieces += split
        return pieces

    def _leads(self, piece: Piece, following: str) -> bool:
        """True for a heading, a lead with a colon, and a sentence that an example or a formula interrupts."""
        if piece.num_words > _MAX_LEAD_WORDS:
            return False
        said = self._text[piece.start : piece.end].rstrip()
        is_heading = piece.level > 0 and said.count("\n") <= 2
        return is_heading or said.endswith(":") or goes_on(said, following, width=len(said) + _LONG_WORD)

    def _find_blocks(self, start: int, end: int) -> list[int]:
        """Ends of paragraphs; a heading begins one even without a blank line above."""
        sections = self._sections[bisect_left(self._sections, start) : bisect_left(self._sections, end)]
        return sorted({*_find_ends(_PARAGRAPH_END, self._text, start, end), *sections})

    def _find_items(self, start: int, end: int) -> list[int]:
        """Starts of the lines that are no further indented than the first, and do not go on a sentence."""
        indent = self._indent(start)
        return [at for at in self._find_hard_lines(start, end) if self._indent(at) <= indent]

    def _find_sentences(self, start: int, end: int) -> list[int]:
        marks = _SENTENCE_END.finditer(self._text, start, end)
        ends = {found.end() for found in marks if self._ends_sentence(found, end)}
        return sorted(ends.union(self._find_hard_lines(start, end)))

    def _find_lines(self, start: int, end: int) -> list[int]:
        return [self._text.rfind("\n", start, at) + 1 for at in _find_ends(_LINE_END, self._text, start, end)]

    def _find_hard_lines(self, start: int, end: int) -> list[int]:
        """Where the lines after the first start that do not go on the sentence of the line above."""
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
        """Number of blanks before the text at or after `at` on its line; a longer indent than any text has is cut."""
        first = max(0, at - _MAX_INDENT)
        line = self._text[self._text.rfind("\n", first, at) + 1 or first : at + _MAX_INDENT]
        return len(line) - len(line.lstrip(" \t"))

    def _ends_sentence(self, mark: re.Match[str], end: int) -> bool:
        following = self._text[mark.end() : min(mark.end() + 1, end)]
        before = self._text[max(0, mark.start() - _TAIL_CHARS) : mark.start()]
        return not (following.islower() or (mark.group()[0] == "." and is_abbreviation(before, following)))


# ---------------------------------------------------------------------------------------------------------- splitting


def _split(text: str, start: int, end: int, max_words: int, levels: Sequence[Boundaries]) -> Iterator[Piece]:
    """The span as consecutive pieces: it itself if it is short enough, else split at the first level that is left."""
    num_words = count_words(text[start:end])
    if num_words <= max_words:
        yield Piece(start, end, num_words)
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


def _runs_of_words(text: str, start: int, end: int, max_words: int) -> Iterator[Piece]:
    starts = [word for word, _ in word_spans(text, start, end)][::max_words]
    for run_start, run_end in zip([start, *starts[1:]], [*starts[1:], end], strict=True):
        yield Piece(run_start, run_end, count_words(text[run_start:run_end]))

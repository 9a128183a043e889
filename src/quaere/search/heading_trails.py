"""Heading trails: which headings of its document a passage is under.

HeadingTrails("The planner", headings).name(start, end) == "Options > Query planning"
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import reduce
from itertools import takewhile

from quaere.search.extracted import SECTION_LEVELS, Heading

MAX_HEADING_CHARS = 120
MAX_TRAIL_CHARS = 200
_MARKUP_CHARS = 12  # what there may be beside the words of a heading: "## ", line breaks
_NUMBER = re.compile(r"(?:chapter\s+|appendix\s+)?[0-9]+(?:\.[0-9]+)*+\.?\s+", re.IGNORECASE)

Trail = tuple[tuple[int, str], ...]  # levels and texts, outermost first


class HeadingTrails:
    """The trails of a document's passages, without its title."""

    def __init__(self, title: str, headings: Sequence[Heading]) -> None:
        self._title = _bare(title)
        self._headings = headings
        self._starts = [heading.start for heading in headings]
        self._trails: list[Trail] = []
        trail: Trail = ()
        for heading in headings:
            said = ((heading.level, heading.text[:MAX_HEADING_CHARS].rstrip(": ")),) if heading.text else ()
            trail = (*(outer for outer in trail if outer[0] < heading.level), *said)
            self._trails.append(trail)

    def name(self, start: int, end: int) -> str:
        """The headings that `text[start:end]` is under; of several whole sections, those they have in common."""
        last = bisect_right(self._starts, start) - 1
        if last < 0:
            return ""
        trail = self._trails[last]
        if self._starts[last] == start:
            within = range(last, bisect_left(self._starts, end))
            sections = [self._trails[number] for number in within if self._has_text(number)]
            trail = reduce(_common, sections) if sections else trail
        said = [text for _, text in trail if _bare(text) != self._title]
        while sum(map(len, said)) + 3 * len(said) > MAX_TRAIL_CHARS and len(said) > 1:
            said = said[1:]
        return " > ".join(said)

    def _has_text(self, number: int) -> bool:
        """True for a section with text between its heading and the next."""
        heading = self._headings[number]
        rest = self._starts[number + 1] - heading.start if number + 1 < len(self._starts) else None
        return heading.level <= SECTION_LEVELS and (rest is None or rest > len(heading.text) + _MARKUP_CHARS)


def _common(first: Trail, second: Trail) -> Trail:
    return tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _bare(heading: str) -> str:
    """A heading without case and its number: "2.9.1 Car Inventory" and the page "Car inventory" are one."""
    return " ".join(_NUMBER.sub("", heading, count=1).casefold().split())

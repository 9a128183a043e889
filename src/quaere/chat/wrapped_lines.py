"""Hard-wrapped lines: whether a line break is only where the line was full, or ends what the line says.

goes_on("The Oss rises near the town of", "the two bridges.", width=60) == True
goes_on("Length: 40 km", "Source: Korrin", width=60) == False
"""

from __future__ import annotations

import re

_MIN_CHARS, _MAX_CHARS = 55, 120  # a shorter line was not full, and a longer one was never wrapped
# What begins a line of its own: items of lists, rows, headings, quotations, fields, directives, options, rules.
_OWN_LINE = re.compile(
    r"[ \t]*+(?:[-*+•–o·][ \t]|(?:[0-9]{1,3}|[a-zA-Z])[.)][ \t]|\((?:[0-9]{1,3}|[a-zA-Z])\)[ \t]|\[[0-9]{1,3}\]"
    r"|\||#{1,6}[ \t]|>|:\w[\w -]*+:(?=\s|$)|\.\. |==|--|```|~~~|[{}@$%])"
)
_ENDED = re.compile(r"[.!?…:;。！？][\"'”’»)\]*_`]*+$")
_FIRST_WORD = re.compile(r"\s*+(\S*+)")


def starts_own_line(line: str) -> bool:
    """True if the line cannot be the middle of a sentence: it opens an item, a row, a heading or the like."""
    return _OWN_LINE.match(line) is not None


def goes_on(line: str, following: str, width: int) -> bool:
    """True if a sentence goes on from a line to the next; `width` is the length of the longest line around.

    It does if the next line begins in lower case, or if its first word would not have fitted into the line.
    """
    line = line.rstrip()
    if not line or _ENDED.search(line[-8:]) or starts_own_line(following) or line.lstrip()[:1] in ("|", "#"):
        return False
    word = _FIRST_WORD.match(following)
    first = word.group(1) if word else ""
    if first[:1].islower():
        return True
    return _MIN_CHARS <= len(line) <= _MAX_CHARS and width <= _MAX_CHARS and len(line) + 1 + len(first) > width

"""Text of a document without its markup: links, emphasis, roles and inline HTML; `code` keeps its backticks.

    plain_text("See the *new* [guide](guide.md).").text -> "See the new guide."

Only characters are left out, so that each that stays has a place in the document. What is no markup stays: `<client>`,
`*.txt`, `__init__`, `a[0](x)`. Every pattern is bounded, so the time is linear in the length of the text.
"""

import re
from typing import NamedTuple

_MARKUP = re.compile(
    r"""
    (?<![\w\\])(?:\{(?P<myst>[a-z][a-z:-]{0,20})\}|:(?P<rst>[a-z][a-z:-]{0,20}):)(?=`[^`]{1,200}`)   # a role
      (?:(?<=[{:](?:ref|doc)[}:])`(?:(?P<title>[^`<]{1,200}?)\s*<[^`<>]{1,200}>|(?P<target>[^`<]{1,200}))`
      |(?<=[{:](?:abbr|term)[}:])`(?P<word>[^`]{1,200})`)?
    |(?P<code>(?P<tick>`{1,3})(?!`)[^`](?:.{0,300}?[^`])?(?P=tick)(?!`))
    |(?<![\w\]\\])!?\[(?P<link>[^\[\]]{0,200}[^\W\d_][^\[\]]{0,200})\]\((?![^()\s]?\)|[^()\s]{0,300}[|,])
      [^()\s]{1,300}(?:\([^()\s]{0,100}\))?[^()\s]{0,100}\)
    |(?<![\w*\\])(?P<star>\*{1,3})(?=[\w`"“(])(?P<strong>(?:[^*()]|\([^*()]{0,200}\)){1,300}?)(?<=\S)(?P=star)(?![\w*])
    |(?<![\w\\])_(?=[^\W_])(?P<leaning>[^_`]{1,200}?)(?<=[^\s_])_(?!\w)
    |<(?P<tag>a|b|i|u|em|strong|span|font|tt|kbd|code|cite|q|small)(?:\s[^<>]{0,200})?>(?P<html>(?!\s)[^<>]{1,300}(?<!\s))</(?P=tag)>
    |\\(?P<escaped>[*_~])
    """,
    re.VERBOSE | re.DOTALL,
)
_KEPT = ("title", "target", "word", "code", "link", "strong", "leaning", "html", "escaped")
_PASSES = 2  # emphasis in a link, and a link in emphasis


class Plain(NamedTuple):
    """A text without markup, and for each of its characters the place in the text with it."""

    text: str
    places: list[int]


def plain_text(text: str) -> Plain:
    """The text without markup.

    plain_text("a *b*") -> Plain("a b", [0, 1, 3])
    """
    places = list(range(len(text)))
    for number in range(_PASSES):
        kept, at = list[int](), 0
        for found in _MARKUP.finditer(text):
            name = next((name for name in _KEPT if found[name] is not None), "")
            if name == "escaped" and number < _PASSES - 1:
                continue  # without its backslash the next pass would take it for markup
            kept += range(at, found.start())
            kept += range(*found.span(name)) if name else ()
            at = found.end()
        kept += range(at, len(text))
        text, places = "".join(text[one] for one in kept), [places[one] for one in kept]
    return Plain(text, places)

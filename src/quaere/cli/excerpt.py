"""Excerpt of a passage around the words of a query, and where these words are.

>>> text = "It rises at Korrin. " * 20 + "Venn built the Halm bridge in 1702."
>>> excerpt("halm bridges", text, 40)
'… Venn built the Halm bridge in 1702.'
"""

from __future__ import annotations

import re

from quaere.search.words import question_words, terms

_LANGUAGE = "english"  # words of other languages match in the same form, or by chance in one more
_WORD = re.compile(r"[^\W_]+")
_LINE_BREAKS = re.compile(r"[ \t\n]+")
_COMMON = frozenset("a an and at by for from in of on or the to with".split())

Match = tuple[int, int, str]  # start, end, term


def find_matches(query: str, text: str) -> list[Match]:
    """Start, end and term of the query's words in the text, in the order of the text; articles and the like are none.

    find_matches("halm bridges", "The Halm bridge") == [(4, 8, "halm"), (9, 15, "bridg")]
    """
    wanted = _terms(query, without=question_words(_LANGUAGE) | _COMMON) or _terms(query)
    found: list[Match] = []
    for word in _WORD.finditer(text):
        own = _terms(word.group())
        same = sorted(own & wanted, key=lambda term: (-len(term), term))
        if same and len(word.group()) > 1 and any(len(term) == 1 for term in own):
            # Of a script without spaces: characters and their pairs are terms, and a pair says more.
            found += _find_parts(word.group(), [term for term in same if len(term) == len(same[0])], word.start())
        elif same:
            found.append((*word.span(), same[0]))
    return sorted(found)


def excerpt(query: str, text: str, num_chars: int) -> str:
    """The text on one line, cut to about `num_chars` characters that have most of the query's words."""
    line = _LINE_BREAKS.sub(" ", text).strip(" ")
    if len(line) <= num_chars:
        return line
    start, end = _best_window(find_matches(query, line), num_chars)
    start = max(0, min(start - (num_chars - (end - start)) // 2, len(line) - num_chars))
    end = start + num_chars
    if start and (space := line.find(" ", start - 1, end)) >= 0:
        start = space + 1
    if end < len(line) and (space := line.rfind(" ", start, end + 1)) >= 0:
        end = space
    return f"{'… ' if start else ''}{line[start:end]}{' …' if end < len(line) else ''}"


def _terms(text: str, without: frozenset[str] = frozenset()) -> set[str]:
    return set(terms(text, stemmer=_LANGUAGE, without=without))


def _find_parts(word: str, parts: list[str], offset: int) -> list[Match]:
    """The places of parts in a word; none where its letters were folded."""
    places = ((part, match.start()) for part in parts for match in re.finditer(f"(?={re.escape(part)})", word))
    return [(offset + start, offset + start + len(part), part) for part, start in places]


def _best_window(matches: list[Match], num_chars: int) -> tuple[int, int]:
    """From the first to the last match of the window with the most different terms, then the most matches."""
    best, most = (0, 0), (0, 0)
    for number, (start, _, _) in enumerate(matches):
        inside = [match for match in matches[number : number + num_chars] if match[1] <= start + num_chars]
        size = len({term for _, _, term in inside}), len(inside)
        if size > most:
            best, most = (start, max(end for _, end, _ in inside)), size
    return best

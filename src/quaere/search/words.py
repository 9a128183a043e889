"""Words in any script: chunking counts words, BM25 matches terms.

Most scripts put spaces between words. Chinese, Japanese, Thai, Lao, Khmer and Burmese do not, and Korean attaches
particles to words; these scripts are treated character by character.

    >>> count_words("The Oss rises near Halmgate.")
    5
    >>> terms("Café Zürich, 1905")
    ['cafe', 'zurich', '1905']
    >>> terms("東京都")
    ['東', '京', '都', '東京', '京都']
    >>> terms("Configuring max_wal_size", stemmer="english", whole_names=True)
    ['configur', 'max', 'wal', 'size', 'max_wal_size']
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from typing import NamedTuple

from quaere.search.stemming import NO_STEMMER, stem


def _character_class(categories: str, *blocks: range) -> str:
    """Regex ranges, for use inside `[...]`, of the characters in these blocks with these Unicode categories."""
    ranges: list[list[int]] = []
    for code in (code for code in chain(*blocks) if unicodedata.category(chr(code))[0] in categories):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08X}-\\U{last:08X}" for first, last in ranges)


class _Patterns(NamedTuple):
    """The patterns of texts that are not ASCII only."""

    counted: re.Pattern[str]
    matched: re.Pattern[str]
    character: re.Pattern[str]
    many_marks: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """The patterns, compiled when a text first needs them: that takes longer than searching a small index."""
    unspaced = _character_class(
        "LN",
        range(0x0E00, 0x0F00),  # Thai, Lao
        range(0x1000, 0x10A0),  # Burmese
        range(0x1100, 0x1200),  # Hangul, letter by letter
        range(0x1780, 0x1800),  # Khmer
        range(0x3005, 0x3008),  # the signs that repeat a Chinese character, and zero
        range(0x3040, 0x3200),  # Hiragana, Katakana, Hangul compatibility letters
    ) + (
        r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U000323AF"  # Chinese characters
        r"\uAC00-\uD7AF"  # Hangul
        r"\uFF66-\uFFDC\U0001B000-\U0001B16F"  # Katakana and Hangul of half width, historic kana
    )
    # Marks belong to the letter before them. Python's \w does not match them, so it would split words of Hindi or Thai
    # at every vowel sign. The blocks left out are Chinese characters and Hangul, which have no marks.
    marks = _character_class(
        "M", range(0x0300, 0x3100), range(0xA600, 0xAC00), range(0xFB00, 0xFF00), range(0x10000, 0x1F000)
    )
    return _Patterns(
        # One "word" of a budget: two unspaced characters, or a run of up to 20 others (so that a blob without spaces
        # still costs, and may be cut, like text).
        counted=re.compile(rf"(?:[{unspaced}][{marks}]*){{1,2}}|[^\s{unspaced}]{{1,20}}"),
        # A run of unspaced characters, or a word of letters and digits.
        matched=re.compile(rf"[{unspaced}][{unspaced}{marks}]*|[^\W_{unspaced}]+(?:[{marks}]+[^\W_{unspaced}]*)*"),
        character=re.compile(rf"[{unspaced}][{marks}]*"),
        # No text has more than 30 marks on a letter (the bound of Unicode's Stream-Safe Text Format), and
        # normalisation sorts the marks of a letter by comparing all of them with one another.
        many_marks=re.compile(rf"([{marks}]{{30}})[{marks}]++"),
    )


# Fast path: many corpora are mostly ASCII, which needs none of the above.
_ASCII_COUNTED = re.compile(r"\S{1,20}")
_ASCII_MATCHED = re.compile(r"[a-z0-9]+")

# Names of programs, options and settings: max_wal_size, --no-ff, limits.cpu, 2.0.3. They begin at a word's beginning.
_NAMES = re.compile(r"(?<![^\W_])[a-z0-9]++(?:[_.-][a-z0-9]++)++")

# Characters that folding removes: combining accents of Latin, Greek and Cyrillic letters, optional vowel points of
# Hebrew and Arabic, and variation selectors of Chinese characters.
_ACCENTS = re.compile(
    "[\ufe00-\ufe0f\U000e0100-\U000e01ef\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]+"
)


def count_words(text: str) -> int:
    """Number of words for length limits: `count_words("two words") == 2`, `count_words("東京都庁") == 2`."""
    return len((_ASCII_COUNTED if text.isascii() else _patterns().counted).findall(text))


def word_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of the counted words in `text[start:end]`: `word_spans("ab cd", 0, 5)` gives (0, 2), (3, 5)."""
    return (match.span() for match in _patterns().counted.finditer(text, start, end))


def fold(text: str) -> str:
    """The text without case, accents and compatibility forms: `fold("ÉCOLE Ⅷ ﬁn") == "ecole viii fin"`.

    It is applied for matching only; stored text is never folded.
    """
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", _patterns().many_marks.sub(r"\1", text)))
    return unicodedata.normalize("NFKC", bare.casefold())


def terms(
    text: str, *, stemmer: str = NO_STEMMER, whole_names: bool = False, without: frozenset[str] = frozenset()
) -> list[str]:
    """Terms for BM25: folded words; for unspaced scripts every character and every pair of characters.

    With a `stemmer` they are stems. With `whole_names`, names that are joined by `_`, `-` or `.` are also terms as they
    are, so that `max_wal_size` matches itself best and `wal size` as well. Words of `without` are left out.
    """
    folded = fold(text)
    found = _folded_words(folded)
    if without:
        found = [word for word in found if word not in without]
    if stemmer != NO_STEMMER:
        found = stem(found, stemmer)
        if not text.isascii():
            found += _accented_stems(text, stemmer, without)
    return found + _NAMES.findall(folded) if whole_names else found


def _folded_words(folded: str) -> list[str]:
    if folded.isascii():
        return _ASCII_MATCHED.findall(folded)
    found: list[str] = []
    patterns = _patterns()
    for word in patterns.matched.findall(folded):
        characters = [] if word.isascii() else patterns.character.findall(word)
        if characters:
            found += characters
            found += [first + second for first, second in pairwise(characters)]
        else:
            found.append(word)
    return found


def _accented_stems(text: str, stemmer: str, without: frozenset[str]) -> list[str]:
    """The folded stems of words with accents, where they are not the stems of the folded words.

    A stemmer needs the accents ("configuración" has the stem of "configuraciones"), and a query may lack them: so such
    a word has both stems.
    """
    written = unicodedata.normalize("NFKC", _patterns().many_marks.sub(r"\1", text)).casefold()
    found: list[str] = []
    for word in _patterns().matched.findall(written):
        if word.isascii() or (folded := fold(word)) == word or folded in without or _patterns().character.match(word):
            continue
        with_accents, plain = stem([word, folded], stemmer)
        if fold(with_accents) != plain:
            found.append(fold(with_accents))
    return found

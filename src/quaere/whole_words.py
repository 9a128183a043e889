"""Search for a span in a text in whole words and numbers.

find_whole("finished in 170", "It was finished in 1702.") -> -1
find_whole("in 1702", "It was finished in 1702.") -> 16
"""

import re
import unicodedata

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, ideographs. Any place between two of their
# letters may end a span.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# A place (NUL) between two characters of a word, or beside the point or comma of a number.
_INSIDE = re.compile(rf"[^\W_{UNSPACED}]\0[^\W_{UNSPACED}]|[0-9]\0[.,][0-9]|[0-9][.,]\0[0-9]")
_MAX_OVERLAPS = 16  # occurrences inside words after which overlapping ones are skipped


def find_whole(span: str, text: str) -> int:
    """Index of the span's first occurrence that neither begins nor ends inside a word or number; -1 if there is none.

    An empty span is not found. Of occurrences that overlap an earlier one only the first are tried, so that the search
    is linear.

        find_whole("ab a", "ab ab a") == 3
    """
    at = text.find(span) if span else -1
    num_tried = 0
    while at >= 0:
        if not _splits_word(text, at) and not _splits_word(text, at + len(span)):
            return at
        num_tried += 1
        at = text.find(span, at + (1 if num_tried <= _MAX_OVERLAPS else len(span)))
    return -1


def _splits_word(text: str, at: int) -> bool:
    """True if the place `at` is inside a word or number ("17|02", "3|.14", "bri|dge") or before a combining mark."""
    if 0 < at < len(text) and unicodedata.combining(text[at]):
        return True
    return bool(_INSIDE.search(f"{text[max(0, at - 2) : at]}\0{text[at : at + 2]}"))

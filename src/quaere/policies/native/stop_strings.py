"""Detection of stop strings. It runs after every token of every row, so it must be cheap."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class StopStrings:
    """Finds stop strings at the end of the sampled tokens, using the tokenizer's `decode`.

    StopStrings(tokenizer.decode).just_ended([60, 1250, 62], ("</answer>",))
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._pieces: dict[int, str] = {}
        self._lasts: dict[tuple[str, ...], frozenset[str]] = {}

    def just_ended(self, new: list[int], stop: tuple[str, ...]) -> bool:
        """True if a stop string has just appeared. It may end inside the last token, which is kept whole.

        A token is at least one byte of text, so a tail of as many tokens as the longest string has bytes contains any
        string that the newest token completes; a few more keep a character cut at the front from mattering.
        """
        if not self._may_end(new[-1], stop):
            return False
        longest = max(len(text.encode()) for text in stop)
        tail = self._decode(new[-(longest + 4) :])
        return any(text in tail for text in stop)

    def _may_end(self, token: int, stop: tuple[str, ...]) -> bool:
        """True if this token could complete a stop string.

        Each token is decoded once and cached; decoding a tail for every row and step would take much of a fast step. A
        last character of several bytes may be split over two tokens, and a tokenizer may drop a lone space: in these
        cases nothing is ruled out.
        """
        lasts = self._lasts.get(stop)
        if lasts is None:
            lasts = self._lasts[stop] = frozenset(text[-1] for text in stop)
        if not all(last.isascii() and not last.isspace() for last in lasts):
            return True
        if token not in self._pieces:
            self._pieces[token] = self._decode([token])
        return not lasts.isdisjoint(self._pieces[token])

"""Has a stop string just appeared? Asked after every token of every row, so it must cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class StopStrings:
    """Looks for strings at the end of what was sampled, through the tokenizer's `decode`.

    StopStrings(tokenizer.decode).just_ended([60, 1250, 62], ("</answer>",))
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._pieces: dict[int, str] = {}
        self._lasts: dict[tuple[str, ...], frozenset[str]] = {}

    def just_ended(self, new: list[int], stop: tuple[str, ...]) -> bool:
        """Has one of the strings just appeared? It may end inside the last token, which is kept whole.

        A token stands for at least one byte of text, so a tail of tokens as long as the longest string in bytes holds
        any string that the newest token completes; some more keep a character cut at the front out of the way.
        """
        if not self._may_end(new[-1], stop):
            return False
        longest = max(len(text.encode()) for text in stop)
        tail = self._decode(new[-(longest + 4) :])
        return any(text in tail for text in stop)

    def _may_end(self, token: int, stop: tuple[str, ...]) -> bool:
        """Could this token complete one of the strings?

        What a token says is decoded once; a tail of tokens for every row and step would cost much of a fast step. A
        last character of several bytes may be shared by two tokens, and a tokenizer may drop a space that stands alone,
        so then nothing is ruled out.
        """
        lasts = self._lasts.get(stop)
        if lasts is None:
            lasts = self._lasts[stop] = frozenset(text[-1] for text in stop)
        if not all(last.isascii() and not last.isspace() for last in lasts):
            return True
        if token not in self._pieces:
            self._pieces[token] = self._decode([token])
        return not lasts.isdisjoint(self._pieces[token])

"""Matching of names and values of known facts in text.

KnownNames(facts).find("Orsolya Venn built it.") == {("orsolya", "venn")}

The longest whole-word match counts; a name followed by another capitalised word is a different name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from quaere.evaluation.reports.lexical import name_runs
from quaere.rewards.answers import normalise_answer
from quaere.search.words import fold
from quaere.worlds.open_questions import KnownFact

_CHUNK = re.compile(r"[^\s—–/“”„«»…()\[\]{}]+")
_DECIMAL = re.compile(r"(?<=\d)\.(?=\d)")  # replaced first: the normaliser drops full stops, and 1.6 would become 16
_ORDINAL = re.compile(r"\b(?:First|Second|Third|Last)\s+$")  # capitalised, but not part of a name for `name_runs`
_EPITHET = re.compile(r"\s+the\s+(?=[A-Z])")  # "Venn the Tall" is not "Venn"
_PUNCTUATION = ".,;:!?'\"*_`’"  # ends a name

Words = tuple[str, ...]


class _Token(Struct, frozen=True):
    """A normalised word and its place in the text."""

    word: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    """Words of a text, normalised like answers: no case, accents, punctuation, articles or possessive endings."""
    found = []
    for match in _CHUNK.finditer(text):
        word = normalise_answer(fold(_DECIMAL.sub("point", _strip_possessive(match.group()))))
        if word := "".join(character for character in word if character.isalnum()):
            found.append(_Token(word, match.start(), match.start() + len(match.group().rstrip(_PUNCTUATION))))
    return found


def _strip_possessive(chunk: str) -> str:
    """A chunk without possessive ending and without apostrophes after its last letter.

    _strip_possessive("Oss's,") == "Oss,"; scanned from the end, so that a run of apostrophes costs linear time.
    """
    end = len(chunk)
    while end and not (chunk[end - 1].isalnum() or chunk[end - 1] == "_"):
        end -= 1
    word = chunk[:end]
    return (word[:-2] if word.endswith(("'s", "’s")) else word) + chunk[end:].replace("'", "").replace("’", "")


def split_words(text: str) -> Words:
    """Normalised words of a name or text.

    split_words("The Oss's mouth") == ("oss", "mouth")
    """
    return tuple(token.word for token in _tokens(text))


class KnownNames:
    """All names and values in the facts of a question, for finding their longest matches in text."""

    def __init__(self, facts: Sequence[KnownFact]) -> None:
        self._by_first: dict[str, list[Words]] = {}
        known = {split_words(name) for fact in facts for name in (*fact.names, *fact.answers)}
        for words in sorted(known - {()}, key=lambda words: (-len(words), words)):
            self._by_first.setdefault(words[0], []).append(words)

    def find(self, text: str) -> frozenset[Words]:
        """Known names in the text that are not part of a longer name, known or capitalised."""
        return self.sort(text)[0]

    def sort(self, text: str) -> tuple[frozenset[Words], frozenset[Words]]:
        """The names that `find` returns, and those it leaves out because they are part of a longer capitalised name."""
        tokens = _tokens(text)
        matches: list[tuple[Words, int, int]] = []
        at = 0
        while at < len(tokens):
            words = self._longest(tokens, at)
            if words is None:
                at += 1
                continue
            matches.append((words, tokens[at].start, tokens[at + len(words) - 1].end))
            at += len(words)
        goes_on = _find_longer(text, [(start, end) for _, start, end in matches])
        longer = frozenset(words for words, start, end in matches if (start, end) in goes_on)
        return frozenset(words for words, _, _ in matches) - longer, longer

    def _longest(self, tokens: Sequence[_Token], at: int) -> Words | None:
        for words in self._by_first.get(tokens[at].word, ()):
            if tuple(token.word for token in tokens[at : at + len(words)]) == words:
                return words
        return None


def _find_longer(text: str, spans: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Spans that are parts of longer names; words covered by another span do not make a name longer."""
    covered, unfinished = bytearray(len(text)), bytearray(len(text))  # one byte per character, for linear time
    for start, end in spans:
        covered[start:end] = b"\1" * (end - start)
    for first, last in name_runs(text):
        if any(not covered[at] and text[at].isalnum() for at in range(first, last)):
            unfinished[first:last] = b"\1" * (last - first)
    found = set()
    for start, end in spans:
        epithet = _EPITHET.match(text, end)
        if (
            1 in unfinished[start:end]
            or (text[start].isupper() and _ORDINAL.search(text[max(0, start - 20) : start]))
            or (text[start].isupper() and epithet and not covered[epithet.end()])
        ):
            found.add((start, end))
    return found

"""Topics of an index: names that a search finds documents by, and related topics.

topics = Topics(open_index(Path("docs-index")), seed=7)
topic = topics.find(0)                  # Topic(name="River Oss", doc_ids=("rivers.md",), passage=Passage(...))
topics.linked(topic)                    # topics whose titles occur in its document
topics.similar(topic)                   # topics whose documents a search for its first sentence returns
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from quaere.records import Passage
from quaere.search.index import Index
from quaere.search.words import terms
from quaere.worlds.dice import Dice

_MAX_READ = 100_000  # passages read for titles; of a larger index, evenly spaced passages
_MAX_CHARS = 20_000  # characters of a document that are scanned for names
_MAX_TITLE_WORDS, _MAX_TITLE_CHARS = 12, 100
_NUM_TERMS = 4
_MAX_TOLD = 30  # words of the first sentence used as the query for similar documents
_MIN_LETTERS = 4  # minimum length of a term
_WORD = re.compile(r"\w[\w'’-]*")
_CAPITAL = r"[A-Z\u00C0-\u00DE\u0391-\u03A9\u0410-\u042F][\w'’-]*"
# "River Oss", "Order of the Grey Heron"
_PHRASE = re.compile(rf"{_CAPITAL}(?: (?:(?:of the|of|de la|de|von|van der|van|du|del|di) )?{_CAPITAL})*")
# Words that are capitalised only at the start of a sentence.
_SMALL = frozenset(
    "a an and as at but by for from he her his if in is it its no of on or she so the they to we".split()
)
_SENTENCE = re.compile(r"[^.!?\n]+")
_FILE_NAME = re.compile(r"\.\w{1,5}$|_|^\W*$|^[\d\W]+$")


class Topic(Struct, frozen=True):
    """A subject to ask about, and the documents about it. `passage` belongs to the first of `doc_ids`.

    Topic(name="River Oss", doc_ids=("rivers.md",), passage=Passage(id="rivers.md#0", ...))
    """

    name: str
    doc_ids: tuple[str, ...]
    passage: Passage


class Topics:
    """The topics of an index, shuffled by the seed."""

    def __init__(self, index: Index, seed: int, topk: int = 5) -> None:
        self.index = index
        self.topk = topk
        self._openings: list[Passage] = []  # first passage of one document per title
        self._doc_ids: dict[str, list[str]] = {}  # document ids by title
        self._by_words: dict[tuple[str, ...], Passage] = {}
        seen: set[str] = set()
        for passage in self._read():
            if passage.doc_id in seen:
                continue
            seen.add(passage.doc_id)
            key = passage.title if is_title(passage.title) else f"#{passage.doc_id}"
            if key not in self._doc_ids:
                self._openings.append(passage)
                if not key.startswith("#") and (words := _words(passage.title)):
                    self._by_words.setdefault(words, passage)
            self._doc_ids.setdefault(key, []).append(passage.doc_id)
        Dice(seed, "topics").shuffle(self._openings)
        self._found: dict[int, Topic | None] = {}

    def __len__(self) -> int:
        """Number of candidate topics; `find` returns None for those that no search finds."""
        return len(self._openings)

    def find(self, number: int) -> Topic | None:
        """Topic `number`: the document's title, or a term of a document without title; None if no search finds it."""
        if number not in self._found:
            opening = self._openings[number]
            titled = self._titled(opening)
            names = [titled] if titled else [self._topic(term, opening) for term in self.terms(opening)]
            self._found[number] = next(self._grounded(names), None)
        return self._found[number]

    def _grounded(self, topics: Iterable[Topic]) -> Iterator[Topic]:
        """Topics whose name, used as a query, returns one of their documents; that document is moved to the front."""
        for topic in topics:
            hits = self.index.search([topic.name], self.topk)[0]
            found = next((hit.passage for hit in hits if hit.passage.doc_id in topic.doc_ids), None)
            if found is not None:
                others = tuple(doc_id for doc_id in topic.doc_ids if doc_id != found.doc_id)
                yield Topic(topic.name, (found.doc_id, *others), found)

    def linked(self, topic: Topic) -> list[Topic]:
        """Topics whose titles occur verbatim in this topic's document and that a search finds."""
        words = tuple(_WORD.findall(self._text(topic)))
        longest = max(map(len, self._by_words), default=0)
        found: dict[str, Topic] = {}
        for at in range(len(words)):
            for length in range(min(longest, len(words) - at), 0, -1):
                opening = self._by_words.get(_bare(words[at : at + length]))
                other = self._titled(opening) if opening is not None else None
                if other and other.name != topic.name and not set(other.doc_ids) & set(topic.doc_ids):
                    found.setdefault(other.name, other)
                    break
        return list(self._grounded(found.values()))

    def similar(self, topic: Topic) -> list[Topic]:
        """Titled topics whose documents are similar to the first sentence of this topic's passage."""
        sentence = _SENTENCE.search(topic.passage.text)
        told = [word for word in terms(sentence[0] if sentence else "") if word not in terms(topic.name)]
        hits = self.index.search([" ".join(told[:_MAX_TOLD]) or topic.name], 2 * self.topk)[0]
        openings = {hit.passage.title: hit.passage for hit in hits if hit.passage.doc_id not in topic.doc_ids}
        others = [self._titled(self._by_words.get(_words(title), passage)) for title, passage in openings.items()]
        return list(self._grounded(other for other in others if other and other.name != topic.name))

    def terms(self, opening: Passage) -> list[str]:
        """The most frequent names in a document outside its title: capitalised phrases, else its most frequent words.

        ["Korrin Vale", "Grey Water"]
        """
        text, title = self._document(opening.doc_id), opening.title.lower()
        counts = Counter(text[start:end] for start, end in find_phrases(text))
        phrases = [phrase for phrase in counts if len(phrase) >= _MIN_LETTERS and phrase.lower() not in title]
        if not phrases:
            words = Counter(word for word in terms(text) if len(word) >= _MIN_LETTERS and word not in title)
            return sorted(words, key=lambda word: (-words[word] * len(word), word))[:_NUM_TERMS]
        return sorted(phrases, key=lambda phrase: (-counts[phrase], -phrase.count(" "), phrase))[:_NUM_TERMS]

    # -------------------------------------------------------------------------------------------------- reading

    def _read(self) -> Iterator[Passage]:
        """All passages, or evenly spaced passages of a large index."""
        if len(self.index) <= _MAX_READ:
            return self.index.passages()
        return map(self.index.passage, range(0, len(self.index), -(-len(self.index) // _MAX_READ)))

    def _titled(self, opening: Passage) -> Topic | None:
        return self._topic(opening.title, opening) if is_title(opening.title) else None

    def _topic(self, name: str, opening: Passage) -> Topic:
        return Topic(name, tuple(self._doc_ids.get(name, [opening.doc_id])), opening)

    def _text(self, topic: Topic) -> str:
        return self._document(topic.doc_ids[0])

    def _document(self, doc_id: str) -> str:
        return self.index.document(doc_id)[:_MAX_CHARS]


def is_title(title: str) -> bool:
    """True if the title is a name that can be asked about, not a file name, a number or a whole sentence.

    is_title("River Oss"), not is_title("notes_2.md"), not is_title("")
    """
    fits = 1 <= len(title.split()) <= _MAX_TITLE_WORDS and len(title) <= _MAX_TITLE_CHARS
    return fits and len(title.strip()) > 1 and _FILE_NAME.search(title) is None


def _words(title: str) -> tuple[str, ...]:
    return _bare(tuple(_WORD.findall(title)))


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without a leading "The", which running text lowercases or omits; () if the first word is lowercase."""
    if len(words) > 1 and words[0] in ("The", "the"):
        words = words[1:]
    return words if words and not words[0][0].islower() else ()


def _is_name(text: str, match: re.Match[str]) -> bool:
    """False for a single word that may be capitalised only because it starts a sentence."""
    before = text[max(0, match.start() - 4) : match.start()].rstrip(" \t\"'“(")
    return " " in match[0] or (bool(before) and before[-1] not in ".!?\n:#>*-")


def find_phrases(text: str) -> list[tuple[int, int]]:
    """(start, end) of each name in a text: adjacent capitalised words, without a small word that starts a sentence.

    find_phrases("On Mondays the Korrin Vale is dry.") -> [(3, 10), (15, 26)]
    """
    return [_drop_small(match) for match in _PHRASE.finditer(text) if _is_name(text, match)]


def _drop_small(match: re.Match[str]) -> tuple[int, int]:
    """Span of the match without a leading small word: "On Mondays" becomes "Mondays"."""
    first, _, rest = match[0].partition(" ")
    start = match.start() + len(first) + 1 if rest and first.lower() in _SMALL else match.start()
    return start, match.end()

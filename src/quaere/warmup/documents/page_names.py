"""What a folder of documents is about, by its name, and which other pages a text names.

    FolderNames(passages).find("gnucash/help/invoices.html") == "GnuCash"    # "" for docs/invoices.html
    list(Pages(index).find_named(passage)) == ["Orsolya Venn"]

A folder's name is taken if its own documents use it as a word, and written as they write it most often. Questions about
documents of several programs can then say which program they are about.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from quaere.records import Passage
from quaere.search.index import Index
from quaere.warmup.documents.askable_facts import page_name

_MIN_SHARE = 0.3  # least share of a folder's documents that use its name as a word
_MIN_CHARS = 3
_WORD = re.compile(r"\w+")
_NAME_WORD = re.compile(r"\w[\w'’-]*")
_MIN_NAME_CHARS = 4  # letters of a one-word name: shorter ones are mostly ordinary words


class FolderNames:
    """The names of those folders whose own documents use the folder's name as a word."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        documents: dict[str, Counter[str]] = defaultdict(Counter)
        for passage in passages:
            if "/" in passage.doc_id:
                documents[passage.doc_id].update(_WORD.findall(passage.titled_text))
        num_documents: Counter[tuple[str, str]] = Counter()  # by folder and word of its name
        users: dict[tuple[str, str], list[Counter[str]]] = defaultdict(list)
        for doc_id, words in documents.items():
            written = _group_by_fold(words)
            for key in _iterate_names(doc_id):
                num_documents[key] += 1
                if key[1] in written:
                    users[key].append(written[key[1]])
        self._names = {
            key: _find_usual(sum(used, Counter[str]()))
            for key, used in users.items()
            if len(used) >= _MIN_SHARE * num_documents[key]
        }

    def find(self, doc_id: str) -> str:
        """The name of the innermost folder of the document that has one; "" if none has."""
        return next((self._names[key] for key in _iterate_names(doc_id) if key in self._names), "")


def _find_usual(forms: Counter[str]) -> str:
    """The most frequent spelling; of equally frequent ones the first in alphabetical order."""
    return min(forms, key=lambda form: (-forms[form], form))


def _group_by_fold(words: Counter[str]) -> dict[str, Counter[str]]:
    """The counts of each word's spellings, by the word in lower case: {"lxd": Counter({"LXD": 3, "lxd": 1})}."""
    grouped: dict[str, Counter[str]] = defaultdict(Counter)
    for word, num in words.items():
        grouped[word.casefold()][word] = num
    return grouped


def _iterate_names(doc_id: str) -> Iterator[tuple[str, str]]:
    """Pairs of a document's folder, innermost first, and its name or a word of it: "icewm-common", "icewm"."""
    folder = doc_id
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        name = folder.rpartition("/")[2].casefold()
        words = dict.fromkeys((name, *_WORD.findall(name)))
        yield from ((folder, word) for word in words if len(word) >= _MIN_CHARS)


# ---------------------------------------------------------------------------------------------------------------- pages


class Pages:
    """The passages of an index, and lookup of the pages that a passage names."""

    def __init__(self, index: Index) -> None:
        self.passages = list(index.passages())
        names = dict.fromkeys(page_name(passage.title) for passage in self.passages)
        self._names = {words: name for name in names if (words := _words(name))}
        self._longest = max(map(len, self._names), default=0)

    def find_named(self, passage: Passage) -> Iterator[str]:
        """The names of all other pages that the passage contains in full; the longest name at a position wins."""
        own, words = page_name(passage.title), _NAME_WORD.findall(passage.text)
        at = 0
        while at < len(words):
            for length in range(min(self._longest, len(words) - at), 0, -1):
                page = self._names.get(tuple(words[at : at + length]))
                if page and page != own:
                    yield page
                    at += length
                    break
            else:
                at += 1


def _words(name: str) -> tuple[str, ...]:
    """A name as words; () if it could be mistaken for an ordinary word."""
    words = tuple(_NAME_WORD.findall(name))
    is_common = not words or not words[0][0].isupper() or (len(words) == 1 and len(words[0]) < _MIN_NAME_CHARS)
    return () if is_common else words

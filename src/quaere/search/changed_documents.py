"""Which documents of an index have changed since their digests were stored.

    before = digest_documents(open_index(path))     # {"halm.md": "5f2c...", "oss.md": "09ab..."}
    find_changed(before, digest_documents(updated)) -> ChangedDocuments(added=("venn.md",), changed=("halm.md",), ...)

An update counts only the files that changed since the previous update; digests compare any two states of an index.
"""

from collections.abc import Mapping

from msgspec import Struct

from quaere.search.sources import digest_bytes
from quaere.search.store import Store


class ChangedDocuments(Struct, frozen=True):
    """Ids of documents that were added, changed and removed, and the number of documents there are now.

    ChangedDocuments(added=("venn.md",), changed=("halm.md",), removed=(), num_documents=200)
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    num_documents: int

    @property
    def readable(self) -> frozenset[str]:
        """Ids of the documents with new text: added and changed."""
        return frozenset(self.added + self.changed)

    @property
    def touched(self) -> frozenset[str]:
        """Ids of all documents that were added, changed or removed."""
        return self.readable.union(self.removed)


def digest_documents(store: Store) -> dict[str, str]:
    """A digest of title and text of every document, by its id."""
    digests = {}
    for number, name in enumerate(store.document_ids()):
        document = store.read_document(number, "file")
        digests[name] = digest_bytes(f"{document.title}\0{document.text}".encode())
    return digests


def find_changed(before: Mapping[str, str], now: Mapping[str, str]) -> ChangedDocuments:
    """What differs between two states.

    find_changed({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == ChangedDocuments(("c",), ("b",), ("a",), 2)
    """
    return ChangedDocuments(
        added=tuple(sorted(now.keys() - before.keys())),
        changed=tuple(sorted(name for name in now.keys() & before.keys() if now[name] != before[name])),
        removed=tuple(sorted(before.keys() - now.keys())),
        num_documents=len(now),
    )

"""What is known and what is asked: passages, what a search brings back, evidence, questions."""

from __future__ import annotations

from msgspec import Struct


class Passage(Struct, frozen=True, omit_defaults=True):
    """A stretch of a source document, the unit that is indexed and returned by a search.

    `text` is exactly `document[start:end]`, so evidence found in a passage can be traced to its source. `place` names
    where it stands in the file, as a person would look it up ("page 3", "lines 10-24"); "" where that is not known.

        Passage(id="rivers.md#0", doc_id="rivers.md", title="The Oss", text="The Oss rises in ...", start=0, end=412)
    """

    id: str
    doc_id: str
    title: str
    text: str
    start: int
    end: int
    place: str = ""

    @property
    def titled_text(self) -> str:
        """The title on a line of its own, if there is one, then the text: how a passage is shown and embedded."""
        return f"{self.title}\n{self.text}" if self.title else self.text


class Hit(Struct, frozen=True):
    """One search result.

    Hit(passage=Passage(...), score=7.25)
    """

    passage: Passage
    score: float


class SearchResult(Struct, frozen=True):
    """What one query brought back, in rank order.

    SearchResult(query="builder of the Halm bridge", hits=(Hit(...), Hit(...)))
    """

    query: str
    hits: tuple[Hit, ...]


class Evidence(Struct, frozen=True):
    """A verbatim span of a document: `document[start:end] == text`.

    Evidence(doc_id="w7-000012", start=118, end=163, text="Orsolya Venn was born in the town of Halmgate.")
    """

    doc_id: str
    start: int
    end: int
    text: str


def searches_needed(hops: int) -> int:
    """Searches a solver needs for a question of so many hops in Dr. Zero's count, and the facts the question combines.

    Dr. Zero counts the links of the proposer's chain, and the first link is the starting point that the question names.
    So h hops are h - 1 facts, each found by a search; a question of one hop still asks for one fact. 0 is unknown.

        [searches_needed(hops) for hops in range(5)] == [0, 1, 1, 2, 3]
    """
    return min(max(1, hops - 1), hops)


class Question(Struct, frozen=True):
    """A question with every accepted answer; `evidence` holds one span per fact where it is known.

    `facts` is how many facts it combines and `searches` how many searches it needs; 0 is unknown. `hops` is the count
    of its source: Dr. Zero's for a proposer's question (see `searches_needed`), the facts for any other. `set` is the
    benchmark it belongs to and `gold_ids` the documents that prove its answer, where its file says so.

        Question(id="w7-q3", text="In which valley ...?", answers=("Korrin", "Korrin Vale"), facts=2, searches=2)
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    hops: int = 0
    evidence: tuple[Evidence, ...] = ()
    set: str = ""
    gold_ids: tuple[str, ...] = ()
    facts: int = 0
    searches: int = 0

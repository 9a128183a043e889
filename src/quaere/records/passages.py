"""Passages, search results, evidence and questions."""

from __future__ import annotations

from msgspec import Struct


class Passage(Struct, frozen=True, omit_defaults=True):
    """A span of a source document: the unit that is indexed and retrieved.

    `text` is exactly `document[start:end]`, so evidence found in a passage can be traced to its source. `place` is
    its place in the file as a person would look it up ("page 3", "lines 10-24"); "" if unknown. `heading` has the
    headings of the document that the passage is under, outermost first ("Options > Query planning"); "" if none.

        Passage(id="rivers.md#0", doc_id="rivers.md", title="The Oss", text="The Oss rises in ...", start=0, end=412)
    """

    id: str
    doc_id: str
    title: str
    text: str
    start: int
    end: int
    place: str = ""
    heading: str = ""

    @property
    def titled_text(self) -> str:
        """The title and the headings on a line of their own, if there are any, then the text: shown and embedded."""
        titles = " > ".join(title for title in (self.title, self.heading) if title)
        return f"{titles}\n{self.text}" if titles else self.text


class Hit(Struct, frozen=True):
    """A retrieved passage with its score.

    Hit(passage=Passage(...), score=7.25)
    """

    passage: Passage
    score: float


class SearchResult(Struct, frozen=True):
    """The hits of one query, in rank order.

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
    """Number of searches a question of `hops` hops (Dr. Zero's count) needs; also the number of facts it combines.

    Dr. Zero counts the links of the proposer's chain, and the first link is the starting point, which the question
    names. So a question of h hops combines h - 1 facts, each found by one search; a question of one hop still asks for
    one fact. 0 means unknown.

        [searches_needed(hops) for hops in range(5)] == [0, 1, 1, 2, 3]
    """
    return min(max(1, hops - 1), hops)


class Question(Struct, frozen=True):
    """A question with all its accepted answers; `evidence` has one span per fact where known.

    `facts` is the number of facts the question combines and `searches` the number of searches it needs; 0 means
    unknown. `hops` is the count of the question's source: Dr. Zero's count for a proposer's question (see
    `searches_needed`), the number of facts for any other. `set` is the benchmark the question belongs to and `gold_ids`
    are the documents that prove its answer, where the question file has them.

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

"""Passages, search results and evidence; questions, and the candidates that a proposer wrote."""

from collections.abc import Sequence
from typing import Literal

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
        """The text after a line with title and headings, if any; the form in which passages are shown and embedded."""
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


def name_sentences(proof: Sequence[Evidence], span: Evidence | None = None) -> str:
    """Where the spans of a proof begin, in any order, or one span without a proof; "" without either.

    Questions with the same name ask for the same sentences.

    name_sentences([Evidence("venn.md", 0, 45, "..."), Evidence("halm.md", 118, 163, "...")]) == "halm.md:118 venn.md:0"
    """
    spans = proof or ((span,) if span else ())
    return " ".join(sorted(f"{one.doc_id}:{one.start}" for one in spans))


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
    are the documents that prove its answer, where the question file has them. A question without `answers` cannot be
    answered from the documents. Passages that contain one of `hidden` are left out of its search results, which makes
    an answerable question unanswerable (`rewards/abstention.py`).

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
    hidden: tuple[str, ...] = ()


# ----------------------------------------------------------------------------------------------------------- candidates


DropReason = Literal[
    "", "invalid", "leaked answer", "refused", "duplicate", "never solved", "always solved", "unfinished", "spoiled"
]


class Support(Struct, frozen=True):
    """The verifier's result for a question: probability of its answer with the evidence span shown and without it.

    `num_samples` is the number of samples for each of the two; 0 means that the probabilities were computed from the
    model's log-probs.

        Support(chance_with=0.8, chance_without=0.2, num_samples=5).value == 0.6
    """

    chance_with: float
    chance_without: float
    num_samples: int = 0

    @property
    def value(self) -> float:
        """Value of the evidence: gain in probability of the answer, from -1 to 1."""
        return self.chance_with - self.chance_without


class Candidate(Struct, frozen=True, gc=False):  # tens of thousands are read at once, and none is part of a cycle
    """A question that a proposer wrote for the solver; `reason` is "" if it was kept, else why it was dropped.

    `hops` is the number of hops asked for, in Dr. Zero's count; for an added or given question, the number of facts.
    Added by a person: `episode_id` is "". Given to the run at its start: `episode_id` is "" and `scores` has "given".
    `aliases` are further accepted answers. `num_attempts` is 0 if the solver did not attempt the question.
    `searches` and `proof` are a given question's number of searches (0: as many as facts) and its spans, one per fact.

    Reason "unfinished": a failed search ended the proposer's episode, so its question cannot be rated. Reason
    "spoiled": the question is well-formed, but every attempt at it had a failed search.

    Where a proposer gives evidence, `span` is the span as it wrote it, `evidence` the span's place in a text it was
    shown (None if not found), `support` the verifier's result, and `refusals` are the guards that refused it. `cluster`
    and `question_type` are the choices of a corpus selector.

        Candidate(id="i0-g0001", step=51, iteration=0, episode_id="i0-g0001", document_id="w7-000012", hops=2,
                  question="Who built the bridge at Halmgate?", answer="Orsolya Venn", num_right=2, num_attempts=5,
                  reason="", scores={"format": 1.0})
    """

    id: str
    step: int
    iteration: int
    episode_id: str
    document_id: str
    hops: int
    question: str
    answer: str
    num_right: int = 0
    num_attempts: int = 0
    reason: DropReason = ""
    scores: dict[str, float] = {}
    span: str = ""
    evidence: Evidence | None = None
    support: Support | None = None
    refusals: tuple[str, ...] = ()
    cluster: int = -1
    question_type: str = ""
    aliases: tuple[str, ...] = ()
    searches: int = 0
    proof: tuple[Evidence, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """All accepted answers; empty if the candidate has no answer."""
        return (self.answer, *self.aliases) if self.answer else ()

    @property
    def sentences(self) -> str:
        """The sentences that the question rests on (`name_sentences`); "" if unknown."""
        return name_sentences(self.proof, self.evidence)

    @property
    def gold_span(self) -> str:
        """Reference evidence span: the document's own text if the span was found there, else the span as written."""
        return self.evidence.text if self.evidence else self.span

    @property
    def facts(self) -> int:
        """Number of facts the question combines; 0 if unknown."""
        return searches_needed(self.hops) if self.episode_id else self.hops

    @property
    def num_searches(self) -> int:
        """Number of searches the question needs; 0 if unknown."""
        return self.searches or self.facts

    def to_question(self) -> Question:
        """The candidate as a question for a solver."""
        return Question(
            self.id, self.question, self.answers, self.hops, self.proof, facts=self.facts, searches=self.num_searches
        )

    @property
    def kept(self) -> bool:
        """True if the candidate is part of the curriculum."""
        return not self.reason

    @property
    def added(self) -> bool:
        """True if a person added the question."""
        return not self.episode_id and not self.given

    @property
    def given(self) -> bool:
        """True if the run was given the question at its start."""
        return bool(self.scores.get("given"))

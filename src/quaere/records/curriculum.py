"""Questions that a proposer wrote, with the reason each was kept or dropped."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.records.passages import Evidence, Question, searches_needed

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
    `aliases` are accepted answers beside `answer`. `num_attempts` is 0 if the solver did not attempt the question.
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
    def gold_span(self) -> str:
        """Reference evidence span: the document's own text if the span was found there, else the span as written."""
        return self.evidence.text if self.evidence else self.span

    @property
    def facts(self) -> int:
        """Number of facts the question combines; 0 if unknown. Without `searches` it needs a search for each."""
        return searches_needed(self.hops) if self.episode_id else self.hops

    @property
    def num_searches(self) -> int:
        """Number of searches the question needs; 0 if unknown."""
        return self.searches or self.facts

    def to_question(self) -> Question:
        """The candidate as a question for a solver."""
        return Question(
            self.id,
            self.question,
            self.answers,
            self.hops,
            self.proof,
            facts=self.facts,
            searches=self.num_searches,
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

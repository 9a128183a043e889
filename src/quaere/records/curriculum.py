"""Questions a proposer wrote, and what has become of them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.records.facts import Evidence, Question, searches_needed

DropReason = Literal[
    "", "invalid", "leaked answer", "refused", "duplicate", "never solved", "always solved", "unfinished", "spoiled"
]


class Support(Struct, frozen=True):
    """What evidence does for a question: how often its answer is given with the span and without it.

    Of `num_samples` samples each; 0 where the chances were computed rather than sampled.

        Support(chance_with=0.8, chance_without=0.2, num_samples=5).value == 0.6
    """

    chance_with: float
    chance_without: float
    num_samples: int = 0

    @property
    def value(self) -> float:
        """What the span is worth, from -1 to 1."""
        return self.chance_with - self.chance_without


class Candidate(Struct, frozen=True):
    """A question a proposer wrote for the solver to learn from, and why it was kept (`reason=""`) or dropped.

    `hops` are those that were asked for, in Dr. Zero's count; of a question that was added or given, the facts.

    One that a person added was written in no episode (`episode_id=""`) and is kept; nor was one that the run was given
    to begin with, which has the score "given". `aliases` are accepted beside the answer. `num_attempts` is 0 where the
    solver was not asked to try it. An episode that a failed search kept from its end is "unfinished": nothing can be
    said of its question. A question is "spoiled" if it was good in form and failed searches spoiled every attempt at
    it. Where a proposer gives evidence, `span` is what it wrote, `evidence` where that stands in a
    text it was shown (None if nowhere), `support` what the verifier found, and `refusals` are the guards it did not
    pass. `cluster` and `question_type` say what a corpus selector has chosen.

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

    @property
    def answers(self) -> tuple[str, ...]:
        """Every accepted answer; none where none was written."""
        return (self.answer, *self.aliases) if self.answer else ()

    @property
    def gold_span(self) -> str:
        """The span a solver's is compared with: the document's own text where there is one, else what was written."""
        return self.evidence.text if self.evidence else self.span

    @property
    def facts(self) -> int:
        """How many facts the question combines; 0 if unknown. It needs as many searches."""
        return searches_needed(self.hops) if self.episode_id else self.hops

    def to_question(self) -> Question:
        """As it is put to a solver."""
        return Question(self.id, self.question, self.answers, self.hops, facts=self.facts, searches=self.facts)

    @property
    def kept(self) -> bool:
        """Is it part of the curriculum?"""
        return not self.reason

    @property
    def added(self) -> bool:
        """Did a person add it, rather than a proposer write it?"""
        return not self.episode_id and not self.given

    @property
    def given(self) -> bool:
        """Was the run given it to begin with, rather than write it?"""
        return bool(self.scores.get("given"))

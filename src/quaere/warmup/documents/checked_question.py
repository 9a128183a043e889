"""A checked question as it is kept in a file, the settings of its writer, and all that a writer wrote and dropped.

CheckedQuestion(id="halm#0:16", question="Who built the Halm bridge?", ...).to_question()     # as a solver is given it
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Evidence, Question
from quaere.setting_types import NonNegativeFloat, PositiveInt, check_settings
from quaere.warmup.documents.drafts import Dropped, QuestionKind, is_choice


class WriterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the question writer: the number of drafted facts and the thresholds of the checks.

    Of `tries` answers with the passage and others beside it, at least `min_right` must be right; of `tries` without it,
    none. A search returns `topk` passages: the passage of a single fact must be among the first `max_rank`, and of a
    chain the last one must not be among them at all. After `minutes` no further facts are drafted (0: no limit); what
    was kept until then is still put together.

        WriterSettings(drafts=6000, tries=5, min_right=3, topk=10, max_rank=2)
    """

    drafts: PositiveInt = 6000
    tries: PositiveInt = 5
    min_right: PositiveInt = 3
    topk: PositiveInt = 10
    max_rank: PositiveInt = 2
    temperature: NonNegativeFloat = 0.7
    minutes: NonNegativeFloat = 0.0
    seed: int = 0
    concurrency: PositiveInt = 32

    def check(self) -> None:
        """Raise `BadInput` for values out of bounds and for `min_right` above `tries`."""
        check_settings(self)
        if self.min_right > self.tries:
            raise BadInput(f"min_right must be at most tries ({self.tries}), not {self.min_right}")


class CheckedQuestion(Struct, frozen=True):
    """A line of a question file: a question whose answer stands in the documents, and its check results.

    `facts` is the number of facts it combines, `searches` the number of searches it needs: 1 if a search with the
    question itself returns the passage that states the answer. `hops` repeats `facts` for programs that read `hops`.
    `scores` has the share of right answers with the passage (`with_page`), without it (`closed_book`), and the share of
    the question's words that stand in its sentence (`same_words`).

        {"id": "halm#0:16", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "kind": "single",
         "facts": 1, "searches": 1, "hops": 1, "evidence": [...], "scores": {"with_page": 1.0, "closed_book": 0.0}}
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: QuestionKind
    facts: int
    searches: int
    hops: int
    evidence: tuple[Evidence, ...]
    scores: dict[str, float] = {}

    @property
    def is_choice(self) -> bool:
        """True if a guess is right half of the time."""
        return is_choice(self.kind)

    @property
    def deciding(self) -> tuple[Evidence, ...]:
        """The evidence that must be read to answer: of a chain the last sentence, else all of them."""
        return self.evidence[-1:] if self.kind == "chain" else self.evidence

    def to_question(self) -> Question:
        """The record that a solver is given."""
        return Question(
            self.id,
            self.question,
            self.answers,
            self.hops,
            self.evidence,
            facts=self.facts,
            searches=self.searches,
        )


class Written(Struct, frozen=True):
    """The questions that were kept, those that were dropped, and the number of facts that were drafted.

    Written(questions=[...], dropped=[...], num_drafts=6000)
    """

    questions: list[CheckedQuestion]
    dropped: list[Dropped]
    num_drafts: int

    @property
    def reasons(self) -> Counter[str]:
        """The number of dropped questions by kind and reason: `Counter({"single: answered without the page": 12})`."""
        return Counter(question.reason for question in self.dropped)

"""What a policy is asked to do, and what it does."""

from __future__ import annotations

from msgspec import Struct

from quaere.records.facts import Passage, Question
from quaere.records.research import Assessment, AssessTask, ReportTask, Rubric, RubricTask

# -------------------------------------------------------------------------------------------------------------- tasks


class SolveTask(Struct, frozen=True, tag="solve"):
    """Answer this question.

    SolveTask(question=Question(id="q1", text="Who built the Halm bridge?"))
    """

    question: Question

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id


class ProposeTask(Struct, frozen=True, tag="propose"):
    """Write a question of `hops` hops that starts from this document; without one, from whatever a search finds.

    `question_type` asks for one of a kind ("causal", ...); "" leaves the kind open.

        ProposeTask(id="p1", document=Passage(...), hops=2)
    """

    id: str
    document: Passage | None
    hops: int
    question_type: str = ""


Task = SolveTask | ProposeTask | ReportTask | RubricTask | AssessTask

# ------------------------------------------------------------------------------------------------------------ actions


class Search(Struct, frozen=True, tag="search"):
    """The policy asks the search engine. `note` is what it first wrote down about the passages before, if it did.

    An evaluator's search is `about` one of the reports it was shown; 0 is about all of them.

        Search(queries=("builder of the Halm bridge",), note="The year is still missing.")
    """

    queries: tuple[str, ...]
    note: str = ""
    about: int = 0


class Evaluate(Struct, frozen=True, tag="evaluate"):
    """The policy says what its last search was worth, in words and as a score from 0 to 10.

    Evaluate(text="Passage 2 names the builder.", score=9.0)
    """

    text: str
    score: float


class Answer(Struct, frozen=True, tag="answer"):
    """The policy ends the episode with an answer. `span` is the evidence as it wrote it, where it gave any; `note` is
    what it first wrote down about the passages before.

    Answer(text="Orsolya Venn", span="Orsolya Venn built the Halm bridge in 1702.")
    """

    text: str
    span: str = ""
    note: str = ""


class Proposal(Struct, frozen=True, tag="proposal"):
    """The proposer ends the episode with a question and its answer. `span` is the evidence as it wrote it, if any.

    Proposal(question="Who built the bridge at Halmgate?", answer="Orsolya Venn")
    """

    question: str
    answer: str
    span: str = ""


class Malformed(Struct, frozen=True, tag="malformed"):
    """The turn held no action the protocol can read; `reason` says why, in a few fixed words.

    Malformed(reason="tool call is not JSON")
    """

    reason: str
    note: str = ""


Final = Answer | Proposal | Rubric | Assessment
"""What ends an episode."""

Action = Search | Evaluate | Answer | Proposal | Rubric | Assessment | Malformed

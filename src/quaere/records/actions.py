"""Tasks given to a policy, and the actions read from its turns."""

from __future__ import annotations

from msgspec import Struct

from quaere.records.passages import Passage, Question
from quaere.records.research import Assessment, AssessTask, ReportTask, Rubric, RubricTask

# -------------------------------------------------------------------------------------------------------------- tasks


class SolveTask(Struct, frozen=True, tag="solve"):
    """Task: answer a question.

    SolveTask(question=Question(id="q1", text="Who built the Halm bridge?"))
    """

    question: Question

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id


class ProposeTask(Struct, frozen=True, tag="propose"):
    """Task: write a question of `hops` hops starting from `document`; with `document=None`, from any search result.

    `question_type` asks for a type of question ("causal", ...); "" leaves the type open.

        ProposeTask(id="p1", document=Passage(...), hops=2)
    """

    id: str
    document: Passage | None
    hops: int
    question_type: str = ""


Task = SolveTask | ProposeTask | ReportTask | RubricTask | AssessTask

# ------------------------------------------------------------------------------------------------------------ actions


class Search(Struct, frozen=True, tag="search"):
    """Action: send queries to the search engine.

    `note` is the text about the passages found before, where the dialect asks for one. `about` is the number of the
    report that an evaluator's search is about; 0 means all of them.

        Search(queries=("builder of the Halm bridge",), note="The year is still missing.")
    """

    queries: tuple[str, ...]
    note: str = ""
    about: int = 0


class Evaluate(Struct, frozen=True, tag="evaluate"):
    """Action: score the last search from 0 to 10, with a reason in words (EvalAct).

    Evaluate(text="Passage 2 names the builder.", score=9.0)
    """

    text: str
    score: float


class Answer(Struct, frozen=True, tag="answer"):
    """Action: end the episode with an answer.

    `span` is the quoted evidence as the policy wrote it, "" if there is none; `note` is its text about the passages
    found before, where the dialect asks for one.

        Answer(text="Orsolya Venn", span="Orsolya Venn built the Halm bridge in 1702.")
    """

    text: str
    span: str = ""
    note: str = ""


class Proposal(Struct, frozen=True, tag="proposal"):
    """Action: end the proposer's episode with a question and its answer. `span` is the quoted evidence, "" if none.

    Proposal(question="Who built the bridge at Halmgate?", answer="Orsolya Venn")
    """

    question: str
    answer: str
    span: str = ""


class Malformed(Struct, frozen=True, tag="malformed"):
    """A turn without a valid action; `reason` says why, in a few fixed words.

    Malformed(reason="tool call is not JSON")
    """

    reason: str
    note: str = ""


Final = Answer | Proposal | Rubric | Assessment
"""Actions that end an episode."""

Action = Search | Evaluate | Answer | Proposal | Rubric | Assessment | Malformed

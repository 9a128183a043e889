"""Research reports and how they are judged: who cites what, by which rubric, within which rules."""

from __future__ import annotations

import re

from msgspec import Struct

from quaere.records.facts import Passage, Question

# ------------------------------------------------------------------------------------------------------------ reports


class Source(Struct, frozen=True):
    """A passage that a writer was shown, under the number it can be cited by. A number means one passage for good.

    Source(number=2, passage=Passage(id="rivers.md#0", doc_id="rivers.md", ...))
    """

    number: int
    passage: Passage


_MARK = re.compile(r"\[[0-9, \t]*+\]")


class Statement(Struct, frozen=True):
    """A sentence of a report, `report.text[start:end]`, and the numbers it cites, as they are written.

    Statement(text="The Oss rises at Korrin [2].", start=118, end=146, citations=(2,))
    """

    text: str
    start: int
    end: int
    citations: tuple[int, ...] = ()

    @property
    def states(self) -> bool:
        """True if there is a letter or a digit beside the citations: "[1]." alone states nothing."""
        return any(char.isalnum() for char in _MARK.sub("", self.text))


class Report(Struct, frozen=True):
    """A report as it was written, and what it rests on.

    `sources` are those it cites and was really shown. A number it cites that no source bears is *unresolved*: it stays
    in the text and counts against it.

        Report(question=Question(id="q1", text="What is known of the Oss?"), text="The Oss rises at Korrin [2]. ...",
               statements=(Statement(...),), sources=(Source(2, Passage(...)),), conclusion="The Oss is short.")
    """

    question: Question
    text: str
    statements: tuple[Statement, ...] = ()
    sources: tuple[Source, ...] = ()
    conclusion: str = ""

    @property
    def citations(self) -> tuple[int, ...]:
        """Every number it cites, in order, as often as it does."""
        return tuple(number for statement in self.statements for number in statement.citations)

    @property
    def unresolved(self) -> tuple[int, ...]:
        """Those of its citations that lead nowhere."""
        known = {source.number for source in self.sources}
        return tuple(number for number in self.citations if number not in known)

    @property
    def resolved_share(self) -> float:
        """Of its citations, the share that leads to a passage; 0 if there are none."""
        return 1 - len(self.unresolved) / len(self.citations) if self.citations else 0.0

    @property
    def repeated_share(self) -> float:
        """Of its statements, the share that it has made before, word for word; 0 if there are none."""
        said = {statement.text for statement in self.statements}
        return 1 - len(said) / len(self.statements) if self.statements else 0.0


class ReportTask(Struct, frozen=True, tag="report"):
    """Write a report on this question; with a rubric, the writer is told by what it will be judged.

    `number` tells the reports on one question from one another.

        ReportTask(question=Question(id="q1", text="What is known of the Oss?"), rubric=Rubric(...))
    """

    question: Question
    rubric: Rubric | None = None
    number: int = 0

    @property
    def id(self) -> str:
        """The question's id and the report's number: "q1-r0"."""
        return f"{self.question.id}-r{self.number}"


# ------------------------------------------------------------------------------------------------------------ rubrics


class Dimension(Struct, frozen=True):
    """Something a report can be good at; `text` says what a high score means.

    Dimension("coverage", "Every side of the question that the documents know of is treated.")
    """

    name: str
    text: str


class Weight(Struct, frozen=True):
    """How much a dimension counts.

    Weight("coverage", 0.4)
    """

    dimension: str
    weight: float


class Rubric(Struct, frozen=True, tag="rubric"):
    """What reports are judged by: the primary dimension, which is scored and bears no weight, and others that do.

    Rubric(primary="factuality", weights=(Weight("coverage", 0.4), Weight("insight", 0.2)))
    """

    primary: str
    weights: tuple[Weight, ...] = ()

    @property
    def dimensions(self) -> tuple[str, ...]:
        """All of their names, the primary one first."""
        return (self.primary, *(item.dimension for item in self.weights))

    @property
    def text(self) -> str:
        """In a few words: "factuality, coverage 0.4"."""
        return ", ".join([self.primary, *(f"{item.dimension} {item.weight:g}" for item in self.weights)])


class DimensionRules(Struct, frozen=True):
    """Which rubrics are allowed.

        DimensionRules(k=4, must_include="factuality", weight_min=0.1, weight_max=0.5)

    Attributes:
        k: Dimensions of a rubric. [SCORE]
        must_include: The primary dimension, which every rubric has. [SCORE]
        weight_min: Least weight of any other dimension. [SCORE]
        weight_max: Greatest weight of any other dimension. [SCORE]
    """

    k: int = 4
    must_include: str = "factuality"
    weight_min: float = 0.1
    weight_max: float = 0.5


class ProcessRules(Struct, frozen=True):
    """How thoroughly reports must be looked into before they are scored.

        ProcessRules(require_search=True, min_tool_calls=1)

    Attributes:
        require_search: The evaluator must search. [SCORE]
        require_verification: It must verify what a report says. [SCORE]
        require_gap_analysis: It must say what a report leaves out. [SCORE]
        citation_cross_check: It must check that sources say what they are cited for. [SCORE]
        min_tool_calls: Least searches of an assessment. [SCORE]
    """

    require_search: bool = True
    require_verification: bool = True
    require_gap_analysis: bool = True
    citation_cross_check: bool = True
    min_tool_calls: int = 1


class Harness(Struct, frozen=True):
    """The rules within which an evaluator works, and the pool of dimensions it chooses from. It is never trained.

    Harness(version=0, pool=(Dimension("factuality", "..."), ...), dimensions=DimensionRules(k=4))
    """

    version: int
    pool: tuple[Dimension, ...]
    dimensions: DimensionRules = DimensionRules()
    process: ProcessRules = ProcessRules()
    notes: str = ""

    def find(self, name: str) -> Dimension | None:
        """The dimension of this name, if the pool has it."""
        return next((item for item in self.pool if item.name == name), None)


class Hints(Struct, frozen=True):
    """What a scheduler advises, from what was chosen so far: dimensions to take, to leave, and to try.

    Hints(required=("coverage",), avoided=("style",), explore=("insight",))
    """

    required: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    explore: tuple[str, ...] = ()


class RubricTask(Struct, frozen=True, tag="choose_rubric"):
    """Choose a rubric for reports on these questions, within the harness; `passages` are a first look at the documents.

    RubricTask(id="i0-s3-rubric", questions=("What is known of the Oss?",), harness=Harness(...))
    """

    id: str
    questions: tuple[str, ...]
    harness: Harness
    hints: Hints = Hints()
    passages: tuple[Passage, ...] = ()


# -------------------------------------------------------------------------------------------------------- assessments


class AssessTask(Struct, frozen=True, tag="assess"):
    """Verify and score these reports on one question. They are shown in this order, numbered from 1.

    AssessTask(id="i0-s3-q1-a0", question=Question(...), rubric=Rubric(...), harness=Harness(...), reports=(...,))
    """

    id: str
    question: Question
    rubric: Rubric
    harness: Harness
    reports: tuple[Report, ...]


class Scores(Struct, frozen=True):
    """What an evaluator says of one report: `number` is its place among those shown, from 1.

    `scores` are on the scale of the assessment, one for each dimension of the rubric; `validity` is given where it is
    asked for separately.

        Scores(number=1, scores={"factuality": 7.0, "coverage": 4.0}, verification="[1] says so.", gaps="No dates.")
    """

    number: int
    scores: dict[str, float]
    verification: str = ""
    gaps: str = ""
    validity: float | None = None


class Assessment(Struct, frozen=True, tag="assessment"):
    """An evaluator's verdict on the reports it was shown; those it said nothing valid about are missing.

    Assessment(reports=(Scores(number=1, scores={"factuality": 7.0}),))
    """

    reports: tuple[Scores, ...]

    def find(self, number: int) -> Scores | None:
        """What it says of the report in this place."""
        return next((item for item in self.reports if item.number == number), None)

    @property
    def text(self) -> str:
        """In a few words: "1: factuality 7, coverage 4; 2: ..."."""
        said = (", ".join(f"{name} {score:g}" for name, score in item.scores.items()) for item in self.reports)
        return "; ".join(f"{item.number}: {words}" for item, words in zip(self.reports, said, strict=True))

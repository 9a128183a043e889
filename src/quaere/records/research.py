"""Research reports, the rubrics they are scored by, and the assessments of evaluators."""

from __future__ import annotations

import re

from msgspec import Struct

from quaere.records.questions import Passage, Question

# ------------------------------------------------------------------------------------------------------------ reports


class Source(Struct, frozen=True):
    """A passage that a report's writer was shown, with its citation number, which never refers to another passage.

    Source(number=2, passage=Passage(id="rivers.md#0", doc_id="rivers.md", ...))
    """

    number: int
    passage: Passage


_MARK = re.compile(r"\[[0-9, \t]*+\]")


class Statement(Struct, frozen=True):
    """A sentence of a report, `report.text[start:end]`, with the citation numbers as written.

    Statement(text="The Oss rises at Korrin [2].", start=118, end=146, citations=(2,))
    """

    text: str
    start: int
    end: int
    citations: tuple[int, ...] = ()

    @property
    def states(self) -> bool:
        """True if the sentence has a letter or a digit outside its citations: "[1]." alone states nothing."""
        return any(char.isalnum() for char in _MARK.sub("", self.text))


class Report(Struct, frozen=True):
    """A research report with its statements and cited sources.

    `sources` are the passages that the report cites and that its writer was shown. A citation number without a source
    is *unresolved*: it stays in the text and lowers `resolved_share`.

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
        """All citation numbers in order of appearance, with repetitions."""
        return tuple(number for statement in self.statements for number in statement.citations)

    @property
    def unresolved(self) -> tuple[int, ...]:
        """Citation numbers without a source."""
        known = {source.number for source in self.sources}
        return tuple(number for number in self.citations if number not in known)

    @property
    def resolved_share(self) -> float:
        """Share of citations that have a source; 0 if there are no citations."""
        return 1 - len(self.unresolved) / len(self.citations) if self.citations else 0.0

    @property
    def repeated_share(self) -> float:
        """Share of statements that repeat an earlier statement word for word; 0 if there are no statements."""
        said = {statement.text for statement in self.statements}
        return 1 - len(said) / len(self.statements) if self.statements else 0.0


class ReportTask(Struct, frozen=True, tag="report"):
    """Task: write a report on a question; with a rubric, the prompt names the dimensions of its score.

    `number` distinguishes several reports on one question.

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
    """A quality that reports are scored on; `text` says what a high score means.

    Dimension("coverage", "Every side of the question that the documents know of is treated.")
    """

    name: str
    text: str


class Weight(Struct, frozen=True):
    """Weight of a dimension in the total score.

    Weight("coverage", 0.4)
    """

    dimension: str
    weight: float


class Rubric(Struct, frozen=True, tag="rubric"):
    """Dimensions that reports are scored on: a primary one without a weight, and others with weights.

    Rubric(primary="factuality", weights=(Weight("coverage", 0.4), Weight("insight", 0.2)))
    """

    primary: str
    weights: tuple[Weight, ...] = ()

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of all dimensions, the primary one first."""
        return (self.primary, *(item.dimension for item in self.weights))

    @property
    def text(self) -> str:
        """The rubric on one line: "factuality, coverage 0.4"."""
        return ", ".join([self.primary, *(f"{item.dimension} {item.weight:g}" for item in self.weights)])


class DimensionRules(Struct, frozen=True):
    """Constraints on rubrics: `k` dimensions, those of `must_include` among them, with bounds on their weights.

        DimensionRules(k=4, must_include="factuality", weight_min=0.1, weight_max=0.5)

    Attributes:
        k: Dimensions of a rubric. [SCORE]
        must_include: The primary dimension, which every rubric has; or a list of dimensions that every rubric has,
            the primary one first. [SCORE]
        weight_min: Least weight of any other dimension. [SCORE]
        weight_max: Greatest weight of any other dimension. [SCORE]
    """

    k: int = 4
    must_include: str | tuple[str, ...] = "factuality"
    weight_min: float = 0.1
    weight_max: float = 0.5

    @property
    def required(self) -> tuple[str, ...]:
        """The dimensions that every rubric has; the first is the primary one, which has no weight.

        DimensionRules(must_include="factuality").required -> ("factuality",)
        """
        return (self.must_include,) if isinstance(self.must_include, str) else self.must_include

    @property
    def primary(self) -> str:
        """The dimension without a weight."""
        return self.required[0]


class ProcessRules(Struct, frozen=True):
    """What an evaluator must do before it scores reports.

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
    """An evaluator's rules and the pool of dimensions it chooses from. A harness is not trained.

    Harness(version=0, pool=(Dimension("factuality", "..."), ...), dimensions=DimensionRules(k=4))
    """

    version: int
    pool: tuple[Dimension, ...]
    dimensions: DimensionRules = DimensionRules()
    process: ProcessRules = ProcessRules()
    notes: str = ""

    def find(self, name: str) -> Dimension | None:
        """The pool's dimension with this name, or None."""
        return next((item for item in self.pool if item.name == name), None)


class Hints(Struct, frozen=True):
    """A scheduler's advice on dimensions, from the rubrics chosen so far: which to use, to avoid and to explore.

    Hints(required=("coverage",), avoided=("style",), explore=("insight",))
    """

    required: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    explore: tuple[str, ...] = ()


class RubricTask(Struct, frozen=True, tag="choose_rubric"):
    """Task: choose a rubric for reports on these questions; `passages` are a sample of the documents.

    RubricTask(id="i0-s3-rubric", questions=("What is known of the Oss?",), harness=Harness(...))
    """

    id: str
    questions: tuple[str, ...]
    harness: Harness
    hints: Hints = Hints()
    passages: tuple[Passage, ...] = ()


# -------------------------------------------------------------------------------------------------------- assessments


class AssessTask(Struct, frozen=True, tag="assess"):
    """Task: verify and score reports on one question. They are shown in this order, numbered from 1.

    AssessTask(id="i0-s3-q1-a0", question=Question(...), rubric=Rubric(...), harness=Harness(...), reports=(...,))
    """

    id: str
    question: Question
    rubric: Rubric
    harness: Harness
    reports: tuple[Report, ...]


class Scores(Struct, frozen=True):
    """An evaluator's scores for one report; `number` is the report's position among those shown, from 1.

    `scores` has one score per dimension of the rubric, on the scale of the assessment; `validity` is set where the
    evaluator is asked for it separately.

        Scores(number=1, scores={"factuality": 7.0, "coverage": 4.0}, verification="[1] says so.", gaps="No dates.")
    """

    number: int
    scores: dict[str, float]
    verification: str = ""
    gaps: str = ""
    validity: float | None = None


class Assessment(Struct, frozen=True, tag="assessment"):
    """An evaluator's scores for the reports it was shown; reports without a valid entry are missing.

    Assessment(reports=(Scores(number=1, scores={"factuality": 7.0}),))
    """

    reports: tuple[Scores, ...]

    def find(self, number: int) -> Scores | None:
        """The scores of the report with this number, or None."""
        return next((item for item in self.reports if item.number == number), None)

    @property
    def text(self) -> str:
        """The assessment on one line: "1: factuality 7, coverage 4; 2: ..."."""
        said = (", ".join(f"{name} {score:g}" for name, score in item.scores.items()) for item in self.reports)
        return "; ".join(f"{item.number}: {words}" for item, words in zip(self.reports, said, strict=True))

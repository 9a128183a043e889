"""What a research report earns, and how alike the conclusions of several are (SCORE, Sec. 3.5).

    report     R = a * (1 + sum of w_j * s_j)          0 if it was looked into with fewer than tau searches
    rubric     C = mean TF-IDF cosine over all pairs of conclusions

The evaluator's scores arrive here as they were read, on a scale from 0 to `scale`; what is worked out is on 0 to 1.

*Validity*, a, is how far a report can be believed at all. The paper leaves open where it comes from. Here it is the
score of the rubric's primary dimension (factuality, unless a harness says otherwise), which bears no weight of its own;
or, with `separate`, a score of its own that the evaluator is asked for beside the rubric. Either way a report that is
not valid earns nothing, however well it does otherwise.

`check_report` looks at a report without any model: a judge that cannot be talked round, and cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs

from quaere.errors import ExtraMissing
from quaere.records import Report, Rubric, Scores

SCALE = 10.0

# A statement, a question or a passage is known by its longer words and its numbers.
_TERM = re.compile(r"\w{4,}|\d+")
_CITATION = re.compile(r"\[[\d\s,;]+\]")
# Words in a report that is neither a stub nor a dump: full marks between these, and none at twice the most.
_FEWEST_WORDS, _MOST_WORDS = 60, 800


# ---------------------------------------------------------------------------------------------------------- one report


class ReportPay(Struct, frozen=True):
    """What a report earned and for what. `quality` is the weighted sum of scores beside the primary one's.

    ReportPay(validity=0.7, quality=0.2, verified=True, total=0.84)
    """

    validity: float
    quality: float
    verified: bool
    total: float

    @property
    def parts(self) -> dict[str, float]:
        """By name, as a run stores it.

        {"reward/total": 0.84, "reward/validity": 0.7, "reward/quality": 0.2, "reward/verified": 1.0}
        """
        return {
            "reward/total": self.total,
            "reward/validity": self.validity,
            "reward/quality": self.quality,
            "reward/verified": float(self.verified),
        }


def report_reward(
    scores: Scores | None,
    rubric: Rubric,
    *,
    scale: float = SCALE,
    separate: bool = False,
    num_searches: int = 0,
    tau: int = 0,
) -> ReportPay:
    """a * (1 + sum of w_j * s_j), or 0 where fewer than `tau` searches looked into the report.

    Without scores there was nothing to score: a report that was never finished earns 0. One that the evaluator failed
    to judge is another matter, and is not paid at all: leave it out.

        scores 7 and 5 of 10, rubric "factuality, coverage 0.4", tau 1, one search -> 0.7 * (1 + 0.4 * 0.5) = 0.84
    """
    if scores is None:
        return ReportPay(0.0, 0.0, False, 0.0)
    validity = validity_score(scores, rubric, scale=scale, separate=separate)
    quality = sum(item.weight * _normalised(scores, item.dimension, scale) for item in rubric.weights)
    verified = num_searches >= tau
    return ReportPay(validity, quality, verified, validity * (1 + quality) if verified else 0.0)


def validity_score(scores: Scores, rubric: Rubric, *, scale: float = SCALE, separate: bool = False) -> float:
    """How far the report can be believed, from 0 to 1: the primary dimension's score, or one of its own.

    validity_score(Scores(1, {"factuality": 7.0}), Rubric("factuality")) -> 0.7
    validity_score(Scores(1, {"factuality": 7.0}, validity=2.0), Rubric("factuality"), separate=True) -> 0.2
    """
    if not separate:
        return _normalised(scores, rubric.primary, scale)
    if scores.validity is None:
        raise ValueError(f"report {scores.number} was given no validity of its own")
    return _on_scale(scores.validity, scale)


def most_reward(rubric: Rubric) -> float:
    """What a report earns at best by this rubric.

    most_reward(Rubric("factuality", (Weight("coverage", 0.4),))) -> 1.4
    """
    return 1 + sum(item.weight for item in rubric.weights)


def mean_scores(several: Sequence[Scores], number: int) -> Scores | None:
    """What several assessments say of one report, on average; None if none of them says anything.

    mean_scores([Scores(2, {"factuality": 6.0}), Scores(1, {"factuality": 8.0})], 4) -> Scores(4, {"factuality": 7.0})
    """
    if not several:
        return None
    names = several[0].scores
    values = {name: sum(scores.scores[name] for scores in several) / len(several) for name in names}
    validities = [scores.validity for scores in several if scores.validity is not None]
    validity = sum(validities) / len(validities) if len(validities) == len(several) else None
    return Scores(number, values, several[0].verification, several[0].gaps, validity)


def _normalised(scores: Scores, dimension: str, scale: float) -> float:
    if dimension not in scores.scores:
        raise ValueError(f"report {scores.number} has no score for {dimension}")
    return _on_scale(scores.scores[dimension], scale)


def _on_scale(score: float, scale: float) -> float:
    if not 0 <= score <= scale:
        raise ValueError(f"a score lies between 0 and {scale:g}, not at {score:g}")
    return score / scale


# ------------------------------------------------------------------------------------------------------------- several


def consistency_score(conclusions: Sequence[str]) -> float | None:
    """How alike the conclusions of reports on one question are: the mean TF-IDF cosine over all pairs (Algorithm 2).

    Words are weighed among these conclusions alone. A conclusion without a word agrees with nothing, not even with
    another such: to write nothing is not a way to agree. None for fewer than two.

        consistency_score(["the oss is short", "the oss is short"]) -> 1.0
        consistency_score(["short", "long"]) -> 0.0; consistency_score(["", ""]) -> 0.0
        consistency_score(["alone"]) -> None
    """
    if len(conclusions) < 2:
        return None
    told = [text for text in conclusions if re.search(r"\w", text)]
    if len(told) < 2:
        return 0.0
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise ExtraMissing("to compare conclusions takes scikit-learn", extra="select") from None
    vectors = TfidfVectorizer(token_pattern=r"(?u)\w+").fit_transform(told)
    # Rows have length 1, so the squared length of their sum holds every pair twice and every row once.
    summed = np.asarray(vectors.sum(axis=0)).ravel()
    num_pairs = len(conclusions) * (len(conclusions) - 1) / 2
    return min(1.0, max(0.0, (float(summed @ summed) - len(told)) / 2 / num_pairs))


def diversity_score(texts: Sequence[str]) -> float | None:
    """How different whole texts are: 1 less their consistency. None for fewer than two.

    diversity_score(["short", "long"]) -> 1.0
    """
    consistency = consistency_score(texts)
    return None if consistency is None else 1 - consistency


# ------------------------------------------------------------------------------------------------- checks, not a judge


class ReportChecks(Struct, frozen=True):
    """What can be said of a report without understanding it, each from 0 to 1.

    - `resolved`: of its citations, the share that leads to a passage the writer was shown; 0 without any
    - `cited`: of its statements, the share that cites something
    - `overlap`: of a statement's longer words and numbers, the share that stands in the passages it cites, on average
      over the statements that cite; 0 if none does. A citation that leads nowhere brings no words.
    - `coverage`: of the question's longer words and numbers, the share that occurs in the report
    - `length`: 1 from 60 to 800 words, less below and above, 0 for nothing and from 1,600 on
    - `grounded`: of its statements, the share with a citation that leads to a passage; `total` leaves it out, as it
      follows from `resolved` and `cited`

    ReportChecks(resolved=1.0, cited=0.5, overlap=0.8, coverage=1.0, length=1.0, grounded=0.5)
    """

    resolved: float
    cited: float
    overlap: float
    coverage: float
    length: float
    grounded: float

    @property
    def total(self) -> float:
        """The mean of the first five."""
        return (self.resolved + self.cited + self.overlap + self.coverage + self.length) / 5

    @property
    def parts(self) -> dict[str, float]:
        """By name, as a run stores it: {"check/resolved": 1.0, ...}."""
        return {f"check/{name}": value for name, value in structs.asdict(self).items()}


def check_report(report: Report) -> ReportChecks:
    """Look at a report by rule: citations, statements, words and length."""
    said = {source.number: find_terms(source.passage.titled_text) for source in report.sources}
    stating = [statement for statement in report.statements if statement.states]
    citing = [statement for statement in stating if statement.citations]
    overlaps = []
    for statement in citing:
        terms = find_terms(_CITATION.sub(" ", statement.text))
        known = set[str]().union(*(said.get(number, set()) for number in statement.citations))
        overlaps.append(len(terms & known) / len(terms) if terms else 0.0)
    grounded = [statement for statement in citing if not said.keys().isdisjoint(statement.citations)]
    asked, num = find_terms(report.question.text), max(1, len(stating))
    return ReportChecks(
        resolved=report.resolved_share,
        cited=len(citing) / num,
        overlap=sum(overlaps) / len(overlaps) if overlaps else 0.0,
        coverage=len(asked & find_terms(report.text)) / len(asked) if asked else 1.0,
        length=length_score(len(report.text.split())),
        grounded=len(grounded) / num,
    )


def find_terms(text: str) -> set[str]:
    """The words of four letters or more, and the numbers, in small letters.

    find_terms("The Oss rises at Korrin, 1702") -> {"rises", "korrin", "1702"}
    """
    return set(_TERM.findall(text.lower()))


def length_score(num_words: int) -> float:
    """1 for a length that a report may well have, less for a stub and for a dump.

    length_score(30) -> 0.5; length_score(200) -> 1.0; length_score(1200) -> 0.5
    """
    if num_words < _FEWEST_WORDS:
        return num_words / _FEWEST_WORDS
    return min(1.0, max(0.0, 2 - num_words / _MOST_WORDS))

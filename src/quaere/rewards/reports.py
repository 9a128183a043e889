"""Rewards of research reports, and the consistency of several conclusions (SCORE, Sec. 3.5).

    report     R = a * (1 + sum of w_j * s_j)          0 if the evaluator made fewer than tau searches about it
    rubric     C = mean TF-IDF cosine over all pairs of conclusions

The evaluator's scores are on a scale from 0 to `scale`; rewards use them divided by `scale`.

*Validity*, a, is how far a report can be believed at all. The paper leaves its source open. Here it is the score of the
rubric's primary dimension (factuality, unless a harness says otherwise), which has no weight of its own; or, with
`separate`, an additional score that the evaluator gives. Either way a report of validity 0 earns 0, whatever its other
scores are.

`check_report` scores a report by rules, without a model: rules resist persuasion, but cannot judge truth.
"""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, structs

from quaere.errors import import_extra
from quaere.records import Report, Rubric, Scores

SCALE = 10.0

# Terms for comparing statements, questions and passages: longer words and numbers.
_TERM = re.compile(r"\w{4,}|\d+")
_CITATION = re.compile(r"\[[\d\s,;]+\]")
# `length_score` is 1 between these numbers of words and 0 from twice the second on.
_FEWEST_WORDS, _MOST_WORDS = 60, 800


# ---------------------------------------------------------------------------------------------------------- one report


class ReportPay(Struct, frozen=True):
    """A report's reward and its parts. `quality` is the weighted sum of the scores other than the primary one.

    ReportPay(validity=0.7, quality=0.2, verified=True, total=0.84)
    """

    validity: float
    quality: float
    verified: bool
    total: float

    @property
    def parts(self) -> dict[str, float]:
        """The parts by metric name, as a run stores them.

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
    """Validity * (1 + sum of weight * score), or 0 if the evaluator made fewer than `tau` searches about the report.

    `scores=None` is for a report that was never finished: it earns 0. A report that the evaluator failed to score is a
    different case: the caller excludes it instead of calling this.

        scores 7 and 5 of 10, rubric "factuality, coverage 0.4", tau 1, one search -> 0.7 * (1 + 0.4 * 0.5) = 0.84
    """
    if scores is None:
        return ReportPay(0.0, 0.0, False, 0.0)
    validity = validity_score(scores, rubric, scale=scale, separate=separate)
    quality = sum(item.weight * _normalised(scores, item.dimension, scale) for item in rubric.weights)
    verified = num_searches >= tau
    return ReportPay(validity, quality, verified, validity * (1 + quality) if verified else 0.0)


def validity_score(scores: Scores, rubric: Rubric, *, scale: float = SCALE, separate: bool = False) -> float:
    """The report's validity from 0 to 1: the primary dimension's score, or with `separate` a score of its own.

    validity_score(Scores(1, {"factuality": 7.0}), Rubric("factuality")) -> 0.7
    validity_score(Scores(1, {"factuality": 7.0}, validity=2.0), Rubric("factuality"), separate=True) -> 0.2
    """
    if not separate:
        return _normalised(scores, rubric.primary, scale)
    if scores.validity is None:
        raise ValueError(f"report {scores.number} has no validity score, which separate=True needs")
    return _on_scale(scores.validity, scale)


def most_reward(rubric: Rubric) -> float:
    """Highest reward that a report can get with this rubric.

    most_reward(Rubric("factuality", (Weight("coverage", 0.4),))) -> 1.4
    """
    return 1 + sum(item.weight for item in rubric.weights)


def mean_scores(several: Sequence[Scores], number: int) -> Scores | None:
    """Mean of several assessments' scores of one report, numbered `number`; None if there are none.

    mean_scores([Scores(2, {"factuality": 6.0}), Scores(1, {"factuality": 8.0})], 4) -> Scores(4, {"factuality": 7.0})
    """
    if not several:
        return None
    values = {name: sum(scores.scores[name] for scores in several) / len(several) for name in several[0].scores}
    validities = [scores.validity for scores in several if scores.validity is not None]
    validity = sum(validities) / len(validities) if len(validities) == len(several) else None
    return Scores(number, values, several[0].verification, several[0].gaps, validity)


def _normalised(scores: Scores, dimension: str, scale: float) -> float:
    if dimension not in scores.scores:
        raise ValueError(f"report {scores.number} has no score for {dimension}")
    return _on_scale(scores.scores[dimension], scale)


def _on_scale(score: float, scale: float) -> float:
    if not 0 <= score <= scale:
        raise ValueError(f"a score must be from 0 to {scale:g}, not {score:g}")
    return score / scale


# ----------------------------------------------------------------------------------------------------- several reports


Agreement = Literal["words", "content"]
"""What conclusions are compared by: all words, or numbers and words of four letters or more, without citations."""
_TERMS: dict[Agreement, str] = {"words": r"(?u)\w+", "content": r"(?u)\d+(?:[.,]\d+)*|[^\W\d_]{4,}"}
_MARK = re.compile(r"\[[0-9, \t]*+\]")


def consistency_score(conclusions: Sequence[str], agreement: Agreement = "words") -> float | None:
    """Mean TF-IDF cosine over all pairs of conclusions on one question (Algorithm 2); None for fewer than two.

    With "content", citation marks and short words, which most conclusions share, do not count as agreement.

    IDF is computed over these conclusions alone. A conclusion without a word has similarity 0 to every other, including
    another such: otherwise empty conclusions would count as agreement.

        consistency_score(["the oss is short", "the oss is short"]) -> 1.0
        consistency_score(["short", "long"]) -> 0.0; consistency_score(["", ""]) -> 0.0
        consistency_score(["alone"]) -> None
    """
    if len(conclusions) < 2:
        return None
    texts = [_MARK.sub(" ", text) for text in conclusions] if agreement == "content" else conclusions
    told = [text for text in texts if re.search(_TERMS[agreement], text)]
    if len(told) < 2:
        return 0.0
    needed = "comparing conclusions needs scikit-learn"
    sklearn = import_extra("sklearn.feature_extraction.text", needed, extra="select")
    vectors = sklearn.TfidfVectorizer(token_pattern=_TERMS[agreement]).fit_transform(told)
    # Rows have norm 1, so the squared norm of their sum counts every pair's cosine twice and every row once.
    summed = np.asarray(vectors.sum(axis=0)).ravel()
    num_pairs = len(conclusions) * (len(conclusions) - 1) / 2
    return min(1.0, max(0.0, (float(summed @ summed) - len(told)) / 2 / num_pairs))


def diversity_score(texts: Sequence[str]) -> float | None:
    """1 minus `consistency_score` of the texts; None for fewer than two.

    diversity_score(["short", "long"]) -> 1.0
    """
    consistency = consistency_score(texts)
    return None if consistency is None else 1 - consistency


# --------------------------------------------------------------------------------------------------- rule-based checks


class ReportChecks(Struct, frozen=True):
    """Rule-based scores of a report, each from 0 to 1; no model is used.

    - `resolved`: share of citations that have a source; 0 if there are none
    - `cited`: share of statements with a citation
    - `overlap`: share of a statement's longer words and numbers that occur in the passages it cites, averaged over the
      statements with a citation; 0 if there are none. An unresolved citation adds no words.
    - `coverage`: share of the question's longer words and numbers that occur in the report
    - `length`: 1 from 60 to 800 words, less below and above, 0 for an empty report and from 1,600 words on
    - `grounded`: share of statements with a resolved citation; not part of `total`, because it follows from `resolved`
      and `cited`

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
        """Mean of all checks except `grounded`."""
        return (self.resolved + self.cited + self.overlap + self.coverage + self.length) / 5

    @property
    def parts(self) -> dict[str, float]:
        """The checks by metric name, as a run stores them: {"check/resolved": 1.0, ...}."""
        return {f"check/{name}": value for name, value in structs.asdict(self).items()}


def check_report(report: Report) -> ReportChecks:
    """Rule-based scores of a report: citations, statements, words and length."""
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
    """The words of four or more letters and the numbers, in lower case.

    find_terms("The Oss rises at Korrin, 1702") -> {"rises", "korrin", "1702"}
    """
    return set(_TERM.findall(text.lower()))


def length_score(num_words: int) -> float:
    """Score of a report's length in words: 1 from 60 to 800, less for shorter and longer ones.

    length_score(30) -> 0.5; length_score(200) -> 1.0; length_score(1200) -> 0.5
    """
    if num_words < _FEWEST_WORDS:
        return num_words / _FEWEST_WORDS
    return min(1.0, max(0.0, 2 - num_words / _MOST_WORDS))

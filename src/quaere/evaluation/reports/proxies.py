"""Countable features of a report: proxies of its quality.

    count_proxies(report) -> {"question-terms": 8.3, "sources": 6.0, "cited": 9.1, "structure": 8.0, ...}

They are cheap and deterministic, but do not measure quality: none of them may be read as a person's opinion of the
report.
"""

from __future__ import annotations

import re
from collections import Counter

from quaere.evaluation.reports.citations import Cited, check_support
from quaere.evaluation.reports.criteria import SCALE, Criteria, GradedDimension
from quaere.evaluation.reports.lexical import MARK, content_words, split_sentences, strip_marks
from quaere.records import Report, Statement
from quaere.search.words import count_words, terms

MIN_WORDS, MAX_WORDS = 150, 3000
NUM_SOURCES = 5
_RUN_WORDS = 5
_PARAGRAPH_WORDS = 250
_HEADING = re.compile(r"^#{1,6}\s+\S", re.MULTILINE)

_MEANINGS = {
    "question-terms": "share of the question's words that the report uses",
    "sources": f"documents it cites, {NUM_SOURCES} or more being 10",
    "cited": "share of its sentences, the conclusion of several paragraphs aside, with a citation that leads somewhere",
    "structure": "share of five marks: a heading, three paragraphs, five sentences, no paragraph above "
    f"{_PARAGRAPH_WORDS} words, a conclusion",
    "length": f"10 from {MIN_WORDS} to {MAX_WORDS} words, falling to 0 at none and at twice {MAX_WORDS}",
    "variety": f"share of its runs of {_RUN_WORDS} words that it uses only once",
    "conclusion": "share of the conclusion's sentences that the rest bears out, by the rules of the citation check",
}
PROXIES = Criteria(tuple(GradedDimension(name, meaning) for name, meaning in _MEANINGS.items()))
"""The proxies as dimensions of equal weight."""


def is_blank(report: Report) -> bool:
    """True if the report contains no word."""
    return not terms(report.text)


def count_proxies(report: Report) -> dict[str, float]:
    """All proxies of a report, from 0 to 10; an empty report has 0 everywhere."""
    if is_blank(report):
        return dict.fromkeys(PROXIES.names, 0.0)
    shares = {
        "question-terms": _question_share(report),
        "sources": _sources_share(report),
        "cited": _cited_share(report),
        "structure": _structure_share(report),
        "length": _length_share(count_words(MARK.sub("", report.text))),
        "variety": _variety_share(report.text),
        "conclusion": _conclusion_share(report),
    }
    return {name: SCALE * share for name, share in shares.items()}


def conclusion_start(report: Report) -> int:
    """Offset of the conclusion in the text; the length of the text if there is none."""
    found = report.text.rfind(report.conclusion) if report.conclusion.strip() else -1
    return found if found >= 0 else len(report.text)


def _question_share(report: Report) -> float:
    asked = set(content_words(report.question.text))
    return len(asked & set(content_words(report.text))) / len(asked) if asked else 1.0


def _sources_share(report: Report) -> float:
    cited = set(report.citations)
    documents = {source.passage.doc_id for source in report.sources if source.number in cited}
    return min(1.0, len(documents) / NUM_SOURCES)


def _body(report: Report) -> list[Statement]:
    """Statements before the conclusion, without headings; all of them if the conclusion is the whole report."""
    start = conclusion_start(report)
    found = [one for one in report.statements if not _HEADING.match(one.text) and terms(strip_marks(one.text))]
    return [statement for statement in found if statement.end <= start] or found


def _cited_share(report: Report) -> float:
    known = {source.number for source in report.sources}
    body = _body(report)
    return sum(not known.isdisjoint(statement.citations) for statement in body) / len(body) if body else 0.0


def _structure_share(report: Report) -> float:
    paragraphs = [part for part in re.split(r"\n\s*\n", report.text) if part.strip() and not _HEADING.match(part)]
    marks = (
        bool(_HEADING.search(report.text)),
        len(paragraphs) >= 3,
        len(report.statements) >= 5,
        max((count_words(part) for part in paragraphs), default=0) <= _PARAGRAPH_WORDS,
        bool(report.conclusion.strip()),
    )
    return sum(marks) / len(marks)


def _length_share(num_words: int) -> float:
    if num_words <= MAX_WORDS:
        return min(1.0, num_words / MIN_WORDS)
    return max(0.0, 2 - num_words / MAX_WORDS)


def _variety_share(text: str) -> float:
    words = terms(MARK.sub("", text))
    if not words:  # citations alone
        return 0.0
    runs = Counter(tuple(words[at : at + _RUN_WORDS]) for at in range(max(1, len(words) - _RUN_WORDS + 1)))
    return sum(count == 1 for count in runs.values()) / runs.total()


def _conclusion_share(report: Report) -> float:
    rest = strip_marks(report.text[: conclusion_start(report)])
    sentences = [strip_marks(sentence) for sentence in split_sentences(report.conclusion)]
    sentences = [sentence for sentence in sentences if content_words(sentence)]
    if not sentences or not terms(rest):
        return 0.0
    found = [check_support(Cited(sentence, rest, context=report.text)) for sentence in sentences]
    return sum(one.verdict == "supported" for one in found) / len(found)

"""Reader of files with questions, answers and evidence, and aggregate scores of the verifier's results.

    claims = read_claims(Path("curriculum.jsonl"))
    score_supporting(items).value -> Interval(mean=0.41, low=0.33, high=0.49, num=200)

A line of such a file:

    {"question": "Who built the Halm bridge?", "answer": "Orsolya Venn", "evidence": "Venn built it in 1702."}

`answers` may replace `answer`. `evidence` is a span, an evidence record (`{"text": ...}`), or a list of either. Other
columns are ignored.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from quaere.chat.spans import check_evidence, locate_span
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, paired_difference, rate_interval
from quaere.records import Evidence, Support
from quaere.search.index import Index
from quaere.search.json_lines import BadLines, decode_lines
from quaere.training.evidence import Claim

_HINT = 'each line needs {"question": "...", "answer": "...", "evidence": "..."}'
_MARGIN = 0.05  # a span that changes the probability by no more than this has no effect
_NUM_LIKELY = 20  # search results whose documents are scanned before all others


class Verified(Struct, frozen=True):
    """A claim with the verifier's result: `support` is None if the claim could not be verified.

    `evidence` is the location of its spans in the documents of an index: () if not all were found, None without an
    index.

        Verified(claim=Claim(...), support=Support(0.8, 0.2, 5), value=0.6, evidence=(Evidence(...),))
    """

    claim: Claim
    support: Support | None
    value: float | None
    evidence: tuple[Evidence, ...] | None = None


class SupportingScore(Struct, frozen=True):
    """Scores of a whole file over the claims that could be verified; an interval is None if there are none.

    SupportingScore(value=Interval(...), chance_with=Interval(...), chance_without=Interval(...), num_helping=140,
                    num_idle=51, num_hurting=9, num_without_evidence=0, num_unverified=0, num_verbatim=197)
    """

    value: Interval | None
    chance_with: Interval | None
    chance_without: Interval | None
    num_helping: int  # spans that raise the probability of the answer by more than 0.05
    num_idle: int  # spans that change it by at most 0.05 in either direction
    num_hurting: int
    num_without_evidence: int  # claims whose span is blank
    num_unverified: int
    num_verbatim: int | None  # claims whose spans are all in a document verbatim; None without an index


class ClaimFile(Struct, frozen=True):
    """The claims of a file, and the spans of each claim as a tuple (`Claim.span` joins them with newlines).

    ClaimFile(claims=[Claim(...)], spans=[("Venn built it in 1702.",)])
    """

    claims: list[Claim]
    spans: list[tuple[str, ...]]


class _Span(Struct):
    text: str


_Spans = str | _Span | list[str | _Span] | None


class _Row(Struct):
    question: str
    evidence: _Spans
    id: str | int = ""
    answer: str | None = None
    answers: tuple[str, ...] | None = None


def read_claims(path: Path, limit: int | None = None) -> ClaimFile:
    """Claims of a JSONL file (plain or compressed); an error names the number of the invalid line."""
    found = ClaimFile([], [])
    seen: set[str] = set()
    for number, row in islice(decode_lines(path, _Row, hint=_HINT), limit):
        answers = row.answers if row.answers is not None else (row.answer or "",)
        name = str(row.id) or f"q{number}"
        if not row.question.strip():
            raise BadLines(path, "the question is empty", line=number, hint=_HINT)
        if not answers or not all(answer.strip() for answer in answers):
            raise BadLines(path, "the answer is missing or empty", line=number, hint=_HINT)
        if name in seen:
            raise BadLines(path, f"the id {name} occurs twice; ids must be unique", line=number)
        seen.add(name)
        spans = _spans(row.evidence)
        found.claims.append(Claim(name, row.question, answers, "\n".join(spans)))
        found.spans.append(spans)
    if not found.claims:
        raise BadInput(f"{path} contains no claim", hint=_HINT)
    return found


def _spans(evidence: _Spans) -> tuple[str, ...]:
    given = evidence if isinstance(evidence, list) else [evidence]
    texts = [span.text if isinstance(span, _Span) else span or "" for span in given]
    return tuple(text for text in texts if text.strip())


def pair_results(
    found: ClaimFile, supports: Sequence[Support | None], places: Mapping[str, Evidence | None] | None
) -> list[Verified]:
    """Each claim with its result; its evidence is verbatim if all of its spans are. `places` is None without an index.

    pair_results(found, [Support(0.8, 0.2, 5)], None) == [Verified(claim, Support(0.8, 0.2, 5), 0.6, None)]
    """
    items = []
    for claim, spans, support in zip(found.claims, found.spans, supports, strict=True):
        located = [places[span] for span in spans] if places is not None else []
        verbatim = tuple(evidence for evidence in located if evidence is not None)
        evidence = (verbatim if len(verbatim) == len(spans) else ()) if places is not None else None
        items.append(Verified(claim, support, support.value if support else None, evidence))
    return items


def score_supporting(items: Sequence[Verified]) -> SupportingScore:
    """Means of the verifier's results over the claims it could verify, and counts over all claims."""
    supports = [item.support for item in items if item.support is not None]
    values = [support.value for support in supports]
    sides = [support.chance_with for support in supports], [support.chance_without for support in supports]
    is_located = any(item.evidence is not None for item in items)
    return SupportingScore(
        value=paired_difference(*sides) if supports else None,
        chance_with=rate_interval(sides[0]) if supports else None,
        chance_without=rate_interval(sides[1]) if supports else None,
        num_helping=sum(value > _MARGIN for value in values),
        num_idle=sum(abs(value) <= _MARGIN for value in values),
        num_hurting=sum(value < -_MARGIN for value in values),
        num_without_evidence=sum(not item.claim.span.strip() for item in items),
        num_unverified=len(items) - len(supports),
        num_verbatim=sum(bool(item.evidence) for item in items) if is_located else None,
    )


# ---------------------------------------------------------------------------------------------------- locating spans


def locate_evidence(spans: Iterable[str], index: Index) -> dict[str, Evidence | None]:
    """Location of each span in the documents of the index, found by `locate_span`; None if it is in no document.

    Documents returned by a search are scanned first; spans not found there are looked for in every document, so that
    None is conclusive.

        locate_evidence(["built the Halm bridge"], index)
        -> {"built the Halm bridge": Evidence(doc_id="halm.md", start=28, end=49, text="built the Halm bridge")}
    """
    found: dict[str, Evidence | None] = dict.fromkeys(span for span in spans if span.strip())
    for span in found:
        likely = dict.fromkeys(hit.passage.doc_id for hit in index.search([span], _NUM_LIKELY)[0])
        for doc_id in likely:
            found[span] = found[span] or _locate_in(span, doc_id, index.document(doc_id))
    absent = [span for span, evidence in found.items() if evidence is None]
    missing = {span: max(re.findall(r"[^\W_]+", span), key=len, default="") for span in absent}
    for doc_id in index.document_ids() if missing else ():
        text = index.document(doc_id)
        for span, word in list(missing.items()):
            # A cheap prefilter. `locate_span` ignores differences in white space and quotes, neither of which is part
            # of a word, so the filter cannot miss a match.
            if word in text and (evidence := _locate_in(span, doc_id, text)):
                found[span] = evidence
                del missing[span]
    return found


def _locate_in(span: str, doc_id: str, text: str) -> Evidence | None:
    place = locate_span(span, text)
    if place is None:
        return None
    evidence = Evidence(doc_id, *place, text[slice(*place)])
    check_evidence(evidence, text)
    return evidence

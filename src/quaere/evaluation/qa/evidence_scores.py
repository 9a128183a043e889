"""Scores of quoted evidence: given, verbatim, judged to support the answer, and taken from a gold passage.

    quotes_gold("Venn built it in 1702.", question, shown_passages(episode)) -> True
    score_evidence(items).gold_joint -> Interval(mean=0.22, low=0.18, high=0.26, num=500)

Where a question names the passages that prove its answer (`gold_ids`), no judge is needed: a span is *gold* if it
stands verbatim in one of them that was shown, and holds an accepted answer. That is exact only where `gold_ids` are
complete: of a set with some of the proving passages missing, right quotations would be counted as wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct, structs

from quaere.chat.spans import locate_span
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.judges.judge import holds_answer
from quaere.evaluation.qa.items import Item
from quaere.records import Passage, Question


class EvidenceScore(Struct, frozen=True):
    """Evidence scores of a question set, as shares of its questions: a missing span counts as a failure.

    `gold` and `gold_joint` are shares of the questions whose gold passages are known, the others of all questions.

        EvidenceScore(present=Interval(...), verbatim=Interval(...), supported=Interval(...), joint=Interval(...))
    """

    present: Interval  # a span was given
    verbatim: Interval  # the span is in a passage that was returned in that episode
    supported: Interval | None = None  # evidence score: the judge decided that the span supports an accepted answer
    joint: Interval | None = None  # supported, and the answer is an exact match
    gold: Interval | None = None  # the span is of a gold passage and holds an accepted answer
    gold_joint: Interval | None = None  # gold, and the answer is an exact match


def quotes_gold(span: str, question: Question, shown: Iterable[Passage]) -> bool | None:
    """True if the span stands in a gold passage that was shown and holds an accepted answer; None without gold ids.

    Holding an answer is as in the string check: the answer and at least three other words. So a yes-or-no answer is
    never held.
    """
    if not question.gold_ids:
        return None
    gold = [passage for passage in shown if passage.doc_id in question.gold_ids]
    is_quoted = any(locate_span(span, passage.text) is not None for passage in gold)
    return is_quoted and holds_answer(span, question.answers)


def keep_whole_gold(questions: Sequence[Question], sets: Collection[str] | None) -> list[Question]:
    """The questions, with gold ids only where they are complete: in the named sets.

    None stands for the sets all of whose questions have gold ids; an unknown name raises `BadInput`.
    """
    known = {question.set for question in questions}
    lacking = {question.set for question in questions if not question.gold_ids}
    for name in sets or ():
        if name not in known:
            raise BadInput(f"no question is of the set {name!r}; there are {', '.join(sorted(known)) or 'none'}")
        if name in lacking:
            raise BadInput(f"questions of the set {name} lack gold_ids, so its gold is not complete")
    whole = known - lacking if sets is None else set(sets)
    return [question if question.set in whole else structs.replace(question, gold_ids=()) for question in questions]


def score_evidence(scores: Sequence[Item]) -> EvidenceScore | None:
    """Aggregate evidence scores; None if no evidence was requested."""
    if any(score.present is None for score in scores):
        return None
    is_judged = all(score.supported is not None for score in scores)
    known = [score for score in scores if score.gold is not None]
    return EvidenceScore(
        present=rate_interval([score.present is True for score in scores]),
        verbatim=rate_interval([score.verbatim is True for score in scores]),
        supported=rate_interval([score.supported is True for score in scores]) if is_judged else None,
        joint=rate_interval([score.joint for score in scores]) if is_judged else None,
        gold=rate_interval([score.gold is True for score in known]) if known else None,
        gold_joint=rate_interval([score.gold_joint for score in known]) if known else None,
    )

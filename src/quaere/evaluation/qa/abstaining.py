"""Scores of abstention: which questions a model refuses, and how often it is wrong on those it is most confident of.

    score = score_abstention(items)
    score.refused -> Interval(mean=0.8, low=0.7, high=0.88, num=100)   # of the questions without an answer
    score.curve[-1] -> (1.0, 0.42)

The risk-coverage curve orders all questions by the model's confidence, abstentions and episodes without an answer last,
and gives for each coverage the share of the first so many questions that are wrong. A question is right if it is
answerable and its answer matches exactly, or if it is unanswerable and was refused (`Item.right`). At full coverage the
curve is therefore the share of all questions that are not right, whatever their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean

from msgspec import Struct, structs

from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.qa.answer_kinds import KINDS
from quaere.evaluation.qa.items import Item
from quaere.records import Question
from quaere.rewards.abstention import hide_answers

_TENTHS = range(1, 11)


class AbstentionScore(Struct, frozen=True):
    """How often a model abstains, and how often it is wrong; a share of no questions is None.

    `curve` has (coverage, share of wrong questions) at 10, 20, ... 100 % of the questions, and `wrong_at_80` is its
    value at 80 %. `by_kind` has the same scores by kind of answer, where it is known and there are several.

        AbstentionScore(refused=Interval(...), refused_answerable=Interval(...), wrong=Interval(...), wrong_at_80=0.2,
                        curve=((0.1, 0.0), ..., (1.0, 0.42)))
    """

    refused: Interval | None  # share of the unanswerable questions that were refused
    refused_answerable: Interval | None  # share of the answerable questions that were refused
    wrong: Interval | None  # share of wrong answers among all that were given
    wrong_at_80: float
    curve: tuple[tuple[float, float], ...]
    by_kind: dict[str, AbstentionScore] = {}


def score_abstention(items: Sequence[Item]) -> AbstentionScore | None:
    """The scores; None if nobody abstained, all questions are answerable and no confidence is known."""
    if not any(item.abstained or not item.answerable or item.confidence is not None for item in items):
        return None
    kinds = {kind: [item for item in items if item.kind == kind] for kind in KINDS}
    by_kind = {kind: _score(chosen) for kind, chosen in kinds.items() if chosen}
    return structs.replace(_score(items), by_kind=by_kind if len(by_kind) > 1 else {})


def _score(items: Sequence[Item]) -> AbstentionScore:
    curve = find_curve(items)
    return AbstentionScore(
        refused=_share(item.right for item in items if not item.answerable),
        refused_answerable=_share(item.abstained for item in items if item.answerable),
        wrong=_share(not item.right for item in items if item.is_answer),
        wrong_at_80=dict(curve)[0.8],
        curve=curve,
    )


def _share(values: Iterable[bool]) -> Interval | None:
    found = [float(value) for value in values]
    return rate_interval(found) if found else None


def find_curve(items: Sequence[Item]) -> tuple[tuple[float, float], ...]:
    """The risk-coverage curve: the share of wrong questions among the most confident 10, 20, ... 100 %, rounded up.

    Questions of equal confidence count with their mean, so that their order does not matter; an answer of unknown
    confidence counts as fully confident.
    """
    wrongs: list[float] = []
    for _, tied in groupby(sorted(items, key=_rank, reverse=True), key=_rank):
        group = [not item.right for item in tied]
        wrongs += [fmean(group)] * len(group)
    covered = {tenth: -(-len(wrongs) * tenth // 10) for tenth in _TENTHS}
    return tuple((tenth / 10, fmean(wrongs[:num])) for tenth, num in covered.items())


def _rank(item: Item) -> tuple[bool, float]:
    sure = 1.0 if item.confidence is None else item.confidence
    return item.is_answer, sure if item.is_answer else 0.0


def find_lost(pairs: Sequence[tuple[Item, Item]]) -> Interval | None:
    """The share of the other result's right answers that this one abstained from; None if it never abstained.

    `pairs` has, for each question, this result and the other.
    """
    if not any(ours.abstained for ours, _ in pairs):
        return None
    return _share(ours.abstained for ours, theirs in pairs if theirs.answerable and theirs.right)


def add_hidden(questions: Sequence[Question]) -> tuple[list[Question], int]:
    """The questions, each followed by its copy with hidden answers, and how many have no such copy (`hide_answers`)."""
    taken, found, num_open = {question.id for question in questions}, list[Question](), 0
    for question in questions:
        copy = hide_answers(question)
        if copy is not None and copy.id in taken:
            said = f"question {question.id} cannot be asked with hidden answers: there is a question {copy.id}"
            raise BadInput(said, hint="leave out --hide-answers, or rename the question")
        found += [question] if copy is None else [question, copy]
        num_open += copy is None and bool(question.answers)
    return found, num_open

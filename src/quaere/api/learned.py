"""Records of what `quaere learn` has done: the agent, measurements before and after, examples, and an update."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from quaere.api.evaluation import Evaluation
from quaere.api.learning_plan import Plan
from quaere.evaluation.intervals import Interval, clustered_difference, rate_interval
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.scores import Scored
from quaere.grouping import group_by
from quaere.runs import Run
from quaere.runs.summaries import summarise_phases
from quaere.search.changed_documents import ChangedDocuments
from quaere.search.index import is_index
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.stale_questions import Retired

_MOST_SHOWN = 10


class Example(Struct, frozen=True):
    """A question with the sentence that proves its answer; `given` is what the agent answered, if it was asked.

    Example("Who built the Halm bridge?", "Orsolya Venn", "The bridge was built by Orsolya Venn.", "halm.md", "Brod")
    """

    question: str
    answer: str
    sentence: str
    document: str
    given: str = ""
    kind: str = ""
    earlier: str = ""  # what was answered before, if it was asked then


class Share(Struct, frozen=True):
    """A share before and after; what was lost has none before.

    Share("Rightly refused", "of those whose answer was hidden", Interval(...), Interval(...))
    """

    label: str
    note: str
    before: Interval | None
    after: Interval


class Update(Struct, frozen=True):
    """What `learn(..., update=True)` found: changed documents, retired questions, and the old agent beside the new.

    `regression` is the difference in exact match on the old questions held back, `gain` on the new ones; None if there
    are none.

        Update(documents=ChangedDocuments(...), num_checked=12, retired=[Retired(...)], num_new=5, ...)
    """

    documents: ChangedDocuments
    num_checked: int
    retired: list[Retired]
    num_new: int
    regression: Interval | None
    gain: Interval | None
    is_worse: bool  # on the old questions held back, or not measured as none is left


class Learned(Struct, frozen=True):
    """What `learn` has done: the agent, its measurements before and after, and examples.

    `gain` is the difference in exact match on the questions held back that have an answer, with its interval over
    documents. `is_better` is true if that is above 0. `kinds` and `searches` count the questions written, by kind and
    by the searches they need; `wrong` are questions held back that are still answered wrong, `learned` those that were
    before and are not now.
    """

    out: Path
    plan: Plan
    before: Evaluation
    after: Evaluation
    gain: Interval
    is_better: bool
    kinds: dict[str, int]
    searches: dict[str, int]
    examples: list[Example]
    wrong: list[Example]
    learned: list[Example]
    seconds: dict[str, float]
    agent: Path
    num_steps: int  # of the solver that were made
    is_trained: bool = True  # False: the agent is the model before reinforcement
    update: Update | None = None  # of `learn(..., update=True)`

    @property
    def index(self) -> Path:
        """The index that the agent searches."""
        return find_index(self.plan, self.out)


def find_index(plan: Plan, out: Path) -> Path:
    """The index: the source itself if it is one, else the one that is built."""
    source = Path(plan.sources[0])
    return source if len(plan.sources) == 1 and is_index(source) else out / "index"


def find_gain(
    before: Evaluation,
    after: Evaluation,
    clusters: Mapping[str, Hashable],
    is_chosen: Callable[[str], bool] = lambda name: True,
) -> Interval | None:
    """After minus before in exact match over the chosen questions that have an answer; None if there are none.

    Questions of one cluster, which are about the same documents, are resampled together.
    """
    earlier = {one.id: one.exact_match for one in before.questions}
    asked = [one for one in after.questions if one.answerable and is_chosen(one.id)]
    sides = ([one.exact_match for one in asked], [earlier[one.id] for one in asked])
    return clustered_difference(*sides, [clusters[one.id] for one in asked]) if asked else None


_NOTES = {
    "All questions": "answered right",
    "Several searches": "answered right, of those that need more than one search",
    "Rightly refused": "of those whose answer was hidden from the search",
    "Answered all the same": "of those whose answer was hidden; fewer is better",
    "Wrongly refused": "of those that the documents answer; fewer is better",
}


def compare_shares(before: Scored, after: Scored) -> list[Share]:
    """The shares that both evaluations have, and the right answers that the second refused to give."""
    first, second = _find_shares(before), _find_shares(after)
    found = [Share(label, _NOTES[label], share, second[label]) for label, share in first.items() if label in second]
    compared = compare(after, before)
    if compared and compared.lost:
        found.append(Share("Lost by refusing", "of those answered right before; fewer is better", None, compared.lost))
    return found


def _find_shares(evaluation: Scored) -> dict[str, Interval]:
    items = evaluation.items
    several = [one.exact_match for one in items if one.answerable and one.searches_needed > 1]
    hidden = [one for one in items if not one.answerable]
    abstention = evaluation.score.abstention
    shares = (
        evaluation.score.exact_match,
        rate_interval(several) if several else None,
        abstention.refused if abstention else None,
        rate_interval([float(one.is_answer) for one in hidden]) if hidden else None,
        abstention.refused_answerable if abstention else None,
    )
    return {label: share for label, share in zip(_NOTES, shares, strict=True) if share}


def describe_questions(questions: Sequence[CheckedQuestion], before: Evaluation, after: Evaluation) -> dict[str, Any]:
    """The fields of a `Learned` about its questions: their kinds, some examples, and what was learned or is wrong."""
    known = {question.id: question for question in questions}
    missed = {score.id: score.answer or "" for score in before.questions if not score.exact_match}
    shown = [(one, score) for score in after.questions if (one := known.get(score.id)) and one.answers]
    return {
        "kinds": dict(Counter(question.kind for question in questions).most_common()),
        "searches": dict(sorted(Counter(str(question.searches) for question in questions).items())),
        "examples": [_show(question) for question in draw_kinds(questions)[:_MOST_SHOWN]],
        "wrong": [_show(one, score.answer or "") for one, score in shown if not score.exact_match],
        "learned": [
            _show(one, score.answer or "", missed[one.id])
            for one, score in shown
            if score.exact_match and one.id in missed
        ],
    }


def count_solver_steps(path: Path) -> int:
    """The steps that the solver was trained in a run; 0 if there is none, as an update may have nothing to practise."""
    if not path.exists():
        return 0
    with Run.open(path) as run:
        phases = [phase for phase in summarise_phases(run) if phase.phase == "solver"]
    return sum(phase.last_step - phase.first_step + 1 for phase in phases)


def draw_kinds(questions: Sequence[CheckedQuestion]) -> list[CheckedQuestion]:
    """The questions with their kinds in turn, so that the first ones are of all kinds."""
    by_kind = group_by(questions, lambda question: question.kind).values()
    return [one for turn in itertools.zip_longest(*by_kind) for one in turn if one is not None]


def _show(question: CheckedQuestion, given: str = "", earlier: str = "") -> Example:
    deciding = question.deciding
    sentence, document = (deciding[-1].text, deciding[-1].doc_id) if deciding else ("", "")
    return Example(
        question.question,
        question.answers[0] if question.answers else "",
        sentence,
        document,
        given,
        question.kind,
        earlier,
    )

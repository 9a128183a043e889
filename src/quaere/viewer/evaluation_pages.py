"""The pages of evaluations: all results with their intervals, and one of them.

    results = EvaluationResults(folder, cards, [Path("base.json")])
    results.find("eval-20250301-101500").scored.score.exact_match -> Interval(mean=0.31, low=0.27, high=0.35, num=500)

Results are runs of `quaere eval`, and files that it wrote. A run's episodes are scored again by the code of `quaere
eval`, so both give the same numbers; what a judge decided is in files only. A result is found by its key among those
that exist: the name of a run, or "file:" and that of a file.
"""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from quaere.api.checked_questions import read_checked
from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.qa.items import Item
from quaere.evaluation.qa.scores import (
    AnsweringScore,
    Evaluation,
    ItemEvaluation,
    Judging,
    Scored,
    read_scored,
    score_answering,
    score_episode,
)
from quaere.records import EndReason, SolveTask
from quaere.runs.rows import PLACE, EpisodeFilter, EpisodeRow
from quaere.viewer.page_formats import Listed, ListPage, copy_fields, cut_page
from quaere.viewer.run_folder import HELD, LEARN_RUN, MEASUREMENTS, Kept, RunFolder, read_signature, require, sign_file
from quaere.viewer.run_list import RunCards, name_model
from quaere.warmup.documents.held_back import find_clusters

EVAL_KIND = "eval"  # the kind of a run of `quaere eval`
_FILE = "file:"
_MOST_KEPT = 8
LIST_SIZE = 20  # results, whose intervals have to be computed
MEASURES = {
    "exact_match": "exact match",
    "f1": "F1",
    "present": "evidence given",
    "verbatim": "evidence verbatim",
    "supported": "evidence supports",
    "joint": "right and supported",
    "gold": "evidence of a gold passage",
    "gold_joint": "right and of a gold passage",
    "open_exact_match": "exact match without yes/no and choices",
}


class EvaluationLine(Struct, frozen=True):
    """One evaluation in the list. `problem` is why it cannot be read; intervals are None while it has no episodes.

    EvaluationLine(key="eval-20250301-101500", name="warm", model="warm-model", questions="world/eval.jsonl",
                   created="2025-03-01T10:15:00+00:00", num=500, exact_match=Interval(...), f1=Interval(...))
    """

    key: str
    name: str
    model: str = ""
    questions: str = ""
    created: str = ""
    num: int = 0
    exact_match: Interval | None = None
    f1: Interval | None = None
    problem: str = ""


class Result(Struct, frozen=True):
    """One evaluation: model, scores, and texts by question id.

    `run` is the run with its episodes ("" for a result file), `episodes` maps question ids to episode ids.

    Result(key="file:base.json", model="smollm2-135m", run="", scored=Evaluation(...), texts={"q1": "Who built it?"})
    """

    key: str
    model: str
    created: str
    run: str
    scored: Scored
    texts: dict[str, str] = {}
    episodes: dict[str, str] = {}


class EvaluationQuery(Listed, frozen=True):
    """A result by its key, and which of its questions are listed.

    EvaluationQuery(of="eval-20250301-101500", right="no", text="bridge", page=2)
    """

    of: str = ""
    right: Literal["", "yes", "no"] = ""


class GroupRow(Struct, frozen=True):
    """Scores of a group of questions, such as "all", "2 facts" or "set popqa".

    GroupRow("2 facts", 120, Interval(...), Interval(...))
    """

    name: str
    num: int
    exact_match: Interval
    f1: Interval


class ItemLine(Struct, frozen=True):
    """One question of an evaluation; `question` is "" if the file has no texts, `episode` is "" if there is no run.

    `right` is true also for a question without an answer that was refused. `present`: the model quoted a sentence;
    `verbatim`: the quotation is in a passage it was shown. Both are None if the model was not asked to quote.
    """

    id: str
    question: str
    answer: str | None
    right: bool
    abstained: bool
    answerable: bool
    confidence: float | None
    exact_match: float
    f1: float
    end: EndReason
    num_searches: int
    present: bool | None
    verbatim: bool | None
    episode: str


class EvaluationPage(ListPage[EvaluationQuery, ItemLine], frozen=True):
    """The page of one evaluation: scores with intervals, overall and by group, evidence scores, and its questions."""

    name: str
    model: str
    created: str
    run: str
    settings: dict[str, Any]
    score: AnsweringScore
    groups: list[GroupRow]
    evidence: dict[str, Interval]
    judging: Judging | None


# -------------------------------------------------------------------------------------------------------------- results


class EvaluationResults:
    """The evaluations among a folder's runs and in result files, cached; one is read again when its files change."""

    def __init__(self, folder: RunFolder, cards: RunCards, files: Sequence[Path] = ()) -> None:
        self._folder, self._cards = folder, cards
        self._files = {_FILE + path.name: path for path in files}
        self._lines: Kept[EvaluationLine] = Kept()
        self._results: Kept[Result] = Kept(_MOST_KEPT)

    def names(self) -> list[str]:
        """The key of every result: files first, then runs, the newest first."""
        return [*self._files, *self._cards.names_of_kind(EVAL_KIND)]

    def line(self, key: str) -> EvaluationLine:
        """One evaluation as the list shows it; if it cannot be read, a line with the `problem`."""
        return self._lines.get(key, self._sign(key), lambda: self._read_line(key))

    def find(self, key: str) -> Result:
        """The result of this key; `NotShown` if there is none."""
        require(key in self.names(), f"there is no result {key}", "results are listed at /evaluations")
        return self._results.get(key, self._sign(key), lambda: self._read(key))

    def find_clusters(self) -> dict[str, Hashable]:
        """The clusters of the questions that `quaere learn` held back, by id; {} if they are not known.

        Questions of a cluster depend on each other through their documents, so intervals are over clusters, as on the
        page that `quaere learn` writes.
        """
        held = self._folder.root / HELD
        if self._folder.only != LEARN_RUN or not held.is_file():
            return {}
        try:
            return find_clusters(read_checked(held))
        except BadInput:
            return {}

    def _sign(self, key: str) -> object:
        if key in self._files:
            return sign_file(self._files[key])
        stored = self._find_stored(key)
        return read_signature(self._folder.find(key)), stored and sign_file(stored)

    def _find_stored(self, key: str) -> Path | None:
        """The scores that `quaere learn` stored, for the intervals of its page: they depend on the questions' order."""
        stored = self._folder.find(key).with_suffix(".json")
        is_learning = self._folder.only == LEARN_RUN and key in MEASUREMENTS
        return stored if is_learning and stored.is_file() else None

    def _read_line(self, key: str) -> EvaluationLine:
        try:
            if key in self._files:
                return _describe(_read_file(key, self._files[key]))
            if self._find_stored(key):  # so that all pages show the same intervals
                return _describe(self.find(key))
            with self._folder.open(key) as run:
                return _describe_run(key, run)
        except BadInput as error:
            return EvaluationLine(key, key, problem=str(error))

    def _read(self, key: str) -> Result:
        if key in self._files:
            return _read_file(key, self._files[key])
        stored = self._find_stored(key)
        with self._folder.open(key) as run:
            return _read_stored(key, stored, run) if stored else _score_run(key, run)


def _describe_run(key: str, run: Run) -> EvaluationLine:
    """A run of `quaere eval` as a line of the list, from the scores stored with its episodes."""
    settings = run.info.settings
    scores = [row.metrics for row in _order_rows(run) if "answer/exact_match" in row.metrics]
    rights, f1s = ([one.get(name, 0.0) for one in scores] for name in ("answer/exact_match", "answer/f1"))
    return EvaluationLine(
        key=key,
        name=str(settings.get("name") or key),
        model=name_model(settings),
        questions=str(settings.get("questions") or ""),
        created=run.info.created,
        num=len(scores),
        exact_match=rate_interval(rights) if scores else None,
        f1=rate_interval(f1s) if scores else None,
    )


def _read_file(key: str, path: Path) -> Result:
    scored = read_scored(path)
    texts = {one.id: one.question for one in scored.questions} if isinstance(scored, Evaluation) else {}
    return Result(key, getattr(scored, "model", ""), "", "", scored, texts)


def _read_stored(key: str, path: Path, run: Run) -> Result:
    """The stored scores of a run's episodes, which are not read."""
    episodes = {row.task_id: row.id for row in run.rows(EpisodeFilter())}
    described = {"model": name_model(run.info.settings), "created": run.info.created, "run": key, "episodes": episodes}
    return structs.replace(_read_file(key, path), **described)


def _describe(result: Result) -> EvaluationLine:
    scored = result.scored
    return copy_fields(
        EvaluationLine,
        scored.score,
        key=result.key,
        name=scored.name,
        model=result.model,
        created=result.created,
        questions=str(scored.settings.get("questions") or ""),
        num=scored.score.exact_match.num,
    )


def _order_rows(run: Run) -> list[EpisodeRow]:
    """A run's episodes in the order of the question file, as in `quaere eval`: bootstrap intervals depend on the order.

    Runs of earlier versions do not store it; their episodes are in the order in which they ended.
    """
    return sorted(run.rows(EpisodeFilter()), key=lambda row: row.metrics.get(PLACE, row.number))


def _score_run(key: str, run: Run) -> Result:
    settings = run.info.settings
    scored = {
        episode.id: score_episode(episode, evidence=bool(settings.get("evidence")), min_confidence=run.min_confidence)
        for episode in run.episodes()
        if isinstance(episode.task, SolveTask)
    }
    scores = {row.id: scored[row.id] for row in _order_rows(run) if row.id in scored}
    require(scores, f"run {key} has no scored question yet", "it is listed with its episodes")
    found, name = list(scores.values()), str(settings.get("name") or key)
    return Result(
        key=key,
        model=name_model(settings),
        created=run.info.created,
        run=key,
        scored=ItemEvaluation(name, score_answering(found), tuple(score.item for score in found), settings),
        texts={score.id: score.question for score in found},
        episodes={score.id: id for id, score in scores.items()},
    )


# ---------------------------------------------------------------------------------------------------------------- pages


def read_evaluations(results: EvaluationResults, query: Listed) -> ListPage[Listed, EvaluationLine]:
    """One page of the evaluations whose key contains the query's text."""
    keys = [key for key in results.names() if query.text.casefold() in key.casefold()]
    return ListPage(query, cut_page(keys, query.page, LIST_SIZE).map(results.line))


def read_evaluation(results: EvaluationResults, query: EvaluationQuery) -> EvaluationPage:
    """The page of one evaluation; `NotShown` if there is none of this key."""
    result = results.find(query.of)
    scored = result.scored
    wanted = {"": (True, False), "yes": (True,), "no": (False,)}[query.right]
    found = [item for item in scored.items if item.right in wanted and has_text(result, item, query.text)]
    shares = {title: getattr(scored.score.evidence, name, None) for name, title in MEASURES.items()}
    return copy_fields(
        EvaluationPage,
        scored,
        query=query,
        model=result.model,
        created=result.created,
        run=result.run,
        groups=_group(scored.score, scored.items),
        evidence={name: share for name, share in shares.items() if share is not None},
        page=cut_page(found, query.page).map(lambda item: describe_item(result, item)),
    )


def describe_item(result: Result, item: Item) -> ItemLine:
    """A question of a result as lists show it."""
    return copy_fields(ItemLine, item, question=result.texts.get(item.id, ""), episode=result.episodes.get(item.id, ""))


def has_text(result: Result, item: Item, text: str) -> bool:
    """True if the question, its id or its answer contains the text."""
    words = (item.id, result.texts.get(item.id, ""), item.answer or "")
    return any(text.casefold() in word.casefold() for word in words)


def _group(score: AnsweringScore, items: tuple[Item, ...]) -> list[GroupRow]:
    """Scores of all questions, then by number of facts, kind of answer and question set, if there are several."""
    groups = [("all", score.exact_match, score.f1)]
    if len(score.by_facts) > 1:
        names = {0: "facts unknown", 1: "1 fact"}
        groups += [(names.get(one.facts, f"{one.facts} facts"), one.exact_match, one.f1) for one in score.by_facts]
    if len(score.by_kind) > 1:
        groups += [(f"{one.name} answers", one.exact_match, one.f1) for one in score.by_kind]
    rated = [item for item in items if item.answerable]
    sets = sorted({item.set for item in rated})
    for name in sets if len(sets) > 1 else []:
        rights, f1s = zip(*((item.exact_match, item.f1) for item in rated if item.set == name), strict=True)
        groups.append((f"set {name or 'none'}", rate_interval(rights), rate_interval(f1s)))
    return [GroupRow(name, right.num, right, f1) for name, right, f1 in groups]

"""Results of evaluations that the viewer shows: runs of `quaere eval`, and files that it wrote.

    results = EvaluationResults(folder, cards, [Path("base.json")])
    results.find("eval-20250301-101500").scored.score.exact_match -> Interval(mean=0.31, low=0.27, high=0.35, num=500)

A run's episodes are scored again by the code of `quaere eval`, so both give the same numbers; what a judge decided is
in files only. A result is found by its key among those that are there: the name of a run, or "file:" and that of a
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.qa.scores import (
    Evaluation,
    ItemEvaluation,
    Scored,
    read_scored,
    score_answering,
    score_episode,
)
from quaere.records import SolveTask
from quaere.runs.groups import EpisodeFilter
from quaere.viewer.page_formats import copy_fields
from quaere.viewer.run_folder import Kept, NotShown, RunFolder, read_signature, sign_file
from quaere.viewer.run_list import RunCards, name_model

EVAL_KIND = "eval"  # of runs of `quaere eval`
_FILE = "file:"
_MOST_KEPT = 8


class EvaluationLine(Struct, frozen=True):
    """A result in the list; `problem` is why it cannot be read, and it has no intervals before it has an episode.

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
    """A result in full; `run` is the run that has its episodes ("" for a file), and `episodes` their ids by question.

    Result(key="file:base.json", model="smollm2-135m", run="", scored=Evaluation(...), texts={"q1": "Who built it?"})
    """

    key: str
    model: str
    created: str
    run: str
    scored: Scored
    texts: dict[str, str] = {}
    episodes: dict[str, str] = {}


class EvaluationResults:
    """The results of a folder of runs and of some files. Each is read once, and a run again when it was written to."""

    def __init__(self, folder: RunFolder, cards: RunCards, files: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._cards = cards
        self._files = {_FILE + path.name: path for path in files}
        self._lines: Kept[EvaluationLine] = Kept()
        self._results: Kept[Result] = Kept(_MOST_KEPT)

    def names(self) -> list[str]:
        """The key of every result: files first, then runs, the newest first."""
        return [*self._files, *self._cards.names_of_kind(EVAL_KIND)]

    def line(self, key: str) -> EvaluationLine:
        """A result as the list shows it."""
        return self._lines.get(key, self._sign(key), lambda: self._read_line(key))

    def find(self, key: str) -> Result:
        """The result of this key; `NotShown` if there is none."""
        if key not in self.names():
            raise NotShown(f"there is no result {key}", hint="results are listed at /evaluations")
        return self._results.get(key, self._sign(key), lambda: self._read(key))

    def _sign(self, key: str) -> object:
        return sign_file(self._files[key]) if key in self._files else read_signature(self._folder.find(key))

    def _read_line(self, key: str) -> EvaluationLine:
        try:
            if key in self._files:
                return _describe(_read_file(key, self._files[key]))
            with self._folder.open(key) as run:
                return describe_run(key, run)
        except BadInput as error:
            return EvaluationLine(key, key, problem=str(error))

    def _read(self, key: str) -> Result:
        if key in self._files:
            return _read_file(key, self._files[key])
        with self._folder.open(key) as run:
            return _score_run(key, run)


def describe_run(key: str, run: Run) -> EvaluationLine:
    """A run as a line, out of the scores that were stored with its episodes."""
    settings = run.info.settings
    scores = [row.metrics for row in run.rows(EpisodeFilter()) if "answer/exact_match" in row.metrics]
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


# ------------------------------------------------------------------------------------------------------------- details


def _read_file(key: str, path: Path) -> Result:
    scored = read_scored(path)
    texts = {one.id: one.question for one in scored.questions} if isinstance(scored, Evaluation) else {}
    return Result(key, getattr(scored, "model", ""), "", "", scored, texts)


def _describe(result: Result) -> EvaluationLine:
    scored = result.scored
    questions = str(scored.settings.get("questions") or "")
    return copy_fields(
        EvaluationLine,
        scored.score,
        key=result.key,
        name=scored.name,
        model=result.model,
        questions=questions,
        num=len(scored.items),
    )


def _score_run(key: str, run: Run) -> Result:
    settings = run.info.settings
    evidence = bool(settings.get("evidence"))
    scores = {
        episode.id: score_episode(episode, evidence=evidence)
        for episode in run.episodes()
        if isinstance(episode.task, SolveTask) and episode.task.question.answers
    }
    if not scores:
        raise NotShown(f"run {key} has no scored question yet", hint="it is listed with its episodes")
    found = list(scores.values())
    name = str(settings.get("name") or key)
    return Result(
        key=key,
        model=name_model(settings),
        created=run.info.created,
        run=key,
        scored=ItemEvaluation(name, score_answering(found), tuple(score.item for score in found), settings),
        texts={score.id: score.question for score in found},
        episodes={score.id: id for id, score in scores.items()},
    )

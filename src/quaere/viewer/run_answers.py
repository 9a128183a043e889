"""The answers of a run of `quaere ask`: each with its question, the sentence that it rests on, and its score.

read_answers(run, "ask-20250301-101500")[0].answer -> "Orsolya Venn"
"""

from __future__ import annotations

from msgspec import structs

from quaere.api.answer import read_answer
from quaere.api.run import Run, open_documents
from quaere.records import SolveTask
from quaere.runs.groups import EpisodeFilter
from quaere.runs.rows import EpisodeRow
from quaere.viewer.answer_view import AnswerView, describe_answer, view_answer
from quaere.viewer.ask_history import AskRecord
from quaere.viewer.page_formats import path_to

KIND = "ask"
MAX_ANSWERS = 50  # that the page of a run shows; the page of its questions has them all


class RunAnswer(AnswerView, frozen=True):
    """An answer of a run, whose `id` is its episode's; `scores` are empty where no accepted answers were given."""

    scores: dict[str, float]


def read_answers(run: Run, name: str) -> list[RunAnswer]:
    """The first answers of a run, in the order they were given; none if it is no run of `quaere ask`."""
    if run.info.kind != KIND:
        return []
    documents, base = open_documents(run), path_to("run", name, "document")
    found = []
    for row in run.rows(EpisodeFilter())[:MAX_ANSWERS]:
        record = read_record(run, row)
        if record is not None:
            view = view_answer(record, documents.read, base)
            found.append(RunAnswer(**structs.asdict(view), scores=row.metrics))
    return found


def read_record(run: Run, row: EpisodeRow) -> AskRecord | None:
    """An episode in the form of a question of the page Ask; None if it answers no question."""
    episode = run.episode(row.id)
    if not isinstance(episode.task, SolveTask):
        return None
    overlap, quotes = (run.info.settings.get(key) for key in ("min_overlap", "evidence"))
    answer = read_answer(episode, overlap if isinstance(overlap, int | float) else 0.0)
    return AskRecord(
        id=row.id,
        question=row.question,
        time=run.info.created,
        quotes=quotes if isinstance(quotes, bool) else None,
        turns=episode.turns,
        **describe_answer(answer),
    )

"""A stopped `quaere eval` that goes on: its run, opened again, and the scores of the questions it has answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quaere.errors import BadInput
from quaere.evaluation.qa.scores import QuestionScore, score_episode
from quaere.records import Question, SolveTask
from quaere.runs import Run

_FREE = {"name", "max_rows"}  # may differ: neither changes what is asked, and fewer rows may be why it is run again


def reopen(path: Path, settings: Mapping[str, Any]) -> Run:
    """The run of a stopped evaluation, open for writing; raises BadInput if it was made with other settings."""
    stored = Run.open(path, write=True)
    try:
        if stored.info.kind != "eval":
            raise BadInput(f"{path} is no evaluation, but of kind {stored.info.kind}", hint="quaere runs list")
        now = msgspec.json.decode(msgspec.json.encode(settings))
        before = stored.info.settings
        differ = [name for name in now if name not in _FREE and now[name] != before.get(name)]
        if differ:
            said = "; ".join(f"{name} was {before.get(name)!r} and is {now[name]!r}" for name in differ)
            raise BadInput(f"{path} cannot go on with other settings: {said}", hint="run it anew, without --resume")
        stored.note_end(None)
    except BaseException:
        stored.close()
        raise
    return stored


def read_scores(stored: Run, questions: Sequence[Question], *, evidence: bool) -> dict[str, QuestionScore]:
    """Scores of the episodes a run has stored, by question; raises BadInput if one is of another question."""
    asked = {question.id: question for question in questions}
    found = {}
    for episode in stored.episodes():
        if not isinstance(episode.task, SolveTask) or asked.get(episode.id) != episode.task.question:
            raise BadInput(
                f"{stored.path} has an answer to {episode.id}, and the file of questions has no such question now",
                hint="run it anew, without --resume",
            )
        found[episode.id] = score_episode(episode, evidence=evidence)
    return found

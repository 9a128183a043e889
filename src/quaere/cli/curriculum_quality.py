"""`quaere curriculum RUN|FILE quality`: the share of questions whose answer the documents prove, by rules alone.

quaere curriculum evolve-1 quality
quaere curriculum checked.jsonl quality --index docs-index
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from quaere.cli.runs import as_json
from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.evaluation.qa.curriculum_quality import Asked
    from quaere.runs import Run
    from quaere.runs.curriculum import Item


def ask_of_file(path: Path, index: str | None) -> list[Asked]:
    """The questions of a file, with what its documents say."""
    from quaere.evaluation.qa.curriculum_quality import of_question
    from quaere.rollout.questions import read_questions
    from quaere.search.index import open_index

    if not index:
        raise BadInput("the documents that a file of questions is about are not known", hint="--index DIR")
    documents = open_index(Path(index))
    return [of_question(question, documents.document) for question in read_questions(path)]


def ask_of_run(run: Run, items: list[Item], index: str) -> list[Asked]:
    """What the solver learns from of these items, with what the run's documents and its proposer's episodes say."""
    from quaere.evaluation.qa.curriculum_quality import of_candidate
    from quaere.search.index import open_index

    documents = open_index(Path(index))
    known = {row.id for row in run.index()}
    learned = [item.candidate for item in items if item.learned]
    return [
        of_candidate(item, run.episode(item.episode_id) if item.episode_id in known else None, documents.document)
        for item in learned
    ]


def tell_quality(asked: list[Asked], *, json: bool) -> None:
    """Print the share that is proven, and what is wrong with the rest."""
    from msgspec import to_builtins

    from quaere.evaluation.qa.curriculum_quality import measure_quality

    if not asked:
        raise BadInput("there is no question to look at")
    quality = measure_quality(asked)
    if json:
        print(as_json({**to_builtins(quality), "share": to_builtins(quality.share)}))
        return
    share = quality.share
    print(f"{quality.num} questions, {quality.num_proven} proven: {share.mean:.3f} [{share.low:.3f}, {share.high:.3f}]")
    for fault, count in quality.faults.items():
        print(f"{count:6}  {fault}")

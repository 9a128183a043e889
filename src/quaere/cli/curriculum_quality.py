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
    from quaere.runs.curriculum_audit import Item


def ask_of_file(path: Path, index: str | None) -> list[Asked]:
    """The questions of a file, with the documents that should prove their answers."""
    from quaere.evaluation.qa.curriculum_quality import of_question
    from quaere.rollout.question_files import read_questions
    from quaere.search.index import open_index

    if not index:
        raise BadInput("a file of questions needs the index of its documents", hint="--index DIR")
    documents = open_index(Path(index))
    return [of_question(question, documents.document) for question in read_questions(path)]


def ask_of_run(run: Run, items: list[Item], index: str) -> list[Asked]:
    """The items the solver learns from, with their documents and the proposer's episodes."""
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
    """Print the share of proven questions, and the faults of the others."""
    from msgspec import to_builtins

    from quaere.evaluation.qa.curriculum_quality import measure_quality

    if not asked:
        raise BadInput("there is no question to check", hint="use fewer filters, or name another run or file")
    quality = measure_quality(asked)
    if json:
        print(as_json({**to_builtins(quality), "share": to_builtins(quality.share)}))
        return
    share = quality.share
    print(f"{quality.num} questions, {quality.num_proven} proven: {share.mean:.3f} [{share.low:.3f}, {share.high:.3f}]")
    for fault, count in quality.faults.items():
        print(f"{count:6}  {fault}")

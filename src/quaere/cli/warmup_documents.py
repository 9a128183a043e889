"""`quaere warmup RECIPE --index DIR`: lessons out of a person's own documents, in place of a fictional world's.

The untaught model writes questions about the documents and checks them; taught the form of an episode, it attempts them,
and learns from the attempts that were right.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.rollout.episode import Limits
    from quaere.training.warmup.demonstration import Demonstrations
    from quaere.training.warmup.dialects import Dialect
    from quaere.training.warmup.documents.writer import CheckedQuestion

QUESTIONS = "questions.jsonl"


def read_checked(path: Path) -> list[CheckedQuestion]:
    """The questions of a file that `quaere questions --checked` wrote."""
    from quaere.search.rows import read_lines
    from quaere.training.warmup.documents.writer import CheckedQuestion

    found = []
    for number, line in read_lines(path):
        try:
            found.append(msgspec.json.decode(line, type=CheckedQuestion))
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{path}, line {number}: {error}",
                hint="quaere questions --checked --index DIR --model MODEL --out FILE writes such a file",
            ) from error
    return found


def play_documents(
    args: argparse.Namespace,
    questions: list[CheckedQuestion],
    *,
    limits: Callable[[Dialect], Limits],
    note: Callable[[str], None],
) -> Demonstrations:
    """The model's own right episodes on the questions, in every dialect that is taught, an equal share each."""
    return asyncio.run(_play(args, questions, limits, note))


async def _play(
    args: argparse.Namespace,
    questions: list[CheckedQuestion],
    limits: Callable[[Dialect], Limits],
    note: Callable[[str], None],
) -> Demonstrations:
    from quaere.rollout.policy import open_policy
    from quaere.search.searcher import open_searcher
    from quaere.training.warmup.demonstration import Demonstrations, open_protocol
    from quaere.training.warmup.documents.lessons import play_own

    played = Demonstrations()
    dialects = (args.recipe, *args.also)
    policy = open_policy(args.model, device=args.device, max_rows=args.max_rows)
    searcher = open_searcher(str(args.index))
    try:
        for number, dialect in enumerate(dialects):
            own = await play_own(
                policy,
                searcher,
                questions[number :: len(dialects)],
                open_protocol("solver", args.style, dialect),
                limits(dialect),
                attempts=args.attempts,
                seed=args.seed,
                concurrency=args.max_rows,
            )
            note(f"{dialect}: {len(own.episodes)} of {len(questions[number :: len(dialects)])} questions answered well")
            played.episodes.extend(own.episodes)
            played.dropped.update(own.dropped)
    finally:
        await policy.stop()
        await searcher.close()
    return played

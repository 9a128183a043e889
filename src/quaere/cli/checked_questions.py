"""`quaere questions --checked`: questions with short answers that the documents prove, to learn from without labels."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.training.warmup.documents.writer import Written


def run_checked(args: argparse.Namespace) -> None:
    """Write the questions to a file, and say how many were kept and why others were not."""
    from quaere.cli.questions import write_lines

    written = asyncio.run(_write(args))
    if not written.questions:
        raise BadInput(
            f"none of {written.num_drafts} drafts became a good question (most often: {_reasons(written, 1)})",
            hint="a larger --model, or more --drafts",
        )
    write_lines(args.out, written.questions)
    _print_summary(args, written)


async def _write(args: argparse.Namespace) -> Written:
    from rich.console import Console

    from quaere.rollout.policy import open_policy
    from quaere.search.index import open_index
    from quaere.training.warmup.documents.writer import WriterSettings, write_questions

    quiet = Console(stderr=True, highlight=False)
    settings = WriterSettings(
        drafts=args.drafts,
        tries=args.tries,
        min_right=args.min_right,
        topk=args.topk,
        single_share=args.single_share,
        temperature=args.temperature,
        seed=args.seed,
        concurrency=args.max_rows,
    )
    settings.check()
    index = open_index(args.index)
    quiet.print(f"loading {args.model}", style="dim", markup=False)
    policy = open_policy(args.model, device=args.device, max_rows=args.max_rows)
    try:
        return await write_questions(policy, index, settings, report=_Progress(quiet).advance)
    finally:
        await policy.stop()


class _Progress:
    """A line on standard error whenever the writer turns to something else, and after every thousandth turn of it."""

    def __init__(self, quiet: object) -> None:
        self._quiet = quiet
        self._counts: Counter[str] = Counter()

    def advance(self, doing: str) -> None:
        self._counts[doing] += 1
        if self._counts[doing] == 1 or self._counts[doing] % 1000 == 0:
            self._quiet.print(f"{doing}: {self._counts[doing]}", style="dim", markup=False)  # type: ignore[attr-defined]


def _reasons(written: Written, num: int) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in written.dropped.most_common(num))


def _print_summary(args: argparse.Namespace, written: Written) -> None:
    kinds = Counter(question.kind for question in written.questions)
    searches = Counter(question.searches for question in written.questions)
    if args.json:
        found = {
            "questions": len(written.questions),
            "drafts": written.num_drafts,
            "kinds": dict(kinds),
            "searches": {str(num): count for num, count in sorted(searches.items())},
            "dropped": dict(written.dropped.most_common()),
        }
        print(json.dumps(found))
        return
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    by_need = ", ".join(f"{count} need {num}" for num, count in sorted(searches.items()))
    print(f"{args.out}: {len(written.questions)} questions of {written.num_drafts} drafts ({by_kind})")
    print(f"searches: {by_need}")
    print(f"dropped: {_reasons(written, 8)}")
    print(f"quaere evolve search-r1 --questions {args.out} --index {args.index} --model MODEL")

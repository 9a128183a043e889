"""`quaere questions --checked`: questions with short answers that the documents prove, for training without labels."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.warmup.documents.writer import WriterSettings, Written


def run_checked(args: argparse.Namespace) -> None:
    """Write the questions to a file, and print how many were kept and why others were dropped."""
    from rich.console import Console

    from quaere.cli.questions import write_lines
    from quaere.warmup.documents.writer import WriterSettings

    quiet = Console(stderr=True, highlight=False)
    settings = WriterSettings(
        drafts=args.drafts,
        tries=args.tries,
        min_right=args.min_right,
        topk=args.topk,
        temperature=args.temperature,
        seed=args.seed,
        concurrency=args.max_rows,
    )
    written = write_checked(
        args.model,
        args.index,
        settings,
        device=args.device,
        note=lambda line: quiet.print(line, style="dim", markup=False),
    )
    write_lines(args.out, written.questions)
    if args.json:
        print(json.dumps(_counts(written)))
        return
    for line in summarise(written, args.out):
        print(line)
    print(f"quaere warmup drzero --questions {args.out} --index {args.index} --model MODEL --out WARM")
    print(f"quaere evolve search-r1 --questions {args.out} --index {args.index} --model MODEL")


def write_checked(
    model: str,
    index: Path,
    settings: WriterSettings,
    *,
    device: Literal["auto", "cpu", "cuda"],
    note: Callable[[str], None],
) -> Written:
    """Questions that a model wrote and checked about an index; `BadInput` if none passed."""
    settings.check()
    written = asyncio.run(_write(model, index, settings, device, note))
    if not written.questions:
        raise BadInput(
            f"none of {written.num_drafts} drafts became a question that passed every check (most frequent reason: "
            f"{_reasons(written, 1)})",
            hint="use a larger --model, or more --drafts",
        )
    return written


async def _write(
    model: str,
    index: Path,
    settings: WriterSettings,
    device: Literal["auto", "cpu", "cuda"],
    note: Callable[[str], None],
) -> Written:
    from quaere.rollout.policy import open_policy
    from quaere.search.index import open_index
    from quaere.warmup.documents.writer import write_questions

    opened = open_index(index)
    note(f"loading {model}")
    policy = open_policy(model, device=device, max_rows=settings.concurrency)
    counts: Counter[str] = Counter()

    def report(doing: str) -> None:
        counts[doing] += 1
        if counts[doing] == 1 or counts[doing] % 1000 == 0:
            note(f"{doing}: {counts[doing]}")

    try:
        return await write_questions(policy, opened, settings, report=report)
    finally:
        await policy.stop()


def summarise(written: Written, out: Path) -> list[str]:
    """Three lines: kept questions by kind, searches needed, and reasons of dropped ones."""
    kinds = Counter(question.kind for question in written.questions)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    by_need = ", ".join(f"{count} need {num}" for num, count in sorted(_needs(written).items()))
    return [
        f"{out}: {len(written.questions)} questions of {written.num_drafts} drafts ({by_kind})",
        f"searches: {by_need}",
        f"dropped: {_reasons(written, 8)}",
    ]


def _reasons(written: Written, num: int) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in written.dropped.most_common(num))


def _counts(written: Written) -> dict[str, object]:
    return {
        "questions": len(written.questions),
        "drafts": written.num_drafts,
        "kinds": dict(Counter(question.kind for question in written.questions)),
        "searches": {str(num): count for num, count in sorted(_needs(written).items())},
        "dropped": dict(written.dropped.most_common()),
    }


def _needs(written: Written) -> Counter[int]:
    return Counter(question.searches for question in written.questions)

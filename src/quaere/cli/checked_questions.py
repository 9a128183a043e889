"""`quaere questions --checked`: questions with short answers that the documents prove, for training without labels."""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quaere.warmup.documents.checked_question import Written


def run_checked(args: argparse.Namespace) -> None:
    """Write the questions to a file, and print how many were kept and why others were dropped."""
    from rich.console import Console

    from quaere.api.checked_questions import summarise, write_checked
    from quaere.cli.work_progress import show_progress
    from quaere.warmup.documents.checked_question import WriterSettings

    quiet = Console(stderr=True, highlight=False)
    settings = WriterSettings(
        drafts=args.drafts,
        tries=args.tries,
        min_right=args.min_right,
        topk=args.topk or 10,
        temperature=args.temperature,
        minutes=args.minutes,
        seed=args.seed,
        concurrency=args.max_rows,
    )

    def note(line: str) -> None:
        quiet.print(line, style="dim", markup=False)

    with show_progress() as progress:
        written = write_checked(
            args.model,
            args.index,
            settings,
            device=args.device,
            out=args.out,
            note=note,
            progress=progress,
            dropped=args.dropped,
        )
    if args.json:
        print(json.dumps(_counts(written)))
        return
    for line in summarise(written, args.out):
        print(line)
    for line in next_commands(args.out, args.index, args.model):
        print(line)


def next_commands(questions: Path, index: Path, model: str) -> tuple[str, str]:
    """What to type to teach the model the form and to train it on the questions; a model at a URL cannot be trained."""
    start = "MODEL" if model.startswith("openai:") else shlex.quote(model)
    warm, runs = shlex.quote(f"{questions.stem}-warm"), shlex.quote(f"runs/{questions.stem}")
    given = f"--index {shlex.quote(str(index))} --questions {shlex.quote(str(questions))}"
    return (
        f"quaere warmup search-r1 --style brief --model {start} --lora-rank 32 --out {warm}",
        f"quaere evolve search-r1 {given} --model {warm} --preset single-gpu --set prompts=brief --out {runs}",
    )


def _counts(written: Written) -> dict[str, object]:
    from quaere.api.checked_questions import count_searches

    return {
        "questions": len(written.questions),
        "drafts": written.num_drafts,
        "kinds": dict(Counter(question.kind for question in written.questions)),
        "searches": {str(num): count for num, count in sorted(count_searches(written).items())},
        "dropped": dict(written.reasons.most_common()),
    }

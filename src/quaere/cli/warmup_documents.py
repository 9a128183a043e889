"""`quaere warmup RECIPE --index DIR`: lessons out of a person's own documents, in place of a fictional world's.

The untaught model writes questions about the documents and checks them. Taught the form of an episode, it attempts
them, and learns from the attempts that were right.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.chat.rendering import Renderer
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


def refuse_others(args: argparse.Namespace) -> None:
    """Refuse what cannot be taught out of documents, before a model is loaded."""
    from quaere.training.warmup.dialects import roles_of

    if "score" in (args.recipe, *args.also):
        raise BadInput("reports are not taught out of documents", hint="leave --index out")
    if args.teacher:
        raise BadInput("lessons come from documents or from a teacher, not from both", hint="leave --teacher out")
    if args.roles and "solver" not in args.roles:
        raise BadInput(f"out of documents a solver is taught, not {' and '.join(args.roles)}", hint="--roles solver")
    assert all("solver" in roles_of(dialect) for dialect in (args.recipe, *args.also))


def obtain_questions(args: argparse.Namespace, note: Callable[[str], None]) -> list[CheckedQuestion]:
    """The questions of the file, which the model writes first, as it is, if there is none."""
    from quaere.cli.checked_questions import summarise, write_checked
    from quaere.cli.questions import write_lines
    from quaere.training.warmup.documents.writer import WriterSettings

    path = args.questions or args.out.with_name(f"{args.out.name}-questions.jsonl")
    if not path.exists():
        settings = WriterSettings(drafts=args.drafts, topk=args.topk, seed=args.seed, concurrency=args.max_rows)
        written = write_checked(args.model, args.index, settings, device=args.device, note=note)
        write_lines(path, written.questions)
        for line in summarise(written, path):
            note(line)
    questions = read_checked(path)
    note(f"{path}: {len(questions)} questions")
    return questions


@contextmanager
def teach_form(
    args: argparse.Namespace, warm_up: Callable[[argparse.Namespace], object]
) -> Iterator[argparse.Namespace]:
    """The arguments with a model that knows the form: the one named, or one that is taught it first, in a world."""
    from quaere.training.exporting import find_notes

    if {args.recipe, *args.also} <= set(find_notes(args.model).dialects):
        yield args
        return
    if args.adapter:
        raise BadInput(
            f"{args.model} was not taught the form of an episode, so an adapter would have no lasting base",
            hint=f"quaere warmup {args.recipe} --model {args.model} --out FORM, then --model FORM",
        )
    with tempfile.TemporaryDirectory(prefix=f".{args.out.name}.form-", dir=args.out.absolute().parent) as folder:
        form = Path(folder) / "form"
        warm_up(argparse.Namespace(**vars(args) | {"index": None, "out": form}))
        yield argparse.Namespace(**vars(args) | {"model": str(form), "base_model": args.model})


def play_documents(
    args: argparse.Namespace,
    questions: list[CheckedQuestion],
    renderer: Renderer,
    *,
    limits: Callable[[Dialect], Limits],
    note: Callable[[str], None],
) -> Demonstrations:
    """The model's own right episodes on the questions, in every dialect that is taught, an equal share each."""
    played = asyncio.run(_play(args, questions, limits, note))
    if len(played.episodes) < 2:
        raise BadInput(
            f"of {len(questions)} questions the model answered {len(played.episodes)} well: too few to learn from",
            hint="a larger --model, more --drafts, or a longer warm-up of the form",
        )
    return played


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

"""`quaere warmup RECIPE --index DIR`: lessons from a person's own documents, in place of a fictional world.

The untrained model writes questions about the documents and checks them. After it was taught the dialect, it attempts
the questions as a solver and learns from its right attempts; as a proposer it learns from demonstrated proposals.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quaere.atomic import scratch_folder
from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json

if TYPE_CHECKING:
    from quaere.chat.renderer import Renderer
    from quaere.rollout.episode import Limits
    from quaere.warmup.demonstration import Demonstrations
    from quaere.warmup.dialects import Dialect, Role
    from quaere.warmup.documents.writer import CheckedQuestion

Note = Callable[[str], None]
GetLimits = Callable[["Dialect"], "Limits"]
_SAID_EVERY = 1000  # attempts between two progress lines


def read_checked(path: Path) -> list[CheckedQuestion]:
    """The questions of a file that `quaere questions --checked` wrote."""
    from quaere.search.rows import read_lines
    from quaere.warmup.documents.writer import CheckedQuestion

    found = []
    for number, line in read_lines(path):
        try:
            found.append(decode_json(line, CheckedQuestion))
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{path}, line {number}: {error}",
                hint="quaere questions --checked --index DIR --model MODEL --out FILE writes such a file",
            ) from error
    return found


def refuse_others(args: argparse.Namespace) -> None:
    """Raise `BadInput` for options that do not work with documents, before a model is loaded."""
    if "score" in (args.recipe, *args.also):
        raise BadInput("score cannot be taught from documents (--index)", hint="leave --index out")
    if args.teacher:
        raise BadInput("--index and --teacher exclude each other", hint="leave --teacher out")


def obtain_questions(args: argparse.Namespace, note: Note) -> list[CheckedQuestion]:
    """The questions of the file; if it does not exist, the untrained model writes it first."""
    from quaere.cli.checked_questions import summarise, write_checked
    from quaere.cli.questions import write_lines
    from quaere.warmup.documents.lessons import draw_evenly
    from quaere.warmup.documents.writer import WriterSettings

    path = args.questions or args.out.with_name(f"{args.out.name}-questions.jsonl")
    if not path.exists():
        settings = WriterSettings(drafts=args.drafts, topk=args.topk, seed=args.seed, concurrency=args.max_rows)
        written = write_checked(args.model, args.index, settings, device=args.device, note=note)
        write_lines(path, written.questions)
        for line in summarise(written, path):
            note(line)
    questions = read_checked(path)
    note(f"{path}: {len(questions)} questions")
    return draw_evenly(questions, args.most, args.seed) if args.most else questions


@contextmanager
def teach_form(
    args: argparse.Namespace, warm_up: Callable[[argparse.Namespace], object]
) -> Iterator[argparse.Namespace]:
    """The arguments with a model that knows the dialect: the one named, or one that is first taught it in a world."""
    from quaere.dialects.notes import find_notes

    if {args.recipe, *args.also} <= set(find_notes(args.model).taught):
        yield args
        return
    if args.adapter:
        raise BadInput(
            f"{args.model} was not taught the dialect, and --adapter would be based on a temporary model",
            hint=f"quaere warmup {args.recipe} --model {args.model} --out FORM, then --model FORM",
        )
    with scratch_folder(args.out) as folder:
        form = folder / "form"
        warm_up(argparse.Namespace(**vars(args) | {"index": None, "out": form}))
        yield argparse.Namespace(**vars(args) | {"model": str(form), "base_model": args.model})


def play_documents(
    args: argparse.Namespace,
    questions: list[CheckedQuestion],
    renderer: Renderer,
    *,
    limits: GetLimits,
    note: Note,
) -> Demonstrations:
    """Episodes on the questions in every dialect, with equal shares, and in each of its roles."""
    from quaere.warmup.demonstration import Demonstrations

    played = Demonstrations()
    shares = _share(args, questions)
    taught = {dialect: _roles(args, dialect) for dialect in shares}
    own: dict[Dialect, Demonstrations] = {}
    if any("solver" in roles for roles in taught.values()):
        asked = {dialect: share for dialect, share in shares.items() if "solver" in taught[dialect]}
        own = asyncio.run(_play_solver(args, asked, limits, note))
    # As many proposer episodes as solver episodes: the former can be demonstrated in any number.
    wanted = {
        dialect: (share, len(own[dialect].episodes) if dialect in own else None)
        for dialect, share in shares.items()
        if "proposer" in taught[dialect]
    }
    shown = asyncio.run(_play_proposer(args, wanted, renderer, limits, note)) if wanted else {}
    for found in (*own.values(), *shown.values()):
        played.episodes.extend(found.episodes)
        played.dropped.update(found.dropped)
    if len(played.episodes) < 2:
        raise BadInput(
            f"only {len(played.episodes)} of {len(questions)} questions became good episodes; at least 2 are needed",
            hint="use a larger --model, more --drafts, or a longer warm-up of the dialect",
        )
    return played


def _share(args: argparse.Namespace, questions: list[CheckedQuestion]) -> dict[Dialect, list[CheckedQuestion]]:
    """The questions of each dialect, in equal shares."""
    dialects = (args.recipe, *args.also)
    return {dialect: questions[number :: len(dialects)] for number, dialect in enumerate(dialects)}


def _roles(args: argparse.Namespace, dialect: Dialect) -> tuple[Role, ...]:
    from quaere.warmup.dialects import roles_of

    return tuple(role for role in roles_of(dialect) if args.roles is None or role in args.roles)


async def _play_solver(
    args: argparse.Namespace, shares: dict[Dialect, list[CheckedQuestion]], limits: GetLimits, note: Note
) -> dict[Dialect, Demonstrations]:
    """The model's own right episodes, by dialect; questions it is unsure of are written to `--practice`."""
    from quaere.cli.questions import write_lines
    from quaere.rollout.policy import open_policy
    from quaere.search.searcher import open_searcher
    from quaere.warmup.demonstration import open_protocol
    from quaere.warmup.documents.lessons import play_own

    played: dict[Dialect, Demonstrations] = {}
    unsure: list[CheckedQuestion] = []
    policy = open_policy(args.model, device=args.device, max_rows=args.max_rows)
    searcher = open_searcher(str(args.index))
    try:
        for dialect, questions in shares.items():
            own = await play_own(
                policy,
                searcher,
                questions,
                dialect,
                open_protocol("solver", args.style, dialect),
                limits(dialect),
                attempts=args.attempts,
                seed=args.seed,
                concurrency=args.max_rows,
                on_episode=_count(dialect, len(questions) * args.attempts, note),
            )
            played[dialect] = own.lessons
            unsure += own.unsure
            note(f"{dialect}: {len(own.lessons.episodes)} of {len(questions)} questions answered well")
    finally:
        await policy.stop()
        await searcher.close()
    if args.practice:
        write_lines(args.practice, unsure)
        note(f"{args.practice}: {len(unsure)} questions that not every attempt answered right")
    return played


def _count(dialect: Dialect, total: int, note: Note) -> Callable[[object], None]:
    """A callback that prints the number of attempts now and then."""
    counted = itertools.count(1)

    def count(episode: object) -> None:
        if not (done := next(counted)) % _SAID_EVERY:
            note(f"{dialect}: {done} of {total} attempts")

    return count


async def _play_proposer(
    args: argparse.Namespace,
    shares: dict[Dialect, tuple[list[CheckedQuestion], int | None]],
    renderer: Renderer,
    limits: GetLimits,
    note: Note,
) -> dict[Dialect, Demonstrations]:
    """Demonstrated proposals, by dialect, at most the given number of each."""
    from quaere.search.index import open_index
    from quaere.search.searcher import LocalSearcher
    from quaere.warmup.documents.links import Pages
    from quaere.warmup.documents.proposals import plan_proposals, play_proposals

    played = {}
    index = open_index(args.index)
    pages, searcher = Pages(index), LocalSearcher(index)
    try:
        for dialect, (questions, num) in shares.items():
            planned = plan_proposals(pages, questions, args.proposer_hops, args.seed)
            played[dialect] = await play_proposals(
                planned, searcher, renderer, dialect, limits(dialect), style=args.style, num=num, seed=args.seed
            )
            note(f"{dialect}: {len(played[dialect].episodes)} questions shown as a proposer arrives at them")
    finally:
        await searcher.close()
    return played

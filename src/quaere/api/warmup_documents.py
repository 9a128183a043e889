"""`quaere warmup RECIPE --index DIR`: lessons from a person's own documents, in place of a fictional world.

The untrained model writes questions about the documents and checks them. After it was taught the dialect, it attempts
the questions as a solver and learns from its right attempts; as a proposer it learns from demonstrated proposals.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import structs

from quaere.api.checked_questions import read_checked, summarise, write_checked, write_lines
from quaere.api.printing import Progress, count
from quaere.api.warmup_settings import WarmupSettings
from quaere.chat.protocol import Protocol
from quaere.chat.renderer import Renderer
from quaere.chat.terminal_text import shorten_number
from quaere.dialects.notes import find_notes
from quaere.disk import new_folder, scratch_folder
from quaere.errors import BadInput
from quaere.records import Episode
from quaere.rollout.episode import Limits
from quaere.rollout.policy import open_policy
from quaere.search.index import open_index
from quaere.search.searcher import LocalSearcher, Searcher, open_searcher
from quaere.warmup.dialects import Dialect, Role, roles_of, scores_searches
from quaere.warmup.documents.checked_question import CheckedQuestion, WriterSettings
from quaere.warmup.documents.page_names import Pages
from quaere.warmup.scripted_episodes import Demonstrations, open_protocol

if TYPE_CHECKING:
    from quaere.warmup.documents.document_lessons import OwnEpisodes
    from quaere.warmup.imitation import WarmupManifest

Note = Callable[[str], None]
GetLimits = Callable[["Dialect"], "Limits"]


def refuse_others(settings: WarmupSettings) -> None:
    """Raise `BadInput` for options that do not work with documents, before a model is loaded."""
    if "score" in settings.dialects:
        raise BadInput("score cannot be taught from documents (--index)", hint="leave --index out")
    if settings.teacher:
        raise BadInput("--index and --teacher exclude each other", hint="leave --teacher out")


def obtain_questions(settings: WarmupSettings, note: Note, progress: Progress) -> list[CheckedQuestion]:
    """The questions of the file; if it does not exist, the untrained model writes it first."""
    from quaere.warmup.documents.document_lessons import draw_evenly

    assert settings.index is not None
    path = settings.questions or settings.out.with_name(f"{settings.out.name}-questions.jsonl")
    if not path.exists():
        writer = WriterSettings(drafts=settings.drafts, seed=settings.seed, concurrency=settings.max_rows)
        written = write_checked(
            settings.model, settings.index, writer, device=settings.device, out=path, note=note, progress=progress
        )
        for line in summarise(written, path):
            note(line)
    questions = read_checked(path)
    note(f"{path}: {count(len(questions), 'question')}")
    return draw_evenly(questions, settings.most, settings.seed) if settings.most else questions


@contextmanager
def teach_form(
    settings: WarmupSettings, warm_up: Callable[[WarmupSettings], WarmupManifest]
) -> Iterator[tuple[WarmupSettings, WarmupManifest | None]]:
    """The settings with a model that knows the dialects: the one named, or one that is first taught them in a world.

    If that is stopped by the user, what it was taught is written to `out`, and its manifest is given as well.
    """
    if set(settings.dialects) <= set(find_notes(settings.model).taught):
        yield settings, None
        return
    if settings.adapter:
        raise BadInput(
            f"{settings.model} was not taught the form of an episode, so an adapter would have no lasting base",
            hint=f"quaere warmup {settings.recipe} --model {settings.model} --out FORM, then --model FORM",
        )
    with scratch_folder(settings.out) as folder:
        form = folder / "form"
        manifest = warm_up(structs.replace(settings, index=None, out=form, scores_only=False, shuffle_scores=False))
        if manifest.stopped:
            with new_folder(settings.out) as kept:
                shutil.copytree(form, kept, dirs_exist_ok=True)
        taught = structs.replace(settings, model=str(form), base_model=settings.model)
        yield taught, manifest if manifest.stopped else None


def play_documents(
    settings: WarmupSettings,
    questions: list[CheckedQuestion],
    renderer: Renderer,
    *,
    limits: GetLimits,
    note: Note,
    progress: Progress,
) -> Demonstrations:
    """Episodes on the questions in every dialect, with equal shares, and in each of its roles."""
    played = Demonstrations()
    shares = _share(settings, questions)
    taught = {dialect: _roles(settings, dialect) for dialect in shares}
    own: dict[Dialect, Demonstrations] = {}
    if any("solver" in roles for roles in taught.values()):
        asked = {dialect: share for dialect, share in shares.items() if "solver" in taught[dialect]}
        own = asyncio.run(_play_solver(settings, asked, renderer, limits, note, progress))
    # About as many of both roles: proposals can be demonstrated in any number.
    wanted = {
        dialect: (share, len(own[dialect].episodes) if dialect in own else None)
        for dialect, share in shares.items()
        if "proposer" in taught[dialect]
    }
    shown = asyncio.run(_play_proposer(settings, wanted, renderer, limits, note)) if wanted else {}
    for found in (*own.values(), *shown.values()):
        played.episodes.extend(found.episodes)
        played.dropped.update(found.dropped)
    if len(played.episodes) < 2:
        raise BadInput(
            f"only {len(played.episodes)} of {len(questions)} questions became good episodes; at least 2 are needed",
            hint="use a larger --model, more --drafts, or a longer warm-up of the dialect",
        )
    return played


def _share(settings: WarmupSettings, questions: list[CheckedQuestion]) -> dict[Dialect, list[CheckedQuestion]]:
    """The questions of each dialect, in equal shares."""
    dialects = settings.dialects
    return {dialect: questions[number :: len(dialects)] for number, dialect in enumerate(dialects)}


def _roles(settings: WarmupSettings, dialect: Dialect) -> tuple[Role, ...]:
    return tuple(role for role in roles_of(dialect) if settings.roles is None or role in settings.roles)


async def _play_solver(
    settings: WarmupSettings,
    shares: dict[Dialect, list[CheckedQuestion]],
    renderer: Renderer,
    limits: GetLimits,
    note: Note,
    progress: Progress,
) -> dict[Dialect, Demonstrations]:
    """The model's own right episodes, by dialect; questions it is unsure of are written to `--practice`.

    In a dialect that scores searches, its attempts are played again with true scores.
    """
    from quaere.warmup.documents.document_lessons import play_own

    played: dict[Dialect, Demonstrations] = {}
    unsure: list[CheckedQuestion] = []
    policy = open_policy(settings.model, device=settings.device, max_rows=settings.max_rows)
    searcher = open_searcher(str(settings.index))
    try:
        for dialect, questions in shares.items():
            protocol = open_protocol("solver", settings.style, dialect, abstention=settings.abstention > 0)
            own = await play_own(
                policy,
                searcher,
                questions,
                dialect,
                protocol,
                limits(dialect),
                attempts=settings.attempts,
                seed=settings.seed,
                concurrency=settings.max_rows,
                on_episode=_count(dialect, len(questions) * settings.attempts, progress),
            )
            played[dialect] = own.lessons
            unsure += own.unsure
            note(f"{dialect}: {len(own.lessons.episodes)} of {len(questions)} questions answered well")
            if scores_searches(dialect):
                played[dialect] = await _judge(settings, own, searcher, renderer, dialect, protocol, limits, note)
    finally:
        await policy.stop()
        await searcher.close()
    if settings.practice:
        write_lines(settings.practice, unsure)
        note(f"{settings.practice}: {count(len(unsure), 'question')} that not every attempt answered right")
    return played


async def _judge(
    settings: WarmupSettings,
    own: OwnEpisodes,
    searcher: Searcher,
    renderer: Renderer,
    dialect: Dialect,
    protocol: Protocol,
    limits: GetLimits,
    note: Note,
) -> Demonstrations:
    """The attempts, played again with true scores."""
    from quaere.warmup.documents.judged_searches import play_judged

    judged = await play_judged(
        own.attempts,
        searcher,
        renderer,
        dialect,
        protocol,
        limits(dialect),
        whole=frozenset() if settings.scores_only else frozenset(episode.id for episode in own.lessons.episodes),
        shuffled=settings.shuffle_scores,
        seed=settings.seed,
    )
    note(f"{dialect}: {judged.num_good} good and {judged.num_bad} bad searches scored by the questions' evidence")
    judged.lessons.dropped.update(own.lessons.dropped)
    return judged.lessons


def _count(dialect: Dialect, total: int, progress: Progress) -> Callable[[Episode], None]:
    """A function that reports the number of attempts and the tokens sampled per second after each episode."""
    counted, started, num_tokens = itertools.count(1), time.monotonic(), 0

    def count(episode: Episode) -> None:
        nonlocal num_tokens
        num_tokens += sum(turn.num_tokens for turn in episode.turns)
        rate = num_tokens / max(time.monotonic() - started, 1e-9)
        progress(f"{dialect} attempts", next(counted), total, f"{shorten_number(rate)} tok/s")

    return count


async def _play_proposer(
    settings: WarmupSettings,
    shares: dict[Dialect, tuple[list[CheckedQuestion], int | None]],
    renderer: Renderer,
    limits: GetLimits,
    note: Note,
) -> dict[Dialect, Demonstrations]:
    """Demonstrated proposals, by dialect, at most the given number of each."""
    from quaere.warmup.documents.document_lessons import Proposing, plan_proposals, play_proposals
    from quaere.warmup.documents.hardening_lessons import plan_hardenings

    def plan(questions: list[CheckedQuestion]) -> Sequence[Proposing]:
        if settings.proposer_task != "propose":
            return plan_hardenings(pages, questions, is_given=settings.proposer_task == "reword")
        return plan_proposals(pages, questions, settings.proposer_hops, settings.seed)

    played = {}
    assert settings.index is not None
    index = open_index(settings.index)
    pages, searcher = Pages(index), LocalSearcher(index)
    try:
        for dialect, (questions, num) in shares.items():
            played[dialect] = await play_proposals(
                plan(questions),
                searcher,
                renderer,
                dialect,
                limits(dialect),
                style=settings.style,
                num=num,
                seed=settings.seed,
            )
            note(f"{dialect}: {count(len(played[dialect].episodes), 'question')} shown as a proposer arrives at them")
    finally:
        await searcher.close()
    return played

"""Questions with short answers that the documents prove, written and checked by a model; and how they are kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from quaere.api.printing import Progress, count, no_progress
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines

if TYPE_CHECKING:
    from quaere.rollout.policy import Policy
    from quaere.search.index import Index
    from quaere.warmup.documents.checked_question import CheckedQuestion, Journal, WriterSettings, Written
    from quaere.warmup.documents.stale_questions import Rechecked


def write_checked(
    model: str,
    index: Path,
    settings: WriterSettings,
    *,
    device: Literal["auto", "cpu", "cuda"],
    out: Path,
    note: Callable[[str], None],
    progress: Progress = no_progress,
    dropped: Path | None = None,
    documents: Collection[str] | None = None,
    load: Callable[[], Policy] | None = None,
    exact: bool = False,
) -> Written:
    """Write questions that a model wrote and checked about an index to `out`; `BadInput` if none passed.

    What is finished is kept in a journal beside `out` until then, from which the same call goes on after a kill. What
    was dropped is written to `dropped` before: once `out` is there, the call is not repeated. With `documents` only
    these are asked about, and there may be none that passed. `load` opens the model elsewhere than in this process.
    With `exact`, and without `minutes`, a call that goes on writes to the last bit what it would have written
    undisturbed.
    """
    settings.check()
    load = load or partial(_load, model, settings, device, exact)
    written, journal = asyncio.run(_write(model, index, settings, load, out, note, progress, documents, exact))
    if dropped:
        write_lines(dropped, written.dropped)
    if not written.questions and documents is None:
        journal.remove()
        raise BadInput(
            f"none of the first {written.num_drafts} drafts became a question that passed every check (most frequent "
            f"reason: {_reasons(written, 1)})",
            hint="use a larger --model",
        )
    write_lines(out, written.questions)
    journal.remove()
    return written


def read_checked(path: Path) -> list[CheckedQuestion]:
    """The questions of a file that `quaere questions --checked` wrote, or `quaere world`, which names no kinds."""
    from quaere.warmup.documents.checked_question import CheckedQuestion

    found = []
    for number, line in read_lines(path):
        try:
            row = decode_json(line, dict[str, Any])
            usual = {"kind": "single" if row.get("facts") == 1 else "chain"}
            found.append(msgspec.convert(usual | row, CheckedQuestion))
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{path}, line {number}: {error}",
                hint="quaere questions --checked --index DIR --model MODEL --out FILE writes such a file",
            ) from error
    return found


def journal_of(out: Path) -> Path:
    """The journal of the questions for `out`: what is finished of them."""
    return out.with_name(f"{out.name}.unfinished")


def _load(model: str, settings: WriterSettings, device: Literal["auto", "cpu", "cuda"], exact: bool) -> Policy:
    from quaere.rollout.policy import open_policy

    return open_policy(model, device=device, max_rows=settings.concurrency, mode="deterministic" if exact else "fast")


async def _write(
    model: str,
    index: Path,
    settings: WriterSettings,
    load: Callable[[], Policy],
    out: Path,
    note: Callable[[str], None],
    progress: Progress,
    documents: Collection[str] | None,
    exact: bool,
) -> tuple[Written, Journal]:
    from quaere.search.index import open_index
    from quaere.warmup.documents.checked_question import Journal
    from quaere.warmup.documents.writer import write_questions

    opened = open_index(index)
    out.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(journal_of(out), {"model": model, "index": opened.fingerprint, "settings": settings})
    if journal.batches:
        note(f"going on after {len(journal.batches)} finished batches ({journal.path})")
    note(f"loading {model}")
    policy = load()
    try:
        written = await write_questions(
            policy, opened, settings, report=progress, journal=journal, documents=documents, exact=exact
        )
    finally:
        await policy.stop()
    return written, journal


def recheck_questions(
    questions: Sequence[CheckedQuestion],
    touched: Collection[str],
    *,
    model: str,
    index: Path,
    settings: WriterSettings,
    device: Literal["auto", "cpu", "cuda"],
    note: Callable[[str], None],
    exact: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Rechecked:
    """Check the questions about touched documents again; the model is loaded only if some still have their evidence.

    `check` is called now and then; what it raises ends the work.
    """
    from quaere.search.index import open_index
    from quaere.warmup.documents.stale_questions import locate_evidence

    opened = open_index(index)
    located = locate_evidence(questions, touched, opened)
    if not located.checked:
        return located
    note(f"loading {model}, to read {count(len(located.checked), 'question')} again")
    check()
    return asyncio.run(_reread(located, opened, settings, partial(_load, model, settings, device, exact), check))


async def _reread(
    located: Rechecked, index: Index, settings: WriterSettings, load: Callable[[], Policy], check: Callable[[], None]
) -> Rechecked:
    from quaere.warmup.documents.checks import Examiner, Lines
    from quaere.warmup.documents.stale_questions import OUTAGE, reread

    policy = load()
    try:
        lines = Lines(policy, seed=settings.seed, concurrency=settings.concurrency, check=check, outage=OUTAGE)
        return await reread(located, Examiner(lines, index, settings))
    finally:
        await policy.stop()


def summarise(written: Written, out: Path) -> list[str]:
    """Three lines: kept questions by kind, searches needed, and reasons of dropped ones."""
    kinds = Counter(question.kind for question in written.questions)
    by_kind = ", ".join(f"{num} {kind}" for kind, num in kinds.most_common())
    by_need = ", ".join(f"{num} need {searches}" for searches, num in sorted(count_searches(written).items()))
    return [
        f"{out}: {count(len(written.questions), 'question')} of {count(written.num_drafts, 'draft')} ({by_kind})",
        f"searches: {by_need}",
        f"dropped: {_reasons(written, 8)}",
    ]


def _reasons(written: Written, num: int) -> str:
    return ", ".join(f"{times} {reason}" for reason, times in written.reasons.most_common(num))


def count_searches(written: Written) -> Counter[int]:
    """The number of questions by the searches they need."""
    return Counter(question.searches for question in written.questions)


def write_lines(out: Path, lines: Sequence[msgspec.Struct]) -> None:
    """Write the file atomically: to a temporary file beside it, which is then renamed."""
    write_file(out, msgspec.json.Encoder().encode_lines(lines))

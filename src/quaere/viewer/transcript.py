"""The page of an episode: its turns with what was searched and quoted, the parts of its reward, its tokens.

read_episode(run, "notes", EpisodeQuery(id="i0-s0-i0g-000003-a1")).turns[0].results[0].passages[0].is_quoted == True
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import Struct

from quaere.api.run import Run
from quaere.chat.spans import locate_span
from quaere.records import Answer, EndReason, Episode, Evaluate, Passage, Proposal, ProposeTask, StopReason, Turn
from quaere.runs.rows import EpisodeRow
from quaere.viewer.attempt_groups import describe_turn, rank_attempts, reward_of, rows_of
from quaere.viewer.page_formats import copy_fields
from quaere.viewer.plot import is_drawn
from quaere.viewer.run_folder import NotShown
from quaere.viewer.token_lane import TokenLane, read_lane

Quotation = Literal["none", "verbatim", "not found"]

WIDTH = 300
TOTAL = "reward/total"
REST = "not itemised"  # weights and clipping: what the total has beyond the sum of the parts
_EXACT = 1e-6


class EpisodeQuery(Struct, frozen=True):
    """The episode by its id, and the first token that its lane shows.

    EpisodeQuery(id="i0-s0-i0g-000003-a1", start=1024)
    """

    id: str = ""
    start: int = 0


class TextPart(Struct, frozen=True):
    """A piece of a passage; `is_quoted` marks the span that the episode ended with.

    TextPart("Orsolya Venn built it.", is_quoted=True)
    """

    text: str
    is_quoted: bool = False


class PassageView(Struct, frozen=True):
    """A passage as it was found."""

    id: str
    title: str
    place: str
    score: float
    parts: list[TextPart]
    is_quoted: bool


class ResultView(Struct, frozen=True):
    """A query and what it found, best first."""

    query: str
    passages: list[PassageView]


class TurnView(Struct, frozen=True):
    """A turn: what the model wrote, the action that was read from it, and what the environment replied.

    `score` is the model's own score of its last search, from 0 to 10 (EvalAct); None in other turns. `reply` is left
    out where it only repeats the results.
    """

    number: int
    text: str
    kind: str
    line: str
    stop_reason: StopReason
    num_tokens: int
    sample_s: float
    search_s: float
    results: list[ResultView]
    reply: str
    fault: str
    score: float | None


class RewardBar(Struct, frozen=True):
    """A part of the reward and its place in a drawing of `WIDTH`.

    RewardBar("reward/format", 0.5, x=0.0, width=100.0)
    """

    name: str
    value: float
    x: float
    width: float


class EpisodePage(Struct, frozen=True):
    """All that the page of an episode shows.

    `question` and `answer` of a proposer are those that it wrote. `learner` says whether training stored the advantage
    of every token and the learner's own log-probs and entropy. `before` and `after` are the neighbours in the group, by
    reward; "" at its ends.
    """

    run: str
    id: str
    task_id: str
    question: str
    answers: list[str]
    document: str
    protocol: str
    model: str
    seed: int
    step: int
    phase: str
    end: EndReason
    reward: float | None
    advantage: float | None
    bars: list[RewardBar]
    metrics: dict[str, float]
    turns: list[TurnView]
    answer: str
    span: str
    quotation: Quotation
    lane: TokenLane
    learner: Literal["recorded", "not recorded"]
    command: str
    before: str
    after: str


def read_episode(run: Run, name: str, query: EpisodeQuery) -> EpisodePage:
    """The page of an episode; `NotShown` if the run has none of this id."""
    row = run.episode_row(query.id)
    if row is None:
        raise NotShown(f"run {name} has no episode {query.id}", hint="its questions are listed with their attempts")
    episode = run.episode(query.id)
    question, outcome = getattr(episode.task, "question", None), episode.outcome
    proposed = outcome if isinstance(outcome, Proposal) else None
    span = outcome.span if isinstance(outcome, Answer | Proposal) else ""
    turns = [view_turn(turn, span) for turn in episode.turns]
    before, after = _neighbours(run, row)
    trace = run.token_trace(row.id)
    return copy_fields(
        EpisodePage,
        row,
        run=name,
        question=proposed.question if proposed else row.question,
        answers=list(question.answers) if question is not None else [],
        document=_document_text(episode),
        seed=episode.seed,
        reward=reward_of(row.metrics),
        advantage=row.metrics.get("advantage"),
        bars=stack_rewards(row.metrics),
        turns=turns,
        answer=proposed.answer if proposed else row.answer or "",
        span=span,
        quotation=_judge_span(span, turns, _document_text(episode)),
        lane=read_lane(episode, trace, query.start),
        learner="not recorded" if trace is None else "recorded",
        command=f"quaere runs show {shlex.quote(str(run.path))} {shlex.quote(row.id)} --full --tokens",
        before=before,
        after=after,
    )


def view_turn(turn: Turn, span: str) -> TurnView:
    """A turn for the page; the passages that hold the span are marked."""
    said = describe_turn(turn)
    return copy_fields(
        TurnView,
        turn,
        number=turn.index + 1,
        kind=said.kind,
        line=said.text,
        results=[
            ResultView(result.query, [_view_passage(hit.passage, hit.score, span) for hit in result.hits])
            for result in turn.results
        ],
        reply="" if turn.results else turn.reply,
        fault=said.fault,
        score=turn.action.score if isinstance(turn.action, Evaluate) else None,
    )


def mark_span(span: str, text: str) -> list[TextPart]:
    """The text in up to three pieces, of which one is the span; one piece if the span is not in it.

    mark_span("built it", "Venn built it.") ==
    [TextPart("Venn "), TextPart("built it", is_quoted=True), TextPart(".")]
    """
    place = locate_span(span, text)
    return [TextPart(text)] if place is None else mark_part(text, *place)


def mark_part(text: str, start: int, end: int) -> list[TextPart]:
    """The text in up to three pieces, of which text[start:end] is marked; empty pieces are left out."""
    parts = [TextPart(text[:start]), TextPart(text[start:end], is_quoted=True), TextPart(text[end:])]
    return [part for part in parts if part.text]


def stack_rewards(metrics: Mapping[str, float]) -> list[RewardBar]:
    """The bars, the total last; none if no total was stored."""
    total = metrics.get(TOTAL)
    if total is None or not is_drawn(total):
        return []
    parts = {
        name: value
        for name, value in metrics.items()
        if name.startswith("reward/") and name not in (TOTAL, "reward/mean") and is_drawn(value)
    }
    rest = total - sum(parts.values())
    if parts and abs(rest) > _EXACT * max(1.0, abs(total)):
        parts[REST] = rest
    edges = [*accumulate(parts.values(), initial=0.0)]
    spans = [*pairwise(edges), (0.0, total)]
    low, high = min(*edges, total), max(*edges, total)
    scale = WIDTH / ((high - low) or 1.0)
    return [
        RewardBar(name, value, round((min(span) - low) * scale, 1), round((max(span) - min(span)) * scale, 1))
        for (name, value), span in zip({**parts, TOTAL: total}.items(), spans, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------- details


def _view_passage(passage: Passage, score: float, span: str) -> PassageView:
    parts = mark_span(span, passage.text)
    quoted = any(part.is_quoted for part in parts)
    return PassageView(passage.id, passage.title, passage.place, score, parts, quoted)


def _document_text(episode: Episode) -> str:
    """The document that a proposer starts from."""
    task = episode.task
    return task.document.titled_text if isinstance(task, ProposeTask) and task.document else ""


def _judge_span(span: str, turns: list[TurnView], document: str) -> Quotation:
    if not span.strip():
        return "none"
    shown = (passage for turn in turns for result in turn.results for passage in result.passages)
    if any(passage.is_quoted for passage in shown) or locate_span(span, document) is not None:
        return "verbatim"
    return "not found"


def _neighbours(run: Run, row: EpisodeRow) -> tuple[str, str]:
    """The attempts before and after this one in its group, ranked by reward."""
    ids = ["", *(other.id for other in rank_attempts(rows_of(run, row))), ""]
    at = ids.index(row.id)
    return ids[at - 1], ids[at + 1]

"""The page of an episode: its turns with what was searched and quoted, the parts of its reward, its tokens.

read_episode(run, "notes", EpisodeQuery(id="i0-s0-i0g-000003-a1")).turns[0].results[0].passages[0].is_quoted == True
"""

from __future__ import annotations

import shlex
from typing import Literal

from msgspec import Struct

from quaere.api.run import Run
from quaere.chat.spans import locate_span
from quaere.records import Answer, EndReason, Episode, Evaluate, Passage, Proposal, ProposeTask, StopReason, Turn
from quaere.runs.rows import EpisodeFilter, EpisodeRow
from quaere.viewer.attempt_groups import describe_turn, rank_attempts, reward_of
from quaere.viewer.reward_bars import RewardBar, stack_rewards
from quaere.viewer.run_folder import NotShown
from quaere.viewer.token_lane import TokenLane, read_lane

Quotation = Literal["none", "verbatim", "not found"]


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
    return EpisodePage(
        run=name,
        id=row.id,
        task_id=row.task_id,
        question=proposed.question if proposed else row.question,
        answers=list(question.answers) if question is not None else [],
        document=_document_text(episode),
        protocol=row.protocol,
        model=row.model,
        seed=episode.seed,
        step=row.step,
        phase=row.phase,
        end=row.end,
        reward=reward_of(row.metrics),
        advantage=row.metrics.get("advantage"),
        bars=stack_rewards(row.metrics),
        metrics=row.metrics,
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
    return TurnView(
        number=turn.index + 1,
        text=turn.text,
        kind=said.kind,
        line=said.text,
        stop_reason=turn.stop_reason,
        num_tokens=turn.num_tokens,
        sample_s=turn.sample_s,
        search_s=turn.search_s,
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
    if place is None:
        return [TextPart(text)]
    start, end = place
    parts = [TextPart(text[:start]), TextPart(text[start:end], is_quoted=True), TextPart(text[end:])]
    return [part for part in parts if part.text]


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
    group = EpisodeFilter(task_id=row.task_id, step=row.step, phase=row.phase, protocol=row.protocol)
    ids = [other.id for other in rank_attempts(run.rows(group))]
    at = ids.index(row.id)
    return ids[at - 1] if at else "", ids[at + 1] if at + 1 < len(ids) else ""

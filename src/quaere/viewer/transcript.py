"""The page of an episode: its turns with what was searched and quoted, the parts of its reward, its tokens.

read_episode(run, "notes", EpisodeQuery(id="i0-s0-i0g-000003-a1")).turns[0].results[0].passages[0].is_quoted == True

The reward is drawn as a waterfall chart: the bar of each part begins where the one before ended. Tokens are rows of
cells. Advantages and the learner's log-probs and entropies are shown if training stored them (`traced_episodes`). Of a
long episode, a page has `NUM_TOKENS` tokens; the next page continues after them.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import Struct, structs

from quaere.api.run import Run
from quaere.chat.spans import locate_span
from quaere.records import Answer, Episode, Evaluate, Passage, Proposal, ProposeTask, StopReason, Turn
from quaere.records.episodes import Origin, TokenTrace
from quaere.runs.rows import EpisodeRow
from quaere.viewer.attempt_groups import describe_turn, rank_attempts, reward_of, rows_of
from quaere.viewer.page_formats import copy_fields
from quaere.viewer.plot import is_drawn
from quaere.viewer.run_folder import require

Quotation = Literal["none", "verbatim", "not found"]

WIDTH = 300
TOTAL = "reward/total"
REST = "not itemised"  # weights and clipping: what the total has beyond the sum of the parts
_EXACT = 1e-6
ROW_TOKENS = 64
NUM_TOKENS = 16 * ROW_TOKENS
# Upper ends of the log-probs of each shade, from sure to surprised.
_SHADES = (-0.1, -0.7, -2.0, -5.0)
# Lower ends of the entropies of each shade, in nats, and of the sizes of advantages.
_ENTROPY_SHADES = (0.1, 0.5, 1.5, 3.0)
_ADVANTAGE_SHADES = (0.0, 0.25, 0.75, 1.5)


class EpisodeQuery(Struct, frozen=True):
    """URL settings of an episode's page: the episode's id, and the first token of the token table.

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
    """A search hit; `parts` is its text with the quoted span marked."""

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

    `score` is the model's own score of its last search, from 0 to 10 (recipe EvalAct); None in other turns. `reply` is
    "" if it only repeats the results.
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
    """A part of the reward, and its bar in a waterfall chart of width `WIDTH`.

    RewardBar("reward/format", 0.5, x=0.0, width=100.0)
    """

    name: str
    value: float
    x: float
    width: float


class TokenCell(Struct, frozen=True, omit_defaults=True):
    """A token; `logprob` is the sampler's, None where nothing was sampled. `shade` 0 is sure, 4 surprised.

    `advantage`, `learner_logprob` and `entropy` are of the update that trained on the token, None where not stored.
    """

    token_id: int
    origin: Origin
    is_trained: bool
    logprob: float | None
    advantage: float | None = None
    learner_logprob: float | None = None
    entropy: float | None = None

    @property
    def shade(self) -> int:
        """How surprising the token was to the sampler: 0 (likely, or not sampled) to 4."""
        return 0 if self.logprob is None else sum(self.logprob < limit for limit in _SHADES)

    @property
    def entropy_shade(self) -> int:
        """How high the learner's entropy was at this token: 0 (low, or not stored) to 4."""
        return 0 if self.entropy is None else sum(self.entropy > limit for limit in _ENTROPY_SHADES)

    @property
    def advantage_shade(self) -> int:
        """How large the absolute advantage is: 0 (zero, or not stored) to 4."""
        return 0 if self.advantage is None else sum(abs(self.advantage) > limit for limit in _ADVANTAGE_SHADES)


class TokenRow(Struct, frozen=True):
    """Consecutive tokens from position `start` on."""

    start: int
    cells: list[TokenCell]

    @property
    def label(self) -> str:
        """The row in words: "tokens 64 to 127: 20 of the model, mean log-prob -0.41"."""
        sampled = [cell.logprob for cell in self.cells if cell.logprob is not None]
        mean = f", mean log-prob {sum(sampled) / len(sampled):.2f}" if sampled else ""
        num_model = sum(cell.origin == "model" for cell in self.cells)
        return f"tokens {self.start} to {self.start + len(self.cells) - 1}: {num_model} of the model{mean}"


class SegmentLine(Struct, frozen=True):
    """Summary of consecutive tokens of one origin.

    The means are over the tokens that have the value; None if none has it.

    SegmentLine(origin="model", start=212, num_tokens=23, num_trained=23, mean_logprob=-0.4, mean_advantage=0.5)
    """

    origin: Origin
    start: int
    num_tokens: int
    num_trained: int
    mean_logprob: float | None
    mean_advantage: float | None = None
    mean_learner_logprob: float | None = None
    mean_entropy: float | None = None


class TokenLane(Struct, frozen=True):
    """A range of an episode's tokens, and all its segments; `next` is where the next range starts, 0 at the end.

    `is_traced` is true if training stored the advantage, log-prob and entropy of its tokens.
    """

    start: int
    num_tokens: int
    next: int
    rows: list[TokenRow]
    segments: list[SegmentLine]
    is_traced: bool


class EpisodePage(EpisodeRow, frozen=True, kw_only=True):
    """All that the page of an episode shows, its index row included.

    `question` and `answer` of a proposer are those that it wrote; `abstained` is true if the model says that the
    documents do not answer. `learner` says whether training stored the advantage
    of every token and the learner's own log-probs and entropy. `before` and `after` are the neighbours in the group, by
    reward; "" at its ends.
    """

    run: str
    answers: list[str]
    document: str
    seed: int
    reward: float | None
    advantage: float | None
    bars: list[RewardBar]
    turns: list[TurnView]
    answer: str
    abstained: bool
    span: str
    quotation: Quotation
    lane: TokenLane
    learner: Literal["recorded", "not recorded"]
    command: str
    before: str
    after: str


def read_episode(run: Run, name: str, query: EpisodeQuery) -> EpisodePage:
    """The page of an episode; `NotShown` if the run has none of this id."""
    said = f"run {name} has no episode {query.id}"
    row = require(run.episode_row(query.id), said, "its questions are listed with their attempts")
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
        abstained=episode.abstained,
        span=span,
        quotation=_judge_span(span, turns, _document_text(episode)),
        lane=read_lane(episode, trace, query.start),
        learner="not recorded" if trace is None else "recorded",
        command=f"quaere runs show {shlex.quote(str(run.path))} {shlex.quote(row.id)} --full --tokens",
        before=before,
        after=after,
    )


def view_turn(turn: Turn, span: str) -> TurnView:
    """A turn as the page shows it, with the span marked in the passages that contain it."""
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
        reply="" if turn.results and not turn.note_tokens else turn.reply,
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
    """The bars of a waterfall chart of the reward's parts, the total last; [] if no finite total was stored."""
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
    low = min(*edges, total)
    scale = WIDTH / ((max(*edges, total) - low) or 1.0)
    return [
        RewardBar(name, value, round((min(span) - low) * scale, 1), round((max(span) - min(span)) * scale, 1))
        for (name, value), span in zip({**parts, TOTAL: total}.items(), spans, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------- details


def _view_passage(passage: Passage, score: float, span: str) -> PassageView:
    parts = mark_span(span, passage.text)
    return copy_fields(PassageView, passage, score=score, parts=parts, is_quoted=any(part.is_quoted for part in parts))


def _document_text(episode: Episode) -> str:
    task = episode.task
    return task.document.titled_text if isinstance(task, ProposeTask) and task.document else ""


def _judge_span(span: str, turns: list[TurnView], document: str) -> Quotation:
    if not span.strip():
        return "none"
    shown = (passage for turn in turns for result in turn.results for passage in result.passages)
    is_found = any(passage.is_quoted for passage in shown) or locate_span(span, document) is not None
    return "verbatim" if is_found else "not found"


def _neighbours(run: Run, row: EpisodeRow) -> tuple[str, str]:
    """Ids of the attempts before and after this row in its group, ranked by reward; "" at the ends."""
    ids = ["", *(other.id for other in rank_attempts(rows_of(run, row))), ""]
    at = ids.index(row.id)
    return ids[at - 1], ids[at + 1]


# -------------------------------------------------------------------------------------------------------------- tokens


def read_lane(episode: Episode, trace: TokenTrace | None, start: int) -> TokenLane:
    """Up to `NUM_TOKENS` tokens from `start`, rounded down to the start of a row; `trace` adds the learner's values."""
    cells = _cells(episode, trace)
    start = min(max(0, start), max(0, len(cells) - 1)) // ROW_TOKENS * ROW_TOKENS
    end = min(start + NUM_TOKENS, len(cells))
    return TokenLane(
        start=start,
        num_tokens=len(cells),
        next=end if end < len(cells) else 0,
        rows=[TokenRow(at, cells[at : min(at + ROW_TOKENS, end)]) for at in range(start, end, ROW_TOKENS)],
        segments=list(_segments(episode, cells)),
        is_traced=trace is not None,
    )


def _cells(episode: Episode, trace: TokenTrace | None) -> list[TokenCell]:
    found: list[TokenCell] = []
    traced = zip(*(structs.astuple(trace) if trace else ()), strict=True)
    stored = {place: values for place, *values in traced}
    for segment in episode.segments:
        num_tokens = len(segment.token_ids)
        logprobs = segment.logprobs if len(segment.logprobs) == num_tokens else [None] * num_tokens
        for token_id, is_trained, logprob in zip(segment.token_ids, segment.loss_mask, logprobs, strict=True):
            found.append(TokenCell(token_id, segment.origin, is_trained, logprob, *stored.get(len(found), ())))
    return found


def _segments(episode: Episode, cells: Sequence[TokenCell]) -> Iterator[SegmentLine]:
    start = 0
    for segment in episode.segments:
        own = cells[start : start + len(segment.token_ids)]
        known = [
            [value for cell in own if (value := getattr(cell, measure)) is not None]
            for measure in ("logprob", "advantage", "learner_logprob", "entropy")
        ]
        means = (sum(values) / len(values) if values else None for values in known)
        yield SegmentLine(segment.origin, start, len(own), sum(segment.loss_mask), *means)
        start += len(own)

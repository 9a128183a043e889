"""The page of an episode: its answer with the sentence that proves it, its conversation, its reward, its tokens.

read_episode(run, "notes", EpisodeQuery(id="i0-s0-i0g-000003-a1")).shown.chips[0].text == "Orsolya Venn built it."

The reward is drawn as a waterfall chart: the bar of each part begins where the one before ended.
"""

import shlex
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import Struct

from quaere.api.run import Run, open_documents
from quaere.records import Answer, Episode, Evidence, Proposal, ProposeTask
from quaere.runs.rows import EpisodeRow
from quaere.viewer.answer_view import AnswerView, Quotation, read_record, unquoted_support, view_answer
from quaere.viewer.attempt_groups import rank_attempts, reward_of, rows_of
from quaere.viewer.conversation import PassageView, TurnView, view_passage, view_turns
from quaere.viewer.page_formats import copy_fields, path_to
from quaere.viewer.plot import is_drawn
from quaere.viewer.run_folder import require
from quaere.viewer.token_lane import TokenLane, read_lane

WIDTH = 300
TOTAL = "reward/total"
REST = "not itemised"  # weights and clipping: what the total has beyond the sum of the parts
_EXACT = 1e-6


class EpisodeQuery(Struct, frozen=True):
    """URL settings of an episode's page: the episode's id, and the first token of the token table.

    EpisodeQuery(id="i0-s0-i0g-000003-a1", start=1024)
    """

    id: str = ""
    start: int = 0


class RewardBar(Struct, frozen=True):
    """A part of the reward, and its bar in a waterfall chart of width `WIDTH`.

    RewardBar("reward/format", 0.5, x=0.0, width=100.0)
    """

    name: str
    value: float
    x: float
    width: float


class EpisodePage(EpisodeRow, frozen=True, kw_only=True):
    """All that the page of an episode shows, its index row included.

    `question` and `answer` of a proposer are those that it wrote, and `given` is the document it started from.
    `abstained` is true if the episode counts as an abstention in its run; `hidden` are answers that were withheld from
    its searches. `shown` is the answer with its sources, None for roles that answer no question, and `cited` the place
    on the page of the first passage that has its sentence, "" for none. `learner` says whether training stored the
    advantage of every token and the learner's own log-probs and entropy. `before` and `after` are the neighbours in the
    group, by reward; "" at its ends.
    """

    run: str
    answers: list[str]
    hidden: list[str]
    given: PassageView | None
    seed: int
    reward: float | None
    advantage: float | None
    bars: list[RewardBar]
    turns: list[TurnView]
    answer: str
    abstained: bool
    span: str
    quotation: Quotation
    shown: AnswerView | None
    cited: str
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
    record = read_record(run, row, episode)
    support = unquoted_support(record) if record else None
    turns, given = view_turns(episode.turns, span, support), _view_given(episode, span, support)
    base = path_to("run", name, "document")
    shown = view_answer(AnswerView, record, open_documents(run).read, base) if record else None
    before, after = _neighbours(run, row)
    trace = run.token_trace(row.id)
    return copy_fields(
        EpisodePage,
        row,
        run=name,
        question=proposed.question if proposed else row.question,
        answers=list(question.answers) if question is not None else [],
        hidden=list(question.hidden) if question is not None else [],
        given=given,
        seed=episode.seed,
        reward=reward_of(row.metrics),
        advantage=row.metrics.get("advantage"),
        bars=stack_rewards(row.metrics),
        turns=turns,
        answer=proposed.answer if proposed else row.answer or "",
        abstained=episode.abstains(run.min_confidence),
        span=span,
        quotation=shown.quotation if shown else "none",
        shown=shown,
        cited=next((card.anchor for card in _cards(given, turns) if card.is_quoted or card.has_answer), ""),
        lane=read_lane(episode, trace, query.start),
        learner="not recorded" if trace is None else "recorded",
        command=f"quaere runs show {shlex.quote(str(run.path))} {shlex.quote(row.id)} --full --tokens",
        before=before,
        after=after,
    )


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


def _view_given(episode: Episode, span: str, support: Evidence | None) -> PassageView | None:
    """The document that a proposer starts from; None for other tasks."""
    document = episode.task.document if isinstance(episode.task, ProposeTask) else None
    return view_passage(document, "passage-0", 0.0, span, support) if document else None


def _cards(given: PassageView | None, turns: list[TurnView]) -> Iterator[PassageView]:
    """Every passage on the page, in its order."""
    if given is not None:
        yield given
    for turn in turns:
        for result in turn.results:
            yield from result.passages


def _neighbours(run: Run, row: EpisodeRow) -> tuple[str, str]:
    """Ids of the attempts before and after this row in its group, ranked by reward; "" at the ends."""
    ids = ["", *(other.id for other in rank_attempts(rows_of(run, row))), ""]
    at = ids.index(row.id)
    return ids[at - 1], ids[at + 1]

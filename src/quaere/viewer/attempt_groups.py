"""The pages of groups: the questions of a run, all attempts at one of them by reward, and rewards without proof.

read_group(run, "notes", GroupQuery(task="i0g-000003")).sections[0].attempts[0] ->
Attempt(id="i0-s0-i0g-000003-a1", number=1, reward=1.0, advantage=0.6, parts={"answer/exact_match": 1.0}, ...)

The same question at several steps, such as those of a validation, is one page: a section for each step.

An episode is unproven if it has a high reward and fails an independent check: its reward may be hacked. The checks are
rules, not the reward's own: a proposed question must be proven by what its proposer was shown
(`evaluation/qa/curriculum_quality.py`), an answer must be in a passage that the solver was shown, and a quotation must
be verbatim. A right answer may be worded otherwise in its source, so a person has to look at what is listed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from quaere.api.run import Run
from quaere.chat.spans import find_evidence, shown_passages
from quaere.evaluation.qa.curriculum_quality import Asked, find_gap
from quaere.grouping import group_by
from quaere.records import Answer, EndReason, Episode, Evaluate, Malformed, Proposal, Search, SolveTask, Turn
from quaere.rewards.abstention import UNANSWERABLE, has_hidden_answer
from quaere.rewards.answers import normalise_answer
from quaere.runs.rows import PLACE, EpisodeFilter, EpisodeGroup, EpisodeRow
from quaere.viewer.page_formats import ListPage, PageNumber, copy_fields, cut_page
from quaere.viewer.run_folder import require

MAX_ATTEMPTS = 64  # attempts of one step that a page shows side by side
_REWARDS = ("reward/total", "answer/exact_match")
_LINE_CHARS = 200
NUM_CHECKED = 200  # episodes with the highest rewards that are checked
MISQUOTED = "its quotation is in no text it was shown"
UNSEEN = "its answer is in no text it was shown"


class Bounds(Struct, frozen=True):
    """Conditions on attempts: how they ended, how often they searched, and bounds on a part of the reward.

    Bounds(end="turn_limit", least_searches=2, part="answer/exact_match", most=0.5)
    """

    end: EndReason | None = None
    least_searches: int | None = None
    most_searches: int | None = None
    part: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def is_set(self) -> bool:
        """True if there is a condition."""
        return any(getattr(self, name) != getattr(Bounds(), name) for name in Bounds.__struct_fields__)

    def admits(self, metrics: Mapping[str, float]) -> bool:
        """True if the metric `part` is within `least` and `most`, or no bound is set; False if it was not measured."""
        if not self.part or (self.least is None and self.most is None):
            return True
        least, most = -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most
        return least <= metrics.get(self.part, math.nan) <= most


class QuestionsQuery(Bounds, frozen=True):
    """Filters of the list of groups: a group is listed if one of its attempts passes all of them.

    QuestionsQuery(step=5, phase="solver", text="bridge", end="turn_limit", page=2)
    """

    step: int | None = None
    phase: str = ""
    text: str = ""
    page: PageNumber = 1


class GroupLine(Struct, frozen=True):
    """One line of the list: all attempts at a question at one step. Rewards are None if none was stored.

    `best` is the episode with the highest reward; `num_right` is None if the answers were not scored. `answer` and
    `scores` are filled only for a group with a single attempt.

        GroupLine(EpisodeGroup(...), mean_reward=0.4, least_reward=0.0, most_reward=1.0, best="i0-s0-i0g-000003-a1",
                  num_right=6, num_abstained=1)
    """

    group: EpisodeGroup
    mean_reward: float | None
    least_reward: float | None
    most_reward: float | None
    best: str
    num_right: int | None
    num_abstained: int
    answer: str = ""
    scores: dict[str, float] = {}


class QuestionsPage(ListPage[QuestionsQuery, GroupLine], frozen=True):
    """One page of the questions that a run attempted. `phases` and `parts` are the choices of the filters.

    `is_training` is false for runs without steps, such as those of `quaere ask`.
    """

    run: str
    phases: list[str]
    parts: list[str]
    is_training: bool


class GroupQuery(Bounds, frozen=True):
    """The question by its id, and which of its attempts are shown.

    GroupQuery(task="i0g-000003", step=5)
    """

    task: str = ""
    step: int | None = None


class TurnLine(Struct, frozen=True):
    """A turn in one line: the kind of its action, the action's text shortened, and the failure if there was one.

    TurnLine(kind="search", text="builder of the Halm bridge", fault="")
    """

    kind: str
    text: str
    fault: str = ""


class Attempt(Struct, frozen=True):
    """An attempt at a question; number 1 has the highest reward of its section. `is_right` is None if not scored."""

    id: str
    number: int
    reward: float | None
    advantage: float | None
    parts: dict[str, float]
    end: EndReason
    num_searches: int
    num_tokens: int
    answer: str | None
    is_right: bool | None
    is_abstained: bool
    turns: list[TurnLine]

    @property
    def reward_parts(self) -> dict[str, float]:
        """The parts of the reward without their total."""
        return {name: value for name, value in self.parts.items() if name.startswith("reward/") and name != _REWARDS[0]}


class GroupSection(Struct, frozen=True):
    """The attempts at one step, highest reward first, at most `MAX_ATTEMPTS`.

    `num_attempts` and `num_right` (None if they were not scored) count all of them.
    """

    step: int
    phase: str
    protocol: str
    num_attempts: int
    num_right: int | None
    attempts: list[Attempt]

    @property
    def alike(self) -> list[list[Attempt]]:
        """The attempts that ended alike together: with the same answer and the same reward."""
        by_end = group_by(self.attempts, lambda one: (one.reward, one.end, normalise_answer(one.answer or "")))
        return [*by_end.values()]


class GroupPage(Struct, frozen=True):
    """The attempts at one question, one section per step, phase and protocol."""

    run: str
    query: GroupQuery
    question: str
    answers: list[str]
    parts: list[str]
    sections: list[GroupSection]


class UnprovenQuery(Struct, frozen=True):
    """Which of the checked episodes are shown: those of one phase, or of all phases if "".

    UnprovenQuery(phase="solver")
    """

    phase: str = ""


class Unproven(Struct, frozen=True):
    """An episode with a high reward, and the check that it fails (`fault`); `said` is its answer.

    Unproven(id="i0-s3-q1-a0", question="Who built it?", step=3, phase="solver", reward=1.5, said="Venn", fault=UNSEEN)
    """

    id: str
    question: str
    step: int
    phase: str
    reward: float
    said: str
    fault: str


class UnprovenPage(Struct, frozen=True):
    """Rewarded episodes that fail a check, highest reward first; `num_checked` episodes were checked in all."""

    run: str
    query: UnprovenQuery
    phases: list[str]
    num_checked: int
    episodes: list[Unproven]

    @property
    def faults(self) -> dict[str, int]:
        """How many episodes fail each check, the most frequent first."""
        return dict(Counter(one.fault for one in self.episodes).most_common())


def read_questions(run: Run, name: str, query: QuestionsQuery) -> QuestionsPage:
    """One page of the groups that a query selects."""
    wanted = copy_fields(EpisodeFilter, query, phase=query.phase or None)
    groups = run.groups(wanted)
    if query.part and (query.least is not None or query.most is not None):
        admitted = {_key(row) for row in run.rows(wanted) if query.admits(row.metrics)}
        groups = [group for group in groups if _key(group) in admitted]
    page = cut_page(groups, query.page)
    parts = {part for group in page.items[:1] for row in rows_of(run, group) for part in row.metrics} - {PLACE}
    return QuestionsPage(
        run=name,
        query=query,
        phases=run.phases_of_episodes(),
        parts=sorted(parts | ({query.part} - {""})),
        page=page.map(lambda group: _summarise(run, group)),
        is_training=run.info.kind == "evolve" or bool(run.last_step()),
    )


def read_group(run: Run, name: str, query: GroupQuery) -> GroupPage:
    """The attempts at a question; `NotShown` if there is none."""
    said = f"run {name} has no attempts at a question {query.task}"
    everything = require(run.rows(EpisodeFilter(task_id=query.task)), said, "the questions are listed")
    wanted = copy_fields(EpisodeFilter, query, task_id=query.task)
    rows = [row for row in run.rows(wanted) if query.admits(row.metrics)]
    sections = []
    for (step, phase, protocol), members in groupby(rows, key=lambda row: (row.step, row.phase, row.protocol)):
        attempts = rank_attempts(list(members))
        shown = [_read_attempt(run, row, number) for number, row in enumerate(attempts[:MAX_ATTEMPTS], start=1)]
        sections.append(GroupSection(step, phase, protocol, len(attempts), count_right(attempts), shown))
    question, answers = _read_question(run, everything)
    return GroupPage(
        run=name,
        query=query,
        question=question,
        answers=answers,
        parts=sorted({part for row in everything for part in row.metrics} - {PLACE}),
        sections=sections,
    )


def rank_attempts(rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
    """The rows by reward, the highest first; of equal ones the earlier, and those without a reward last."""

    rewards = {row.id: reward_of(row.metrics) for row in rows}
    known = {id: -reward for id, reward in rewards.items() if reward is not None}
    return sorted(rows, key=lambda row: (known.get(row.id, math.inf), row.number))


def is_right(row: EpisodeRow) -> bool | None:
    """True for a right answer, and for abstaining where the question has none; None if not scored."""
    exact = row.metrics.get("answer/exact_match", math.nan)
    if math.isnan(exact):
        return None
    is_unanswerable = row.metrics.get(UNANSWERABLE) == 1 or has_hidden_answer(row.task_id)  # older runs: the id alone
    return row.is_abstained if is_unanswerable else exact == 1


def count_right(rows: Sequence[EpisodeRow]) -> int | None:
    """How many attempts are right; None if none was scored."""
    scored = [right for row in rows if (right := is_right(row)) is not None]
    return sum(scored) if scored else None


def reward_of(metrics: Mapping[str, float]) -> float | None:
    """The reward of an episode: the stored total, else the exact match; None if neither is a number."""
    found = (metrics.get(name, math.nan) for name in _REWARDS)
    return next((value for value in found if not math.isnan(value)), None)


def describe_turn(turn: Turn) -> TurnLine:
    """A turn in one line: what was searched, answered, scored or proposed, or why the turn could not be parsed."""
    fault = f"{turn.failure.boundary}: {turn.failure.message}" if turn.failure else ""
    match turn.action:
        case Search(queries):
            said = "; ".join(queries)
        case Evaluate(text, score):
            said = f"{score:g} of 10: {text}"
        case Proposal(question, answer):
            said = f"{question} → {answer}"
        case Malformed(reason):
            said = reason
        case other:
            said = other.text
    line = " ".join(said[: 4 * _LINE_CHARS].split())
    more = " …" if len(line) > _LINE_CHARS else ""
    abstained = isinstance(turn.action, Answer) and turn.action.abstained
    kind = "abstained" if abstained else type(turn.action).__name__.lower()
    return TurnLine(kind, line[:_LINE_CHARS] + more, fault)


def read_unproven(run: Run, name: str, query: UnprovenQuery) -> UnprovenPage:
    """Check the `NUM_CHECKED` episodes of a run or phase with the highest rewards above 0, and list those that fail."""
    rows = [run.episode_row(id) for id in run.best_paid("reward/total", NUM_CHECKED, query.phase)]
    checked = [row for row in rows if row is not None and (reward_of(row.metrics) or 0.0) > 0]
    found = [
        copy_fields(Unproven, row, reward=reward_of(row.metrics) or 0.0, said=row.answer or "", fault=fault)
        for row in checked
        if (fault := find_fault(run.episode(row.id)))
    ]
    return UnprovenPage(name, query, run.phases_of_episodes(), len(checked), found)


def find_fault(episode: Episode) -> str:
    """The first check that an episode's answer or proposed question fails; "" if it passes all or has neither."""
    outcome, passages = episode.outcome, shown_passages(episode)
    is_checked = isinstance(outcome, Proposal) or isinstance(episode.task, SolveTask)
    if not is_checked or not isinstance(outcome, Answer | Proposal) or episode.abstained:
        return ""
    if outcome.span.strip() and find_evidence(outcome.span, passages) is None:
        return MISQUOTED
    if isinstance(outcome, Proposal):
        texts = tuple(passage.text for passage in passages)
        return find_gap(Asked(episode.id, outcome.question, (outcome.answer,), texts))
    wanted = normalise_answer(outcome.text)
    shown = (f" {normalise_answer(passage.titled_text)} " for passage in passages)
    # No passage has to hold "yes" or "no".
    return "" if wanted in ("", "yes", "no") or any(f" {wanted} " in text for text in shown) else UNSEEN


# ------------------------------------------------------------------------------------------------------------- details


def _key(row: EpisodeRow | EpisodeGroup) -> tuple[str, int, str, str]:
    return row.task_id, row.step, row.phase, row.protocol


def rows_of(run: Run, group: EpisodeGroup | EpisodeRow) -> list[EpisodeRow]:
    """The attempts of a group, or of the group that an attempt belongs to."""
    return run.rows(EpisodeFilter(task_id=group.task_id, step=group.step, phase=group.phase, protocol=group.protocol))


def _summarise(run: Run, group: EpisodeGroup) -> GroupLine:
    rows = rows_of(run, group)
    only = rows[0] if len(rows) == 1 else None
    rewards = [reward for row in rows if (reward := reward_of(row.metrics)) is not None]
    return GroupLine(
        group=group,
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        least_reward=min(rewards, default=None),
        most_reward=max(rewards, default=None),
        best=rank_attempts(rows)[0].id,
        num_right=count_right(rows),
        num_abstained=sum(row.is_abstained for row in rows),
        answer=only.answer or "" if only else "",
        scores=only.metrics if only else {},
    )


def _read_question(run: Run, rows: Sequence[EpisodeRow]) -> tuple[str, list[str]]:
    """The question of a group and its accepted answers.

    The rows may include the proposer's own episode, whose row names its source document instead of a question. The
    question is that of a solver's attempt; else the proposed one, if there is one proposal; else the row's text.
    """
    firsts: dict[str, str] = {}
    for row in rows:
        firsts.setdefault(row.protocol, row.id)
    episodes = [run.episode(id) for id in firsts.values()]
    for episode in episodes:
        if (question := getattr(episode.task, "question", None)) is not None:
            return question.text, list(question.answers)
    outcome = episodes[0].outcome
    if isinstance(outcome, Proposal) and len(rows) == 1:
        return outcome.question, [outcome.answer]
    return rows[0].question, []


def _read_attempt(run: Run, row: EpisodeRow, number: int) -> Attempt:
    return copy_fields(
        Attempt,
        row,
        number=number,
        reward=reward_of(row.metrics),
        advantage=row.metrics.get("advantage"),
        is_right=is_right(row),
        parts={name: value for name, value in row.metrics.items() if name != "advantage"},
        turns=[describe_turn(turn) for turn in run.episode(row.id).turns],
    )

"""The page of episodes that were paid well and fail an independent check: where a reward may be hacked.

The checks are rules, not the reward's own: a proposed question must be proven by what its proposer was shown
(`evaluation/qa/curriculum_quality.py`), an answer must stand in a passage that the solver was shown, and a quotation
must be verbatim. A right answer may be worded otherwise in its source: what is listed here is to be looked at.
"""

from __future__ import annotations

from msgspec import Struct

from quaere.api.run import Run
from quaere.chat.spans import find_evidence, shown_passages
from quaere.evaluation.qa.curriculum_quality import Asked, find_gap
from quaere.records import Answer, Episode, Proposal, SolveTask
from quaere.rewards.answers import normalise_answer
from quaere.viewer.attempt_groups import reward_of

NUM_CHECKED = 200  # of the best-paid episodes
MISQUOTED = "its quotation is in nothing it was shown"
UNSEEN = "its answer is in nothing it was shown"


class UnprovenQuery(Struct, frozen=True):
    """Which episodes are checked: those of a phase, or of all.

    UnprovenQuery(phase="solver")
    """

    phase: str = ""


class Unproven(Struct, frozen=True):
    """A well-paid episode and the check that it fails.

    Unproven(id="i0p-000007", step=3, phase="proposer", reward=1.5, said="Who built it? -> Venn", fault="names nothing")
    """

    id: str
    step: int
    phase: str
    reward: float
    said: str
    fault: str


class UnprovenPage(Struct, frozen=True):
    """The episodes that fail, the best-paid first, of `num_checked` that were checked."""

    run: str
    query: UnprovenQuery
    phases: list[str]
    num_checked: int
    episodes: list[Unproven]


def read_unproven(run: Run, name: str, query: UnprovenQuery) -> UnprovenPage:
    """Check the best-paid episodes of a run."""
    found, num_checked = [], 0
    for id in run.best_paid("reward/total", NUM_CHECKED):
        row = run.episode_row(id)
        if row is None or (query.phase and row.phase != query.phase):
            continue
        num_checked += 1
        fault = find_fault(run.episode(id))
        if fault:
            reward = reward_of(row.metrics) or 0.0
            found.append(Unproven(id, row.step, row.phase, reward, row.answer or "", fault))
    return UnprovenPage(name, query, run.phases_of_episodes(), num_checked, found)


def find_fault(episode: Episode) -> str:
    """The first rule that the end of an episode breaks; "" if it keeps them all, or has no end to check."""
    passages = shown_passages(episode)
    match episode.outcome:
        case Proposal(question, answer, span):
            if span.strip() and find_evidence(span, passages) is None:
                return MISQUOTED
            return find_gap(Asked(episode.id, question, (answer,), tuple(passage.text for passage in passages)))
        case Answer(text, span) if isinstance(episode.task, SolveTask):
            if span.strip() and find_evidence(span, passages) is None:
                return MISQUOTED
            wanted = normalise_answer(text)
            texts = (normalise_answer(passage.titled_text) for passage in passages)
            is_choice = wanted in ("yes", "no")  # which no passage has to hold
            seen = is_choice or any(f" {wanted} " in f" {text} " for text in texts)
            return "" if not wanted or seen else UNSEEN
    return ""

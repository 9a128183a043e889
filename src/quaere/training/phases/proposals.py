"""Letting a proposer write questions, and reading what it wrote."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.chat.tags import find_blocks
from quaere.records import Episode, Proposal, ProposeTask, Question, Search, searches_needed
from quaere.rewards.dates import year_aliases
from quaere.rewards.format import Containment, FormatRule, FormatScore, InvalidRule, format_score
from quaere.rollout.many import Job


class Proposed(Struct, frozen=True):
    """An episode of the proposer with its format score, and the question if there is one worth trying.

    Proposed(episode=Episode(...), score=FormatScore(...), question=Question(id="i0-000001", text="Who ...?", ...))
    """

    episode: Episode
    score: FormatScore
    question: Question | None

    @property
    def text(self) -> str:
        """The question as written, "" where there is none."""
        return self.episode.outcome.question if isinstance(self.episode.outcome, Proposal) else ""

    def measured(self) -> dict[str, float]:
        """The parts of its format score, for the store."""
        score = self.score
        return {
            "format/think": score.think,
            "format/tool": score.tool,
            "format/answer": score.answer,
            "format/valid": float(score.valid),
        }

    @property
    def hops(self) -> int:
        """How many hops were asked for."""
        assert isinstance(self.episode.task, ProposeTask)
        return self.episode.task.hops


def propose_jobs(protocol: Protocol, tasks: Sequence[ProposeTask], num_questions: int) -> list[Job]:
    """`num_questions` episodes for each task; those of one task stand together."""
    return [
        Job(protocol, task, task.id if num_questions == 1 else f"{task.id}.{number}")
        for task in tasks
        for number in range(num_questions)
    ]


def best_samples(proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """Of every `num_samples` proposals in a row the best by format; of equals, the first.

    One that a failed search spoiled comes last, and before it those that would not be kept anyhow.
    """

    def worth(item: Proposed) -> tuple[bool, bool, float]:
        could_be_kept = item.score.valid and not is_too_long(item, max_words)
        return not item.episode.search_failed, could_be_kept, item.score.total

    starts = range(0, len(proposals), num_samples)
    return [max(proposals[start : start + num_samples], key=worth) for start in starts]


def is_too_long(proposed: Proposed, max_words: int) -> bool:
    """Has the question more than `max_words` words? With 0, never."""
    return bool(max_words) and len(proposed.text.split()) > max_words


def read_proposal(
    episode: Episode,
    *,
    format_rule: FormatRule = "eve",
    invalid_rule: InvalidRule = "text",
    containment: Containment = "words",
) -> Proposed:
    """Score how a proposer went about its task, by its actions and the replies it really got."""
    task = episode.task
    assert isinstance(task, ProposeTask)
    outcome = episode.outcome if isinstance(episode.outcome, Proposal) else Proposal("", "")
    calls = [turn for turn in episode.turns if isinstance(turn.action, Search)]
    sources = [task.document.titled_text] if task.document else []
    sources += [hit.passage.titled_text for turn in calls for result in turn.results for hit in result.hits]
    score = format_score(
        question=outcome.question,
        answer=outcome.answer,
        hops=task.hops,
        num_turns=len(episode.turns),
        num_planned_turns=sum(opens_with_plan(turn.text) for turn in episode.turns),
        num_valid_calls=len(calls),
        num_responses=sum(bool(turn.results) for turn in calls),
        sources=sources,
        format_rule=format_rule,
        invalid_rule=invalid_rule,
        containment=containment,
    )
    # What was written after a search had failed is not held against anybody, nor is anybody asked to answer it.
    is_worth_trying = score.valid and not episode.search_failed
    if not is_worth_trying:
        return Proposed(episode, score, None)
    facts = searches_needed(task.hops)
    accepted = (outcome.answer, *year_aliases(outcome.question, outcome.answer))
    question = Question(episode.id, outcome.question, accepted, task.hops, facts=facts, searches=facts)
    return Proposed(episode, score, question)


def opens_with_plan(text: str) -> bool:
    """Does the turn begin with a thought that says something?

    opens_with_plan("<think>I need the builder.</think><answer>Venn</answer>") -> True
    """
    first = next(iter(find_blocks(text, ("think",))), None)
    return first is not None and bool(first.content.strip()) and text.lstrip().startswith("<think>")


def leaks_answer(proposed: Proposed) -> bool:
    """Is the proposal invalid because its question holds its answer, by the rules its form was scored by?"""
    return proposed.score.leaked

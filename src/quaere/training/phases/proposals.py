"""The proposer's episodes: jobs, format score and the question in each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.chat.tags import find_blocks
from quaere.records import Episode, Proposal, ProposeTask, Question, Search, searches_needed
from quaere.rewards.answers import year_aliases
from quaere.rewards.format import Containment, FormatRule, FormatScore, InvalidRule, format_score
from quaere.rollout.episode import Job


class Proposed(Struct, frozen=True):
    """An episode of the proposer with its format score, and its question if the solver should attempt it.

    Proposed(episode=Episode(...), score=FormatScore(...), question=Question(id="i0-000001", text="Who ...?", ...))
    """

    episode: Episode
    score: FormatScore
    question: Question | None

    @property
    def text(self) -> str:
        """The question as written; "" if there is none."""
        return self.episode.outcome.question if isinstance(self.episode.outcome, Proposal) else ""

    def measured(self) -> dict[str, float]:
        """Components of the format score, as metrics of the episode."""
        score = self.score
        return {
            "format/think": score.think,
            "format/tool": score.tool,
            "format/answer": score.answer,
            "format/valid": float(score.valid),
        }

    @property
    def hops(self) -> int:
        """Number of hops the task asked for."""
        assert isinstance(self.episode.task, ProposeTask)
        return self.episode.task.hops


def propose_jobs(protocol: Protocol, tasks: Sequence[ProposeTask], num_questions: int) -> list[Job]:
    """`num_questions` episodes per task; those of one task are adjacent."""
    return [
        Job(protocol, task, task.id if num_questions == 1 else f"{task.id}.{number}")
        for task in tasks
        for number in range(num_questions)
    ]


def best_samples(proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best by format of each `num_samples` consecutive proposals; the first among equals.

    Order of preference: episodes without a failed search, then questions the filter could keep, then the format score.
    """

    def preference(item: Proposed) -> tuple[bool, bool, float]:
        could_be_kept = item.score.valid and not is_too_long(item, max_words)
        return not item.episode.search_failed, could_be_kept, item.score.total

    starts = range(0, len(proposals), num_samples)
    return [max(proposals[start : start + num_samples], key=preference) for start in starts]


def is_too_long(proposed: Proposed, max_words: int) -> bool:
    """True if the question has more than `max_words` words; never for 0."""
    return bool(max_words) and len(proposed.text.split()) > max_words


def read_proposal(
    episode: Episode,
    *,
    format_rule: FormatRule = "eve",
    invalid_rule: InvalidRule = "text",
    containment: Containment = "words",
) -> Proposed:
    """Format score of a proposer's episode, from its actions and the replies it received."""
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
    # A proposal written after a failed search is neither penalised nor attempted by the solver.
    if not score.valid or episode.search_failed:
        return Proposed(episode, score, None)
    facts = searches_needed(task.hops)
    accepted = (outcome.answer, *year_aliases(outcome.question, outcome.answer))
    question = Question(episode.id, outcome.question, accepted, task.hops, facts=facts, searches=facts)
    return Proposed(episode, score, question)


def opens_with_plan(text: str) -> bool:
    """True if the turn starts with a non-empty thought.

    opens_with_plan("<think>I need the builder.</think><answer>Venn</answer>") -> True
    """
    first = next(iter(find_blocks(text, ("think",))), None)
    return first is not None and bool(first.content.strip()) and text.lstrip().startswith("<think>")


def leaks_answer(proposed: Proposed) -> bool:
    """True if the proposal is invalid because its question contains its answer, by the rules of its format score."""
    return proposed.score.leaked

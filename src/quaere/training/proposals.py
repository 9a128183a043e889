"""The proposer's questions: jobs and format scores, which of them the curriculum keeps, and their stored records."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.chat.tags import find_blocks
from quaere.records import Candidate, DropReason, Episode, Proposal, ProposeTask, Question, Search, searches_needed
from quaere.rewards.answers import normalise_answer, year_aliases
from quaere.rewards.format import Containment, FormatRule, FormatScore, InvalidRule, format_score
from quaere.rollout.episode import Job
from quaere.training.step import Step


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


def is_too_long(proposed: Proposed, max_words: int) -> bool:
    """True if the question has more than `max_words` words; never for 0."""
    return bool(max_words) and len(proposed.text.split()) > max_words


def best_samples(proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best by format of each `num_samples` consecutive proposals; the first among equals.

    Order of preference: episodes without a failed search, then questions the filter could keep, then the format score.
    """

    def preference(item: Proposed) -> tuple[bool, bool, float]:
        could_be_kept = item.score.valid and not is_too_long(item, max_words)
        return not item.episode.search_failed, could_be_kept, item.score.total

    starts = range(0, len(proposals), num_samples)
    return [max(proposals[start : start + num_samples], key=preference) for start in starts]


def keep_best(step: Step, proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best of each `num_samples` consecutive proposals (`best_samples`); the other episodes are only stored."""
    best = best_samples(proposals, num_samples, max_words)
    chosen = {item.episode.id for item in best}
    for item in proposals:
        if item.episode.id not in chosen and not item.episode.search_failed:
            step.keep(item.episode, {"format/total": item.score.total})
    return best


def can_be_judged(proposed: Proposed, attempts: Sequence[Episode]) -> bool:
    """True if the proposal can be rewarded.

    It cannot if a search of the proposer failed, or if fewer than two of the solver's attempts had no failed search.
    """
    if proposed.episode.search_failed:
        return False
    return proposed.question is None or len(attempts) >= 2


# -------------------------------------------------------------------------------- which questions the solver trains on


def judge_form(proposed: Proposed, seen: set[str], max_words: int = 0) -> DropReason:
    """Reason to drop a question without attempts; "" if it passes. `seen` (normalised questions so far) is extended.

    A question of more than `max_words` words is invalid; 0 means no limit.
    """
    if proposed.episode.search_failed:
        return "unfinished"
    if proposed.score.leaked:
        return "leaked answer"
    if proposed.question is None or is_too_long(proposed, max_words):
        return "invalid"
    text = normalise_answer(proposed.question.text)
    if text in seen:
        return "duplicate"
    seen.add(text)
    return ""


def remember_questions(candidates: Sequence[Candidate]) -> set[str]:
    """The normalised questions of those candidates that passed `judge_form`, as its `seen` in a resumed run."""

    def passed(item: Candidate) -> bool:
        if item.reason == "refused":  # only questions that passed `judge_form` are sent to the verifier
            return item.refusals == ("needed",)
        return bool(item.num_attempts) or item.reason not in ("unfinished", "leaked answer", "invalid")

    return {normalise_answer(item.question) for item in candidates if passed(item)}


def judge_attempts(num_right: int, num_attempts: int) -> DropReason:
    """Reason to drop a question by its attempts; "" if it is solved sometimes, as only such questions give a gradient.

    Attempts with a failed search do not count. With no attempt left the difficulty is unknown: "spoiled".

    judge_attempts(0, 5) == "never solved"; judge_attempts(5, 5) == "always solved"; judge_attempts(2, 5) == ""
    """
    if not num_attempts:
        return "spoiled"  # not "unfinished": a resumed run must know that the question passed `judge_form`
    if num_right == 0:
        return "never solved"
    return "always solved" if num_right == num_attempts else ""


def make_candidate(
    proposed: Proposed, *, step: int, iteration: int, reason: DropReason, num_right: int = 0, num_attempts: int = 0
) -> Candidate:
    """The proposal as a candidate of the curriculum, for the store; `reason` is why it is dropped, "" if it is kept."""
    task, outcome = proposed.episode.task, proposed.episode.outcome
    assert isinstance(task, ProposeTask)
    written = outcome if isinstance(outcome, Proposal) else Proposal("", "")
    score = proposed.score
    return Candidate(
        id=proposed.episode.id,
        step=step,
        iteration=iteration,
        episode_id=proposed.episode.id,
        document_id=task.document.doc_id if task.document else "",
        hops=task.hops,
        question=written.question,
        answer=written.answer,
        num_right=num_right,
        num_attempts=num_attempts,
        reason=reason,
        scores={"format": score.total, "think": score.think, "tool": score.tool, "answer": score.answer},
        aliases=year_aliases(written.question, written.answer),
    )


# -------------------------------------------------------------------------------------------- measures of a curriculum


def measure_verdicts(kept: Sequence[Candidate], curriculum: Sequence[Candidate]) -> dict[str, float]:
    """Metrics of how people's verdicts and added questions changed the curriculum that the run kept.

    measure_verdicts([a, b], [b, c, added])
    -> {"curriculum/questions": 3.0, "curriculum/rejected": 1.0, "curriculum/accepted": 1.0, "curriculum/added": 1.0}
    """
    num_added = sum(candidate.added for candidate in curriculum)
    num_accepted = sum(not candidate.kept for candidate in curriculum)
    num_rejected = len(kept) - (len(curriculum) - num_accepted - num_added)
    return {
        "curriculum/questions": float(len(curriculum)),
        "curriculum/rejected": float(num_rejected),
        "curriculum/accepted": float(num_accepted),
        "curriculum/added": float(num_added),
    }


def measure_overlap(kept: Sequence[Candidate], earlier: Sequence[Candidate]) -> dict[str, float]:
    """The number of kept questions that are new, and the share of kept questions that repeat an earlier one.

    The share is left out if no question was kept. A question repeats another if its words are the same, or if it asks
    for the same answer about the same document.

        measure_overlap([same, other], [same]) -> {"curriculum/new": 1.0, "curriculum/overlap": 0.5}
    """
    known = {key for candidate in earlier for key in _keys(candidate)}
    num_new = sum(known.isdisjoint(_keys(candidate)) for candidate in kept)
    overlap = {"curriculum/overlap": 1 - num_new / len(kept)} if kept else {}
    return {"curriculum/new": float(num_new), **overlap}


def _keys(candidate: Candidate) -> set[tuple[str, ...]]:
    """Keys that a repeated question shares: its words and, if it has a document, the document with the answer."""
    words = {("words", normalise_answer(candidate.question))}
    fact = ("fact", candidate.document_id, normalise_answer(candidate.answer))
    return words | ({fact} if candidate.document_id else set())

"""Curriculum filter: which of the proposer's questions the solver trains on, and why others are dropped."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

from msgspec import Struct

from quaere.records import Candidate, DropReason, Proposal, ProposeTask, Question
from quaere.rewards.answers import normalise_answer, year_aliases
from quaere.rollout.policy import derive_seed
from quaere.training.phases.proposals import Proposed, is_too_long, leaks_answer


def judge_form(proposed: Proposed, seen: set[str], max_words: int = 0) -> DropReason:
    """Reason to drop a question without attempts; "" if it passes. `seen` (normalised questions so far) is extended.

    A question of more than `max_words` words is invalid; 0 means no limit.
    """
    if proposed.episode.search_failed:
        return "unfinished"
    if leaks_answer(proposed):
        return "leaked answer"
    if proposed.question is None or is_too_long(proposed, max_words):
        return "invalid"
    text = normalise_answer(proposed.question.text)
    if text in seen:
        return "duplicate"
    seen.add(text)
    return ""


def remember_questions(candidates: Sequence[Candidate]) -> set[str]:
    """The set `seen` of `judge_form` after these candidates: every question that passed it."""
    return {normalise_answer(item.question) for item in candidates if _was_good_in_form(item)}


def _was_good_in_form(candidate: Candidate) -> bool:
    if candidate.reason == "refused":  # only questions that passed `judge_form` are sent to the verifier
        return candidate.refusals == ("needed",)
    return bool(candidate.num_attempts) or candidate.reason not in ("unfinished", "leaked answer", "invalid")


def judge_attempts(num_right: int, num_attempts: int) -> DropReason:
    """Reason to drop a question by its attempts: only questions that are solved sometimes give a gradient.

    Without an attempt that had no failed search, the difficulty is unknown.

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
    """The stored record of a candidate."""
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


def as_questions(curriculum: Sequence[Candidate]) -> list[Question]:
    """The curriculum as questions."""
    return [item.to_question() for item in curriculum]


def count_steps_with_questions(num_steps: int, num_questions: int, batch: int, max_draws: int) -> int:
    """Number of a phase's steps for which there are whole batches if each question is drawn at most `max_draws` times.

    0 means no limit. It depends on the number of questions alone, so it is the same after a resume.

        count_steps_with_questions(80, num_questions=295, batch=64, max_draws=2) == 9
    """
    if not max_draws:
        return num_steps
    return min(num_steps, max_draws * num_questions // min(batch, num_questions))


class Drawing(Struct, frozen=True):
    """How a phase draws its questions: `batch` a step, of which a share needs several searches.

    Drawing(batch=64, num_steps=26, max_draws=3, several_share=1/3)
    """

    batch: int
    num_steps: int
    max_draws: int = 0
    several_share: float = 0.0


def draw_by_need(questions: Sequence[Question], number: int, drawing: Drawing, seed: int) -> list[Question]:
    """The questions of step `number`: those that need two or more searches and the others have rounds of their own.

    A step takes the share of the former as far as they last: no question is drawn more often than `max_draws` for it.
    """
    several = [question for question in questions if question.searches > 1]
    others = [question for question in questions if question.searches <= 1]
    if not drawing.several_share or not several or not others:
        return draw_questions(questions, number, drawing.batch, seed)
    batch = min(drawing.batch, len(questions))
    rate = several_a_step(len(several), len(others), drawing)
    first, end = math.floor(number * rate), math.floor((number + 1) * rate)
    chosen = _take(several, first, end, derive_seed(seed, "several"))
    return chosen + _take(others, number * batch - first, (number + 1) * batch - end, seed)


def several_a_step(num_several: int, num_others: int, drawing: Drawing) -> Fraction:
    """How many questions of a step need several searches, on average: the share, if both kinds last for all steps.

    It is exact: rounded down to a float, the last step would draw one of the others too often.

    several_a_step(900, 2000, Drawing(batch=60, num_steps=26, max_draws=3, several_share=1/3)) == 20
    several_a_step(52, 2000, Drawing(batch=60, num_steps=26, max_draws=3, several_share=1/3)) == 6
    """
    batch = min(drawing.batch, num_several + num_others)
    if batch == num_several + num_others:
        return Fraction(num_several)
    most, least = Fraction(min(batch, num_several)), Fraction(max(0, batch - num_others))
    if drawing.max_draws and drawing.num_steps:
        most = min(most, Fraction(drawing.max_draws * num_several, drawing.num_steps))
        least = max(least, batch - Fraction(drawing.max_draws * num_others, drawing.num_steps))
    return max(least, min(most, Fraction(drawing.several_share).limit_denominator(1000) * batch))


def draw_questions(questions: Sequence[Question], number: int, batch: int, seed: int) -> list[Question]:
    """The questions of a step, from shuffled rounds over all questions.

    If there are fewer questions than `batch`, a step uses all of them.
    """
    batch = min(batch, len(questions))
    return _take(questions, number * batch, (number + 1) * batch, seed)


def _take(questions: Sequence[Question], first: int, end: int, seed: int) -> list[Question]:
    """The questions at these places of an endless list that holds all of them in one random order after another."""
    places = range(first, end)
    rounds: dict[int, list[Question]] = {}
    for turn in {place // len(questions) for place in places}:
        rounds[turn] = list(questions)
        random.Random(derive_seed(seed, "round", turn)).shuffle(rounds[turn])
    chosen = [rounds[place // len(questions)][place % len(questions)] for place in places]
    return list({question.id: question for question in chosen}.values())  # places in two rounds may hold one twice

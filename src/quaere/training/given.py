"""Questions given to a run before it writes its own; they start the curriculum of its first iteration, or of every one.

    Run.create("runs/notes", "evolve", {}, files=copy_given("checked.jsonl"))
    await take_given(step, training, stage, protocol, limits, seen, attempts=4)

A run keeps a copy of them, so that it can be resumed even if their source has changed or is gone. They are filtered
like a proposer's questions: no duplicates, no leaked answers, not too long; and if the solver attempts candidates, it
attempts these as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from quaere.chat.protocol import Protocol
from quaere.chat.spans import check_evidence
from quaere.errors import BadInput
from quaere.records import Candidate, DropReason, Evidence, Question
from quaere.rewards.answers import normalise_answer
from quaere.rewards.format import contains, find_alternative, gives_away
from quaere.rollout.episode import Limits
from quaere.rollout.question_files import read_questions
from quaere.runs import Run
from quaere.training.phases.attempts import rights
from quaere.training.phases.curriculum_filter import as_questions, judge_attempts
from quaere.training.phases.stage import Stage
from quaere.training.qa_run import encode_questions, read_source
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun

GIVEN = "given.jsonl"
ReadDocument = Callable[[str], str]


def copy_given(source: str) -> dict[str, bytes]:
    """The copy of the questions of this file or run that a run keeps, by file name.

    copy_given("") == {}
    """
    return {GIVEN: encode_questions(read_source(source))} if source else {}


def read_given(store: Run) -> list[Question]:
    """The run's copy of the given questions; [] if it has none."""
    path = store.path / GIVEN
    return read_questions(path) if path.exists() else []


def count_given_steps(source: str, iteration: int, *, again: bool = False) -> int:
    """Number of an iteration's generation steps for given questions: 1 in the first (`again`: in every one), else 0."""
    return int(bool(source) and (again or iteration == 0))


def plan_given(source: str, *, again: bool = False) -> list[tuple[str, str]]:
    """The line of a dry run about given questions; [] if there are none."""
    if not source:
        return []
    which = "every" if again else "the first"
    return [("given questions", f"{len(read_source(source))} join {which} iteration's curriculum")]


async def take_given(
    step: Step,
    training: TrainingRun,
    stage: Stage,
    protocol: Protocol,
    limits: Limits,
    seen: set[str],
    *,
    attempts: int = 0,
    max_words: int = 0,
) -> None:
    """Make a candidate of every given question. With `attempts`, those the solver never or always solves are dropped.

    `seen` is the set of normalised questions so far and is extended. Evidence is kept if it is in the documents
    verbatim; otherwise only its text is kept, as the span.
    """
    questions, read = read_given(training.store), training.read_document
    made = [_make(question, step, seen, max_words, read) for question in questions]
    tried = [candidate for candidate in made if candidate.kept]
    groups = iter(await stage.attempt_questions(step, protocol, as_questions(tried), attempts, limits))
    for candidate in made:
        group = next(groups) if candidate.kept else []
        num_right, reason = int(sum(rights(group))), candidate.reason
        if candidate.kept and attempts:
            reason = judge_attempts(num_right, len(group))
        step.candidates.append(structs.replace(candidate, num_right=num_right, num_attempts=len(group), reason=reason))
    step.metrics["curriculum/given"] = float(len(made))


def _make(
    question: Question, step: Step, seen: set[str], max_words: int, read_document: ReadDocument | None
) -> Candidate:
    told = _find_proof(question)
    evidence = _settle(told, read_document)
    answer, *aliases = (text for text in question.answers if text.strip())
    return Candidate(
        id=f"given-{question.id}" if step.iteration == 0 else f"i{step.iteration}-given-{question.id}",
        step=step.step,
        iteration=step.iteration,
        episode_id="",  # no episode wrote it
        document_id=told.doc_id if told else "",
        hops=question.facts or question.hops,
        question=question.text,
        answer=answer,
        aliases=tuple(aliases),
        reason=_judge(question, seen, max_words),
        scores={"given": 1.0},
        span=told.text if told else "",
        evidence=evidence,
        searches=question.searches,
        proof=question.evidence,
    )


def _find_proof(question: Question) -> Evidence | None:
    """The span that a solver should quote, of one for each fact: the last that contains an answer.

    Without one it is the last, and of a comparison the last about the thing that is the answer.
    """
    holding = [one for one in question.evidence if any(contains(one.text, answer) for answer in question.answers)]
    return next(reversed(holding or _about_answer(question)), None)


def _about_answer(question: Question) -> Sequence[Evidence]:
    """The evidence about the thing that a comparison has as its answer; all of it if there is no such thing.

    Checked questions have a sentence for each fact, in the order in which the question names the two things.
    """
    evidence, half = question.evidence, len(question.evidence) // 2
    sides = (find_alternative(question.text, answer) for answer in question.answers)
    side = next((number for number in sides if number is not None), None)
    if side is None or len(evidence) % 2:
        return evidence
    return evidence[half:] if side else evidence[:half]


def _judge(question: Question, seen: set[str], max_words: int) -> DropReason:
    """Reason to drop a question without attempts; "" if it passes."""
    if any(gives_away(question.text, answer) for answer in question.answers):
        return "leaked answer"
    if max_words and len(question.text.split()) > max_words:
        return "invalid"
    text = normalise_answer(question.text)
    if text in seen:
        return "duplicate"
    seen.add(text)
    return ""


def _settle(evidence: Evidence | None, read_document: ReadDocument | None) -> Evidence | None:
    """The evidence if it is in its document; None if it is not or cannot be checked."""
    if evidence is None or read_document is None:
        return None
    try:
        check_evidence(evidence, read_document(evidence.doc_id))
    except BadInput:
        return None
    return evidence

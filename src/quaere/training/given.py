"""Questions that a run is given before it writes its own: the curriculum of its first iteration begins with them.

    Run.create("runs/notes", "evolve", {}, files=copy_given("checked.jsonl"))
    await take_given(step, training, stage, protocol, limits, seen, attempts=4)

A run keeps a copy of them, so that it can be gone on with whatever has become of where they came from. They are held to
what a proposer's questions are held to: none comes twice, gives its answer away or is too long, and where the solver
attempts candidates it attempts these too.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from quaere.chat.protocol import Protocol
from quaere.chat.spans import check_evidence
from quaere.errors import BadInput
from quaere.records import Candidate, DropReason, Evidence, Question
from quaere.rewards.answers import normalise_answer
from quaere.rewards.format import gives_away
from quaere.rollout.episode import Limits
from quaere.rollout.questions import read_questions
from quaere.runs import Run
from quaere.training.phases.attempts import rights
from quaere.training.phases.curriculum_filter import as_questions, judge_attempts
from quaere.training.phases.stage import Stage
from quaere.training.qa_run import encode_questions, read_source
from quaere.training.training_run import Step, TrainingRun

GIVEN = "given.jsonl"
ReadDocument = Callable[[str], str]


def copy_given(source: str) -> dict[str, bytes]:
    """What a run that begins with the questions of this file or run keeps of them, by the name of the file.

    copy_given("") == {}
    """
    return {GIVEN: encode_questions(read_source(source))} if source else {}


def read_given(store: Run) -> list[Question]:
    """The run's own copy; none if it was given none."""
    path = store.path / GIVEN
    return read_questions(path) if path.exists() else []


def count_given_steps(source: str, iteration: int) -> int:
    """How many steps of an iteration's generation are for given questions: one, in the first."""
    return int(bool(source) and iteration == 0)


def plan_given(source: str) -> list[tuple[str, str]]:
    """What a plan says of them: nothing if there are none."""
    if not source:
        return []
    return [("given questions", f"{len(read_source(source))} join the first iteration's curriculum")]


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
    """Make a candidate of every question. With `attempts`, those the solver never or always solves are dropped.

    `seen` holds the normalised questions so far and grows. Evidence stays where it is letter for letter in the
    documents; of any other the text is kept, as the span.
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
    # Question files have a span a hop, and the answer stands in the last.
    told = question.evidence[-1] if question.evidence else None
    evidence = _settle(told, read_document)
    answer, *aliases = (text for text in question.answers if text.strip())
    return Candidate(
        id=f"given-{question.id}",
        step=step.step,
        iteration=step.iteration,
        episode_id="",  # none has written it
        document_id=told.doc_id if told else "",
        hops=question.facts or question.hops,
        question=question.text,
        answer=answer,
        aliases=tuple(aliases),
        reason=_judge(question, seen, max_words),
        scores={"given": 1.0},
        span=told.text if told else "",
        evidence=evidence,
    )


def _judge(question: Question, seen: set[str], max_words: int) -> DropReason:
    """Why a question is not even tried, or ""."""
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
    """The evidence if it is what its document says; None if it is not, or nobody can tell."""
    if evidence is None or read_document is None:
        return None
    try:
        check_evidence(evidence, read_document(evidence.doc_id))
    except BadInput:
        return None
    return evidence

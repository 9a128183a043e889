"""Abstention: the answer that says that the documents do not answer, and questions that they do not answer.

    is_abstention("Not in these documents.") -> True
    hide_answers(Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)))
    -> Question("q1-hidden", "Who built the Halm bridge?", (), hidden=("Orsolya Venn",))

A policy that is paid 1 for a right answer, `a` for abstaining and 0 for a wrong answer earns most by abstaining where
its chance of a right answer is below `a`.
"""

from msgspec import structs

from quaere.records import Passage, Question
from quaere.rewards.answers import normalise_answer
from quaere.rewards.format import contains

ABSTENTION = "not in these documents"


def is_abstention(text: str) -> bool:
    """True if an answer is the phrase that abstains, in any case and with any punctuation."""
    return normalise_answer(text) == ABSTENTION


def hide_answers(question: Question) -> Question | None:
    """A copy of the question whose searches return no passage with an accepted answer; None if it cannot be hidden.

    "yes", "no" and an answer that the question names (a choice of two things) are in passages that prove nothing.
    """
    answers = question.answers
    if not answers or any(
        normalise_answer(one) in ("", "yes", "no") or contains(question.text, one) for one in answers
    ):
        return None
    return structs.replace(question, id=f"{question.id}-hidden", answers=(), hidden=answers, evidence=(), gold_ids=())


def is_hidden(passage: Passage, question: Question) -> bool:
    """True if the passage contains an answer that is hidden from the question's searches."""
    return any(contains(passage.titled_text, answer) for answer in question.hidden)

"""Abstention: the answer "not in these documents", and questions whose answer is hidden from their searches.

    is_abstention("Not in these documents.") -> True
    hide_answers(Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)))
    -> Question("q1-hidden", "Who built the Halm bridge?", (), hidden=("Orsolya Venn",))

    AbstentionRewards(right=1.0, needless=0.0).of(episode)

In training it is known which questions have no answer, so the reward depends on whether abstaining was right. With the
same reward `a` in both cases, abstaining would be reinforced in every group in which the share of right attempts is
below about `a`. In a group without a right attempt, any `a` above 0 gives the same advantages, because GRPO divides by
the group's standard deviation.
"""

from msgspec import Struct, structs

from quaere.records import Episode, Passage, Question, SolveTask
from quaere.rewards.answers import contains, match_as_written, normalise_answer

ABSTENTION = "not in these documents"
ABSTAINED = "answer/abstained"  # metric: 1 for an episode that counts as an abstention
UNANSWERABLE = "answer/unanswerable"  # metric: 1 for a question without accepted answers, where abstaining is right
HIDDEN_SUFFIX = "-hidden"  # ends the id of a question whose answer is hidden


class AbstentionRewards(Struct, frozen=True):
    """Rewards for abstaining: `right` where the question has no answer, `needless` where it has one.

    AbstentionRewards(right=1.0, needless=0.0)
    """

    right: float = 1.0
    needless: float = 0.0

    def of(self, episode: Episode) -> float:
        """The reward of an episode that abstained; at most 0 if it did not search and so cannot know."""
        assert isinstance(episode.task, SolveTask)
        earned = self.needless if episode.task.question.answers else self.right
        return earned if episode.num_searches else min(0.0, earned)


def is_abstention(text: str) -> bool:
    """True if an answer is the phrase that abstains, in any case and with any punctuation."""
    return normalise_answer(text) == ABSTENTION


def hide_answers(question: Question) -> Question | None:
    """A copy of the question whose searches return no passage with an accepted answer; None if it cannot be hidden.

    "yes", "no" and an answer that the question itself names (a choice of two things) cannot be hidden: many passages
    contain these words without proving the answer.
    """
    answers = question.answers
    if not answers or any(
        normalise_answer(one) in ("", "yes", "no") or contains(question.text, one) for one in answers
    ):
        return None
    return structs.replace(
        question, id=question.id + HIDDEN_SUFFIX, answers=(), hidden=answers, evidence=(), gold_ids=()
    )


def original_id(question_id: str) -> str:
    """The id of the question as it was asked before `hide_answers`: original_id("q1-hidden") == "q1"."""
    return question_id.removesuffix(HIDDEN_SUFFIX)


def has_hidden_answer(question_id: str) -> bool:
    """True for the id of a question that `hide_answers` made."""
    return question_id.endswith(HIDDEN_SUFFIX)


def is_hidden(passage: Passage, question: Question) -> bool:
    """True if the passage contains an answer that is hidden from the question's searches.

    The passage is searched for the normalised answer and for the answer as written: normalisation joins words at
    punctuation, so it misses "1702" in "1702-1760" and "1000" in "size=1000".
    """
    text = passage.titled_text
    return any(contains(text, answer) or match_as_written(answer).search(text) for answer in question.hidden)

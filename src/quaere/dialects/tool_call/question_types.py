"""The five types of question that a proposer may be asked for, each with a line for its prompt.

QUESTION_TYPES["temporal"] -> "Ask when something happened, ..."

The number of hops of a question is drawn independently of its type.
"""

from __future__ import annotations

from typing import Literal, get_args

QuestionType = Literal["factual", "comparison", "causal", "temporal", "aggregation"]

# The arms of the type bandit, in this order: reordering them would change the draws of a seed.
QUESTION_TYPES: dict[str, str] = {
    "factual": "Ask for a single fact: who, what, where or which.",
    "comparison": "Ask which of two named things has more, less or the same of something; the answer is one of them.",
    "causal": "Ask what led to something, or what came of it; the answer names the cause or the outcome.",
    "temporal": "Ask when something happened, how long it took, or which of two events came first.",
    "aggregation": "Ask how many there are of something, or which of all that are listed is the largest or smallest.",
}
TYPE_NAMES: tuple[QuestionType, ...] = get_args(QuestionType)

"""Rewards of a proposer, by Dr. Zero and by EVE, and EVE's reward of a solver.

    Dr. Zero   R = F / 2 + D(k)                                (Eq. 4)
    EVE        R = F / 2 + D(k) + 0.5 V + 0.1 B                (Eq. 16-18)
    solver     R = EM + 0.3 F1(its span, gold span)            (EVE, Eq. 19-21)

A question is attempted n times; k of the attempts are right. The difficulty D is highest for exactly one right attempt
and 0 if all or none are right; an ablation compares with a parabola that peaks at one half. F is the format score
(`format.py`), in which the span has no part; V and B are the verifier value and the brevity of the span.

The functions take counts, texts and flags; sampling and tokenising are done by the caller.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, structs

from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.format import FormatScore

DifficultyShape = Literal["single", "parabola"]

FORMAT_WEIGHT = 0.5


def difficulty_reward(num_right: int, num_attempts: int) -> float:
    """(n - k) / (n - 1) if some but not all attempts are right, else 0 (Dr. Zero, Eq. 4).

    difficulty_reward(1, 5) -> 1.0
    difficulty_reward(3, 5) -> 0.5
    difficulty_reward(5, 5) -> 0.0
    """
    _check(num_right, num_attempts)
    return 0.0 if num_right in (0, num_attempts) else (num_attempts - num_right) / (num_attempts - 1)


def parabola_reward(num_right: int, num_attempts: int) -> float:
    """4 p (1 - p) with p = k / n: highest if half of the attempts are right, 0 if all or none are.

    Dr. Zero's ablation states the peak but no formula; this is the parabola with values in [0, 1].

        parabola_reward(2, 4) -> 1.0
        parabola_reward(1, 4) -> 0.75
    """
    _check(num_right, num_attempts)
    pass_rate = num_right / num_attempts
    return 4 * pass_rate * (1 - pass_rate)


class ProposerReward(Struct, frozen=True):
    """A proposer's reward and its parts, which add up to `total`.

    ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    """

    format: float
    difficulty: float
    total: float


def proposer_reward(
    score: FormatScore,
    num_right: int,
    num_attempts: int,
    *,
    shape: DifficultyShape = "single",
    format_weight: float = FORMAT_WEIGHT,
) -> ProposerReward:
    """Difficulty reward plus half the format score (Dr. Zero, Eq. 4). An invalid proposal gets its format part only.

    `shape="parabola"` and `format_weight=0` are two of Dr. Zero's ablations.

        proposer_reward(FormatScore(1.0, 1.0, 0.5, True, total=0.875), num_right=2, num_attempts=5)
        -> ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    """
    pay = difficulty_reward if shape == "single" else parabola_reward
    difficulty = pay(num_right, num_attempts) * score.valid  # the counts of an invalid proposal are checked, too
    kept = format_weight * score.total
    return ProposerReward(format=kept, difficulty=difficulty, total=kept + difficulty)


def _check(num_right: int, num_attempts: int) -> None:
    if num_attempts < 2:
        raise ValueError(f"the difficulty reward needs at least 2 attempts (num_attempts), not {num_attempts}")
    if not 0 <= num_right <= num_attempts:
        raise ValueError(f"num_right must be from 0 to num_attempts ({num_attempts}), not {num_right}")


# ------------------------------------------------------------------------------------------------------------- evidence


EvidenceCheck = Literal["none", "zero_value", "invalid"]

VALUE_WEIGHT = 0.5
BREVITY_WEIGHT = 0.1
BREVITY_TOKENS = 256
SPAN_WEIGHT = 0.3


def brevity_score(num_tokens: int, limit: int = BREVITY_TOKENS) -> float:
    """max(0, 1 - |e| / 256), with |e| the span's length in the proposer's tokens (Eq. 15). An empty span scores 1.

    brevity_score(64) -> 0.75
    """
    if num_tokens < 0:
        raise ValueError(f"num_tokens must be 0 or more, not {num_tokens}")
    return max(0.0, 1 - num_tokens / limit)


class TripleReward(ProposerReward, frozen=True):
    """A proposer's reward for question, answer and span, with its weighted parts, which add up to `total`.

    TripleReward(format=0.5, difficulty=0.75, total=1.575, value=0.25, brevity=0.075)
    """

    value: float
    brevity: float


def triple_reward(
    score: FormatScore,
    num_right: int,
    num_attempts: int,
    *,
    value: float,
    num_span_tokens: int,
    is_verbatim: bool,
    evidence_check: EvidenceCheck = "zero_value",
    value_weight: float = VALUE_WEIGHT,
    brevity_weight: float = BREVITY_WEIGHT,
    brevity_tokens: int = BREVITY_TOKENS,
    shape: DifficultyShape = "single",
    format_weight: float = FORMAT_WEIGHT,
) -> TripleReward:
    """Dr. Zero's reward plus, for a valid proposal, the value and brevity of its span (Eq. 16).

    `is_verbatim` says that the span is not empty and occurs in a text the proposer was shown. `evidence_check` decides
    about a span that is not verbatim: "none" rewards it like any other; "zero_value" sets its value and brevity to 0,
    also where they are negative; "invalid" makes the proposal invalid, so that it earns only the format part. With both
    weights 0 the total equals Dr. Zero's to the bit, unless "invalid" removed the difficulty reward.

        triple_reward(FormatScore(1.0, 1.0, 1.0, True, 1.0), 2, 5, value=0.5, num_span_tokens=64, is_verbatim=True)
        -> TripleReward(format=0.5, difficulty=0.75, total=1.575, value=0.25, brevity=0.075)
    """
    if not -1 <= value <= 1:
        raise ValueError(f"the value of a span must be in [-1, 1], not {value}")
    brevity = brevity_score(num_span_tokens, brevity_tokens)
    if evidence_check == "invalid" and not is_verbatim:
        score = structs.replace(score, valid=False)
    asked = proposer_reward(score, num_right, num_attempts, shape=shape, format_weight=format_weight)
    earns = score.valid and (is_verbatim or evidence_check == "none")
    value_part, brevity_part = (value_weight * value, brevity_weight * brevity) if earns else (0.0, 0.0)
    total = asked.total + value_part + brevity_part
    return TripleReward(asked.format, asked.difficulty, total, value_part, brevity_part)


class SolverReward(Struct, frozen=True):
    """A solver's reward for its answer and its span; the weighted parts add up to `total`.

    SolverReward(answer=1.0, span=0.15, total=1.15)
    """

    answer: float
    span: float
    total: float


def cited_answer_reward(
    answer: str, accepted: Iterable[str], span: str, gold_span: str, *, span_weight: float = SPAN_WEIGHT
) -> SolverReward:
    """Exact match plus 0.3 times the token F1 between the solver's span and the proposer's (Eq. 19-21).

    A span that normalises to "" earns 0, even if the gold span does too: otherwise a proposer without evidence would
    teach the solver to give none.

        cited_answer_reward("Venn", ["Venn"], "Venn built it.", "It was Venn.") -> SolverReward(1.0, 0.2, 1.2)
    """
    paid_answer, paid_span = exact_match_score(answer, accepted), span_weight * f1_score(span, [gold_span])
    return SolverReward(answer=paid_answer, span=paid_span, total=paid_answer + paid_span)

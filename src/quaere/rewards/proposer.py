"""Rewards of a proposer, by Dr. Zero and by EVE, and EVE's reward of a solver.

    format     F = (1 + think + tool + answer) / 4             (EVE, Eq. 9 and its appendix D)
    Dr. Zero   R = F / 2 + D(k)                                (Eq. 4)
    EVE        R = F / 2 + D(k) + 0.5 V + 0.1 B                (Eq. 16-18)
    solver     R = EM + 0.3 F1(its span, gold span)            (EVE, Eq. 19-21)

F is 0 if question or answer is missing. Dr. Zero's paper names its parts but gives no formula. Its released code uses
the one above with two differences (`format_rule="released"`): a question that contains its own answer scores 0, where
EVE gives the full score; and a question of several hops written without any search scores 0 in the tool part, where EVE
gives 1 / hops.

A question is attempted n times; k of the attempts are right. The difficulty D is highest for exactly one right attempt
and 0 if all or none are right; an ablation compares with a parabola that peaks at one half. If a right attempt counts
only when it made as many searches as the question needs, k is the number of those; right attempts with fewer searches
(`num_easy`) count neither as right nor as wrong. V is the verifier's value of the span and B its brevity; the span does
not influence F.

The functions take counts, texts and flags; reading episodes, sampling and tokenising are done by the caller.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.rewards.answers import Containment, contains, f1_score, gives_away, normalise_answer

InvalidRule = Literal["text", "algorithm"]
FormatRule = Literal["released", "eve"]
DifficultyShape = Literal["single", "parabola"]

SHORT_WORDS = 5
LONG_WORDS = 10
FORMAT_WEIGHT = 0.5

# -------------------------------------------------------------------------------------------------------------- format


class FormatScore(Struct, frozen=True):
    """The parts of the format reward, each in [0, 1], and their total.

    `valid` says whether the solver attempts the question: an invalid proposal earns its format reward only. `leaked`
    says that it is invalid because the question contains its answer.

        FormatScore(think=1.0, tool=1.0, answer=0.5, valid=True, total=0.875)
    """

    think: float
    tool: float
    answer: float
    valid: bool
    total: float
    leaked: bool = False


def format_score(
    *,
    question: str,
    answer: str,
    hops: int,
    num_turns: int,
    num_planned_turns: int,
    num_valid_calls: int,
    num_responses: int,
    sources: Sequence[str],
    format_rule: FormatRule = "eve",
    invalid_rule: InvalidRule = "text",
    containment: Containment = "words",
    choices: bool = True,
) -> FormatScore:
    """The format score of a proposal. A missing question or answer is given as "".

    `sources` are the document the proposer was given and all responses it got. An answer that normalises to "" counts
    as missing, because no attempt can match it. `invalid_rule` decides about a question that contains its own answer:
    "text" makes it invalid (EVE's text), "algorithm" does not (EVE's algorithm). With `choices`, one of two
    alternatives to choose from does not count as contained. `format_rule` selects the formula (see the module's
    docstring).

        format_score(question="Who built it?", answer="Orsolya Venn", hops=2, num_turns=2, num_planned_turns=1,
                     num_valid_calls=1, num_responses=1, sources=["Orsolya Venn built it."])
        -> FormatScore(think=0.5, tool=1.0, answer=1.0, valid=True, total=0.875)
    """
    think = think_score(num_turns, num_planned_turns)
    tool = tool_score(hops, num_valid_calls, num_responses, format_rule=format_rule)
    if not normalise_answer(question) or not normalise_answer(answer):
        return FormatScore(think=think, tool=tool, answer=0.0, valid=False, total=0.0)
    support = answer_score(answer, sources, containment=containment)
    leaks = (gives_away if choices else contains)(question, answer, containment=containment)
    leaked = leaks and invalid_rule == "text"
    total = 0.0 if leaks and format_rule == "released" else (1 + think + tool + support) / 4
    return FormatScore(think=think, tool=tool, answer=support, valid=not leaked, total=total, leaked=leaked)


def think_score(num_turns: int, num_planned_turns: int) -> float:
    """Share of the policy's turns that open with a plan.

    think_score(num_turns=4, num_planned_turns=3) -> 0.75
    """
    if not 0 <= num_planned_turns <= num_turns:
        raise ValueError(f"num_planned_turns must be from 0 to num_turns ({num_turns}), not {num_planned_turns}")
    return num_planned_turns / max(1, num_turns)


def tool_score(hops: int, num_valid_calls: int, num_responses: int, *, format_rule: FormatRule = "eve") -> float:
    """min((1 + calls) / hops, 1): whether the proposer searched as often as its hops need.

    One hop needs no search and scores 1. If calls and responses differ in number, the score is 0. Several hops without
    any search score 1 / hops by EVE's rule and 0 by the released one.

        tool_score(hops=3, num_valid_calls=1, num_responses=1) -> 0.667
        tool_score(hops=3, num_valid_calls=0, num_responses=0) -> 0.333; 0.0 with format_rule="released"
    """
    if hops < 1:
        raise ValueError(f"hops must be at least 1, not {hops}")
    if num_valid_calls < 0 or num_responses < 0:
        raise ValueError(f"counts must be 0 or more: got {num_valid_calls} calls and {num_responses} responses")
    if hops == 1:
        return 1.0
    if num_valid_calls != num_responses or (format_rule == "released" and not num_valid_calls):
        return 0.0
    return min((1 + num_valid_calls) / hops, 1.0)


def answer_score(answer: str, sources: Sequence[str], *, containment: Containment = "words") -> float:
    """1 for yes, no, or up to 5 words found in a source; 0.5 for 6 to 10 words found in a source; else 0.

    Each source is searched separately, so that no answer matches across the border of two.

        answer_score("Orsolya Venn", ["The bridge was built by Orsolya Venn."]) -> 1.0
    """
    normalised = normalise_answer(answer)
    if normalised in ("yes", "no"):
        return 1.0
    num_words = len(normalised.split())
    if num_words > LONG_WORDS or not any(contains(source, answer, containment=containment) for source in sources):
        return 0.0
    return 1.0 if num_words <= SHORT_WORDS else 0.5


# ---------------------------------------------------------------------------------------------------------- difficulty


def difficulty_reward(num_right: int, num_attempts: int, num_easy: int = 0) -> float:
    """(n - k) / (n - 1) if some but not all attempts are right, else 0 (Dr. Zero, Eq. 4).

    Of n - k attempts, `num_easy` were right with too few searches: only the wrong ones make a question hard.

        difficulty_reward(1, 5) -> 1.0
        difficulty_reward(3, 5) -> 0.5
        difficulty_reward(5, 5) -> 0.0
        difficulty_reward(1, 5, num_easy=2) -> 0.5
    """
    _check(num_right, num_attempts, num_easy)
    return (num_attempts - num_right - num_easy) / (num_attempts - 1) if num_right else 0.0


def parabola_reward(num_right: int, num_attempts: int, num_easy: int = 0) -> float:
    """4 p (1 - p) with p = k / n: highest if half of the attempts are right, 0 if all or none are.

    Dr. Zero's ablation states the peak but no formula; this is the parabola with values in [0, 1]. With `num_easy`,
    1 - p is the share of wrong attempts.

        parabola_reward(2, 4) -> 1.0
        parabola_reward(1, 4) -> 0.75
        parabola_reward(1, 4, num_easy=1) -> 0.5
    """
    _check(num_right, num_attempts, num_easy)
    return 4 * (num_right / num_attempts) * (1 - (num_right + num_easy) / num_attempts)


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
    num_easy: int = 0,
    shape: DifficultyShape = "single",
    format_weight: float = FORMAT_WEIGHT,
) -> ProposerReward:
    """Difficulty reward plus half the format score (Dr. Zero, Eq. 4). An invalid proposal gets its format part only.

    `shape="parabola"` and `format_weight=0` are two of Dr. Zero's ablations.

        proposer_reward(FormatScore(1.0, 1.0, 0.5, True, total=0.875), num_right=2, num_attempts=5)
        -> ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    """
    pay = difficulty_reward if shape == "single" else parabola_reward
    difficulty = (
        pay(num_right, num_attempts, num_easy) * score.valid
    )  # the counts of an invalid proposal are checked, too
    kept = format_weight * score.total
    return ProposerReward(format=kept, difficulty=difficulty, total=kept + difficulty)


def _check(num_right: int, num_attempts: int, num_easy: int) -> None:
    if num_attempts < 2:
        raise ValueError(f"the difficulty reward needs at least 2 attempts (num_attempts), not {num_attempts}")
    if not (num_easy >= 0 and 0 <= num_right <= num_attempts - num_easy):
        raise ValueError(
            f"num_right and num_easy must be from 0 to num_attempts ({num_attempts}) together, not {num_right} and "
            f"{num_easy}"
        )


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
    num_easy: int = 0,
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
    asked = proposer_reward(score, num_right, num_attempts, num_easy=num_easy, shape=shape, format_weight=format_weight)
    earns = score.valid and (is_verbatim or evidence_check == "none")
    value_part, brevity_part = (value_weight * value, brevity_weight * brevity) if earns else (0.0, 0.0)
    total = asked.total + value_part + brevity_part
    return TripleReward(asked.format, asked.difficulty, total, value_part, brevity_part)


def span_reward(span: str, gold_span: str, weight: float = SPAN_WEIGHT) -> float:
    """0.3 times the token F1 between the solver's span and the proposer's; added to the answer's reward (Eq. 19-21).

    A span that normalises to "" earns 0, even if the gold span does too: otherwise a proposer without evidence would
    teach the solver to give none.

        span_reward("Venn built it.", "It was Venn.") -> 0.2
    """
    return weight * f1_score(span, [gold_span])

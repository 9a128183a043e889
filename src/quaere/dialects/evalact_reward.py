"""EvalAct's reward, the token factors of its advantages (PCAR), and the calibration of the policy's own scores.

    find_pairs(episode) -> [Pair(score=9.0, spans=((212, 240), (391, 420)), turn=0)]
    measure_evaluations(episodes) -> {"evaluate/per_search": 0.9, "evaluate/score": 6.2, "evaluate/auroc": 0.71, ...}

A pair is a search and its evaluation; the environment's reply between the two turns belongs to neither span. A search
was good if it returned evidence of the question that no earlier search of the episode had: `value_searches` of
`rewards/self_evaluation.py`.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from quaere.chat.protocol import was_searched
from quaere.dialects.evalact import BadScore, EvaluateSolver, ThinkBeforeEvaluate, format_fault
from quaere.dialects.roles import (
    AnswerScore,
    Credit,
    DialectSettings,
    Remarks,
    Solver,
    SolverDialect,
    SolverOptions,
    SolverTurns,
    read_outcome,
    think,
    write_call,
)
from quaere.errors import BadInput
from quaere.grouping import grouped
from quaere.objectives.pcar import BASE, EPSILON, FLOOR, MAX_SCORE, MOST, pcar_factors
from quaere.records import Episode, Evaluate, Passage, Question, SolveTask, Turn
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.self_evaluation import (
    auroc,
    auroc_within,
    brier_reward,
    expected_calibration_error,
    gated_f1_reward,
    is_good,
    value_searches,
)
from quaere.rollout.episode import Limits
from quaere.rollout.policy import derive_seed
from quaere.setting_types import NonNegativeFloat, PositiveFraction

# The tokens of a pair: its two calls with the thoughts before them (with_think), or the calls alone (search_eval).
PairSegment = Literal["with_think", "search_eval"]
# The scores that PCAR uses: the policy's own, or 10 for a good search and 0 for a bad one.
ScoreSource = Literal["own", "oracle"]

Span = tuple[int, int]


class EvaluationSettings(DialectSettings, frozen=True, forbid_unknown_fields=True):
    """Settings of self-evaluated searches and their reward; every ablation of EvalAct is one value.

        EvaluationSettings(base=0.2, most=1.0, floor=0.01)  # the strongest PCAR of the paper; 0.05 and 0.25: weak

    Attributes:
        pcar: Scale the advantages of each search's and its evaluation's tokens by the score given; false: all tokens
            count alike. [EvalAct, Eq. 6 to 8]
        base: Strength of PCAR at score 0. [EvalAct, Eq. 7]
        most: Strength of PCAR at score 10. [EvalAct, Eq. 7]
        floor: Least factor, so that an advantage keeps its sign. [EvalAct, Eq. 8]
        epsilon: Added to the standard deviation of an episode's scores; with 1, scores that hardly differ change the
            factors less. [EvalAct, Eq. 6; Quaere]
        scores: For experiments: PCAR by the policy's scores (own), or by 10 for a good search and 0 for a bad one, by
            the question's evidence (oracle). [Quaere]
        permuted: The control of PCAR: the scores of an episode in random order. [Quaere]
        brier: Weight w of a proper scoring rule: the tokens of an evaluation also get the advantage of the reward
            -w * (score / 10 - y)**2, where y is 1 for a good search and 0 for a bad one; 0: none. [Quaere]
        segment: Tokens that a score applies to; with_think: both calls with the thoughts before them; search_eval: the
            calls alone. [EvalAct]
        bad_score: A score off the scale breaks the format (format_fail), or is replaced by the nearest valid one
            (clamp). [EvalAct]
        think_before_evaluate: Thoughts between a search and its evaluation are allowed (allow), or break the format
            (fail). [EvalAct]
    """

    pcar: bool = True
    base: NonNegativeFloat = BASE
    most: NonNegativeFloat = MOST
    floor: PositiveFraction = FLOOR  # at or below 0 an advantage could vanish or change its sign
    epsilon: NonNegativeFloat = EPSILON
    scores: ScoreSource = "own"
    permuted: bool = False
    brier: NonNegativeFloat = 0.0
    segment: PairSegment = "with_think"
    bad_score: BadScore = "format_fail"
    think_before_evaluate: ThinkBeforeEvaluate = "allow"

    def check(self, section: str = "evaluation") -> None:
        """Raise `BadInput` for values out of bounds, in conflict or without effect; `section` prefixes names."""
        super().check(section)
        if self.base > self.most:
            raise BadInput(f"{section}.base must be at most {section}.most ({self.most:g}), not {self.base:g}")
        changed = [f"scores={self.scores}"] * (self.scores != "own") + ["permuted=true"] * self.permuted
        if changed and not self.pcar:
            raise BadInput(
                f"{section}.{changed[0]} has no effect without PCAR, the only use of the scores in training",
                hint=f"--set {section}.pcar=true",
            )


DEFAULT = EvaluationSettings()


# --------------------------------------------------------------------------------------------------- reward and weights


class Pair(Struct, frozen=True):
    """A search and the policy's score of it: `spans` are the tokens `[start, end)` of both turns in the episode.

    `turn` is the index of the search among the episode's turns; the evaluation is the next turn. An episode that a
    text endpoint sampled has no tokens, and its pairs have no spans.

        Pair(score=9.0, spans=((212, 240), (391, 420)), turn=0)
    """

    score: float
    spans: tuple[Span, ...]
    turn: int


def find_pairs(episode: Episode, segment: PairSegment = "with_think") -> list[Pair]:
    """Every executed search that the next turn evaluates, in order."""
    return [
        Pair(after.action.score, tuple(_span(one, segment) for one in (turn, after) if episode.segments), place)
        for place, (turn, after) in enumerate(pairwise(episode.turns))
        if was_searched(turn) and isinstance(after.action, Evaluate)
    ]


def _span(turn: Turn, segment: PairSegment) -> Span:
    start = max(turn.start, turn.acts_at) if segment == "search_eval" else turn.start
    return start, turn.start + turn.num_tokens


def pay_evaluated(
    episode: Episode, score: AnswerScore = "f1", settings: EvaluationSettings = DEFAULT
) -> dict[str, float]:
    """The reward and its components: F1 if the format held, else 0 (EvalAct, Eq. 4)."""
    answer, accepted = read_outcome(episode)
    fault = format_fault(episode.turns, episode.end, think_before_evaluate=settings.think_before_evaluate)
    exact = exact_match_score(answer, accepted)
    reward = gated_f1_reward(answer, accepted, fault) if score == "f1" else exact * (not fault)
    paid = {
        "answer/exact_match": exact,
        "answer/f1": f1_score(answer, accepted),
        "reward/answer": reward,
        "reward/total": reward,
        "format/held": float(not fault),
    }
    scores = [pair.score for pair in find_pairs(episode)]
    return paid | ({"evaluate/mean_score": sum(scores) / len(scores)} if scores else {})


def weigh_pairs(episode: Episode, settings: EvaluationSettings = DEFAULT) -> list[float]:
    """A factor per token for its advantage, from the scores of its searches (PCAR); 1 outside of pairs."""
    scores = _pair_scores(episode, settings)
    how = {name: getattr(settings, name) for name in ("base", "most", "floor", "epsilon")}
    return token_factors(episode, pcar_factors(scores, **how), settings.segment)


def _pair_scores(episode: Episode, settings: EvaluationSettings) -> list[float]:
    """The scores of the pairs as the settings say; all 0 (every factor is then 1) if the oracle knows no evidence."""
    pairs = find_pairs(episode)
    scores = [pair.score for pair in pairs]
    if settings.scores == "oracle":
        good = judge_searches(episode)
        scores = [MAX_SCORE * good.get(pair.turn, False) for pair in pairs]
    if settings.permuted:
        random.Random(derive_seed(episode.seed, "permuted")).shuffle(scores)
    return scores


def credit_scores(episodes: Sequence[Episode], settings: EvaluationSettings) -> list[list[Credit]]:
    """Advantages of the tokens of evaluations: the Brier reward of each, minus its mean over the batch.

    The mean is over the evaluations of equally good searches: what a search returned is known before it is scored, so
    the baseline may depend on it. Evaluations of searches that cannot be judged get no advantage.
    """
    rated: list[tuple[int, Pair, bool, float]] = []
    for number, episode in enumerate(episodes):
        good = judge_searches(episode)
        for pair in find_pairs(episode, settings.segment):
            if pair.turn in good:
                label = good[pair.turn]
                rated.append((number, pair, label, brier_reward(pair.score / MAX_SCORE, label, settings.brier)))
    rewards = grouped((label, reward) for _, _, label, reward in rated)
    means = {label: sum(values) / len(values) for label, values in rewards.items()}
    credits: list[list[Credit]] = [[] for _ in episodes]
    for number, pair, label, reward in rated:
        for start, end in pair.spans[1:]:  # the first span is that of the search
            credits[number].append(Credit(start, end, reward - means[label]))
    return credits


def token_factors(episode: Episode, factors: Sequence[float], segment: PairSegment = "with_think") -> list[float]:
    """One factor per token of the episode: the factor of its pair inside the pair's spans, 1 elsewhere.

    token_factors(episode, [1.5]) -> [1.0, 1.0, 1.5, 1.5, 1.0, 1.5, 1.0]
    """
    found = [1.0] * len(episode.token_ids)
    for pair, factor in zip(find_pairs(episode, segment), factors, strict=True):
        for start, end in pair.spans:
            found[start:end] = [factor] * (end - start)
    return found


# --------------------------------------------------------------------------------------------------------- calibration


class ScoredSearch(Struct, frozen=True):
    """A search with the policy's score of it; `number` counts the evaluated searches of its episode from 0.

    ScoredSearch(score=9.0, good=True, number=0)
    """

    score: float
    good: bool
    number: int


def judge_scores(episode: Episode) -> list[ScoredSearch]:
    """The scored searches of an episode whose quality is known.

    judge_scores(episode) -> [ScoredSearch(score=9.0, good=True, number=0), ...]
    """
    good = judge_searches(episode)
    return [
        ScoredSearch(pair.score, good[pair.turn], number)
        for number, pair in enumerate(find_pairs(episode))
        if pair.turn in good
    ]


def measure_evaluations(episodes: Sequence[Episode]) -> dict[str, float]:
    """Metrics of the policy's scores and their calibration, without those that cannot be computed.

    `per_search` is the share of searches evaluated in the next turn. `constant` is the share of episodes with two or
    more evaluations whose scores are all equal. `ece` and `brier`, the mean squared error, read score / 10 as the
    probability that the search was good. `auroc_turn` compares only first searches with first ones, second with second
    ones and so on: later searches of an episode are worse, which a judge could know without reading.
    """
    scores = [[pair.score for pair in find_pairs(episode)] for episode in episodes]
    num_searches = sum(was_searched(turn) for episode in episodes for turn in episode.turns)
    judged = [one for episode in episodes for one in judge_scores(episode)]
    said, good = [one.score for one in judged], [one.good for one in judged]
    measured = {
        "per_search": sum(map(len, scores)) / num_searches if num_searches else None,
        "score": _mean([score for found in scores for score in found]),
        "constant": _mean([float(len(set(found)) == 1) for found in scores if len(found) >= 2]),
        "good": _mean([float(label) for label in good]),
        "auroc": auroc(said, good),
        "auroc_turn": auroc_within(said, good, [one.number for one in judged]),
        "ece": expected_calibration_error([score / MAX_SCORE for score in said], good),
        "brier": _mean([-brier_reward(one.score / MAX_SCORE, one.good) for one in judged]),
    }
    return {f"evaluate/{name}": value for name, value in measured.items() if value is not None}


def judge_searches(episode: Episode) -> dict[int, bool]:
    """For each search of an episode, by turn index, whether it was good; {} without evidence or an answer to look for.

    judge_searches(episode) -> {0: True, 2: False}
    """
    return {place: is_good(value) for place, value in value_episode(episode).items()}


def value_episode(
    episode: Episode, value: Callable[[Question, Sequence[Sequence[Passage]]], list[int]] = value_searches
) -> dict[int, int]:
    """For each search of an episode, by turn index, its value by `value`; {} if nothing is known to judge it by.

    value_episode(episode) -> {0: 8, 2: 1, 4: 10}
    """
    assert isinstance(episode.task, SolveTask)
    shown = {
        place: [hit.passage for result in turn.results for hit in result.hits]
        for place, turn in enumerate(episode.turns)
        if was_searched(turn)
    }
    values = value(episode.task.question, list(shown.values()))
    return dict(zip(shown, values, strict=True)) if values else {}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# ------------------------------------------------------------------------------------------------------------- dialect


class _EvalActTurns(SolverTurns):
    """A demonstrated solver that evaluates every search.

    _EvalActTurns().evaluation("", "Passage 2 names her.", 9)
    -> '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "Passage 2 names her.", "score": 9}}</tool_call>'
    """

    remarks: Remarks = "turn"

    def search(self, thought: str, query: str, note: str = "") -> str:
        return think(thought) + write_call("search", {"query": query})

    def evaluation(self, thought: str, text: str, score: int) -> str:
        return (think(thought) if thought else "") + write_call("evaluate", {"evaluation": text, "score": score})

    def find_fault(self, episode: Episode) -> str:
        return format_fault(episode.turns, episode.end)


def open_solver(options: SolverOptions) -> Solver:
    """EvalAct's solver: the reward is F1, 0 if the format is broken; the model's scores of its searches scale the
    advantages of their tokens (PCAR).
    """
    settings = options.settings
    assert isinstance(settings, EvaluationSettings)
    protocol = EvaluateSolver(
        **options.prompts, bad_score=settings.bad_score, think_before_evaluate=settings.think_before_evaluate
    )
    pay = partial(pay_evaluated, score=options.score, settings=settings)
    weigh = partial(weigh_pairs, settings=settings) if settings.pcar else None
    credit = partial(credit_scores, settings=settings) if settings.brier else None
    return Solver(protocol, pay, weigh, measure_evaluations, gated=True, credit=credit)


SOLVER = SolverDialect(
    open_solver,
    score="f1",
    # Twenty searches, twenty evaluations, the answer, and one spare turn.
    limits=Limits(max_turns=42, max_searches=20, sequence_tokens=16384),
    turns=("search", "evaluate", "answer"),
    demonstration=_EvalActTurns(),
    settings=EvaluationSettings,
)

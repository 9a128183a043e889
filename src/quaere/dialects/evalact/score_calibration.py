"""Calibration of the scores that a policy gives its own searches, against what the searches returned.

A search was good if a passage it returned contains an accepted answer. If the question lists its evidence hop by hop, a
search was also good if it returned the sentence of the next hop: the first one that no earlier search of the episode
had found.

    measure_evaluations(episodes) -> {"evaluate/per_search": 0.9, "evaluate/score": 6.2, "evaluate/auroc": 0.71, ...}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quaere.chat.protocol import was_searched
from quaere.dialects.evalact.pairs import find_pairs
from quaere.objectives.pcar import MAX_SCORE
from quaere.records import Episode, Evidence, Passage, Question, SolveTask, Turn
from quaere.rewards.answers import normalise_answer
from quaere.rewards.calibration import auroc, expected_calibration_error
from quaere.rewards.format import contains


def measure_evaluations(episodes: Sequence[Episode]) -> dict[str, float]:
    """Metrics of the policy's scores and their calibration, without those that cannot be computed.

    `per_search` is the share of searches evaluated in the next turn. `constant` is the share of episodes with two or
    more evaluations whose scores are all equal. `ece` reads score / 10 as the probability that the search was good.
    """
    pairs = [find_pairs(episode) for episode in episodes]
    scores = [[pair.score for pair in found] for found in pairs]
    num_searches = sum(was_searched(turn) for episode in episodes for turn in episode.turns)
    several = [found for found in scores if len(found) >= 2]
    verdicts = [judge_searches(episode) for episode in episodes]
    judged = [
        (pair.score, verdict[pair.turn])
        for found, verdict in zip(pairs, verdicts, strict=True)
        for pair in found
        if pair.turn in verdict
    ]
    said, good = [score for score, _ in judged], [label for _, label in judged]
    measured = {
        "per_search": sum(map(len, pairs)) / num_searches if num_searches else None,
        "score": _mean([score for found in scores for score in found]),
        "constant": _mean([float(len(set(found)) == 1) for found in several]),
        "good": _mean([float(label) for label in good]),
        "auroc": auroc(said, good),
        "ece": expected_calibration_error([score / MAX_SCORE for score in said], good),
    }
    return {f"evaluate/{name}": value for name, value in measured.items() if value is not None}


def judge_searches(episode: Episode) -> dict[int, bool]:
    """For each search of an episode, by turn index, whether it was good; empty if the question cannot tell.

    judge_searches(episode) -> {0: True, 2: False}
    """
    assert isinstance(episode.task, SolveTask)
    question = episode.task.question
    answers = _telling_answers(question)
    missing = list(question.evidence)
    if not answers and not missing:
        return {}
    verdicts = {}
    for place, turn in enumerate(episode.turns):
        if not was_searched(turn):
            continue
        passages, next_hop = _returned(turn), missing[0] if missing else None
        found = [span for span in missing if any(_covers(passage, span) for passage in passages)]
        verdicts[place] = _holds_any(passages, answers) or next_hop in found
        missing = [span for span in missing if span not in found]
    return verdicts


def _telling_answers(question: Question) -> list[str]:
    """The accepted answers without yes and no, which occur in almost any text and so prove nothing."""
    return [answer for answer in question.answers if normalise_answer(answer) not in ("yes", "no")]


def _returned(turn: Turn) -> list[Passage]:
    return [hit.passage for result in turn.results for hit in result.hits]


def _holds_any(passages: Iterable[Passage], answers: Sequence[str]) -> bool:
    """True if one of the passages contains one of the answers.

    Passages are checked one by one, so that no match spans two of them.
    """
    # Passages are checked one by one, so that no match spans two of them.
    return any(contains(passage.titled_text, answer) for passage in passages for answer in answers)


def _covers(passage: Passage, span: Evidence) -> bool:
    return passage.doc_id == span.doc_id and passage.start <= span.start and span.end <= passage.end


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

"""Raw rewards of the selector: one per question written, from its form and the run's mean rewards.

score = run_score(proposer_reward=1.3, solver_reward=0.4, how="clip")     # 0.85
rewards = raw_rewards(samples, score)                                      # one for each sample
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Literal

import numpy as np
from msgspec import Struct

from quaere.dialects.tool_call_prompts import QuestionType
from quaere.runs import Run
from quaere.runs.phases import PHASES
from quaere.training.selector.bandits import Floats

RunScore = Literal["clip", "rescale"]

# Ranges of EVE's rewards with its default weights: F/2 + R + 0.5 V + 0.1 B, and EM + 0.3 F1.
PROPOSER_RANGE = (-0.5, 2.1)
SOLVER_RANGE = (0.0, 1.3)


class Choice(Struct, frozen=True):
    """A proposer's assignment: passage number in the index, the pulled cluster, and a question type.

    Choice(passage=17, cluster=3, question_type="causal")
    """

    passage: int
    cluster: int
    question_type: QuestionType


class Pulled(Struct, frozen=True):
    """A question with its answer, and the arms that led to it.

    Pulled(cluster=3, question_type="factual", question="Who built the bridge at Halmgate?", answer="Orsolya Venn")
    """

    cluster: int
    question_type: str
    question: str
    answer: str


def judge_quality(question: str, answer: str, num_copies: int) -> float:
    """Quality of a sample's form in [0, 1], from its lengths in characters and the number of copies of its question.

    judge_quality("Who built the bridge at Halmgate?", "Orsolya Venn", num_copies=4) -> 1 * 1 / sqrt(4) = 0.5
    judge_quality("Who?", "", num_copies=1) -> 0.65 * 0.55
    """
    length = 1.0 if 20 <= len(question) <= 220 else 0.65
    brevity = 1.0 if 1 <= len(answer) <= 80 else 0.55
    return length * brevity / sqrt(max(num_copies, 1))


def run_score(
    proposer_reward: float,
    solver_reward: float,
    how: RunScore = "clip",
    *,
    proposer_range: tuple[float, float] = PROPOSER_RANGE,
    solver_range: tuple[float, float] = SOLVER_RANGE,
) -> float:
    """Score of an iteration in [0, 1]: the average of both roles' last mean rewards.

    These rewards can leave [0, 1]: "clip" clips their average; "rescale" maps each role's range to [0, 1] first.

        run_score(1.5, 0.9, "clip") -> 1.0
        run_score(0.8, 0.65, "rescale") -> (1.3 / 2.6 + 0.65 / 1.3) / 2 = 0.5
    """
    if not (isfinite(proposer_reward) and isfinite(solver_reward)):
        raise ValueError(f"mean rewards must be finite, not {proposer_reward} and {solver_reward}")
    if how == "rescale":
        proposer_reward = _rescale(proposer_reward, *proposer_range)
        solver_reward = _rescale(solver_reward, *solver_range)
    return min(max((proposer_reward + solver_reward) / 2, 0.0), 1.0)


def _rescale(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


def raw_rewards(samples: Sequence[Pulled], score: float) -> Floats:
    """Raw reward of each sample: the run's score times the sample's quality.

    raw_rewards([sample, sample], score=0.8) -> [0.8 / sqrt(2), 0.8 / sqrt(2)], as each is a copy of the other
    """
    copies = Counter(sample.question for sample in samples)
    qualities = [judge_quality(sample.question, sample.answer, copies[sample.question]) for sample in samples]
    return score * np.array(qualities, dtype=np.float64)


def pulled_questions(store: Run, iteration: int) -> list[Pulled]:
    """The questions that reward the selector's arms: the kept ones."""
    return [
        Pulled(item.cluster, item.question_type, item.question, item.answer)
        for item in store.candidates(iteration=iteration, kept=True)
        if item.cluster >= 0
    ]


def last_reward(store: Run, iteration: int, phase: str) -> float:
    """The mean reward in the last step of a phase; 0 if the phase has no step."""
    iterations, phases = (
        {metric.step: metric.value for metric in store.metrics(f"run/{name}")} for name in ("iteration", "phase")
    )
    place = (iteration, PHASES.index(phase))
    rewards = store.metrics("reward/mean")
    found = [metric.value for metric in rewards if (iterations[metric.step], phases[metric.step]) == place]
    return found[-1] if found else 0.0
